"""A recording whose workers were on several machines: whose clock each row is on, what is missing,
and what can then still be said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockbench.checker.check import check
from lockbench.history.jsonl import read_jsonl, write_jsonl
from lockbench.history.lines import UnreadableHistory
from lockbench.history.op import F, Fault, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER, Recorder
from lockbench.history.recording import (
    read_recording,
    write_came_back,
    write_faults,
    write_meta,
)
from lockbench.workloads.worker_process import record_deaths

MS = 1_000_000
AHEAD_NS = 5_000_000 * MS  # of machine a
MACHINES = {"a": (3, 4)}

# Acquire, release, both in milliseconds of the resource's clock.
Hold = tuple[float, float]


class Worker:
    """Records holds as a worker does whose clock is ahead."""

    def __init__(self, folder: Path, number: int, ahead_ns: int = 0) -> None:
        self.recorder = Recorder(folder, number, segment_records=4)
        self.process = self.recorder.new_process()
        self.ahead_ns = ahead_ns

    def hold(self, at: Hold, *, released: bool = True) -> None:
        begin, end = (int(ms * MS) for ms in at)
        hold = begin + self.process
        self._op(F.ACQUIRE, begin - MS, begin, hold)
        for when in (begin + MS // 2, end - MS // 2):
            self._op(F.READ, when, when + MS // 10, hold, applied_ns=when + MS // 20, value=1)
        if released:
            self._op(F.RELEASE, end, end + MS, hold)

    def _op(self, f: F, invoke: int, complete: int, hold: int, **answer: Any) -> None:
        handle = self.recorder.invoke(
            self.process, f, "k0", hold=hold, invoke_ns=invoke + self.ahead_ns
        )
        self.recorder.complete(handle, Type.OK, complete_ns=complete + self.ahead_ns, **answer)


def recorded(
    folder: Path, here: Sequence[Hold], there: Sequence[Hold], *, jump_ns: int = 0
) -> dict[str, int]:
    """Segments that came back, with their bytes. ``jump_ns``: of the clock of machine a, after its
    first hold."""
    write_meta(folder, {}, wall_minus_monotonic_ns=0, ended=False, machines=MACHINES)
    write_faults(folder, [])
    worker = Worker(folder, 1)
    for hold in here:
        worker.hold(hold)
    worker.recorder.close()
    worker = Worker(folder, 3, AHEAD_NS)
    for number, hold in enumerate(there):
        worker.ahead_ns += jump_ns if number == 1 else 0
        worker.hold(hold)
    worker.recorder.close()
    return {path.name: path.stat().st_size for path in folder.glob("3.*.ops")}


APART = [(10.0, 20.0), (50.0, 60.0)], [(30.0, 40.0), (70.0, 80.0)]
OVERLAPPING = [(10.0, 20.0), (50.0, 60.0)], [(30.0, 40.0), (55.0, 65.0)]


def result(folder: Path, verdict: str = "double-grant") -> str:
    return check(read_recording(folder)).verdicts[verdict].result


def test_each_row_is_on_the_clock_of_its_workers_machine(tmp_path: Path) -> None:
    write_sizes = recorded(tmp_path, *APART)
    write_came_back(tmp_path, "a", write_sizes)
    history = read_recording(tmp_path)
    assert history.machines == ("a",)
    assert history.missing == ()
    assert history.machine is not None
    worker = history.process // PROCESSES_PER_WORKER
    assert np.array_equal(history.machine, np.where(worker == 3, 0, -1))
    assert np.all(history.invoke_ns[worker == 3] > AHEAD_NS)
    assert result(tmp_path) == "valid"
    assert result(tmp_path, "linearizable") == "valid"


def test_two_holds_at_once_on_two_machines_are_found(tmp_path: Path) -> None:
    write_came_back(tmp_path, "a", recorded(tmp_path, *OVERLAPPING))
    assert result(tmp_path) == "invalid"


def test_nothing_is_called_valid_where_a_recording_did_not_come_back(tmp_path: Path) -> None:
    recorded(tmp_path, *APART)
    history = read_recording(tmp_path)
    assert history.missing == ("a",)
    verdicts = check(history).verdicts
    assert {verdict.result for verdict in verdicts.values()} == {"unknown"}
    assert verdicts["double-grant"].reason.startswith("a's recording did not come back; ")


def test_what_overlaps_stands_where_a_recording_did_not_come_back(tmp_path: Path) -> None:
    recorded(tmp_path, *OVERLAPPING)
    verdicts = check(read_recording(tmp_path)).verdicts
    assert verdicts["double-grant"].result == "invalid"
    assert verdicts["double-grant"].reason.endswith("; a's recording did not come back")
    assert verdicts["linearizable"].result == "unknown", "what is missing may explain it"


def test_the_torn_end_of_a_recording_that_did_not_come_back_is_dropped(tmp_path: Path) -> None:
    sizes = recorded(tmp_path, *OVERLAPPING)
    for name in sizes:
        path = tmp_path / name
        path.write_bytes(path.read_bytes() + b"\x01" * 50)
    verdicts = check(read_recording(tmp_path)).verdicts
    assert verdicts["double-grant"].result == "invalid"
    write_came_back(tmp_path, "a", {name: size + 50 for name, size in sizes.items()})
    with pytest.raises(UnreadableHistory, match="in the middle of a record"):
        read_recording(tmp_path)


def test_a_segment_that_is_gone_is_not_made_up_for(tmp_path: Path) -> None:
    """Where it had come back, the files were damaged; else what came before it is all there is."""
    sizes = recorded(tmp_path, *APART)
    assert len(sizes) == 2
    write_came_back(tmp_path, "a", sizes)
    (tmp_path / "3.1.ops").unlink()
    with pytest.raises(UnreadableHistory, match=r"3\.1\.ops: not what came back from machine a"):
        read_recording(tmp_path)
    again = tmp_path / "again"
    again.mkdir()
    recorded(again, *APART)
    (again / "3.0.ops").unlink()
    history = read_recording(again)
    assert not np.any(history.process // PROCESSES_PER_WORKER == 3)
    assert history.missing == ("a",)


def test_a_shorter_segment_is_not_what_came_back(tmp_path: Path) -> None:
    sizes = recorded(tmp_path, *APART)
    write_came_back(tmp_path, "a", sizes)
    whole = (tmp_path / "3.1.ops").read_bytes()
    (tmp_path / "3.1.ops").write_bytes(whole[:-112])
    with pytest.raises(UnreadableHistory, match="not what came back"):
        read_recording(tmp_path)


@pytest.mark.parametrize(("ms", "found"), [(-200, "unknown"), (300, "unknown"), (0, "valid")])
def test_a_clock_that_contradicts_itself_voids(tmp_path: Path, ms: int, found: str) -> None:
    """Back by more than a use of the resource lasts; and forth, which would hide or make holds."""
    write_came_back(tmp_path, "a", recorded(tmp_path, *APART, jump_ns=ms * MS))
    verdicts = check(read_recording(tmp_path)).verdicts
    assert verdicts["double-grant"].result == found
    if ms:
        assert "machine a's clock contradicts itself at" in verdicts["double-grant"].reason
        assert "invalid" not in {verdict.result for verdict in verdicts.values()}


def test_a_lost_machines_holds_end_with_the_last_that_is_known_of_them(tmp_path: Path) -> None:
    """It may have let go right afterwards. What it held before is known to have been held."""
    write_meta(tmp_path, {}, wall_minus_monotonic_ns=0, ended=False, machines=MACHINES)
    write_faults(tmp_path, [])
    there = Worker(tmp_path, 3, AHEAD_NS)
    there.hold((30.0, 40.0), released=False)
    there.recorder.close()
    record_deaths(tmp_path, 3)
    here = Worker(tmp_path, 1)
    here.hold((45.0, 60.0))
    here.recorder.close()
    history = read_recording(tmp_path)
    died = history.f == F.DEATH
    assert history.invoke_ns[died].tolist() == [AHEAD_NS + int(39.5 * MS)]
    assert result(tmp_path) == "unknown", "no overlap with what may have ended"


def test_a_lost_machines_hold_that_certainly_lasted_is_held_against_the_lock(
    tmp_path: Path,
) -> None:
    write_meta(tmp_path, {}, wall_minus_monotonic_ns=0, ended=False, machines=MACHINES)
    write_faults(tmp_path, [])
    there = Worker(tmp_path, 3, AHEAD_NS)
    there.hold((30.0, 40.0), released=False)
    there.recorder.close()
    record_deaths(tmp_path, 3)
    here = Worker(tmp_path, 1)
    here.hold((35.0, 60.0))
    here.recorder.close()
    assert result(tmp_path) == "invalid"


def test_a_fault_here_says_nothing_of_when_a_worker_there_died(tmp_path: Path) -> None:
    """Its time is on another clock; the agent records deaths by its own."""
    sizes = recorded(tmp_path, *APART)
    write_came_back(tmp_path, "a", sizes)
    killed = Fault(
        name="client-kill",
        targets=("worker-3",),
        begin_ns=(1, 2),
        heal_ns=None,
        facts={"worker": 3, "killed": True},
    )
    write_faults(tmp_path, [killed])
    assert not np.any(read_recording(tmp_path).f == F.DEATH)


def test_the_interchange_format_says_what_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    recorded(folder, *APART)
    history = read_recording(folder)
    file = tmp_path / "h.jsonl"
    write_jsonl(history, file)
    again = read_jsonl(file)
    assert again.missing == ("a",)
    assert check(again).verdicts["double-grant"].result == "unknown"
