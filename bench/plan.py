"""What a case is: made from the command line's words or by a declared suite
(``lockbench.bench.suites``), checked before anything starts, and fully resolved: a case says
everything that decides it, the seed's draws included.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import msgspec

from lockbench.bench.clients import name_of
from lockbench.bench.judge import Expected, expectation
from lockbench.checker.catalogue import ALWAYS, NAMED
from lockbench.clusters import images as built
from lockbench.clusters.base import NETWORKS, Cluster, ClusterPlan, Host, Topology
from lockbench.clusters.elsewhere import topology as foreign
from lockbench.clusters.elsewhere.site import CONFINED, Site, SiteError
from lockbench.clusters.hosts import OVER_HOSTS, HostsError, why_not
from lockbench.clusters.hosts import read as read_hosts
from lockbench.clusters.registry import topologies
from lockbench.locks.base import Expectation, System
from lockbench.locks.registry import LockNotFoundError, each, find, is_own, systems, without
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.lease import extendable
from lockbench.locks.shared.library import is_in_container, library_of
from lockbench.nemesis import schedule
from lockbench.nemesis.base import OF_LOCK, OF_SERVERS, SERVERS, Impossible, Injection
from lockbench.nemesis.registry import NONE, faults
from lockbench.nemesis.schedule import ScheduleError, Steps, end_s, parse
from lockbench.results import documents, wording
from lockbench.results.documents import Planned, known
from lockbench.results.documents.part import SECONDS_MAX, SEED_MAX
from lockbench.results.errors import BadInput, Unfit
from lockbench.stores import registry as stores
from lockbench.stores.registry import Asked as AskedStore
from lockbench.stores.registry import StoreError
from lockbench.workloads import registry
from lockbench.workloads.load import Pace, Phases, Rates
from lockbench.workloads.machines.file import Machine, MachinesError
from lockbench.workloads.machines.file import read as read_machines
from lockbench.workloads.registry import Asked, WorkloadError, declared

MUTEX = "mutex"
PUBLISHED = "published"
FLOOR_S = 1.0
OWN_SHARE = 0.2
TIME_LIMIT_S_MIN = 8.0
TIME_LIMIT_S = 20.0
UNASKED_S_MAX = 90.0
# What has to remain of the contended phase after the heal, for recovery and the numbers after it.
AFTER_S = 3.0
WORKERS = 2
CLIENTS_MAX = 10_000  # https://redis.io/docs/latest/develop/reference/clients/: maxclients
KEYS_MAX = 100_000
REPLY_LOST = "reply-lost"  # of an acquire, unless said otherwise
LINK_IMAGE = "toxiproxy"  # every cluster's links


@dataclass(frozen=True)
class Case:
    """One lock under one fault."""

    lock: str
    topology: str
    size: int
    fault: str
    workload: str = MUTEX
    network: str = "loopback"
    clients: int = 8
    keys: int = 2
    time_limit_s: float = TIME_LIMIT_S
    seed: int = 0
    pace: Pace = field(default_factory=Pace)
    rates: Rates = field(default_factory=Rates)
    images: tuple[tuple[str, str], ...] = ()
    cluster: str | None = None  # the file that names one of somebody else
    resource: str | None = None  # the store that the lock guards, with its guard
    machines: str | None = None  # the file that names machines beside this one
    hosts: str | None = None  # the file that names engines, one for each node
    injections: tuple[Injection, ...] = ()

    @property
    def name(self) -> str:
        """Lock and fault, and what is not as usual."""
        usual = (MUTEX, self.system.topologies[0])
        unusual = [word for word in (self.workload, self.topology) if word not in usual]
        if self.resource is not None:
            unusual.append(self.resource)
        return "-".join([self.system.name, self.fault, *unusual])

    @property
    def system(self) -> System:
        return find(self.lock)

    @property
    def asked(self) -> Asked:
        """The workload, with every parameter decided."""
        return find_workload(self.workload)

    @property
    def store(self) -> AskedStore | None:
        """What the lock guards, where that is a store with a check of its own."""
        return None if self.resource is None else stores.find(self.resource)

    @property
    def phases(self) -> Phases:
        if self.workload == PUBLISHED:
            return Phases(FLOOR_S, self.time_limit_s - FLOOR_S, 0.0)
        own = OWN_SHARE * self.time_limit_s
        return Phases(FLOOR_S, own, self.time_limit_s - FLOOR_S - own, self.rates.lasts_s)

    @classmethod
    def from_plan(cls, planned: Planned) -> Case:
        """A case as a plan has it. Raises TypeError where one of lock, topology, size or fault is
        missing."""
        fields = known(planned) | {
            "pace": Pace(**known(planned.pace or documents.Pace())),
            "injections": tuple(Injection(**known(one)) for one in planned.injections),
            "rates": msgspec.convert(msgspec.to_builtins(planned.rates), Rates),
        }
        fields.pop("side", None)
        return cls(**fields)


def machines_of(case: Case) -> Sequence[Machine]:
    """The machines beside this one from which its load comes, too. Raises BadInput."""
    return () if case.machines is None else _machines(case.machines)


@cache
def _machines(file: str) -> Sequence[Machine]:
    try:
        return read_machines(Path(file), WORKERS + 1)
    except MachinesError as error:
        raise BadInput(str(error)) from error


def hosts_of(case: Case) -> tuple[Host, ...]:
    """The hosts of its nodes; none where all are on this machine. Raises BadInput."""
    return () if case.hosts is None else _hosts(case.hosts)


@cache
def _hosts(file: str) -> tuple[Host, ...]:
    try:
        return read_hosts(Path(file))
    except HostsError as error:
        raise BadInput(str(error)) from error


def over_hosts(case: Case, file: str) -> Case:
    """The case with a node on each host of a file. Raises BadInput, Unfit."""
    if case.workload == PUBLISHED:
        raise BadInput(f"the workload {PUBLISHED} is an experiment of one machine")
    if case.resource is not None:
        raise BadInput("a store is started on this machine: leave --resource or --hosts out")
    case = replace(case, hosts=file)
    if why := why_not(topologies()[case.topology], hosts_of(case)):
        raise Unfit(why)
    return replace(case, topology=case.topology + OVER_HOSTS, size=len(hosts_of(case)))


def workers_of(case: Case) -> int:
    """How many worker processes there are beside the victim's, on all machines."""
    return WORKERS + sum(len(machine.workers) for machine in machines_of(case))


def expected_s(case: Case) -> float:
    """Load, and what starting, checking and clearing away a case take."""
    library = library_of(case.system) if case.lock else None
    started = [*topology_of(case).images, name_of(library) if library else ""]
    slow_s = sum(SLOW_START_S.get(one, 0.0) for one in started)
    lasts_s = case.time_limit_s + case.rates.lasts_s
    return lasts_s + CASE_OVERHEAD_S + NODE_OVERHEAD_S * case.size + slow_s


# Medians of 120 cases on two cores: 2.8 s for one Redis, 4.2 s for three etcd, 5.3 s for five
# Redis, 6.1 s for a Sentinel's five; what starts Java takes longer: 7.0 s for three ZooKeepers, and
# 4.6 s more than other clients for the JVMs of three workers. NATS waits for its first election,
# Kubernetes' API server fills its caches.
CASE_OVERHEAD_S = 2.2
NODE_OVERHEAD_S = 0.7
SLOW_START_S = {"zookeeper": 2.7, "nats": 6.0, "kubernetes": 6.0, "jvm-sidecar": 4.6}


def published(lock: str, seed: int, topology: str | None = None) -> Case:
    """The experiment of the table that articles cite: 5 nodes, 100 concurrent clients."""
    return replace(
        make_case(lock, NONE, seed=seed, topology=topology),
        workload=PUBLISHED,
        size=5,
        clients=100,
        pace=Pace(hold_s=0.0, own_period_s=0.0, touch_resource=False),
    )


def make_case(
    lock: str,
    fault: str,
    *,
    seed: int,
    topology: str | None = None,
    workload: str = MUTEX,
    cluster: str | None = None,
    resource: str | None = None,
    hosts: str | None = None,
) -> Case:
    """A case with every default filled in. Raises BadInput for a name that does not exist, Unfit
    for a lock that cannot be loaded, does not run there or is not made for the workload or the
    resource."""
    system = find_system(lock)
    asked = find_workload(workload)
    if system.kind not in asked.workload.kinds:
        what = "what takes no lock" if system.kind == "none" else f"a {system.kind} lock"
        raise Unfit(f"{asked.workload.name} is not a workload for {what}")
    known = topology_for(system, topology) if cluster is None else elsewhere(system, cluster)
    steps_of(fault)
    # Workload and lock may ask for another load, written as the pace's own fields.
    wanted = {**asked.workload.pace(asked.options), **system.pace}
    case = Case(lock, known.name, known.default_size, fault, workload=workload, seed=seed)
    case = replace(case, cluster=cluster)
    if resource is not None:
        case = guarding(case, resource)
    if hosts is not None:
        case = over_hosts(case, hosts)
    return replace(case, pace=replace(Pace(), **wanted), **asked.workload.shape)  # type: ignore[arg-type]


def guarding(case: Case, spec: str) -> Case:
    """The case with a store in place of the plain resource. Raises BadInput, Unfit."""
    try:
        store = stores.find(spec)
    except StoreError as error:
        raise BadInput(str(error)) from error
    system, guard = case.system, store.guard
    if guard.rule not in case.asked.workload.storable:
        fit = ", ".join(name for name, one in declared().items() if guard.rule in one.storable)
        where = f"a store with the guard {guard.name}"
        raise BadInput(f"{case.asked.workload.name} does not run on {where}; these do: {fit}")
    if why := stores.why_not(guard, system.name, system.fence):
        raise Unfit(why)
    if guard.locks and case.topology != store.topology:
        raise Unfit(f"the guard {guard.name} needs the lock on {store.topology}")
    if guard.locks and case.cluster is not None:
        raise Unfit(f"the guard {guard.name} needs a cluster that Lockbench starts")
    return replace(case, resource=store.spec)


def topology_for(system: System, name: str | None) -> Topology:
    """The topology of this name, or the lock's first. Raises BadInput, Unfit where the lock does
    not run on it."""
    name = name or system.topologies[0]
    if name not in topologies():
        raise unknown("topology", name, topologies())
    if name not in system.topologies:
        where = ", ".join(system.topologies)
        raise Unfit(f"{system.name} does not run on {name}; it runs on {where}")
    return topologies()[name]


def elsewhere(system: System, file: str) -> Topology:
    """The cluster of somebody else that a file names. Raises BadInput, Unfit where the lock cannot
    be run on it."""
    if why := unfit_elsewhere(system, site_of(file)):
        raise Unfit(why)
    return foreign.topology(file)


def unfit_elsewhere(system: System, site: Site) -> str | None:
    """Why a lock cannot be run on a cluster of somebody else, or None."""
    if site.topology not in system.topologies:
        where = ", ".join(system.topologies)
        return f"{system.name} does not run on {site.topology}; it runs on {where}"
    if not (system.elsewhere or site.topology in CONFINED):
        why = "nobody has checked that all that it writes is under the prefix"
        if system.writes_besides:
            why = f"it writes {system.writes_besides}, which are not under the prefix"
        return f"{system.name} is not run on a cluster of your own: {why} (System.elsewhere)"
    replicas = len(site.nodes) - site.sentinels - 1
    if site.sentinels and system.replicas_max is not None and replicas > system.replicas_max:
        return (
            f"{system.name} keeps what it promises with {system.replicas_max} replica, and"
            f" {site.file.name} names {replicas}"
        )
    return None


def site_of(file: str) -> Site:
    """What the file says of a cluster of somebody else. Raises BadInput."""
    try:
        return foreign.known(file)
    except SiteError as error:
        raise BadInput(str(error)) from error


def find_workload(spec: str) -> Asked:
    """A workload by name, with or without parameters. Raises BadInput."""
    name = spec.partition(":")[0]
    if name not in declared():
        raise unknown("workload", name, declared())
    try:
        return registry.find(spec)
    except WorkloadError as error:
        raise BadInput(str(error)) from error


def steps_of(fault: str) -> Steps:
    """The steps that a case's fault stands for: words, or a schedule file. Raises BadInput."""
    try:
        if fault.endswith(".toml"):
            from lockbench.nemesis.schedule_file import read_file

            return read_file(Path(fault))
        return parse(fault)
    except ScheduleError as error:
        raise BadInput(str(error)) from error


def expected_of(case: Case) -> Expected:
    """What is expected of the case's lock under the case's faults."""
    on_lock = [one for one in case.injections if one.strikes == OF_LOCK]
    names = tuple(dict.fromkeys(injection.fault for injection in on_lock))
    exact = case.fault == NONE and case.resource is None
    if len(case.injections) == 1 and case.resource is None:
        (one,) = case.injections
        fault = faults()[one.fault]
        usual_s = fault.duration_s(case.pace.lease_ttl_s, case.system.kept_leases)
        exact = dict(one.parameters) == fault.defaults() and one.duration_s == round(usual_s, 6)
    # What servers of others do when they are struck depends on settings that are not ours.
    struck = {what for name in names for what in faults()[name].touches}
    exact = exact and not (case.cluster and SERVERS in struck)
    outlasts, own = case.asked.outlasts, is_own(case.lock)
    return Expected(
        case.system, names or (NONE,), exact, outlasts=outlasts, own=own, at_store=_at_store(case)
    )


# Of a store that is struck: what was asked for without an answer.
UNANSWERED = (
    "a write without an answer may be applied at any later time (lockbench.history.op), after the "
    "next holder has read; a fence compares with what was written, not with what was read"
)


def _at_store(case: Case) -> Mapping[str, Expectation]:
    """What is expected of a store that is struck itself: a failover may lose what its primary had
    confirmed, and a write that its holder has given up may come after the next one's read."""
    store = case.store
    if store is None or all(one.strikes == OF_LOCK for one in case.injections):
        return {}
    declared = store.store
    struck = [one.fault for one in case.injections if one.strikes != OF_LOCK]
    forgets = (declared.forgets.get(fault) for fault in struck)
    why = declared.loses.get(store.topology) or next(filter(None, forgets), None)
    # What is done late is done once all the same.
    once = store.guard.rule == "once"
    if why is None and not once and store.guard.rule != "unchanged":
        why = UNANSWERED
    if why is None:
        return {}
    lost = "lost-charge" if once else "lost-update"
    return {lost: Expectation("may-break", why, "documented-limit")}


def tries_of(case: Case) -> int:
    """How often a case may be run until every break that is due has shown."""
    expected = expected_of(case)
    due = [e for v in NAMED if (e := expected.of(v)).expected == "breaks"]
    return max((e.tries for e in due), default=1)


def find_system(name: str) -> System:
    """A lock by name, or by its file or folder. Raises BadInput, Unfit for what the file says."""
    known = {**systems(), **without()}
    if not is_own(name) and name.partition(":")[0] not in known:
        raise unknown("lock", name, known)
    try:
        return find(name)
    except Exception as error:
        raise (Unfit if is_own(name) else BadInput)(str(error)) from error


def each_lock(name: str) -> list[str]:
    """What a lock's name stands for: the file or folder of a library for every lock that it
    declares. What cannot be loaded is left to ``find_system`` to refuse."""
    try:
        return each(name)
    except LockNotFoundError:
        return [name]


def applies(case: Case) -> bool:
    """Whether a case belongs into a matrix: its faults can be applied, and its lock does not
    declare that they leave nothing to judge."""
    judged = any(
        expectation(case.system, case.fault, verdict).expected != "n/a" for verdict in ALWAYS
    )
    answered = case.fault == REPLY_LOST and case.system.asks_first
    return judged and not answered and unfit(case) is None


def unfit(case: Case) -> str | None:
    """Why a case's faults cannot be applied to its cluster or its lock, or None; ``Impossible``
    where that lies in what these are."""
    steps = steps_of(case.fault)
    reason = _unfit(steps, never_started(case), _never_started_store(case))
    if reason is not None and case.cluster is not None and not isinstance(reason, Impossible):
        site = site_of(case.cluster)
        given = wording.listed(site.hands.verbs) or "no commands"
        return f"{reason}; {site.file.name} gives {given}, and nothing else strikes those servers"
    if reason is not None or not case.lock:
        return reason
    for one in (one for step in steps for one in step if one.name in faults()):
        aimed = faults()[one.name].needs_extend(dict(one.parameters))
        if aimed and not extendable(case.system):
            return Impossible(f"{one.name} is aimed at an extend, and {case.lock} has none")
        if faults()[one.name].needs_lease() and not case.system.limited:
            return Impossible(
                f"{one.name} can only end a lease, and {case.lock} grants without one"
            )
    return None


_unfit = cache(schedule.unfit)


def rates_of(case: Case) -> documents.RatesOf:
    """What the rates of a case are of: cases of which it is the same are pooled."""
    return documents.RatesOf(
        lock=case.system.name,
        topology=case.topology,
        size=case.size,
        network=case.network,
        clients=case.rates.clients,
        keys=case.rates.keys,
        hold_s=case.rates.hold_s,
    )


def never_started(case: Case) -> Cluster:
    """The case's cluster as a thing that can be asked what it offers."""
    return _never_started(
        case.topology,
        case.size,
        case.pace.lease_ttl_s,
        case.images,
        case.cluster,
        hosts=case.hosts,
    )


def _never_started_store(case: Case) -> Cluster | None:
    """That of the case's store; None where it has no servers or is the plain resource."""
    store = case.store
    if store is None or not store.topology:
        return None
    size = topologies()[store.topology].default_size
    return _never_started(store.topology, size, case.pace.lease_ttl_s, case.images, None)


# A suite has thousands of cases on a few dozens of clusters.
@cache
def _never_started(
    topology: str,
    size: int,
    lease_ttl_s: float,
    images: tuple[tuple[str, str], ...],
    cluster: str | None,
    *,
    hosts: str | None = None,
) -> Cluster:
    pace = Pace(lease_ttl_s=lease_ttl_s)
    case = Case("", topology, size, NONE, pace=pace, images=images, cluster=cluster, hosts=hosts)
    return topology_of(case).make(cluster_plan_of(case, "plan", Path()))


def fits(fault: str, topology: str) -> bool:
    """Whether a fault can be applied to a topology at its default size."""
    size = topologies()[topology].default_size
    return unfit(Case(lock="", topology=topology, size=size, fault=fault)) is None


def topology_of(case: Case) -> Topology:
    """The declaration of a case's topology."""
    if case.hosts is not None:
        plain = topologies()[case.topology.removesuffix(OVER_HOSTS)]
        return replace(plain, name=case.topology)
    return topologies()[case.topology] if case.cluster is None else foreign.topology(case.cluster)


def cluster_plan_of(case: Case, run_id: str, logs: Path) -> ClusterPlan:
    """What a case's cluster is made with: links for every worker's clients."""
    return ClusterPlan(
        topology=case.topology,
        size=case.size,
        groups=workers_of(case) + 1,
        run_id=run_id,
        lease_ttl_s=case.pace.lease_ttl_s,
        log_dir=str(logs),
        images=dict(case.images),
        ours=built.ours_among(dict(case.images)),
        network=case.network,
        hosts=hosts_of(case),
    )


def store_topology_of(case: Case) -> Topology | None:
    """That of the servers which are started for the case's store: none for a folder, nor where it
    is on the lock's own cluster."""
    store = case.store
    if store is None or not store.topology or store.guard.locks:
        return None
    return topologies()[store.topology]


def images_of(used: Iterable[Topology]) -> list[str]:
    """Every server image that they run, the links' too, by name."""
    return sorted({LINK_IMAGE, *(name for topology in used for name in topology.images)})


def refuse_namesakes(cases: Iterable[Case]) -> None:
    """What is measured of one lock would be taken for that of another. Raises BadInput."""
    asked: dict[str, str] = {}
    for case in cases:
        name = case.system.name
        other = asked.setdefault(name, case.lock)
        if other != case.lock:
            raise BadInput(
                f"{other} and {case.lock} both call their lock {name}; give one another name"
            )


def ours_of(cases: Iterable[Case]) -> list[str]:
    """The images of cases that are built here: without what was given with ``--image``."""
    return sorted(
        {
            name
            for case in cases
            for name in images_of(filter(None, (topology_of(case), store_topology_of(case))))
            if name not in dict(case.images)
        }
    )


def built_for(case: Case) -> list[str]:
    """The images that a case needs and that are built here, its client's last."""
    library = library_of(case.system)
    client = [library.image] if isinstance(library, ContainerLibrary) else []
    return [*ours_of([case]), *client]


def refuse_impossible(case: Case) -> None:
    """Everything about a case that can be wrong before anything starts. Raises BadInput."""
    if case.fault != NONE and not case.asked.workload.faulted:
        raise BadInput(f"the workload {case.workload} knows no faults; leave --fault out")
    if case.machines is not None:
        _refuse_elsewhere(case)
    if case.network not in NETWORKS:
        raise unknown("network", case.network, NETWORKS)
    refuse_numbers(case)
    if case.rates.steps and (case.fault != NONE or case.system.kind == "none"):
        raise BadInput("rates are those of a lock without a fault")
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
    hold_s = case.asked.leases * pace.lease_ttl_s
    if hold_s > case.phases.contended_s:
        raise BadInput(
            f"{case.workload} holds the lock for {hold_s:g} s, longer than the "
            f"{case.phases.contended_s:g} s in which clients contend: give a longer --time-limit"
        )
    reason = unfit(case)
    if reason is not None:
        raise BadInput(reason)
    if case.time_limit_s < TIME_LIMIT_S_MIN:
        raise BadInput(
            f"--time-limit {case.time_limit_s:g} s is too short: "
            f"a case takes at least {TIME_LIMIT_S_MIN:g} s"
        )


def _refuse_elsewhere(case: Case) -> None:
    """What cannot be had from other machines. Raises BadInput."""
    machines_of(case)
    if is_own(case.lock):
        raise BadInput(f"{case.lock} is a file of this machine, and --machines runs it on others")
    if is_in_container(case.system):
        raise BadInput(
            f"{case.system.name} runs in a container of this machine's engine, so its clients"
            " cannot be on other machines"
        )
    if case.system.kind == "none":
        raise BadInput("without a lock there is nothing that other machines could disagree about")
    if case.workload == PUBLISHED:
        raise BadInput(f"the workload {PUBLISHED} is an experiment of one machine")
    if case.resource is not None:
        raise BadInput(
            "a store is asked from this machine only: leave --resource or --machines out"
        )


def refuse_numbers(case: Case) -> None:
    """What no case can have, whatever is done in it. Raises BadInput."""
    for name, value in (
        ("--clients", case.clients),
        ("--keys", case.keys),
        ("--nodes", case.size),
        ("--time-limit", case.time_limit_s),
        ("--ttl", case.pace.lease_ttl_s),
    ):
        if not value > 0:
            raise BadInput(f"{name} is {value:g}; it has to be more than 0")
    if case.seed < 0:
        raise BadInput(f"--seed is {case.seed}; it has to be 0 or more")
    for name, count, most, why in (
        ("--clients", case.clients, CLIENTS_MAX, ": a Redis takes no more connections"),
        ("--keys", case.keys, KEYS_MAX, ": every key is judged by itself"),
        ("--time-limit", case.time_limit_s, SECONDS_MAX, ""),
        ("--ttl", case.pace.lease_ttl_s, SECONDS_MAX, ""),
        ("--seed", case.seed, SEED_MAX, ""),
    ):
        if count > most:
            raise BadInput(f"{name} is {count:,}; it has to be {most:,} or less{why}")


def needed_s(case: Case, injections: Sequence[Injection]) -> float:
    """The time limit that these faults need, with what is before and after them."""
    if not injections:
        return TIME_LIMIT_S_MIN
    struck = {
        what for one in injections for what in faults()[one.fault].holds_of(dict(one.parameters))
    }
    whole_s = end_s(injections)
    if SERVERS in struck:
        whole_s += topology_of(case).restart_s
    if case.lock and struck & OF_SERVERS:
        whole_s += case.system.settles_s
    return math.ceil((whole_s + AFTER_S + FLOOR_S) / (1 - OWN_SHARE))


def with_time_for_faults(case: Case, spare_s: float = 0.0) -> Case:
    """The case with as much time as its schedule needs and ``spare_s`` more, and no less than it
    has. More than a minute and a half has to be asked for. Faults last for multiples of the lease,
    so a lock with a longer lease than usual gets as many times that."""
    most_s = UNASKED_S_MAX * max(1.0, case.pace.lease_ttl_s / Pace().lease_ttl_s)
    needed = min(needed_s(case, draw(case)) + spare_s, most_s)
    return replace(case, time_limit_s=max(case.time_limit_s, needed))


def draw(case: Case) -> tuple[Injection, ...]:
    """The schedule of a case, drawn from its seed. Raises BadInput."""
    steps = steps_of(case.fault)
    try:
        weights = tuple(weights_of(case.fault).items())
        return _drawn(
            steps,
            case.seed,
            case.pace.lease_ttl_s,
            never_started(case),
            weights,
            kept_leases=case.system.kept_leases if case.lock else 1.0,
        )
    except ScheduleError as error:
        raise BadInput(str(error)) from error


@cache
def _drawn(
    steps: Steps,
    seed: int,
    lease_ttl_s: float,
    cluster: Cluster,
    weights: tuple[tuple[str, float], ...],
    *,
    kept_leases: float,
) -> tuple[Injection, ...]:
    return schedule.resolve(
        steps,
        seed=seed,
        lease_ttl_s=lease_ttl_s,
        kept_leases=kept_leases,
        cluster=cluster,
        weights=dict(weights),
    )


def weights_of(fault: str) -> Mapping[str, float]:
    """What a schedule file says about how often faults are drawn."""
    if not fault.endswith(".toml"):
        return {}
    from lockbench.nemesis.schedule_file import read_weights

    return read_weights(Path(fault))


def resolve(case: Case) -> Case:
    """The case with its schedule drawn from its seed. Raises BadInput."""
    refuse_impossible(case)
    injections = draw(case)
    least = needed_s(case, injections)
    if case.time_limit_s < least:
        raise BadInput(
            f"--time-limit {case.time_limit_s:g} s is too short for {case.fault}: "
            f"before, during and after it take at least {least:g} s"
        )
    return replace(case, injections=injections)


def unknown(what: str, name: str, known: Iterable[str]) -> BadInput:
    """The sentence for a name that does not exist, with what may have been meant."""
    names: Sequence[str] = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
    return BadInput(f"no {what} is called {name!r}; {hint}")
