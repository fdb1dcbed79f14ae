"""What the guarded resource's log and the faults say of operations and holds of killed clients."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from lockbench.checker.check import check
from lockbench.history.columns import History
from lockbench.history.joining import with_applied, with_deaths
from lockbench.history.jsonl import read_jsonl, write_jsonl
from lockbench.history.layout import COMPLETED, COMPLETED_OFFSET, HEADER_BYTES, RECORD
from lockbench.history.lines import UnreadableHistory
from lockbench.history.op import NULL, F, Fault, Object, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER, Recorder
from lockbench.history.recording import read_recording, write_faults, write_meta
from tests.checker.scenes import Scene, ns
from tests.history.killed import record_and_die


def log_of(*entries: tuple[F, str, float, int, int]) -> History:
    """A resource's log: kind, hold, time applied, version named and version found or made."""
    scene = Scene()
    for f, hold, at, version, value in entries:
        named = None if f is F.READ else version
        scene.op(f, 0, at, at, hold=hold, applied_ns=ns(at), version=named, value=value)
    return scene.history()


def frozen_writer() -> Scene:
    """Client 1 asks for a write at 8, long after its lease; it never learns what became of it."""
    scene = Scene().acquire(1, 0, 1, until=5, hold="a").read(1, 1.5, 0, hold="a")
    scene.acquire(2, 2, 6, until=12, hold="b").read(2, 6.5, 0, hold="b")
    scene.write(2, 6.6, 0, 1, hold="b").release(2, 7, 7.1, hold="b")
    return scene.op(F.WRITE, 1, 8, None, "info", hold="a", version=0)


def results(history: History) -> dict[str, str]:
    return {name: verdict.result for name, verdict in check(history).verdicts.items()}


LOG = ((F.READ, "a", 1.5, 0, 0), (F.READ, "b", 6.5, 0, 0), (F.WRITE, "b", 6.6, 0, 1))


def test_an_unanswered_write_that_was_applied_is_stale_and_loses_an_update() -> None:
    history = frozen_writer().history()
    assert results(history)["stale-holder"] == "valid"
    assert results(history)["lost-update"] == "valid"
    joined = with_applied(history, log_of(*LOG, (F.WRITE, "a", 8.25, 0, 2)))
    row = int(joined.applied_ns.argmax())
    assert joined.applied_ns[row] == ns(8.25)
    assert joined.value[row] == 2
    # Its client knows no more than before.
    assert joined.type[row] == Type.INFO
    assert joined.complete_ns[row] == NULL
    report = check(joined)
    assert report.verdicts["stale-holder"].result == "invalid"
    assert "applied at 8.25" in report.verdicts["stale-holder"].reason
    assert report.verdicts["lost-update"].result == "invalid"
    assert report.measurements["fencing"]["unfenced"]["stale_applied"] == 1  # type: ignore[index]


def test_an_unanswered_write_that_the_log_does_not_show_was_not_applied() -> None:
    history = frozen_writer().history()
    joined = with_applied(history, log_of(*LOG))
    assert results(joined) == results(history)
    assert with_applied(history, log_of()) is history


@pytest.mark.parametrize(
    "other",
    [
        (F.WRITE, "b", 8.25, 0, 2),  # somebody else's
        (F.WRITE, "a", 7.75, 0, 2),  # before it was asked for
        (F.WRITE, "a", 8.25, 1, 2),  # on another version
        (F.READ, "a", 8.25, 0, 2),
    ],
)
def test_an_entry_of_another_operation_is_not_taken_for_it(
    other: tuple[F, str, float, int, int],
) -> None:
    history = frozen_writer().history()
    assert results(with_applied(history, log_of(*LOG, other))) == results(history)


def test_an_entry_whose_reply_came_is_not_taken_twice() -> None:
    """Two writes of one hold on one version: one answered, one not, one entry in the log."""
    scene = frozen_writer().write(1, 9, 0, 2, hold="a")
    history = scene.history()
    applied = int(history.applied_ns.max())
    joined = with_applied(history, log_of(*LOG, (F.WRITE, "a", applied / 1e9, 0, 2)))
    assert joined.applied_ns.tolist() == history.applied_ns.tolist()


def test_what_was_joined_survives_the_interchange_format(tmp_path: Path) -> None:
    joined = with_applied(frozen_writer().history(), log_of(*LOG, (F.WRITE, "a", 8.25, 0, 2)))
    write_jsonl(joined, tmp_path / "h.jsonl")
    assert results(read_jsonl(tmp_path / "h.jsonl")) == results(joined)


def killed(scene: Scene, at: float, worker: int) -> History:
    scene.fault("client-kill", at, at + 0.1, worker=worker)
    return with_deaths(scene.history())


def of_worker(worker: int, number: int = 0) -> int:
    return worker * PROCESSES_PER_WORKER + number


def test_a_killed_worker_promises_nothing_any_more() -> None:
    def scene() -> Scene:
        # No lease: without a death the promise would never end.
        made = Scene().acquire(of_worker(1), 0, 1, hold="a")
        return made.acquire(of_worker(2), 0, 4, hold="b").release(of_worker(2), 5, 6, hold="b")

    assert results(scene().history())["double-grant"] == "invalid"
    assert results(killed(scene(), 3, worker=2))["double-grant"] == "invalid"
    joined = killed(scene(), 3, worker=1)
    assert results(joined)["double-grant"] == "valid"
    assert results(joined)["linearizable"] == "valid"
    assert joined.f.tolist().count(F.DEATH) == 1
    # Killed too late to excuse the second grant.
    assert results(killed(scene(), 4.5, worker=1))["double-grant"] == "invalid"


def test_only_holds_that_were_there_die() -> None:
    scene = Scene().acquire(of_worker(1), 0, 1, hold="a").release(of_worker(1), 2, 3, hold="a")
    scene.acquire(of_worker(1, 1), 4, None, "info", hold="b")
    scene.acquire(of_worker(1, 2), 8, 9, hold="c")
    history = killed(scene, 6, worker=1)
    assert F.DEATH not in history.f.tolist()


def test_faults_that_kill_nobody_end_nothing() -> None:
    scene = Scene().acquire(of_worker(1), 0, 1, hold="a").fault("client-pause", 2, 3, worker=1)
    history = scene.fault("kill", 2, 3, targets=("redis-1",)).history()
    assert with_deaths(history) is history


def record(folder: Path) -> None:
    write_meta(folder, {"k0": Object()}, wall_minus_monotonic_ns=0)


def test_a_worker_that_was_killed_in_the_middle_of_a_write(tmp_path: Path) -> None:
    """A real process, really killed; the resource's log beside its recording."""
    record_and_die(
        tmp_path,
        """
        process = recorder.new_process()
        acquire = recorder.invoke(process, F.ACQUIRE, "k0", hold=7, invoke_ns=100)
        recorder.complete(acquire, Type.OK, valid_until_ns=1000, complete_ns=110)
        read = recorder.invoke(process, F.READ, "k0", hold=7, invoke_ns=120)
        recorder.complete(read, Type.OK, value=0, applied_ns=125, complete_ns=130)
        recorder.invoke(process, F.WRITE, "k0", hold=7, version=0, invoke_ns=140)
        """,
    )
    with closing(Recorder(tmp_path, 2)) as other:
        process = other.new_process()
        acquire = other.invoke(process, F.ACQUIRE, "k0", hold=8, invoke_ns=150)
        other.complete(acquire, Type.OK, valid_until_ns=2000, complete_ns=300)
    with closing(Recorder(tmp_path / "resource", 2000)) as log:
        for f, version, value, at in ((F.READ, NULL, 0, 125), (F.WRITE, 0, 1, 400)):
            entry = log.invoke(0, f, "k0", hold=7, version=version, invoke_ns=at)
            log.complete(entry, Type.OK, value=value, applied_ns=at, complete_ns=at)
    record(tmp_path)
    write_faults(
        tmp_path, [Fault("client-kill", ("worker-1",), (200, 210), None, (), {"worker": 1})]
    )
    history = read_recording(tmp_path)
    found = results(history)
    # Without the death the second grant, at 300, would lie inside the first lease.
    assert found["double-grant"] == "valid"
    # The write was still under way when its client died, and landed after the second grant.
    assert found["stale-holder"] == "invalid"


def test_a_record_torn_while_it_was_completed_is_open(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 1)
    buffer, at = recorder.invoke(1, F.ACQUIRE, "k0", hold=7, invoke_ns=100)
    COMPLETED.pack_into(buffer, at + COMPLETED_OFFSET, 200, NULL, 5, NULL, 900, NULL)
    recorder.close()
    record(tmp_path)
    history = read_recording(tmp_path)
    assert history.type.tolist() == [Type.INFO]
    for name in ("complete_ns", "fence", "valid_until_ns"):
        assert getattr(history, name).tolist() == [NULL], name


def test_a_segment_that_was_only_begun_is_empty(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path, 1)) as recorder:
        recorder.complete(recorder.invoke(1, F.ACQUIRE, "k0", hold=7), Type.OK)
    (tmp_path / "1.1.ops").write_bytes(bytes(HEADER_BYTES + 10 * RECORD.itemsize))
    (tmp_path / "2.0.ops").write_bytes(b"")
    record(tmp_path)
    assert len(read_recording(tmp_path)) == 1


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "1.1.ops").unlink(), r"1\.1\.ops is missing"),
        (lambda folder: (folder / "1.strings").unlink(), "does not have"),
        (
            lambda folder: (folder / "1.2.ops").write_bytes(
                (folder / "1.2.ops").read_bytes()[:-50]
            ),
            "in the middle of a record",
        ),
        (
            lambda folder: (folder / "1.0.ops").write_bytes(
                bytes(4) + (folder / "1.0.ops").read_bytes()[4:]
            ),
            "not a recorded segment",
        ),
        (lambda folder: (folder / "1.x.ops").write_bytes(b""), "not named"),
    ],
)
def test_a_damaged_recording_is_never_a_shorter_history(
    tmp_path: Path, damage: object, said: str
) -> None:
    with closing(Recorder(tmp_path, 1, segment_records=4)) as recorder:
        for number in range(10):
            handle = recorder.invoke(1, F.ACQUIRE, "k0", hold=number)
            recorder.complete(handle, Type.OK)
    record(tmp_path)
    assert callable(damage)
    damage(tmp_path)
    with pytest.raises(UnreadableHistory, match=said):
        read_recording(tmp_path)
