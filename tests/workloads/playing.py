"""A whole load (resource, Locust's master, workers, victim) without a cluster: against a Redis that
lives in the test, or with a lock that needs no server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from lockbench.history.columns import History
from lockbench.history.op import Fault
from lockbench.history.recording import read_recording, write_faults, write_meta
from lockbench.locks.registry import find
from lockbench.results.numbers import Phases as Spans
from lockbench.workloads.audit import audit
from lockbench.workloads.fleet import Fleet
from lockbench.workloads.fork_server import Child, ForkServer
from lockbench.workloads.load import Load, Pace, Phases

WORKERS = 2
AT_ONCE = 4  # a load mostly waits
S = 1_000_000_000


class OneByOne(ForkServer):
    """May be asked by several threads."""

    def spawn(self, module: str, environment: dict[str, str], log: Path) -> Child:
        with ASKING:
            return super().spawn(module, environment, log)


ASKING = threading.Lock()


@cache
def fork_server() -> ForkServer:
    """One for all tests of a session (``conftest.py`` ends it): it has imported everything."""
    made = OneByOne("test")
    made.__enter__()
    return made


class Played:
    """What a load left behind. ``spans`` are the phases, in nanoseconds."""

    def __init__(self, folder: Path, start_ns: int, phases: Phases) -> None:
        floor, own, end, _ = phases.ends_ns(start_ns)
        self.spans = Spans((start_ns, floor), (floor, own), (own, end))
        self.logs = folder / "logs"
        self.history: History = read_recording(folder / "history")


def play(
    folder: Path,
    workload: str,
    *,
    lock: str = "redis-token",
    address: tuple[str, int] = ("127.0.0.1", 1),
    clients: int = 4,
    keys: int = 1,
    contended_s: float = 1.2,
    pace: Pace | None = None,
    meanwhile: Callable[[Fleet, int], Sequence[Fault]] | None = None,
    solo: int = 0,
) -> Played:
    """Runs a load to its end. ``meanwhile(fleet, when the contention begins)`` may do something to
    it and says what it did."""
    phases = Phases(floor_s=0.1, own_s=0.2, contended_s=contended_s)
    faults: Sequence[Fault] = ()
    with Fleet(folder, "test", WORKERS, fork_server()) as fleet:
        fleet.launch()
        load = Load(
            lock=lock,
            keys=keys,
            clients=clients,
            solo=solo,
            rivals=2,
            workers=WORKERS,
            phases=phases,
            pace=pace or Pace(),
            seed=1,
            nodes=((address,),) * (WORKERS + 1),
            resource=fleet.resource,
            folder=str(fleet.folder.resolve()),
            master_port=fleet.master_port,
            workload=workload,
        )
        write_meta(fleet.history, load.objects(), wall_minus_monotonic_ns=0)
        fleet.begin(load)
        start_ns = fleet.go()
        if meanwhile is not None:
            faults = meanwhile(fleet, phases.ends_ns(start_ns)[1])
        while time.monotonic_ns() < phases.ends_ns(start_ns)[2]:
            fleet.raise_if_failed()
            time.sleep(0.05)
        drained = time.monotonic() + 5
        while fleet.busy() and time.monotonic() < drained:
            time.sleep(0.01)
        if solo:
            fleet.ask_for_all()
            while not fleet.asked_for_all(load):
                fleet.raise_if_failed()
                time.sleep(0.05)
        if find(lock).kind == "none":
            audit(fleet.history, find(lock), [address], 1.0)
        write_faults(fleet.history, faults)
    return Played(folder, start_ns, phases)


def all_played(folder: Path, plays: Mapping[str, Callable[[Path], Played]]) -> dict[str, Played]:
    """Several loads beside each other, each into a folder of its own."""
    fork_server()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        coming = {
            name: pool.submit(play_it, folder / str(number))
            for number, (name, play_it) in enumerate(plays.items())
        }
        return {name: future.result() for name, future in coming.items()}
