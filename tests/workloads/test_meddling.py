"""Who stops the workers of a load is found out; the nemesis, who does the same, is not accused."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from lockbench.bench.outside import Outside, Watch, as_faults
from lockbench.checker.outside import OUTSIDE
from lockbench.history.columns import History
from lockbench.history.op import Fault
from lockbench.workloads.fleet import Fleet
from tests.eventually import eventually, one_of
from tests.workloads import unsafe
from tests.workloads.playing import WORKERS, play

STALL_S = 1.0


class NoCluster:
    """One that runs in no containers."""


def looked_at(folder: Path, meddle: Callable[[Fleet], None]) -> tuple[list[Outside], History]:
    """A whole load without a cluster, and what was found while ``meddle`` did something to it."""
    found: list[Outside] = []

    def meanwhile(fleet: Fleet, begin_ns: int) -> Sequence[Fault]:
        eventually(lambda: time.monotonic_ns() > begin_ns)
        cluster: Any = NoCluster()
        with Watch(fleet, cluster, WORKERS, STALL_S) as looking:
            meddle(fleet)
            # Ticks that come after it, also on a busy machine.
            after_ns = time.monotonic_ns()
            eventually(lambda: all(fleet.ticked_ns(w) > after_ns for w in (1, 2)))
        found.extend(looking.found())
        return as_faults(found, begin_ns)

    lock = f"{unsafe.__file__}:OneAtATime"
    played = play(folder, "mutex", lock=lock, contended_s=6.0, meanwhile=meanwhile)
    return found, played.history


def names(found: list[Outside]) -> set[str]:
    return {one.who for one in found}


def of_workers(fleet: Fleet) -> list[psutil.Process]:
    return [psutil.Process(one.pid) for one in fleet.members() if one.worker is not None]


@pytest.mark.slow
def test_a_load_whose_workers_were_stopped_is_found_out(tmp_path: Path) -> None:
    def meddle(fleet: Fleet) -> None:
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for process in of_workers(fleet):
                process.send_signal(number)
            if number == signal.SIGSTOP:
                time.sleep(1.5)

    workers = {"worker-0", "worker-1", "worker-2"}
    found, history = one_of(
        lambda number: looked_at(tmp_path / str(number), meddle),
        lambda looked: names(looked[0]) == workers,
    )
    assert names(found) == workers
    assert all("was stopped from outside for" in one.what for one in found)
    assert {fault.name for fault in history.faults} == {OUTSIDE}


@pytest.mark.slow
def test_a_load_whose_workers_the_nemesis_freezes_and_kills_is_not_accused(tmp_path: Path) -> None:
    def meddle(fleet: Fleet) -> None:
        fleet.freeze([0, 1, 2])
        time.sleep(1.5)
        fleet.thaw([0, 1, 2])
        fleet.kill([0])

    found, _ = one_of(
        lambda number: looked_at(tmp_path / str(number), meddle), lambda looked: not looked[0]
    )
    assert found == []
