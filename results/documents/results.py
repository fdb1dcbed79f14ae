"""results.json: all cases of a run, and what they came to."""

from __future__ import annotations

from typing import Literal

from lockbench.results.documents.case import CaseResult, VerdictName
from lockbench.results.documents.part import (
    Count,
    Document,
    Name,
    Part,
    Quantiles,
    Real,
    Seconds,
    Share,
    Small,
)


class Spread(Part, frozen=True):
    """Over cases; no numbers where there was none."""

    count: Count
    median: Real | None = None
    min: Real | None = None
    max: Real | None = None


class PooledKinds(Part, frozen=True):
    """By kind of latency, in milliseconds."""

    acquire: Quantiles
    handover: Quantiles
    wait: Quantiles


class UndisturbedLock(Part, frozen=True):
    """``lockbench.results.baseline``: a lock before any fault, over all cases. ``latency_ms`` is
    service time. From their intended start, with what was given up right-censored: ``response_ms``
    of acquires on own keys, and ``wait_response_ms`` (None: an older version wrote it)."""

    lock: Name
    cases: Count
    latency_ms: PooledKinds
    cycles_per_second: Spread
    floor_acquire_ms_p50: Spread
    floor_cpu_us_per_cycle: Spread
    response_ms: Quantiles | None = None
    wait_response_ms: Quantiles | None = None


class Bounds(Part, frozen=True):
    """Between which a figure lies."""

    min: Real
    max: Real


class PooledRate(Part, frozen=True):
    """A lock at one rate, over all blocks (``lockbench.results.rates``). Ranges are where the same
    figure of a repeated run is expected. ``why`` the figure is void."""

    offered_per_s: Spread
    granted_per_s: Spread
    due: Count
    granted: Count
    response_ms: Quantiles
    blocks: Count
    void_blocks: Count
    # From when an acquire was sent: the median of all, the lowest and highest of the rounds' own.
    service_p50_ms: Spread | None = None
    p50_ms_range: Bounds | None = None
    p99_ms_range: Bounds | None = None
    share: Real | None = None
    why: tuple[str, ...] = ()


class RatesOf(Part, frozen=True):
    """What was measured at rates. ``keys`` that all clients share; 0: each has its own."""

    lock: Name
    topology: Name
    size: Small
    network: Name
    clients: Small
    keys: Small
    hold_s: Seconds


class Knee(Part, frozen=True):
    """``lockbench.results.knee``: between which rates latency leaves the flat part, over all
    rounds. None: it did not up to the highest rate."""

    low_per_s: Real
    high_per_s: Real | None
    rounds: Count


class LockRates(Part, frozen=True):
    """A lock at all its rates. ``carried_per_s``: grants of the saturated steps, and where those of
    a repeated run are expected; ``why`` these are the load generator's, the clients' or the
    machine's, and the lock carries at least as much. ``carried_processors``: percent of all
    processors that each part used meanwhile."""

    of: RatesOf
    carried_per_s: Spread
    rates: tuple[PooledRate, ...]
    carried_range_per_s: Bounds | None = None
    knee: Knee | None = None
    why: tuple[str, ...] = ()
    carried_processors: dict[str, Real] | None = None


class Replayed(Part, frozen=True):
    """A case that was played again. ``shown``: verdict → how many times it was invalid and not
    refuted, of the ``counted`` times that say anything, of all that were ``played`` (None: an older
    version wrote it). A break that is due and does not show is played more often than asked."""

    case: str
    shown: dict[VerdictName, Count]
    counted: Count | None = None
    played: Count | None = None


class Replay(Part, frozen=True):
    """What ``--replay`` says beside the cases (``lockbench.bench.replay``). ``of`` is the run."""

    of: str
    times: Count
    honest: str
    cases: tuple[Replayed, ...]


class VerdictChange(Part, frozen=True):
    """A verdict that is not what it was. ``base`` and ``new`` say k of n; ``direction`` is worse,
    more often, open, as may happen or better."""

    lock: str
    fault: str
    verdict: str
    base: str
    new: str
    direction: str
    words: str


class ComparedNumber(Part, frozen=True):
    """``lockbench.results.gate.Cell``: changes in percent, values in ``unit``."""

    lock: str
    fault: str
    metric: str
    unit: str
    verdict: str
    pairs: Count
    base: Real | None
    new: Real | None
    change_percent: Real | None
    interval_percent: tuple[Real | None, Real | None]
    p_worse: Share | None
    p_worse_corrected: Share | None
    p_better_corrected: Share | None
    needed_pairs: Count | None
    suspected: bool


class Compared(Part, frozen=True):
    """``lockbench.results.comparison.Comparison``: two sides of the same cases. ``ending`` is the
    worst of ``endings``, which are all that occurred."""

    kind: Literal["regress", "compare"]
    base: str
    new: str
    ending: str
    headline: str
    verdict_changes: tuple[VerdictChange, ...]
    cells: tuple[ComparedNumber, ...]
    notes: tuple[str, ...]
    repeat: str
    endings: tuple[str, ...] = ()


class Results(Document, frozen=True, kw_only=True):
    """``parts`` are the runs of a night, ``comparisons`` and ``headline`` what it came to;
    ``comparison`` is that of ``regress``. ``ending`` is the worst of ``endings``, which are all
    that occurred in a night."""

    cases: tuple[CaseResult, ...]
    name: str | None = None
    undisturbed: tuple[UndisturbedLock, ...] = ()
    rates: tuple[LockRates, ...] = ()
    ending: str | None = None
    endings: tuple[str, ...] = ()
    try_of: str | None = None
    shrunk_from: str | None = None
    parts: tuple[str, ...] = ()
    headline: str | None = None
    replay: Replay | None = None
    comparison: Compared | None = None
    comparisons: tuple[Compared, ...] = ()
