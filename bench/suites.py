"""The declared matrices: which locks meet which faults in ``lockbench suite NAME``.

A suite is made of the locks and faults that the registries find, so a new lock joins ``full`` and
``exhaustive`` by being there; of ``quick`` and ``nightly``, which are samples, it says so itself
(``System.suites``, ``Fault.suites``). A fault that a lock or its cluster does not offer is left
out, never counted as kept. A slice of a suite has the same cases as the whole: same seed, times and
draws.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from types import MappingProxyType

from lockbench.bench.plan import (
    Case,
    applies,
    expected_s,
    make_case,
    published,
    resolve,
    site_of,
    unfit_elsewhere,
    unknown,
    with_time_for_faults,
)
from lockbench.bench.rates import quick_rates, sweep, with_rates
from lockbench.locks.base import ANY
from lockbench.locks.registry import systems
from lockbench.nemesis.registry import NONE, faults
from lockbench.results.errors import BadInput

CLUSTER = "cluster"  # the suite of a cluster of somebody else
# ``full`` has four hours. A brief case has the time that its fault needs and this much more for a
# slow recovery, not the usual 20 s: verdicts need no more, and quantiles that a shorter case does
# not carry are left out as everywhere.
BRIEF_LIMIT_S_MIN = 9.0
BRIEF_SPARE_S = 0.5


@dataclass(frozen=True)
class Suite:
    """A declared matrix."""

    name: str
    summary: str
    cases: tuple[Case, ...]

    @cached_property
    def expected_s(self) -> float:
        """What the cases take together, if every break that is due shows at once."""
        return sum(expected_s(case) for case in self.cases)

    @property
    def duration(self) -> str:
        """How many cases and how long, for people: ``27 cases, about 11 minutes``."""
        seconds = self.expected_s
        much = f"{seconds / 60:.0f} minutes"
        if seconds >= 100 * 60:
            much = f"{seconds / 3600:.1f} hours"
        elif seconds < 100:
            much = f"{seconds:.0f} seconds"
        return f"{len(self.cases)} case{'s' * (len(self.cases) != 1)}, about {much}"


def suite(name: str, seed: int) -> Suite:
    """A suite by name. Raises BadInput."""
    whole = undrawn(name, seed)
    return replace(whole, cases=tuple(resolve(case) for case in whole.cases))


def undrawn(name: str, seed: int) -> Suite:
    """The same without the schedules of its faults, which is enough to tell of it."""
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    summary, cases = SUITES[name]
    return Suite(name, summary, tuple(cases(seed)))


def of_cluster(file: str, seed: int) -> Suite:
    """What can be run on a cluster of somebody else: every lock that may be run there without a
    fault and under those of ``full`` that can be applied. Raises BadInput."""
    site = site_of(file)
    locks = [name for name, one in systems().items() if unfit_elsewhere(one, site) is None]
    usual = [make_case(lock, NONE, seed=seed, cluster=file) for lock in locks]
    cases = [
        resolve(brief(one))
        for case in usual
        for fault in (NONE, *full_faults(case.system.name))
        if applies(one := replace(case, fault=fault))
    ]
    return Suite(CLUSTER, f"what can be run on the {site.topology} of {file}", tuple(cases))


def sliced(whole: Suite, locks: Sequence[str], wanted: Sequence[str]) -> Suite:
    """The cases of these locks under these faults; ``*`` and ``?`` are wild, nothing named is all.
    Raises BadInput for a word that no case fits."""
    chosen = [
        case
        for case, lock, fault in zip(
            whole.cases,
            _fitting("lock", locks, [case.system.name for case in whole.cases], whole.name),
            _fitting("fault", wanted, [case.fault for case in whole.cases], whole.name),
            strict=True,
        )
        if lock and fault
    ]
    if not chosen:
        raise BadInput(
            f"the suite {whole.name} has no case of {', '.join(locks)} under {', '.join(wanted)}: "
            "that fault does not apply there"
        )
    return replace(whole, cases=tuple(chosen))


def part(whole: Suite, text: str) -> Suite:
    """One of so many parts that take about as long: ``3/8`` is the third of eight. Every case is in
    one of them. Raises BadInput."""
    said = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    number, count = map(int, said.groups()) if said else (0, 0)
    if not 1 <= number <= count:
        raise BadInput(f"--part is {text!r}; the third of eight parts is 3/8")
    if count > len(whole.cases):
        raise BadInput(f"--part is {text!r}; there are only {len(whole.cases)} cases")
    parts: list[list[Case]] = [[] for _ in range(count)]
    taken_s = [0.0] * len(parts)
    for case in whole.cases:
        least = taken_s.index(min(taken_s))
        parts[least].append(case)
        taken_s[least] += expected_s(case)
    return replace(whole, cases=tuple(parts[number - 1]))


def _fitting(what: str, words: Sequence[str], names: Sequence[str], whole: str) -> list[bool]:
    """Whether each name fits one of the words. Raises BadInput."""
    for word in words:
        if not any(fnmatchcase(name, word) for name in names):
            raise unknown(f"{what} of the suite {whole}", word, dict.fromkeys(names))
    return [not words or any(fnmatchcase(name, word) for word in words) for name in names]


def sampled() -> tuple[str, ...]:
    """The locks that the samples have under every fault: one that shows what each system does."""
    return tuple(name for name, one in systems().items() if ANY in one.suites.get("quick", ()))


def alike() -> tuple[str, ...]:
    """The locks whose clients cost alike, through which systems are compared."""
    return tuple(name for name, one in systems().items() if one.client_family)


def faults_of(suite: str) -> tuple[str, ...]:
    """The faults that say of themselves that they belong to a suite, or to its ``variants``."""
    return tuple(name for name, fault in faults().items() if suite in fault.suites)


def full_faults(lock: str) -> tuple[str, ...]:
    """The faults that a lock meets in ``full``, as far as they apply. Those are what documents and
    articles on locks argue about, each once; the others are variants or combinations of them. A
    lock that is a variant of another (``System.variant``) meets those under which that can show: a
    lease that is too short, timeouts, retries, a replica that was not waited for."""
    return faults_of("variants" if systems()[lock].variant else "full")


def _quick(seed: int) -> list[Case]:
    cases = [
        *_matrix(sampled(), (NONE, *faults_of("quick")), seed),
        *_matrix(alike(), (NONE,), seed),
        *_singles("quick", seed),
        make_case("redis-token", "client-pause", seed=seed, workload="payment"),
    ]
    rates = quick_rates(seed)
    return [with_rates(c, rates) if c.fault == NONE else brief(c) for c in cases]


def _nightly(seed: int) -> list[Case]:
    return [
        *_quick(seed),
        *_matrix(sampled(), faults_of("nightly"), seed),
        *_singles("nightly", seed),
        *(published(lock, seed) for lock in ("redlock", "zookeeper")),
    ]


def _singles(suite: str, seed: int) -> list[Case]:
    """The locks that a sample has under some faults only."""
    return [
        with_time_for_faults(make_case(name, fault, seed=seed))
        for name, system in systems().items()
        for fault in system.suites.get(suite, ())
        if fault != ANY
    ]


def _capacity(seed: int) -> list[Case]:
    """What locks carry: those that the quick suite has at rates, and those that say so."""
    named = (name for name, system in systems().items() if "capacity" in system.suites)
    return sweep(sorted({*sampled(), *alike(), *named}), seed=seed)


def _full(seed: int) -> list[Case]:
    return [
        brief(case)
        for lock in systems()
        for case in _applicable([lock], (NONE, *full_faults(lock)), seed)
    ]


def brief(case: Case) -> Case:
    """With the time that its fault needs, for a case of which no quantiles are wanted: as in
    ``full``."""
    return with_time_for_faults(replace(case, time_limit_s=BRIEF_LIMIT_S_MIN), BRIEF_SPARE_S)


def _exhaustive(seed: int) -> list[Case]:
    return [
        with_time_for_faults(case)
        for lock, system in systems().items()
        for topology in system.topologies
        for case in _applicable([lock], (NONE, *faults()), seed, topology)
    ]


def _matrix(locks: Iterable[str], wanted: Iterable[str], seed: int) -> list[Case]:
    return [with_time_for_faults(case) for case in _applicable(locks, wanted, seed)]


def _applicable(
    locks: Iterable[str], wanted: Iterable[str], seed: int, topology: str | None = None
) -> list[Case]:
    """Every lock under every fault that applies to it."""
    usual = (make_case(lock, NONE, seed=seed, topology=topology) for lock in locks)
    cases = itertools.product(usual, list(wanted))
    return [case for one, fault in cases if applies(case := replace(one, fault=fault))]


# Name → what it is, and its cases for a seed.
SUITES: MappingProxyType[str, tuple[str, Callable[[int], list[Case]]]] = MappingProxyType(
    {
        "quick": (
            "rates and the main faults on four clusters, a failover, a control, payments",
            _quick,
        ),
        "nightly": (
            "quick, faults that break locks less often, replicas, what articles cite",
            _nightly,
        ),
        "capacity": (
            "what the main locks carry, and latency on the way there",
            _capacity,
        ),
        "full": (
            "every lock without a fault and under the ten canonical ones; variants under four",
            _full,
        ),
        "exhaustive": (
            "every lock on every topology that it runs on under every fault",
            _exhaustive,
        ),
    }
)
