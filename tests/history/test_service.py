"""The record of a service as it is stored beside a recording: read back as it was, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockbench.history.lines import UnreadableHistory
from lockbench.history.recording import read_recording, write_meta
from lockbench.history.service import SERVICE, Service, Tenure, write_service

ENDED = Tenure("redis-1", "k0", 31, 2, 2, 9, "deleted", (10, 20))
WAITED = Tenure("etcd", "k 1", 2**62, 5, None, 7, "session", None)
STANDING = Tenure("redis-1 after wipe 1", "k0", 1, 3, 3, None, None, (-5, 5))
LOST = Tenure("redis-1", "k0", 7, 11, 11, None, "lost", None)
KEPT = Service("etcd's revisions", 2, None, (ENDED, WAITED, STANDING, LOST))

HEAD = {"service": 1, "record": "a record", "quorum": 1, "partial": None}
LINE = {"log": "a", "key": "k", "hold": "1f", "made": 1, "begun": 2, "ended": 3, "how": "deleted"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_meta(tmp_path, {}, wall_minus_monotonic_ns=0)
    return tmp_path


def test_what_was_written_is_read_back(folder: Path) -> None:
    write_service(folder, KEPT)
    assert read_recording(folder).service == KEPT


def test_without_the_file_nothing_is_said(folder: Path) -> None:
    assert read_recording(folder).service is None


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"hold": "zz"}, "hold: Expected str matching"),
        ({"hold": "f" * 16}, "out of range"),
        ({"hold": None}, "hold: Expected str"),
        ({"made": None}, "made: Expected int"),
        ({"made": True}, "made: Expected int, got bool"),
        ({"made": 2**64}, "made: Expected int <"),
        ({"begun": 0}, "before it was made"),
        ({"begun": 4}, "ended before it began"),
        ({"how": "evicted"}, "evicted"),
        ({"how": None}, "how does not fit"),
        ({"ended": None}, "how does not fit"),
        ({"until_ns": [2, 1]}, "ends before it begins"),
        ({"until_ns": [2]}, "until_ns: Expected array of length 2"),
        ({"until_ns": [1.5, 2]}, "Expected int, got float"),
        ({"log": 3}, "log: Expected str, got int"),
    ],
)
def test_a_garbled_tenure_is_refused_with_its_line(
    folder: Path, changed: dict[str, object], what: str
) -> None:
    lines = [HEAD, LINE, {**LINE, **changed}]
    (folder / SERVICE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UnreadableHistory, match=rf"service\.jsonl:3: .*{what}"):
        read_recording(folder)


@pytest.mark.parametrize(
    "head", [{}, [], {**HEAD, "service": 2}, {**HEAD, "quorum": 0}, {**HEAD, "record": None}]
)
def test_a_garbled_head_is_refused(folder: Path, head: object) -> None:
    (folder / SERVICE).write_text(json.dumps(head) + "\n" + json.dumps(LINE) + "\n")
    with pytest.raises(UnreadableHistory, match=r"service\.jsonl:1: "):
        read_recording(folder)


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_torn_file_is_refused(folder: Path, cut: int) -> None:
    write_service(folder, KEPT)
    whole = (folder / SERVICE).read_bytes()
    (folder / SERVICE).write_bytes(whole[: -cut - 1])
    with pytest.raises(UnreadableHistory, match=r"service\.jsonl:5: "):
        read_recording(folder)


def test_an_empty_file_is_refused(folder: Path) -> None:
    (folder / SERVICE).write_bytes(b"")
    with pytest.raises(UnreadableHistory, match=r"service\.jsonl:1: "):
        read_recording(folder)
