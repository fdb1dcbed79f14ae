"""Who used the processors while a case ran, and how long its clients waited for one.

Once a second, and where a figure begins and ends: the busy time of the whole machine, how much of
it each part of ours took (bench, clients, servers, and links with Docker's proxies of our ports),
what the hypervisor took, the kernel's pressure (PSI) of the machine and of each container, and how
long the event loops of the workers and all threads of each part were ready and did not run
(schedstat).

Figures are those of a saturated machine where others took part of it *and* our clients waited. Each
alone is ordinary: a machine with many cores has room for others, and on few cores our own clients,
links and servers wait for each other. What the kernel does not tell is None, and judges nothing.
https://docs.kernel.org/accounting/psi.html, https://docs.kernel.org/scheduler/sched-stats.html
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, TypeVar, get_args

import psutil

from lockbench.clusters.engine import cgroups
from lockbench.results import documents

PRESSURE: Final = Path("/proc/pressure")
RESOURCES: Final = ("cpu", "io", "memory")
PROXY: Final = "docker-proxy"
Part = Literal["bench", "clients", "servers", "links"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
# Percent of all cores that others used, and percent of the time in which the workers' loops were
# ready that they waited. Measured: docs/performance.md, "Other programs on the machine".
OTHERS_MAX: Final = 20.0
WAITING_MAX: Final = 25.0
STEAL_MAX: Final = 5.0


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Counters:
    """What had been used since some time before, in seconds; ``cores`` is a number."""

    at_ns: int
    busy_s: float
    stolen_s: float
    used_s: Mapping[Part, float]  # by part of ours
    queued_s: Mapping[Part, float]  # all threads of a part, together: ready and not running
    ran_s: float  # the event loops of the workers
    waited_s: float  # the same, ready and not running
    some_s: Mapping[str, float]  # by resource: at least one process of the machine waited for it
    # The same of a container: (its part, its id, resource). Before its first look it has none.
    within_s: Mapping[tuple[Part, str, str], float]
    cores: int

    @property
    def ours_s(self) -> float:
        return sum(self.used_s.values())


@dataclass(frozen=True, slots=True)
class Ours:
    """Processes and containers of a case: numbers of processes of the clients, numbers of workers
    among them, and container id → the number of its first process, and its part."""

    clients: frozenset[int]
    workers: frozenset[int]
    containers: Mapping[str, tuple[int, Part]]


class Processors:
    """Reads the counters. What ends takes its time with it: only growth is added up."""

    def __init__(self, ours: Callable[[], Ours], addresses: Iterable[str]) -> None:
        self._ours = ours
        self._proxies = _proxies(frozenset(addresses))
        self._last: dict[object, float] = {}
        self._used = dict.fromkeys(PARTS, 0.0)
        self._queued = dict.fromkeys(PARTS, 0.0)
        self._within: dict[tuple[Part, str, str], float] = {}
        self._loops = {"ran": 0.0, "waited": 0.0}
        self._looking = threading.Lock()
        self._known: dict[int, psutil.Process] = {}
        self.read: list[Counters] = []

    def look(self) -> None:
        """Notes what the counters are now."""
        with self._looking:
            self._look()

    def _look(self) -> None:
        ours = self._ours()
        processes: dict[int, Part] = dict.fromkeys(self._proxies, "links")
        processes |= dict.fromkeys(ours.clients, "clients")
        processes[os.getpid()] = "bench"
        for pid, part in processes.items():
            self._grow(self._used, part, pid, self._cpu_s(pid))
            self._grow_queued(part, (int(task.name) for task in _tasks(pid)))
        for container, (pid, part) in ours.containers.items():
            used = cgroups.cpu_ns(pid, container)
            self._grow(self._used, part, container, None if used is None else used / 1e9)
            self._grow_queued(part, cgroups.threads(pid, container))
            for resource in RESOURCES:
                waited = cgroups.pressure_s(pid, container, resource)
                if waited is not None:
                    one = (part, container, resource)
                    self._within.setdefault(one, 0.0)
                    self._grow(self._within, one, pid, waited)
        for pid in ours.workers:
            ran, waited = scheduled_s(pid)
            self._grow(self._loops, "ran", pid, ran)
            self._grow(self._loops, "waited", pid, waited)
        times = psutil.cpu_times()
        self.read.append(
            Counters(
                at_ns=time.monotonic_ns(),
                busy_s=times.user + times.nice + times.system + times.irq + times.softirq,
                stolen_s=times.steal,
                used_s=dict(self._used),
                queued_s=dict(self._queued),
                ran_s=self._loops["ran"],
                waited_s=self._loops["waited"],
                some_s={r: s for r in RESOURCES if (s := cgroups.some_s(PRESSURE / r)) is not None},
                within_s=dict(self._within),
                cores=psutil.cpu_count() or 1,
            )
        )

    def _grow(self, sums: dict[T, float], name: T, of: object, now: float | None) -> None:
        """The first look counts nothing."""
        if now is not None:
            key = (id(sums), name, of)
            sums[name] += max(0.0, now - self._last.get(key, now))
            self._last[key] = now

    def _grow_queued(self, part: Part, threads: Iterable[int]) -> None:
        for thread in threads:
            self._grow(self._queued, part, thread, scheduled_s(thread)[1])

    def _cpu_s(self, pid: int) -> float | None:
        with suppress(psutil.Error):
            process = self._known.setdefault(pid, psutil.Process(pid))
            used = process.cpu_times()
            return float(used.user + used.system)
        return None


def pressure(
    read: Sequence[Counters], counts: Callable[[int, int], bool]
) -> tuple[documents.Processors | None, list[str]]:
    """The record of a case, in percent, and why its figures are those of a saturated machine.
    ``counts`` chooses times (begin, end); None where nothing was read in any of them."""
    pairs = [(a, b) for a, b in pairwise(read) if counts(a.at_ns, b.at_ns)]
    if not pairs:
        return None, []
    lasted = sum(b.at_ns - a.at_ns for a, b in pairs) / 1e9
    of_all = 100 / (lasted * pairs[0][0].cores)

    def grown(of: Callable[[Counters], float]) -> float:
        return sum(of(b) - of(a) for a, b in pairs)

    ran, waited = grown(lambda c: c.ran_s), grown(lambda c: c.waited_s)

    def processed(part: Part) -> documents.Processed:
        return documents.Processed(
            used_percent=round(of_all * grown(lambda c: c.used_s[part]), 1),
            queued_percent=round(of_all * grown(lambda c: c.queued_s[part]), 1),
            pressure_percent=within(part, "cpu"),
            io_percent=within(part, "io"),
            memory_percent=within(part, "memory"),
        )

    def within(part: Part, resource: str) -> float | None:
        """Percent of the time, of the container of a part that waited most."""
        found = {
            key: sum(b.within_s.get(key, 0.0) - a.within_s.get(key, 0.0) for a, b in pairs)
            for key in pairs[-1][1].within_s
            if key[0] == part and key[2] == resource
        }
        return round(100 * max(found.values()) / lasted, 1) if found else None

    def some(resource: str) -> float | None:
        """Percent of the time."""
        known = [(a.some_s, b.some_s) for a, b in pairs]
        if not all(resource in a and resource in b for a, b in known):
            return None
        return round(100 * sum(b[resource] - a[resource] for a, b in known) / lasted, 1)

    others = of_all * max(0.0, grown(lambda c: c.busy_s) - grown(lambda c: c.ours_s))
    steal = of_all * grown(lambda c: c.stolen_s)
    waiting = 100 * waited / (ran + waited) if ran + waited else 0.0
    why = []
    if others > OTHERS_MAX and waiting > WAITING_MAX:
        why.append(
            f"other programs used {others:.0f} % of the processors, and the workers waited for one "
            f"{waiting:.0f} % of the time"
        )
    if steal > STEAL_MAX:
        why.append(f"the hypervisor took {steal:.0f} % of the processors")
    return documents.Processors(
        others_percent=round(others, 1),
        ours_percent=round(of_all * grown(lambda c: c.ours_s), 1),
        steal_percent=round(steal, 1),
        waiting_percent=round(waiting, 1),
        pressure_percent=some("cpu"),
        io_percent=some("io"),
        memory_percent=some("memory"),
        parts={part: processed(part) for part in PARTS},
    ), why


def _proxies(addresses: frozenset[str]) -> frozenset[int]:
    """Docker's own processes that pass on what comes to published ports of these addresses."""
    found = set()
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error):
            if process.info["name"] == PROXY and addresses.intersection(process.cmdline()):
                found.add(process.pid)
    return frozenset(found)


def scheduled_s(pid: int) -> tuple[float | None, float | None]:
    """Seconds that a thread (of a process: its first) ran, and was ready and did not; None where
    the kernel does not say."""
    try:
        ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return None, None
    return int(ran) / 1e9, int(waited) / 1e9


def _tasks(pid: int) -> list[Path]:
    with suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []
