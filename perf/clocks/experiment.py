"""The experiment: every method judges the same simulated histories; the truth says who is right.

Methods see ``Told.history`` alone. *False accusation*: invalid, and no two of the accused holds
were really at once. *Found*: invalid, and a pair that was at once is among the accused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Final

import numpy as np

from lockbench.checker.bounds import Bounds
from perf.clocks.methods import METHODS, Judged, Method
from perf.clocks.world import Told, World, simulated
from perf.machines import MS, US

MIXED: Final = ("namespaces", "zone", "region")
FLEETS: Final = {
    "one host": ("namespaces",),
    "zone": ("zone",),
    "region": ("region",),
    "mixed": MIXED,
}
OVERLAPS_NS: Final = (10 * US, 100 * US, MS, 10 * MS, 100 * MS, 1_000 * MS)
CERTAIN_NS: Final = OVERLAPS_NS[-1]  # so long that every stamp shows it
COUNTS: Final = {2: 20, 4: 20, 10: 20, 30: 20, 100: 20, 300: 10, 1000: 6}  # machines: histories
EACH: Final = 20  # histories of everything else
HOLDS: Final = 200
HOLDS_EACH: Final = 4  # of a machine, where there are many
STATED_NS: Final = 60 * MS  # a true bound of the clocks, for histories without any stamp
PROCESSES: Final = 2
Z: Final = 1.959964  # 95 %


@dataclass(frozen=True)
class Setting:
    """A world and where it stands in the tables."""

    table: str
    row: str
    world: World
    seeds: int


@dataclass(frozen=True)
class Outcome:
    """What each method said of one history. ``right``: invalid with a pair that was at once among
    the accused. ``outside``: moments at which the truth was not within the bounds, of ``moments``.
    ``slower`` as in ``Told``."""

    world: World
    seed: int
    judged: tuple[Judged, ...]
    right: tuple[bool, ...]
    slower: str | None
    operations: int
    outside: int
    moments: int

    def wrong(self, method: int) -> bool:
        return self.judged[method].result == "invalid" and not self.right[method]


def settings() -> Iterator[Setting]:
    """All of ``make simulate-clocks``."""
    for fleet, places in FLEETS.items():
        for overlap_ns in (0, *OVERLAPS_NS):
            world = World(10, places, HOLDS, overlap_ns)
            yield Setting("overlap", fleet, world, EACH)
    for machines, seeds in COUNTS.items():
        for overlap_ns in (0, 100 * MS):
            holds = max(HOLDS, HOLDS_EACH * machines)
            yield Setting(
                "machines", f"{machines:,}", World(machines, MIXED, holds, overlap_ns), seeds
            )
    for uses, stated in (("in-holds", 0), ("between-holds", 0), ("none", STATED_NS)):
        for machines in (2, 10):
            for overlap_ns in (0, MS, 10 * MS, 100 * MS):
                world = World(machines, ("zone",), HOLDS, overlap_ns, uses=uses, epsilon_ns=stated)
                yield Setting("recorded", f"{uses}, {machines}", world, EACH)
    for jump_ns in (100 * US, MS, 10 * MS, 100 * MS):
        for fleet in ("zone", "mixed"):
            world = World(10, FLEETS[fleet], HOLDS, jump_ns=jump_ns)
            yield Setting("jumps", fleet, world, EACH)


def observed(given: tuple[World, int, tuple[Method, ...]]) -> Outcome:
    """One history, judged by all."""
    world, seed, methods = given
    told = simulated(world, seed)
    planted = world.overlap_ns
    assert sorted(told.overlaps.values()) == ([planted] if planted else []), told.overlaps
    judged = tuple(method(told.history) for method in methods)
    right = tuple(
        it.result == "invalid" and any(it.accused >= {*pair} for pair in told.overlaps)
        for it in judged
    )
    outside, moments = (0, 0) if world.jump_ns else _outside(told)
    return Outcome(world, seed, judged, right, told.slower, len(told.history), outside, moments)


def _outside(told: Told) -> tuple[int, int]:
    history = told.history
    assert history.machine is not None
    wrong = asked = 0
    for name, clock in told.clocks.items():
        if name not in history.machines:
            continue
        rows = np.flatnonzero(history.machine == history.machines.index(name))
        bounds = Bounds.of(history, rows, history.epsilon_ns or 2**61)
        last = int(history.complete_ns[rows].max()) - clock.off_ns
        moments = [last * n // 20 for n in range(21)]
        local = np.array([clock.shows(at) for at in moments])
        # What a clock shows is rounded.
        low, high, offset = bounds.low(local) - 1, bounds.high(local) + 1, moments - local
        wrong += int(np.count_nonzero((offset < low) | (offset > high)))
        asked += len(moments)
    return wrong, asked


def run(
    chosen: Iterable[Setting], methods: tuple[Method, ...] = METHODS, processes: int = PROCESSES
) -> dict[tuple[World, int], Outcome]:
    """Every history of these settings, each judged once. The dice of a history are the same for
    every overlap."""
    wanted = ((it.world, seed, methods) for it in chosen for seed in range(it.seeds))
    work = list(dict.fromkeys(wanted))
    if processes == 1:
        outcomes = [observed(one) for one in work]
    else:
        with get_context("fork").Pool(processes, _warm) as pool:
            outcomes = list(pool.imap(observed, work, chunksize=1))
    return {(it.world, it.seed): it for it in outcomes}


def _warm() -> None:
    """What is imported when it is first needed costs no method anything."""
    import scipy.optimize  # noqa: F401


# Shares.


@dataclass(frozen=True)
class Share:
    """``some`` of ``all`` with the 95 % interval of Wilson (J. Am. Stat. Assoc. 22, 1927)."""

    some: int
    all: int

    @property
    def value(self) -> float:
        return self.some / self.all if self.all else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        if not self.all:
            return 0.0, 1.0
        n, p = self.all, self.value
        middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
        half = Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        low, high = (100 * side for side in self.interval)
        digits = 1 if self.all >= 300 else 0
        return f"{100 * self.value:.{digits}f} [{low:.{digits}f}–{high:.{digits}f}]"


Asked = Callable[[Outcome, int], bool]


def share(outcomes: Sequence[Outcome], method: int, asked: Asked) -> Share:
    """Of these histories those of which this is so."""
    return Share(sum(asked(it, method) for it in outcomes), len(outcomes))


def found(it: Outcome, method: int) -> bool:
    """With the right pair."""
    return it.right[method]


def accused_wrongly(it: Outcome, method: int) -> bool:
    """Without any right pair."""
    return it.wrong(method)


def unknown(it: Outcome, method: int) -> bool:
    """Nothing was decided."""
    return it.judged[method].result == "unknown"


def called_valid(it: Outcome, method: int) -> bool:
    """Whatever happened."""
    return it.judged[method].result == "valid"


# What must be so.


def faults(outcomes: Collection[Outcome], methods: tuple[Method, ...] = METHODS) -> list[str]:
    """Sentences on what a sound method did wrong; also where the experiment shows nothing."""
    told = []
    ours = next(n for n, method in enumerate(methods) if method.name == "lockbench")
    for number, method in enumerate(methods):
        for it in outcomes if method.sound else ():
            what = f"{method.name}, {_where(it)}"
            if it.wrong(number):
                told.append(
                    f"{what}: accuses {', '.join(sorted(it.judged[number].accused))} wrongly"
                )
            if it.right[number] and not it.right[ours] and number != ours:
                said = it.judged[ours].result
                told.append(f"{what}: finds the overlap, and lockbench says {said}")
    for it in outcomes:
        world = it.world
        if it.outside:
            told.append(f"{_where(it)}: the truth is outside the bounds at {it.outside} moments")
        certain = world.overlap_ns >= CERTAIN_NS and world.uses == "in-holds"
        if certain and not it.right[ours]:
            told.append(f"{_where(it)}: lockbench misses what every stamp shows")
    controls = [it for it in outcomes if not it.world.overlap_ns]
    if not controls or len(controls) == len(outcomes):
        told.append("nothing was tried with an overlap, or nothing without")
    return told


def _where(it: Outcome) -> str:
    return f"{it.world}, seed {it.seed}"
