"""Who used the processors while a case ran, and how long its clients waited for one.

Once a second: the busy time of the whole machine less that of everything of ours (bench, load,
containers, Docker's proxies of our ports), what the hypervisor took, the kernel's pressure (PSI),
and how long the event loops of the workers were ready and did not run (schedstat).

Figures are those of a saturated machine where others took part of it *and* our clients waited. Each
alone is ordinary: a machine with many cores has room for others, and on few cores our own clients,
links and servers wait for each other. What the kernel does not tell is None, and judges nothing.
https://docs.kernel.org/accounting/psi.html, https://docs.kernel.org/scheduler/sched-stats.html
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import psutil

from clusters.engine import cgroups
from results import documents

PRESSURE: Final = Path("/proc/pressure/cpu")
PROXY: Final = "docker-proxy"
# Percent of all cores that others used, and percent of the time in which the workers' loops were
# ready that they waited. Measured: docs/performance.md, "Other users of the machine".
OTHERS_MAX: Final = 20.0
WAITING_MAX: Final = 25.0
STEAL_MAX: Final = 5.0


@dataclass(frozen=True, slots=True)
class Counters:
    """What had been used since some time before, in seconds; ``cores`` is a number."""

    at_ns: int
    busy_s: float
    stolen_s: float
    ours_s: float
    ran_s: float
    waited_s: float
    some_s: float | None  # at least one process of the machine waited
    cores: int


@dataclass(frozen=True, slots=True)
class Ours:
    """Processes and containers of a case: process numbers, numbers of workers among them, and
    container id → the number of its first process."""

    processes: frozenset[int]
    workers: frozenset[int]
    containers: Mapping[str, int]


class Processors:
    """Reads the counters. What ends takes its time with it: only growth is added up."""

    def __init__(self, ours: Callable[[], Ours], addresses: Iterable[str]) -> None:
        self._ours = ours
        self._proxies = _proxies(frozenset(addresses))
        self._last: dict[object, float] = {}
        self._sums = {"ours": 0.0, "ran": 0.0, "waited": 0.0}
        self._known: dict[int, psutil.Process] = {}
        self.read: list[Counters] = []

    def look(self) -> None:
        """Notes what the counters are now."""
        ours = self._ours()
        for pid in ours.processes | self._proxies | {os.getpid()}:
            self._grow("ours", ("process", pid), self._cpu_s(pid))
        for container, pid in ours.containers.items():
            used = cgroups.cpu_ns(pid, container)
            self._grow("ours", ("container", container), None if used is None else used / 1e9)
        for pid in ours.workers:
            ran, waited = scheduled_s(pid)
            self._grow("ran", ("ran", pid), ran)
            self._grow("waited", ("waited", pid), waited)
        times = psutil.cpu_times()
        self.read.append(
            Counters(
                at_ns=time.monotonic_ns(),
                busy_s=times.user + times.nice + times.system + times.irq + times.softirq,
                stolen_s=times.steal,
                ours_s=self._sums["ours"],
                ran_s=self._sums["ran"],
                waited_s=self._sums["waited"],
                some_s=_some_s(),
                cores=psutil.cpu_count() or 1,
            )
        )

    def _grow(self, what: str, of: object, now: float | None) -> None:
        """The first look counts nothing."""
        if now is not None:
            self._sums[what] += max(0.0, now - self._last.get(of, now))
            self._last[of] = now

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
    known = [(a.some_s, b.some_s) for a, b in pairs if a.some_s is not None]
    some = [b - a for a, b in known if b is not None and a is not None]
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
        pressure_percent=round(100 * sum(some) / lasted, 1) if some else None,
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
    """Seconds that the first thread of a process ran, and was ready and did not; None where the
    kernel does not say."""
    try:
        ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return None, None
    return int(ran) / 1e9, int(waited) / 1e9


def _some_s() -> float | None:
    try:
        some = PRESSURE.read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return None
