"""The metrics that instrumented clients would have exported, and the alerts on them.

``counters`` derives from a history what the clients and the guarded resource would have counted.
``evaluate`` judges the alerts of ``alerts/lockbench-alerts.yml`` on such counters as Prometheus
does: scrapes and evaluations at their intervals, ``rate`` and ``increase`` with its extrapolation,
``for`` durations. `promtool test rules` is held to the same answers in the tests.

Assumed, and kind to the alerts: one exporter per resource, which never restarts, is always
scraped and counted from 0 on long before the recording; afterwards its counters stand still.

Times: ``at_ns`` in nanoseconds of the history's clock, everything else in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lockbench.checker.analysis import Analysis
from lockbench.checker.intervals import running_max, same_key_as_before, up_to
from lockbench.checker.promises import Promises
from lockbench.checker.resource import uses
from lockbench.checker.rows import (
    FOREVER,
    Bools,
    Rows,
    by_key_and_time,
    failed_with,
    has_values,
    rows_of,
)
from lockbench.history.columns import History, Ids, Ints
from lockbench.history.op import NULL, F, Mode, Type

Floats = NDArray[np.float64]

SCRAPE_S: Final = 15.0
EVALUATION_S: Final = 15.0
# Scrapes and evaluations have no common beat: here each evaluation sees a scrape 10 s old.
FIRST_SCRAPE_S: Final = 5.0
# When the recording begins within a scrape interval decides how late an alert is.
PHASES_S: Final = (0.0, 5.0, 10.0)
LEAD_S: Final = 120.0
NS_PER_S: Final = 1e9

ACQUISITIONS: Final = "lock_acquisitions_total"
CONTENDED: Final = "lock_contended_acquisitions_total"
EXPIRED: Final = "lock_expired_before_release_total"
REFUSED: Final = "lock_stale_writes_refused_total"
RESULTS: Final = {Type.OK: "granted", Type.FAIL: "denied", Type.INFO: "unknown"}


@dataclass(frozen=True)
class Alert:
    """``function`` of ``metric`` over ``window_s``, divided by that of ``per`` where there is one,
    above ``threshold`` for ``for_s``. ``origin``: recommended by the field, or Lockbench's own."""

    name: str
    origin: str
    function: str
    metric: str
    per: str | None
    threshold: float
    for_s: float
    window_s: float = 60.0

    @property
    def expr(self) -> str:
        """The same in PromQL, as it stands in the file of rules."""
        terms = [f"{self._term(name)}" for name in (self.metric, self.per) if name is not None]
        return f"{' / '.join(terms)} > {self.threshold:g}"

    def _term(self, metric: str) -> str:
        return f"sum by (resource) ({self.function}({metric}[{self.window_s / 60:g}m]))"


ALERTS: Final = (
    Alert("LockContentionHigh", "field", "rate", CONTENDED, ACQUISITIONS, 0.3, 300.0),
    Alert("LockExpiredBeforeRelease", "field", "rate", EXPIRED, None, 0.1, 120.0),
    Alert("LockStaleWriteRefused", "lockbench", "increase", REFUSED, None, 0.0, 0.0),
)


@dataclass(frozen=True)
class Series:
    """One counter: when it was incremented, sorted. ``result`` only of acquisitions."""

    metric: str
    resource: str
    result: str | None
    at_ns: Ints


@dataclass(frozen=True)
class Counters:
    """All counters of a history, and its span. A metric that cannot exist has no series."""

    series: tuple[Series, ...]
    begin_ns: int
    end_ns: int

    @property
    def span_s(self) -> float:
        """How long the recording is, seconds."""
        return self.at_s(self.end_ns)

    def at_s(self, at_ns: int) -> float:
        """A time of the history, in seconds since the recording began."""
        return (at_ns - self.begin_ns) / NS_PER_S

    def of(self, metric: str, resource: str) -> list[Series]:
        return [s for s in self.series if s.metric == metric and s.resource == resource]

    def until(self, end_ns: int) -> Counters:
        """What had been counted up to a time."""
        kept = [
            Series(s.metric, s.resource, s.result, s.at_ns[s.at_ns <= end_ns]) for s in self.series
        ]
        return Counters(tuple(kept), self.begin_ns, end_ns)


@dataclass(frozen=True)
class Evaluated:
    """One alert on one resource at one phase; an entry per evaluation. ``at_s`` runs from the
    beginning of the recording; ``value`` is NaN where there is none."""

    at_s: Floats
    value: Floats
    active: Bools
    firing: Bools


def rules() -> str:
    """The file of rules, for Prometheus."""
    file = files("lockbench.results") / "alerts" / "lockbench-alerts.yml"
    return file.read_text(encoding="utf-8")


def counters(history: History, *, unknown_after_s: float = 0.0) -> Counters:
    """What would have been counted. ``unknown_after_s``: when a client gives up on an answer."""
    analysis = Analysis.of(history)
    timeout_ns = int(unknown_after_s * NS_PER_S)
    end = np.where(history.complete_ns == NULL, history.invoke_ns + timeout_ns, history.complete_ns)
    acquires = rows_of(history, F.ACQUIRE)
    contended = acquires[_contended(analysis, acquires)]
    expired_key, expired_at = _expired(analysis, end)
    refused = _refused(analysis)
    made: list[Series] = []
    for key in np.unique(history.key[acquires]).tolist():
        name = history.keys[key]
        asked = acquires[history.key[acquires] == key]
        for type_, result in RESULTS.items():
            at = end[asked[history.type[asked] == type_]]
            made.append(Series(ACQUISITIONS, name, result, np.sort(at)))
        at = end[contended[history.key[contended] == key]]
        made.append(Series(CONTENDED, name, None, np.sort(at)))
        made.append(Series(EXPIRED, name, None, np.sort(expired_at[expired_key == key])))
        if refused is not None:
            rows, at = refused
            made.append(Series(REFUSED, name, None, np.sort(at[history.key[rows] == key])))
    first = int(history.invoke_ns[0]) if len(history) else 0
    return Counters(tuple(made), first, int(end.max()) if len(history) else 0)


def _contended(analysis: Analysis, acquires: Rows) -> Bools:
    """Acquires that found nothing free when they were invoked, or were refused for that reason."""
    history, promised = analysis.history, analysis.promises
    permits = np.array([history.object_of(k).permits or 1 for k in history.keys], np.int64)
    key, asked = history.key[acquires], history.invoke_ns[acquires]
    writer = history.mode[promised.row] != Mode.READ
    reads = history.mode[acquires] == Mode.READ
    taken = np.where(
        reads,
        _active(promised, promised.nonempty & writer, key, asked),
        _active(promised, promised.nonempty, key, asked),
    )
    refused = failed_with(history, "held") | failed_with(history, "gave-up")
    found = (taken >= permits[key]) | refused[acquires]
    return found & ~np.isin(acquires, promised.row[~promised.outer])


def _active(promised: Promises, chosen: Bools, key: Ids, at_ns: Ints) -> Ints:
    """How many of the chosen promises of a key are on at a time."""
    keys = promised.key[chosen]
    counts = []
    for times in (promised.start[chosen], promised.end[chosen]):
        order = by_key_and_time(keys, times)
        counts.append(up_to(keys[order], times[order], key, at_ns))
    return counts[0] - counts[1]


def _expired(analysis: Analysis, end: Ints) -> tuple[Rows, Ints]:
    """(key, time) of holds that were over before their holder released them, when it first could
    see that: told of the loss, told not-held, or releasing after the lease. The dead count nothing.
    """
    history, promised, links = analysis.history, analysis.promises, analysis.links
    grant_of = np.full(len(history) + 1, -1, np.intp)
    grant_of[promised.row] = np.arange(len(promised))
    at = np.full(len(promised), FOREVER, np.int64)
    told = rows_of(history, F.EXTEND, Type.FAIL)
    told = np.concatenate([rows_of(history, F.LOST), told[links.not_held[told]]])
    told = links.under(told)
    index = grant_of[links.acquire[told]]
    seen = np.where(history.f[told] == F.LOST, history.invoke_ns[told], end[told])
    np.minimum.at(at, index[index >= 0], seen[index >= 0])
    released = np.flatnonzero(promised.release >= 0)
    release = promised.release[released]
    over = (history.invoke_ns[release] > promised.lease[released]) | links.not_held[release]
    at[released] = np.where(
        over,
        np.minimum(at[released], end[release]),
        np.where(at[released] > end[release], FOREVER, at[released]),
    )
    counted = np.flatnonzero((at < FOREVER) & promised.outer)
    return promised.key[counted].astype(np.intp), at[counted]


def _refused(analysis: Analysis) -> tuple[Rows, Ints] | None:
    """(row, time) of the writes that a resource checking fences on write would have refused; None
    where there is no fence. The policy ``fence-on-write`` of ``lockbench.checker.fencing``, of
    writes alone: effects that it would refuse are not counted."""
    history, promised = analysis.history, analysis.promises
    if not has_values(history.fence):
        return None
    used = uses(analysis)
    writes = np.flatnonzero(history.f[used.row] == F.WRITE)
    row, grant = used.row[writes], used.grant[writes]
    fence = history.fence[row].copy()
    fence[grant >= 0] = history.fence[promised.row[grant[grant >= 0]]]
    known = fence != NULL
    fence[~known] = int(fence[known].min()) - 1 if np.any(known) else 0
    applied = history.applied_ns[row]
    by = history.value[row] if np.any(applied == NULL) else applied
    order = by_key_and_time(history.key[row], by)
    row, fence = row[order], fence[order]
    highest, _ = running_max(history.key[row], fence)
    refused = np.zeros(len(row), np.bool_)
    refused[1:] = same_key_as_before(history.key[row])[1:] & (fence[1:] < highest[:-1])
    row = row[refused]
    applied = history.applied_ns[row]
    return row, np.where(applied == NULL, history.complete_ns[row], applied)


def evaluate(
    alert: Alert,
    counted: Counters,
    resource: str,
    *,
    phase_s: float = 0.0,
    cycles: int = 1,
    tail_s: float = 600.0,
) -> Evaluated | None:
    """One alert over the recording, played ``cycles`` times without a gap, and ``tail_s`` of
    silence after it. None where the resource exports no such metric."""
    terms = []
    begin_s = LEAD_S + phase_s
    at = np.arange(0.0, begin_s + counted.span_s * cycles + tail_s, EVALUATION_S)
    scraped = np.arange(FIRST_SCRAPE_S, at[-1] + SCRAPE_S, SCRAPE_S)
    for metric in (alert.metric, alert.per):
        if metric is None:
            continue
        found = counted.of(metric, resource)
        if not found:
            return None
        parts = [
            range_value(
                scraped,
                counter_at(s, counted, scraped - begin_s, cycles),
                at,
                alert.window_s,
                per_second=alert.function == "rate",
            )
            for s in found
        ]
        terms.append(np.sum(parts, axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        value = terms[0] / terms[1] if len(terms) == 2 else terms[0]
    active = value > alert.threshold
    return Evaluated(at - begin_s, value, active, held_for(active, at, alert.for_s))


def counter_at(series: Series, counted: Counters, at_s: Floats, cycles: int) -> Floats:
    """The counter at times that run from the beginning of the recording, which repeats."""
    increments = (series.at_ns - counted.begin_ns) / NS_PER_S
    span_s = counted.span_s
    cycle = np.floor(at_s / span_s) if span_s > 0 else np.where(at_s < 0, -1.0, 0.0)
    inside = at_s - np.clip(cycle, 0, cycles - 1) * span_s
    done = np.clip(cycle, 0, cycles - 1) * len(increments)
    value: Floats = done + np.searchsorted(increments, inside, side="right")
    value[at_s < 0] = 0.0
    return value


def range_value(
    scraped: Floats, counter: Floats, at: Floats, window_s: float, *, per_second: bool
) -> Floats:
    """``rate`` or ``increase`` of a counter without resets at each evaluation, as Prometheus
    extrapolates it to the ends of the window (promql/functions.go, ``extrapolatedRate``); NaN where
    fewer than two samples are in the window."""
    first = np.searchsorted(scraped, at - window_s, side="left")
    last = np.searchsorted(scraped, at, side="right") - 1
    result = np.full(len(at), np.nan)
    enough = np.flatnonzero(last > first)
    first, last, now = first[enough], last[enough], at[enough]
    grown = counter[last] - counter[first]
    sampled = scraped[last] - scraped[first]
    between = sampled / (last - first)
    to_start = scraped[first] - (now - window_s)
    with np.errstate(invalid="ignore", divide="ignore"):
        to_zero = sampled * (counter[first] / grown)
    # A counter is never extrapolated to below zero.
    to_start = np.where((grown > 0) & (to_zero < to_start), to_zero, to_start)
    to_end = now - scraped[last]
    reach = between * 1.1
    stretched = sampled + np.where(to_start < reach, to_start, between / 2)
    stretched = stretched + np.where(to_end < reach, to_end, between / 2)
    factor = stretched / sampled
    result[enough] = grown * (factor / window_s if per_second else factor)
    return result


def held_for(active: Bools, at: Floats, for_s: float) -> Bools:
    """Where a condition has been true at every evaluation for so long."""
    held: Bools = _true_for_s(active, at) >= for_s
    return held


def longest_true_s(every: Sequence[Evaluated]) -> float:
    """The longest time from the first to the last evaluation of a stretch that was true."""
    return max(float(np.max(_true_for_s(e.active, e.at_s), initial=0.0)) for e in every)


def _true_for_s(active: Bools, at: Floats) -> Floats:
    """How long it has been true at each evaluation, seconds; -1 where it is not."""
    began = active & ~np.concatenate([[False], active[:-1]])
    since = np.maximum.accumulate(np.where(began, at, -np.inf))
    return np.where(active, at - since, -1.0)
