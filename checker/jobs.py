"""The verdicts of what was done under a lock: one for each job that the objects of a history name.

``inventory``   ``oversold``: a unit has two buyers, so more was sold than the stock went down
``payment``     ``charged-twice``: a charge was done more than once
                ``lost-charge``: a payment that was confirmed as done has no charge
``cron``        ``ran-twice``: a run that is due once was started more than once
``leader``      ``two-leaders``: a leader acted again after a later one had acted
``rate-limit``  ``rate-exceeded``: some window saw more calls than its bound
``gate``        ``over-capacity``: more were inside at one time than there are permits

All of them are facts about what the resource applied (``lockbench.checker.resource``), in the order
in which it did: they blame nobody. Whether the service broke its word or a holder was late, the
other verdicts say. An effect whose outcome its client never learned counts only if the resource's
log shows it. Where the resource did not say when it applied one, that was at some time of its
window: what depends on when is unknown.

A sale is a write: it sells the next unit of the stock that had been read. Two writes that build on
states with the same number of units left therefore sell the same unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.intervals import ByKey, same_key_as_before
from lockbench.checker.rows import Bools, Rows, by_key_and_time, rows_of
from lockbench.checker.verdict import Verdict
from lockbench.checker.words import EVIDENCE_MAX, clock, during, faults_on, many, operation
from lockbench.history.columns import History, Ids, Ints
from lockbench.history.op import NULL, F, Type

Judge = Callable[[Analysis, Bools], Verdict | None]


def judged(analysis: Analysis) -> dict[str, Callable[[], Verdict | None]]:
    """Verdict → how to reach it, for the jobs of this history's keys."""
    return {
        verdict: partial(judge, analysis, keys)
        for job, keys in keys_by_job(analysis.history).items()
        for verdict, judge in VERDICTS_OF[job].items()
    }


def keys_by_job(history: History) -> dict[str, Bools]:
    """Which keys each job is done under."""
    job_of = [history.object_of(key).job for key in history.keys]
    jobs = sorted({job for job in job_of if job is not None})
    return {job: np.array([found == job for found in job_of], np.bool_) for job in jobs}


def applied(history: History, keys: Bools, f: F) -> Rows:
    """What the resource applied of one function, on these keys, by key and time of application."""
    rows = rows_of(history, f)
    known = (history.type[rows] == Type.OK) | (
        (history.type[rows] == Type.INFO) & (history.applied_ns[rows] != NULL)
    )
    rows = rows[known & keys[history.key[rows]]]
    order = by_key_and_time(history.key[rows], applied_ns(history, rows))
    in_order: Rows = rows[order]
    return in_order


def applied_ns(history: History, rows: Rows) -> Ints:
    """When; at the latest, where the resource did not say."""
    at = history.applied_ns[rows]
    return np.where(at == NULL, history.complete_ns[rows], at)


def _begun_ns(history: History, rows: Rows) -> Ints:
    """When; at the earliest, where the resource did not say."""
    at = history.applied_ns[rows]
    return np.where(at == NULL, history.invoke_ns[rows], at)


def _in_no_certain_order(history: History, rows: Rows) -> Verdict | None:
    """Of effects by key and time: unknown where two may have been applied in either order, because
    the resource did not say when."""
    begun, ended = _begun_ns(history, rows), applied_ns(history, rows)
    untold = begun < ended
    beside = same_key_as_before(history.key[rows])[1:] & (begun[1:] <= ended[:-1])
    count = int(np.count_nonzero(beside & (untold[1:] | untold[:-1])))
    if not count:
        return None
    return Verdict("unknown", f"when {many(count, 'effect')} beside another was applied is unknown")


def things(history: History, keys: Bools) -> Rows:
    """What was done, each with its number: as the store showed it after the load, where somebody
    looked, else what the resource applied."""
    found = applied(history, keys, F.FOUND)
    return found if len(found) else applied(history, keys, F.EFFECT)


def places(history: History, keys: Bools) -> tuple[Rows, Ints]:
    """(thing, which place it was given) of what was done without a lock: what a client was told and
    what the store shows, each thing of a buyer once."""
    rows = np.concatenate([applied(history, keys, f) for f in (F.EFFECT, F.FOUND)])
    rows = rows[(history.value[rows] != NULL) & (history.hold[rows] != NULL)]
    named = np.stack([history.key[rows].astype(np.int64), history.value[rows], history.hold[rows]])
    first = np.sort(np.unique(named, axis=1, return_index=True)[1]) if len(rows) else rows
    return rows[first], history.value[rows[first]]


def units(history: History, keys: Bools) -> tuple[Rows, Ints]:
    """(write, how many units had been sold in the state that it built on). Writes that build on a
    version of which nobody knows who made it are left out."""
    rows = applied(history, keys, F.WRITE)
    rows = rows[(history.version[rows] != NULL) & (history.value[rows] != NULL)]
    sold = np.full(len(rows), -1, np.int64)
    places = ByKey(history.key[rows])
    for key in places.present():
        mine = places[key]
        read, made = history.version[rows[mine]], history.value[rows[mine]]
        # A version is made after the one it builds on, so in their order everything is known.
        left = {int(made.min() - 1): 0}
        for at in np.argsort(made, kind="stable").tolist():
            before = left.get(int(read[at]))
            if before is not None:
                sold[mine[at]] = before
                left[int(made[at])] = before + 1
    known = sold >= 0
    return rows[known], sold[known]


def oversold(analysis: Analysis, keys: Bools) -> Verdict | None:
    """Absent when nothing was sold."""
    history = analysis.history
    under_a_lock = len(applied(history, keys, F.WRITE)) > 0
    rows, unit = units(history, keys) if under_a_lock else places(history, keys)
    if len(rows) == 0 and not under_a_lock:
        return None
    again = _repeated(history.key[rows], unit)
    if not len(again):
        unknown = len(applied(history, keys, F.WRITE)) - len(rows)
        if under_a_lock and unknown:
            return Verdict("unknown", f"{many(unknown, 'sale')} built on a state nobody made")
        return Verdict("valid", f"{many(len(rows), 'unit')} sold, each to one buyer")
    second = int(again[0])
    same = (history.key[rows] == history.key[rows[second]]) & (unit == unit[second])
    buyers = rows[same]
    reason = (
        f"unit {int(unit[second])} of {analysis.key(int(rows[second]))} was sold to "
        f"{' and to '.join(analysis.name(int(row)) for row in buyers[:3])}; "
        f"{len(rows)} sales of {len(rows) - len(again)} units"
    )
    return _invalid(analysis, reason, buyers)


def done_twice(analysis: Analysis, keys: Bools, *, noun: str, done: str) -> Verdict | None:
    """Absent when no effect was applied."""
    history = analysis.history
    everything = things(history, keys)
    if len(everything) == 0:
        return None
    rows = everything[history.version[everything] != NULL]
    again = _repeated(history.key[rows], history.version[rows])
    if not len(again) and len(rows) < len(everything):
        return Verdict("unknown", f"{many(len(everything) - len(rows), noun)} without a number")
    if not len(again):
        return Verdict("valid", f"{many(len(rows), noun)}, each {done} once")
    second = int(rows[again[0]])
    same = (history.key[rows] == history.key[second]) & (
        history.version[rows] == history.version[second]
    )
    mine = rows[same]
    times = clock(history, applied_ns(history, mine).tolist())
    reason = (
        f"{noun} {int(history.version[second])} of {analysis.key(second)} was {done} by "
        + " and by ".join(
            f"{analysis.name(int(row))} at {at} s" for row, at in zip(mine[:3], times, strict=False)
        )
        + f"; {len(again)} of {many(len(rows), noun)} were {done} again"
    )
    return _invalid(analysis, reason, mine)


def lost_charge(analysis: Analysis, keys: Bools) -> Verdict | None:
    """Absent when no payment was confirmed."""
    history = analysis.history
    confirmed = _confirmed(history, keys)
    if not len(confirmed):
        return None
    lost = lost_rows(history, keys)
    if lost is None:
        return Verdict("unknown", "nobody looked into the store after the load")
    if not len(lost):
        return Verdict("valid", f"{many(len(confirmed), 'payment')} confirmed, all of them charged")
    row = int(lost[0])
    reason = (
        f"payment {int(history.version[row])} of {analysis.key(row)} was confirmed to "
        f"{analysis.name(row)} and never charged; {len(lost)} of "
        f"{many(len(confirmed), 'confirmed payment')} are lost"
    )
    return _invalid(analysis, reason, lost[:EVIDENCE_MAX])


def lost_rows(history: History, keys: Bools) -> Rows | None:
    """The jobs that were confirmed and never done; None where nobody knows what was done."""
    confirmed, rows = _confirmed(history, keys), things(history, keys)
    if not np.any(history.f[rows] == F.FOUND) and not np.any(history.applied_ns[rows] != NULL):
        return None
    charged = set(zip(history.key[rows].tolist(), history.version[rows].tolist(), strict=True))
    lost = [r for r in confirmed.tolist() if (history.key[r], history.version[r]) not in charged]
    return np.array(lost, np.intp)


def _confirmed(history: History, keys: Bools) -> Rows:
    jobs = rows_of(history, F.JOB, Type.OK)
    confirmed: Rows = jobs[keys[history.key[jobs]] & (history.version[jobs] != NULL)]
    return confirmed


def two_leaders(analysis: Analysis, keys: Bools) -> Verdict | None:
    """Absent when no leader acted."""
    history = analysis.history
    rows = applied(history, keys, F.EFFECT)
    rows = rows[history.hold[rows] != NULL]
    if len(rows) == 0:
        return None
    if unknown := _in_no_certain_order(history, rows):
        return unknown
    turns = _turns(history, rows)
    back = turns[_repeated(history.key[rows[turns]], history.hold[rows[turns]])]
    if not len(back):
        return Verdict("valid", f"{many(len(rows), 'act')} of {many(len(turns), 'leader')} in turn")
    at = int(back[0])
    old, new = int(rows[at]), int(rows[at - 1])
    reason = (
        f"{analysis.name(old)} acted as leader of {analysis.key(old)} at "
        f"{clock(history, applied_ns(history, rows[at : at + 1]).tolist())[0]} s, after "
        f"{analysis.name(new)} had begun to lead; {many(len(back), 'return')} of a former leader"
    )
    mine = rows[(history.hold[rows] == history.hold[old]) & (np.arange(len(rows)) < at)]
    return _invalid(analysis, reason, np.array([*mine[-1:], new, old], np.intp))


def rate_exceeded(analysis: Analysis, keys: Bools) -> Verdict | None:
    """Absent when nothing was called."""
    history = analysis.history
    rows = applied(history, keys, F.EFFECT)
    if len(rows) == 0:
        return None
    begun, at = _begun_ns(history, rows), applied_ns(history, rows)
    worst: tuple[int, Rows, int, int] | None = None
    unsure = 0
    places = ByKey(history.key[rows])
    for key in places.present():
        limit = history.object_of(history.keys[key])
        if limit.bound is None or limit.window_ns is None:
            return Verdict("unknown", f"{history.keys[key]} has no bound, or no window")
        mine = places[key]
        counted = _certainly_within(begun[mine], at[mine], limit.window_ns)
        most = len(counted)
        before = np.searchsorted(at[mine], begun[mine])
        possible = np.searchsorted(np.sort(begun[mine]), at[mine] + limit.window_ns) - before
        unsure = max(unsure, int(possible.max()) - limit.bound)
        if most > limit.bound and (worst is None or most > worst[0]):
            worst = (most, rows[mine[counted]], limit.bound, limit.window_ns)
    if worst is None and unsure > 0:
        return Verdict(
            "unknown", "when calls were applied decides whether a window is above its bound"
        )
    if worst is None:
        return Verdict("valid", f"{many(len(rows), 'call')}, no window above its bound")
    most, calls, bound, window_ns = worst
    begin = clock(history, [int(applied_ns(history, calls[:1])[0])])[0]
    reason = (
        f"{most} calls of {analysis.key(int(calls[0]))} within {window_ns / 1e9:g} s, from {begin} "
        f"s on, where {bound} are allowed"
    )
    return _invalid(analysis, reason, calls[-EVIDENCE_MAX:])


def _certainly_within(begun: Ints, at: Ints, window_ns: int) -> Rows:
    """Of calls in the order of ``at``, the most that were applied in one window whenever each was,
    from ``begun`` to ``at``: those that began no earlier than one of them, and ended within."""
    if np.array_equal(begun, at):
        within = np.searchsorted(at, at + window_ns) - np.arange(len(at))
        first = int(np.argmax(within))
        return np.arange(first, first + int(within[first]))
    found = (
        np.flatnonzero((begun >= begin) & (at < begin + window_ns)) for begin in np.unique(begun)
    )
    return max(found, key=len)


def over_capacity(analysis: Analysis, keys: Bools) -> Verdict | None:
    """Absent when nobody was inside."""
    all_visits = list(visits(analysis.history, keys))
    if not all_visits:
        return None
    rows = applied(analysis.history, keys, F.EFFECT)
    if unknown := _in_no_certain_order(analysis.history, rows):
        return unknown
    for found in all_visits:
        if found.most > found.permits:
            worst = int(np.argmax(found.inside))
            there = (found.entered <= found.entered[worst]) & (found.left > found.entered[worst])
            entering = found.rows[there]
            reason = (
                f"{found.most} were inside {analysis.key(int(entering[0]))}, which has "
                f"{many(found.permits, 'permit')}"
            )
            return _invalid(analysis, reason, entering)
    count = sum(len(found.rows) for found in all_visits)
    return Verdict("valid", f"{many(count, 'visit')}, never more inside than permitted")


@dataclass(frozen=True, eq=False)
class Visits:
    """Of one key, one entry a hold: inside is who has entered and not left, from a hold's first
    effect to its last. ``inside`` counts those who were there when it entered, itself included; it
    is 0 for a hold of which nobody saw the end."""

    rows: Rows
    entered: Ints
    left: Ints
    inside: Ints
    permits: int

    @property
    def most(self) -> int:
        """How many were inside at one time."""
        return int(self.inside.max(initial=0))


def visits(history: History, keys: Bools) -> Iterator[Visits]:
    """Key by key."""
    rows = applied(history, keys, F.EFFECT)
    rows = rows[history.hold[rows] != NULL]
    at = applied_ns(history, rows)
    for key in (places := ByKey(history.key[rows])).present() if len(rows) else ():
        mine = places[key]
        hold = history.hold[rows[mine]]
        _, first, counts = np.unique(hold, return_index=True, return_counts=True)
        last = len(hold) - 1 - np.unique(hold[::-1], return_index=True)[1]
        entered, left = at[mine[first]], at[mine[last]]
        inside = np.searchsorted(np.sort(entered), entered, side="right") - np.searchsorted(
            np.sort(left), entered, side="right"
        )
        permits = history.object_of(history.keys[key]).permits or 1
        yield Visits(rows[mine[first]], entered, left, np.where(counts > 1, inside, 0), permits)


def _repeated(key: Ids, value: Ints) -> Rows:
    """The places whose (key, value) stood at an earlier place already."""
    order = np.lexsort((np.arange(len(key)), value, key))
    same = (key[order][1:] == key[order][:-1]) & (value[order][1:] == value[order][:-1])
    return np.sort(order[1:][same])


def _turns(history: History, rows: Rows) -> Rows:
    """The places at which another hold than the one before begins to act."""
    key, hold = history.key[rows], history.hold[rows]
    goes_on = same_key_as_before(key)
    goes_on[1:] &= hold[1:] == hold[:-1]
    return np.flatnonzero(~goes_on)


def _invalid(analysis: Analysis, reason: str, rows: Rows) -> Verdict:
    """With the operations as evidence, and the faults that were on."""
    at = applied_ns(analysis.history, rows)
    begin, end = int(at.min()), int(at.max())
    evidence = tuple(operation(analysis, int(row)) for row in rows[:EVIDENCE_MAX])
    told = f"{reason}{during(analysis, begin, end)}"
    return Verdict("invalid", told, (*evidence, *faults_on(analysis, begin, end)))


VERDICTS_OF: Final[Mapping[str, Mapping[str, Judge]]] = {
    "inventory": {"oversold": oversold},
    "payment": {
        "charged-twice": partial(done_twice, noun="charge", done="done"),
        "lost-charge": lost_charge,
    },
    "cron": {"ran-twice": partial(done_twice, noun="run", done="started")},
    "leader": {"two-leaders": two_leaders},
    "rate-limit": {"rate-exceeded": rate_exceeded},
    "gate": {"over-capacity": over_capacity},
    "fairness": {},
    "two-locks": {},
}
