"""What was done under the locks of a history, in numbers: ``measurements.jobs``, one entry a job.

Counts are of the whole case, what the resource applied (``lockbench.checker.jobs``). Times are
seconds, waits milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.guard import REFUSED
from lockbench.checker.jobs import (
    applied,
    applied_ns,
    keys_by_job,
    lost_rows,
    places,
    things,
    units,
    visits,
)
from lockbench.checker.rows import FOREVER, Bools, Rows, failed_with, keys_with, rows_of
from lockbench.history.columns import Ids, Ints
from lockbench.history.op import F, Type

NS: Final = 1e9
DONE_ALREADY: Final = "no-effect: done already"
KINDS_OF_CLIENT: Final = ("fast", "slow")


def summaries(analysis: Analysis) -> dict[str, object]:
    """Job → its numbers."""
    return {
        job: {**_whole(analysis, keys), **SUMMARY_OF[job](analysis, keys)}
        for job, keys in keys_by_job(analysis.history).items()
    }


def _whole(analysis: Analysis, keys: Bools) -> dict[str, object]:
    """Jobs that were done, that were not, and of which nobody knows; effects that were tried, that
    met somebody who was first, and that had been done already."""
    history = analysis.history
    jobs = rows_of(history, F.JOB)
    kinds = history.type[jobs[keys[history.key[jobs]]]]
    tries = rows_of(history, F.EFFECT)
    tries = tries[keys[history.key[tries]]]
    failed = history.type[tries] == Type.FAIL
    already = failed & (failed_with(history, DONE_ALREADY) | failed_with(history, REFUSED))[tries]
    return {
        "done": int(np.count_nonzero(kinds == Type.OK)),
        "not_done": int(np.count_nonzero(kinds == Type.FAIL)),
        "unknown": int(np.count_nonzero(kinds == Type.INFO)),
        "tries": len(tries),
        "conflicts": int(np.count_nonzero(failed & ~already)),
        "refused_as_done": int(np.count_nonzero(already)),
    }


def _inventory(analysis: Analysis, keys: Bools) -> dict[str, object]:
    under_a_lock = len(applied(analysis.history, keys, F.WRITE)) > 0
    rows, unit = (units if under_a_lock else places)(analysis.history, keys)
    sold = _distinct(analysis.history.key[rows], unit)
    return {"sales": len(rows), "units": sold, "oversold": len(rows) - sold}


def _effects(analysis: Analysis, keys: Bools) -> dict[str, object]:
    history = analysis.history
    rows = things(history, keys)
    different = _distinct(history.key[rows], history.version[rows])
    return {"effects": len(rows), "things": different, "repeated": len(rows) - different}


def _payment(analysis: Analysis, keys: Bools) -> dict[str, object]:
    """``lost``: confirmed and never charged; None where nobody knows."""
    lost = lost_rows(analysis.history, keys)
    return {**_effects(analysis, keys), "lost": None if lost is None else len(lost)}


def _rate_limit(analysis: Analysis, keys: Bools) -> dict[str, object]:
    history = analysis.history
    rows = applied(history, keys, F.EFFECT)
    at, most = applied_ns(history, rows), 0
    for key in np.unique(history.key[rows]):
        mine = at[history.key[rows] == key]
        window_ns = history.object_of(history.keys[key]).window_ns or 0
        within = np.searchsorted(mine, mine + window_ns) - np.arange(len(mine))
        most = max(most, int(within.max()))
    return {"calls": len(rows), "most_in_a_window": most}


def _gate(analysis: Analysis, keys: Bools) -> dict[str, object]:
    found = list(visits(analysis.history, keys))
    return {
        "visits": sum(len(of_key.rows) for of_key in found),
        "most_inside": max((of_key.most for of_key in found), default=0),
    }


def _leader(analysis: Analysis, keys: Bools) -> dict[str, object]:
    """Over the keys that the load contends for, from the first grant to the last."""
    history, promised = analysis.history, analysis.promises
    contended = keys & keys_with(history, frozenset({"contended"}))
    terms, led, whole, longest = 0, 0, 0, 0
    for key in np.flatnonzero(contended):
        mine = promised.in_order[promised.key[promised.in_order] == key]
        if len(mine) == 0:
            continue
        start, end = promised.start[mine], np.minimum(promised.end[mine], FOREVER)
        until = np.maximum.accumulate(end)
        gaps = np.maximum(0, start[1:] - until[:-1])
        terms += len(mine)
        whole += int(start[-1] - start[0])
        led += int(start[-1] - start[0]) - int(gaps.sum())
        longest = max(longest, int(gaps.max(initial=0)))
    return {
        "terms": terms,
        "led_fraction": led / whole if whole else None,
        "longest_without_s": longest / NS,
    }


def _fairness(analysis: Analysis, keys: Bools) -> dict[str, object]:
    """The jobs of fast and of slow clients, from their start to their end."""
    history = analysis.history
    contended = keys & keys_with(history, frozenset({"contended"}))
    rows = rows_of(history, F.JOB, Type.OK)
    rows = rows[contended[history.key[rows]]]
    took = (history.complete_ns[rows] - history.invoke_ns[rows]) / 1e6
    result: dict[str, object] = {}
    for number, kind in enumerate(KINDS_OF_CLIENT):
        mine = history.version[rows] == number
        result[kind] = {
            "jobs": int(np.count_nonzero(mine)),
            "clients": len(np.unique(history.process[rows[mine]])),
            "p50_ms": float(np.median(took[mine])) if np.count_nonzero(mine) >= 20 else None,
            "max_ms": float(took[mine].max()) if np.any(mine) else None,
        }
    return result


def _two_locks(analysis: Analysis, keys: Bools) -> dict[str, object]:
    """Deadlocks of two: each holds a key and asks for that of the other, at the same time. They
    last from when the second asked to when the first of the two was granted or gave up."""
    history, promised = analysis.history, analysis.promises
    asks = rows_of(history, F.ACQUIRE)
    asks = asks[keys[history.key[asks]]]
    under = _under(analysis, asks)
    asks, under = asks[under >= 0], under[under >= 0]
    begin, end = history.invoke_ns[asks], history.complete_ns[asks]
    end = np.where(history.type[asks] == Type.INFO, begin, end)
    lasted: list[int] = []
    ended = {"granted": 0, "gave_up": 0}
    for i in range(len(asks)):
        # The other one holds what i asks for, and asks for what i holds; the later of two counts.
        other = (
            (promised.key[under] == history.key[asks[i]])
            & (history.key[asks] == promised.key[under[i]])
            & (begin <= begin[i])
            & (end > begin[i])
            & (history.process[asks] != history.process[asks[i]])
        )
        if not np.any(other) or end[i] == begin[i]:
            continue
        first = int(np.argmin(np.where(other, end, FOREVER)))
        freed = asks[i] if end[i] <= end[first] else asks[first]
        lasted.append(int(min(end[i], end[first]) - begin[i]))
        ended["granted" if history.type[freed] == Type.OK else "gave_up"] += 1
    return {
        "deadlocks": len(lasted),
        "longest_s": max(lasted, default=0) / NS,
        "broken_by_expiry": ended["granted"],
        "broken_by_giving_up": ended["gave_up"],
    }


def _under(analysis: Analysis, asks: Rows) -> Rows:
    """For every acquire, the grant of another key that the same process had not begun to release,
    or -1."""
    history, promised = analysis.history, analysis.promises
    order = np.lexsort((promised.start, history.process[promised.row]))
    process, start = history.process[promised.row][order], promised.start[order]
    released = np.full(len(promised), FOREVER, np.int64)
    gave_back = promised.release >= 0
    released[gave_back] = history.invoke_ns[promised.release[gave_back]]
    found = np.full(len(asks), -1, np.intp)
    for i, row in enumerate(asks.tolist()):
        low = np.searchsorted(process, history.process[row])
        high = np.searchsorted(process, history.process[row], side="right")
        at = low + int(np.searchsorted(start[low:high], history.invoke_ns[row], side="right")) - 1
        if at < low:
            continue
        grant = int(order[at])
        held = released[grant] > history.invoke_ns[row]
        if held and promised.key[grant] != history.key[row]:
            found[i] = grant
    return found


def _distinct(key: Ids, value: Ints) -> int:
    return int(np.unique(np.stack([key, value]), axis=1).shape[1]) if len(key) else 0


SUMMARY_OF: Final[Mapping[str, Callable[[Analysis, Bools], dict[str, object]]]] = {
    "inventory": _inventory,
    "payment": _payment,
    "cron": _effects,
    "leader": _leader,
    "rate-limit": _rate_limit,
    "gate": _gate,
    "fairness": _fairness,
    "two-locks": _two_locks,
}
