"""Recorder and reader: what was written comes back, also from a process that was killed."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lockbench.history import recording
from lockbench.history.edn import read_edn, write_edn
from lockbench.history.jsonl import read_jsonl, write_jsonl
from lockbench.history.layout import HEADER_BYTES, RECORD
from lockbench.history.lines import UnreadableHistory
from lockbench.history.op import NULL, F, Fault, Object, Type
from lockbench.history.recorder import Recorder
from lockbench.history.recording import read_recording, write_faults, write_meta
from tests.history.killed import record_and_die


def meta(folder: Path) -> None:
    write_meta(folder, {"k0": Object(role="contended")}, wall_minus_monotonic_ns=5)


def test_a_number_of_a_job_has_63_bits(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path, 1)) as recorder:
        number = 2**63 - 1
        handle = recorder.invoke(recorder.new_process(), F.EFFECT, "k0", version=number)
        recorder.complete(handle, Type.OK)
    meta(tmp_path)
    history = read_recording(tmp_path)
    assert history.version.tolist() == [number]
    write_jsonl(history, tmp_path / "h.jsonl")
    write_edn(history, tmp_path / "h.edn")
    assert read_jsonl(tmp_path / "h.jsonl").version.tolist() == [number]
    assert read_edn(tmp_path / "h.edn").version.tolist() == [number]


def test_every_field_comes_back(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path, 3)) as recorder:
        process = recorder.new_process()
        handle = recorder.invoke(
            process,
            F.WRITE,
            "k0",
            hold=7,
            version=41,
            owner=9,
            old=4,
            intended_ns=90,
            invoke_ns=100,
        )
        recorder.complete(
            handle,
            Type.OK,
            value=42,
            fence=17,
            sent_ns=101,
            valid_until_ns=5000,
            applied_ns=150,
            complete_ns=200,
        )
    meta(tmp_path)
    history = read_recording(tmp_path)
    assert len(history) == 1
    expected = {
        "process": 3 << 20,
        "f": F.WRITE,
        "type": Type.OK,
        "invoke_ns": 100,
        "intended_ns": 90,
        "complete_ns": 200,
        "hold": 7,
        "value": 42,
        "old": 4,
        "version": 41,
        "fence": 17,
        "sent_ns": 101,
        "valid_until_ns": 5000,
        "applied_ns": 150,
        "owner": 9,
    }
    assert {name: int(getattr(history, name)[0]) for name in expected} == expected
    assert history.keys[history.key[0]] == "k0"
    assert history.object_of("k0").role == "contended"


def test_workers_are_merged_in_order_and_their_strings_translated(tmp_path: Path) -> None:
    first, second = Recorder(tmp_path, 1), Recorder(tmp_path, 2)
    for recorder, key, at in ((second, "b", 10), (first, "a", 20), (second, "a", 30)):
        handle = recorder.invoke(recorder.new_process(), F.ACQUIRE, key, invoke_ns=at)
        recorder.complete(handle, Type.FAIL, error=f"held by {at}", complete_ns=at + 1)
    first.close()
    second.close()
    meta(tmp_path)
    history = read_recording(tmp_path)
    assert [history.keys[k] for k in history.key] == ["b", "a", "a"]
    assert [history.errors[e] for e in history.error] == ["held by 10", "held by 20", "held by 30"]


def test_an_info_has_no_completion_and_absent_columns_are_null(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path, 1)) as recorder:
        handle = recorder.invoke(1, F.RELEASE, "k0", hold=5)
        recorder.complete(handle, Type.INFO, error="timeout")
    meta(tmp_path)
    history = read_recording(tmp_path)
    assert history.complete_ns[0] == NULL
    assert history.fence[0] == NULL
    assert history.hold[0] == 5


def test_segments_roll_over(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path, 1, segment_records=4)) as recorder:
        handles = [recorder.invoke(1, F.ACQUIRE, "k0", hold=n, invoke_ns=n + 1) for n in range(10)]
        # Completed after their segments were left.
        for handle in handles:
            recorder.complete(handle, Type.OK)
    meta(tmp_path)
    history = read_recording(tmp_path)
    assert list(history.hold) == list(range(10))
    assert set(history.type.tolist()) == {int(Type.OK)}
    last = tmp_path / "1.2.ops"
    assert last.stat().st_size == HEADER_BYTES + 2 * RECORD.itemsize


@pytest.mark.parametrize("whole", [0, 1])
def test_a_full_disk_is_an_error_and_leaves_what_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    """Whether the first segment finds no room or a later one."""
    recorder = Recorder(tmp_path, 1, segment_records=1)
    for n in range(whole):
        recorder.complete(recorder.invoke(1, F.ACQUIRE, "k", hold=n), Type.OK)

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            recorder.invoke(1, F.ACQUIRE, "k", hold=9)
    recorder.close()
    assert len(list(tmp_path.glob("*.ops"))) == whole
    if whole:
        meta(tmp_path)
        assert read_recording(tmp_path).hold.tolist() == [0]


def test_a_killed_writer_leaves_at_most_the_open_operation(tmp_path: Path) -> None:
    record_and_die(
        tmp_path,
        """
        for n in range(1000):
            handle = recorder.invoke(1, F.ACQUIRE, "k0", hold=n)
            if n < 999:
                recorder.complete(handle, Type.OK)
        """,
    )
    meta(tmp_path)
    history = read_recording(tmp_path)
    assert len(history) == 1000
    assert history.type.tolist() == [int(Type.OK)] * 999 + [int(Type.INFO)]


def test_it_is_read_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker records a new key between any two of the reader's reads."""
    with closing(Recorder(tmp_path, 0)) as recorder:
        write_meta(tmp_path, {}, wall_minus_monotonic_ns=0)
        new_keys = (f"k{number}" for number in itertools.count())

        def record(opened: Callable[..., object]) -> Callable[..., object]:
            def then(*args: object, **words: object) -> object:
                try:
                    return opened(*args, **words)
                finally:
                    recorder.complete(recorder.invoke(0, F.ACQUIRE, next(new_keys)), Type.OK)

            return then

        next(new_keys)
        recorder.invoke(0, F.ACQUIRE, "k0")
        for name in ("open_file", "read_bytes"):
            monkeypatch.setattr(recording, name, record(getattr(recording, name)))
        history = read_recording(tmp_path)
    assert len(history.key) > 0
    assert all(history.keys[key].startswith("k") for key in history.key)


def test_faults_come_back(tmp_path: Path) -> None:
    meta(tmp_path)
    fault = Fault("pause", ("etcd-1",), (1, 2), (3, 4), ("proven",), {"proven": True})
    endless = Fault("cut", (), (5, 6), None)
    write_faults(tmp_path, [fault, endless])
    assert read_recording(tmp_path).faults == (fault, endless)


def test_text_that_is_none_is_recorded_all_the_same(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path, 1)) as recorder:
        for text in ("\udcff", "\\udcff", "\U0001f512\u2028\x85", '"\n'):
            handle = recorder.invoke(1, F.ACQUIRE, "k0")
            recorder.complete(handle, Type.FAIL, error=text)
    write_meta(tmp_path, {"k\ud800": Object()}, wall_minus_monotonic_ns=0)
    write_faults(tmp_path, [Fault("pause", ("\udcff",), (1, 2), None, (), {"said": "\ud800 x"})])
    history = read_recording(tmp_path)
    assert [history.errors[e] for e in history.error] == [
        "\\udcff", "\\udcff", "\U0001f512\u2028\x85", '"\n'
    ]  # fmt: skip
    assert list(history.objects) == ["k\\ud800"]
    assert history.faults[0].targets == ("\\udcff",)
    assert history.faults[0].facts == {"said": "\\ud800 x"}


def test_process_numbers_are_never_given_twice(tmp_path: Path) -> None:
    numbers = []
    for worker in range(3):
        with closing(Recorder(tmp_path, worker)) as recorder:
            numbers += [recorder.new_process(), recorder.new_process()]
    assert len(set(numbers)) == 6


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("meta.json", b"{", "meta.json"),
        ("1.0.ops", b"noise" * 100, "not a recorded segment"),
        ("faults.jsonl", b'{"f": "pause"}\n', "faults.jsonl:1"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    with closing(Recorder(tmp_path, 1)) as recorder:
        recorder.invoke(1, F.ACQUIRE, "k0")
    meta(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableHistory, match=said):
        read_recording(tmp_path)
