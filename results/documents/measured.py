"""The numbers of a case: what its clients, its servers and its load generator were measured at."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from lockbench.results.documents.part import Count, Name, Ns, Part, Quantiles, Real, Seconds, Share


class Availability(Part, frozen=True):
    """Of one-second windows, those with a grant on a contended key."""

    fraction: Share | None = None
    windows: Count | None = None
    windows_with_a_grant: Count | None = None
    longest_gap_s: Real | None = None


class Recovery(Part, frozen=True):
    """Of one fault, in seconds after it began or was healed
    (``lockbench.checker.measurements``)."""

    fault: str | None = None
    failover_s: Real | None = None
    servers_s: Real | None = None
    dead_holder_s: Real | None = None


class Fairness(Part, frozen=True):
    """How even contended grants were."""

    clients: Count
    wait_s: Quantiles | None = None
    overtaken: Real | None = None
    jain: Real | None = None
    unserved: Count | None = None
    starved: Count | None = None


class Leaked(Part, frozen=True):
    """A hold whose holder died while others waited."""

    key: str
    process: str
    waiters: Count
    released_s: Seconds | None
    lease_left_s: Annotated[float, Meta(ge=-1e6, le=1e6)] | None


class Scoring(Part, frozen=True):
    """What one policy of the resource would have let through."""

    stale_attempted: Count | None = None
    stale_refused: Count | None = None
    stale_applied: Count | None = None
    valid_refused: Count | None = None
    lost_updates: Count | None = None
    repeated_effects: Count | None = None


class GuardedWrites(Part, frozen=True):
    """``lockbench.checker.guard``: what became of the writes to a store that checks for itself.

    ``stale_applied_late``: of the stale ones that were applied, those that came after a write of a
    newer grant. ``again``: those that were sent a second time. ``gone``: confirmed, and not in the
    store's record."""

    store: str | None = None
    guard: str | None = None
    writes: Count | None = None
    refused: Count | None = None
    unknown: Count | None = None
    stale_attempted: Count | None = None
    stale_refused: Count | None = None
    stale_applied: Count | None = None
    stale_applied_late: Count | None = None
    stale_unknown: Count | None = None
    rightful_refused: Count | None = None
    again: Count | None = None
    again_applied: Count | None = None
    gone: Count | None = None
    differences: Count | None = None


class UnknownAcquires(Part, frozen=True):
    """Acquires without an answer, by what the service's record says."""

    took_effect: Count
    left_no_trace: Count


class UnknownReleases(Part, frozen=True):
    """Releases without an answer, by what the service's record says."""

    gone: Count
    still_there: Count


class ServiceRecord(Part, frozen=True):
    """``lockbench.checker.service``: what the service's own record says."""

    record: str | None = None
    tenures: Count | None = None
    missing: str | None = None
    unknown_acquires: UnknownAcquires | None = None
    unknown_releases: UnknownReleases | None = None
    contradictions: tuple[str, ...] = ()
    contradicted: Count | None = None


class JobClients(Part, frozen=True):
    """The jobs of one kind of client."""

    jobs: Count
    clients: Count
    p50_ms: Real | None = None
    max_ms: Real | None = None


class JobNumbers(Part, frozen=True):
    """``lockbench.checker.job_measurements``: what every job has, and what single ones have."""

    done: Count | None = None
    not_done: Count | None = None
    unknown: Count | None = None
    tries: Count | None = None
    conflicts: Count | None = None
    refused_as_done: Count | None = None
    sales: Count | None = None
    units: Count | None = None
    oversold: Count | None = None
    effects: Count | None = None
    things: Count | None = None
    repeated: Count | None = None
    lost: Count | None = None
    calls: Count | None = None
    most_in_a_window: Count | None = None
    visits: Count | None = None
    most_inside: Count | None = None
    terms: Count | None = None
    led_fraction: Real | None = None
    longest_without_s: Real | None = None
    deadlocks: Count | None = None
    longest_s: Real | None = None
    broken_by_expiry: Count | None = None
    broken_by_giving_up: Count | None = None
    fast: JobClients | None = None
    slow: JobClients | None = None


class Clocks(Part, frozen=True):
    """What the clocks of several machines allow (``lockbench.checker.machines``): what they agree
    to, in the median; by how much any time of the history may be wrong; and how many of the
    promises of shared keys are too short to have a certain part."""

    agree_to_ns: Ns
    epsilon_ns: Ns
    contended_promises: Count
    without_certain_part: Count


class Measurements(Part, frozen=True):
    """Numbers beside the verdicts; what does not apply is missing."""

    availability: Availability | None = None
    recovery: tuple[Recovery, ...] | None = None
    leaked_lock: tuple[Leaked, ...] | None = msgspec.field(name="leaked-lock", default=None)
    fairness: Fairness | None = None
    fencing: dict[str, Scoring] | None = None
    jobs: dict[str, JobNumbers] | None = None
    service: ServiceRecord | None = None
    guard: GuardedWrites | None = None
    clocks: Clocks | None = None


class OnMachine(Part, frozen=True):
    """What clients did on one machine (``lockbench.results.on_machines``). ``here`` is the one that
    the bench runs on. ``acquire_ms``: of own keys, all phases. ``agree_to_ns``: half of what the
    bounds of its clock leave, in the median; None for the clock of the resource."""

    name: Name
    operations: Count
    grants: Count
    acquire_ms: Quantiles
    agree_to_ns: Ns | None = None
    came_back: bool = True


class Link(Part, frozen=True):
    """Median round trip to a server in microseconds, through its link and beside it."""

    linked: Real | None = None
    direct: Real | None = None


class Floor(Part, frozen=True):
    """What one client costs by itself."""

    cycles: Count | None = None
    cpu_us_per_cycle: Real | None = None
    acquire_ms_p50: Real | None = None


class Worker(Part, frozen=True):
    """One worker process of the load."""

    name: str | None = None
    cpu_percent_mean: Real | None = None
    cpu_percent_max: Real | None = None
    sidecar_percent_mean: Real | None = None
    lag_ms_p99: Real | None = None
    lag_ms_max: Real | None = None
    idle_users: tuple[str, ...] = ()


class Due(Part, frozen=True):
    """Jobs of an open load."""

    due: Count
    begun: Count


class Processed(Part, frozen=True):
    """What one part of ours used, and how long its threads were ready and did not run: percent of
    all cores. Pressure (PSI) is that of the one of its containers that waited most: percent of the
    time in which some thread in it waited for a processor, a disk, or memory."""

    used_percent: Real
    queued_percent: Real
    pressure_percent: Real | None = None
    io_percent: Real | None = None
    memory_percent: Real | None = None


class Processors(Part, frozen=True):
    """``lockbench.bench.pressure``: who used the processors, outside of faults. Pressure (PSI) is
    the percent of the time in which at least one process waited for a processor, a disk, or
    memory."""

    others_percent: Real
    ours_percent: Real
    steal_percent: Real
    waiting_percent: Real
    pressure_percent: Real | None = None
    io_percent: Real | None = None
    memory_percent: Real | None = None
    parts: dict[str, Processed] | None = None


class Generator(Part, frozen=True):
    """``lockbench.bench.generator``: whether the load generator measured itself."""

    ok: bool | None = None
    why: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    workers: tuple[Worker, ...] = ()
    missing: int | None = None
    load: Due | None = None
    machine_percent: Real | None = None
    processors: Processors | None = None
    # By part of the load, outside of faults: own, contended; and during, while a fault was on.
    processors_by_phase: dict[str, Processors] | None = None


class RateStep(Part, frozen=True):
    """One step of the phase ``rates`` as it went (``lockbench.results.rates``), between two times
    of the monotonic clock. ``offered_per_s`` is None where the step was saturated. ``why`` its
    figures are void."""

    begin_ns: Ns
    end_ns: Ns
    due: Count
    granted: Count
    granted_per_s: Real
    response_ms: Quantiles
    service_ms: Quantiles
    release_ms: Quantiles
    share: Real | None = None
    offered_per_s: Real | None = None
    processors: Processors | None = None
    why: tuple[str, ...] = ()


class PerGrant(Part, frozen=True):
    """Everything that servers did in a time, divided by its grants."""

    grants: Count | None = None
    grants_per_second: Real | None = None
    commands_per_grant: Real | None = None
    cpu_us_per_grant: Real | None = None


class Footprint(Part, frozen=True):
    """``lockbench.bench.footprint``: what the servers cost."""

    servers: Count | None = None
    memory_bytes: Count | None = None
    own: PerGrant | None = None
    contended: PerGrant | None = None


class Series(Part, frozen=True):
    """What happened in each second from ``start_ns`` on.

    ``grants`` and ``wait_ms_p50`` are of contended keys (None: too few grants in that second);
    ``errors`` counts unknown outcomes and refusals other than ``held`` and ``gave-up``, by the
    second in which they were asked, since an unknown has no end.
    """

    start_ns: Ns
    grants: tuple[Count, ...] = ()
    errors: tuple[Count, ...] = ()
    wait_ms_p50: tuple[Real | None, ...] = ()


class PhasesS(Part, frozen=True):
    """Lengths of the phases, one after the other."""

    floor_s: Seconds
    own_s: Seconds
    contended_s: Seconds
    rates_s: Seconds = 0.0


ByPhase = dict[str, Quantiles]
