"""Which cases are run: from the command line's words or a declared suite, checked before anything
starts, and fully resolved: a case says everything that decides it, the seed's draws included.
"""

from __future__ import annotations

import difflib
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bench.errors import BadInput
from clusters.base import ClusterPlan, Topology
from clusters.registry import topologies
from locks.base import System
from locks.registry import find, systems
from nemesis.base import Injection
from nemesis.registry import NONE, faults
from workloads.load import Pace, Phases

MUTEX = "mutex"
PUBLISHED = "published"
WORKLOADS = {
    MUTEX: "clients contend for a few keys: acquire, read-modify-write a guarded resource, release",
    PUBLISHED: "the experiment that articles cite: 100 clients, 5 nodes, own keys, no pauses",
}
NETWORKS = ("loopback",)
FLOOR_S = 1.0
OWN_SHARE = 0.2
TIME_LIMIT_S_MIN = 8.0
# When a fault begins, after the start of the contended phase: drawn from the seed in between.
BEGIN_S = (2.0, 3.0)
# What has to remain of the contended phase after the heal, for recovery and the numbers after it.
AFTER_S = 3.0
WORKERS = 2
LINK_IMAGE = "toxiproxy"  # every cluster's links


@dataclass(frozen=True)
class Case:
    """One lock under one fault. ``tries`` is how often it may be repeated until a break shows."""

    lock: str
    topology: str
    size: int
    fault: str
    workload: str = MUTEX
    network: str = "loopback"
    clients: int = 8
    keys: int = 2
    time_limit_s: float = 20.0
    seed: int = 0
    pace: Pace = field(default_factory=Pace)
    images: tuple[tuple[str, str], ...] = ()
    injections: tuple[Injection, ...] = ()

    @property
    def name(self) -> str:
        suffix = "" if self.workload == MUTEX else f"-{self.workload}"
        return f"{self.system.name}-{self.fault}{suffix}"

    @property
    def system(self) -> System:
        return find(self.lock)

    @property
    def phases(self) -> Phases:
        if self.workload == PUBLISHED:
            return Phases(FLOOR_S, self.time_limit_s - FLOOR_S, 0.0)
        own = OWN_SHARE * self.time_limit_s
        return Phases(FLOOR_S, own, self.time_limit_s - FLOOR_S - own)


@dataclass(frozen=True)
class Suite:
    """A declared matrix."""

    name: str
    summary: str
    cases: tuple[Case, ...]

    @property
    def expected_s(self) -> float:
        """What the cases take together."""
        return sum(expected_s(case) for case in self.cases)


def expected_s(case: Case) -> float:
    """Load, and what starting, checking and clearing away a case take."""
    return case.time_limit_s + CASE_OVERHEAD_S


CASE_OVERHEAD_S = 6.0
SUITE_NAMES = ("quick",)
FIRST_LOCKS = ("redis-token", "redlock", "zookeeper", "etcd")


def suite(name: str, seed: int) -> Suite:
    """A suite by name. Raises BadInput."""
    if name not in SUITE_NAMES:
        raise unknown("suite", name, SUITE_NAMES)
    cases = [
        case
        for lock in FIRST_LOCKS
        for fault in (NONE, *faults())
        if unfit(case := make_case(lock, fault, seed=seed)) is None
    ]
    cases.append(make_case("redis-no-owner", "client-pause", seed=seed))
    cases += [published(lock, seed) for lock in ("redlock", "zookeeper")]
    return Suite(
        "quick",
        "the four clusters' locks under every fault that applies, one control, and the "
        "experiment that articles cite",
        tuple(resolve(case) for case in cases),
    )


def published(lock: str, seed: int, topology: str | None = None) -> Case:
    """The experiment of the table that articles cite: 5 nodes, 100 concurrent clients."""
    return replace(
        make_case(lock, NONE, seed=seed, topology=topology),
        workload=PUBLISHED,
        size=5,
        clients=100,
        pace=Pace(hold_s=0.0, own_period_s=0.0, touch_resource=False),
    )


def make_case(lock: str, fault: str, *, seed: int, topology: str | None = None) -> Case:
    """A case with every default filled in. Raises BadInput for a name that does not exist."""
    system = find_system(lock)
    name = topology or system.topologies[0]
    known = topologies()
    if name not in known:
        raise unknown("topology", name, known)
    if name not in system.topologies:
        raise BadInput(
            f"{system.name} does not run on {name}; it runs on {', '.join(system.topologies)}"
        )
    if fault != NONE and fault.partition(":")[0] not in faults():
        raise unknown("fault", fault.partition(":")[0], (NONE, *faults()))
    if ":" in fault:
        raise BadInput(f"{fault}: the fault {fault.partition(':')[0]} takes no parameters")
    # The lock may ask for another load, written as the pace's own fields.
    pace = replace(Pace(), **system.pace)  # type: ignore[arg-type]
    return Case(lock, name, known[name].default_size, fault, seed=seed, pace=pace)


def find_system(name: str) -> System:
    """A lock by name or ``path.py:Class``. Raises BadInput."""
    if ".py:" not in name and name.partition(":")[0] not in systems():
        raise unknown("lock", name, systems())
    try:
        return find(name)
    except Exception as error:
        raise BadInput(str(error)) from error


def unfit(case: Case) -> str | None:
    """Why a case's fault cannot be applied to its cluster, or None."""
    if case.fault == NONE:
        return None
    never_started = topology_of(case).make(
        ClusterPlan(
            topology=case.topology,
            size=case.size,
            groups=WORKERS + 1,
            run_id="plan",
            lease_ttl_s=case.pace.lease_ttl_s,
            log_dir="",
        )
    )
    return faults()[case.fault].unfit(never_started)


def fits(fault: str, topology: str) -> bool:
    """Whether a fault can be applied to a topology at its default size."""
    size = topologies()[topology].default_size
    return unfit(Case(lock="", topology=topology, size=size, fault=fault)) is None


def topology_of(case: Case) -> Topology:
    """The declaration of a case's topology."""
    return topologies()[case.topology]


def check(case: Case) -> None:
    """Everything about a case that can be wrong before anything starts. Raises BadInput."""
    if case.workload not in WORKLOADS:
        raise unknown("workload", case.workload, WORKLOADS)
    if case.network not in NETWORKS:
        raise unknown("network", case.network, NETWORKS)
    for name, value in (
        ("--clients", case.clients),
        ("--keys", case.keys),
        ("--nodes", case.size),
        ("--time-limit", case.time_limit_s),
        ("--ttl", case.pace.lease_ttl_s),
    ):
        if not (value > 0 and math.isfinite(value)):
            raise BadInput(f"{name} is {value:g}; it has to be more than 0")
    if case.seed < 0:
        raise BadInput(f"--seed is {case.seed}; it has to be 0 or more")
    sizes = topology_of(case).sizes
    if case.size not in sizes:
        raise BadInput(
            f"{case.topology} is not offered with {case.size} nodes; "
            f"it is with {', '.join(map(str, sizes))}"
        )
    pace = case.pace
    if pace.lease_ttl_s <= pace.client_timeout_s:
        raise BadInput(
            f"--ttl {pace.lease_ttl_s:g} s is not longer than the client timeout of "
            f"{pace.client_timeout_s:g} s: a grant could end before its request does"
        )
    reason = unfit(case)
    if reason is not None:
        raise BadInput(f"{case.fault} does not apply to {case.topology}: {reason}")
    least = TIME_LIMIT_S_MIN
    if case.fault != NONE:
        contended = BEGIN_S[1] + faults()[case.fault].duration_s(pace.lease_ttl_s) + AFTER_S
        least = max(least, math.ceil((contended + FLOOR_S) / (1 - OWN_SHARE)))
    if case.time_limit_s < least:
        raise BadInput(
            f"--time-limit {case.time_limit_s:g} s is too short for {case.fault}: "
            f"before, during and after it take at least {least:g} s"
        )


def resolve(case: Case) -> Case:
    """The case with its schedule drawn from its seed."""
    check(case)
    if case.fault == NONE:
        return case
    # A string seeds the same draws on every machine; the lock is left out, so that all locks meet
    # the same schedule.
    rng = random.Random(f"{case.seed} {case.fault}")
    injection = Injection(
        fault=case.fault,
        begin_s=round(rng.uniform(*BEGIN_S), 3),
        duration_s=faults()[case.fault].duration_s(case.pace.lease_ttl_s),
        seed=rng.getrandbits(32),
    )
    return replace(case, injections=(injection,))


def unknown(what: str, name: str, known: Iterable[str]) -> BadInput:
    """The sentence for a name that does not exist, with what may have been meant."""
    names: Sequence[str] = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
    return BadInput(f"no {what} is called {name!r}; {hint}")
