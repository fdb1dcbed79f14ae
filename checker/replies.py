"""The rules of exposure about answers: which requests a fault kept from theirs, and what shows that
they were applied nevertheless (``lockbench.checker.rules``)."""

from __future__ import annotations

from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.contention import aimed_acquires, all_permits, between, compatible, worker_of
from lockbench.checker.exclusion import permits_of
from lockbench.checker.faults import Answer, healed_ns, span, worker_struck
from lockbench.checker.promises import known_leases
from lockbench.checker.rows import (
    AIMED_ROLES,
    FOREVER,
    Bools,
    Rows,
    answered_ns,
    keys_with,
    rows_of,
)
from lockbench.checker.words import many
from lockbench.history.columns import Ints
from lockbench.history.op import NULL, F, Fault, Type

# Rivals hold the aimed key for a third of a second: a key that nobody gets for this long is kept.
KEPT_NS: Final = 600_000_000
# Below this a wait is noise, and of fewer grants nobody knows what is usual.
KEPT_NS_MIN: Final = 100_000_000
USUAL_MIN: Final = 20
# A request that was asked in a cut and takes so many times as long as usual was held back, although
# it is answered before the heal: others were elected, or the client asked once more.
HELD_BACK: Final = 10


def reply_lost(analysis: Analysis, fault: Fault) -> Answer:
    """The victim's request ended without an answer, and its effect was seen at the service."""
    history = analysis.history
    if fault.seen.of is None:
        return False, "which request was to lose its reply is not known"
    f = {"acquire": F.ACQUIRE, "extend": F.EXTEND, "release": F.RELEASE}[fault.seen.of]
    begin, end = span(fault)
    rows = rows_of(history, f)
    rows = rows[keys_with(history, AIMED_ROLES)[history.key[rows]]]
    mine = rows[worker_of(analysis, rows) == worker_struck(fault)]
    asked = mine[(history.invoke_ns[mine] >= begin) & (history.invoke_ns[mine] <= end)]
    # Nothing is answered before the heal; a client that asks again may find out afterwards.
    late = answered_ns(history, asked) >= healed_ns(fault)
    lost = asked[(history.type[asked] != Type.OK) | late]
    if len(lost) == 0:
        return False, f"no {f.name.lower()} of the victim was left without its answer"
    seen = next(filter(None, (_effect_seen(analysis, row, f, end) for row in lost.tolist())), None)
    return seen is not None, (
        f"the victim's {f.name.lower()} was left without its answer, and "
        f"{seen or 'nothing showed that it was applied'}"
    )


def held_back(analysis: Analysis, fault: Fault) -> Answer:
    """The cut kept requests for shared keys from their answers: it was on when they should have
    been answered, and they were answered after it, or never, or far later than usual. An acquire
    that waits for a holder is kept by that holder, and one asked just before the heal by nobody."""
    history = analysis.history
    begin, end = fault.begin_ns[1], healed_ns(fault)
    shared = keys_with(history, AIMED_ROLES)
    count = 0
    for f in (F.ACQUIRE, F.RELEASE, F.EXTEND):
        took = _took_when_free(analysis, f, fault.begin_ns[0])
        if len(took) == 0:
            continue
        usual = int(np.quantile(took, 0.95))
        rows = between(analysis, rows_of(history, f), begin, end)
        rows = rows[shared[history.key[rows]]]
        rows = rows[~_taken(analysis, rows, end)]
        asked, done = history.invoke_ns[rows], history.complete_ns[rows]
        over = (asked <= end - usual) & (answered_ns(history, rows) >= end)
        slow = (done != NULL) & (done - asked > HELD_BACK * usual)
        count += int(np.count_nonzero(over | slow))
    return count > 0, f"{many(count, 'request')} for shared keys kept from an answer by the cut"


def _effect_seen(analysis: Analysis, row: int, f: F, until: int) -> str | None:
    """What shows that an unanswered request was applied, or None. Requests arrive: only their
    answers are lost."""
    history, held = analysis.history, analysis.promises
    asked_ns = int(history.invoke_ns[row])
    own = np.flatnonzero(held.row == analysis.links.acquire[row])
    if f == F.ACQUIRE:
        return _kept_by_nobody(analysis, row, row, asked_ns, until)
    if len(own) == 0:
        return None
    i = int(own[0])
    if f == F.EXTEND:
        if history.type[row] == Type.OK:
            return "it was answered only when it asked again"
        over = int(known_leases(history, analysis.links, held, asked_ns)[i])
        return _kept_by_nobody(analysis, row, int(held.row[i]), over, FOREVER)
    others = (held.key == held.key[i]) & held.nonempty
    others &= worker_of(analysis, held.row) != worker_of(analysis, held.row[[i]])[0]
    others &= ~compatible(analysis, held.row, int(held.row[i]))
    rest = np.flatnonzero(others)
    granted = rest[(held.start[rest] > asked_ns) & (held.start[rest] < held.lease[i])]
    # Of a semaphore another permit may have been free.
    freed = all_permits(analysis, rest, granted)
    return "the key was granted again before its lease was over" if freed else None


def _kept_by_nobody(
    analysis: Analysis, row: int, acquire: int, since: int, until: int
) -> str | None:
    """Others asked for the key of ``row`` for a while that began before ``until``, were not granted
    it, and nobody else could have held it: so the hold of ``acquire`` was there. Or the acquire
    ``row`` found nobody's hold there and nobody else asking."""
    history, held = analysis.history, analysis.promises
    granted = (held.key == history.key[row]) & held.outer & (held.row != acquire)
    rest = np.flatnonzero(granted & ~compatible(analysis, held.row, acquire))
    rest = rest[np.argsort(held.start[rest], kind="stable")]
    leases = (history.valid_until_ns - history.invoke_ns)[held.row[rest]]
    limited = history.valid_until_ns[held.row[rest]] != NULL
    lease_ns = int(leases[limited].max(initial=0)) or FOREVER
    # Of others' acquires without an outcome: nobody knows whether they are there.
    unknown = aimed_acquires(analysis, Type.INFO)
    unknown = unknown[(history.key[unknown] == history.key[row]) & (unknown != row)]
    unknown = unknown[history.invoke_ns[unknown] < history.invoke_ns[row]]
    ends = [*(_gone(analysis, int(j)) for j in rest)]
    last = int(max(history.invoke_ns.max(), history.complete_ns.max()))
    # From its own answer on, the hold is one that everybody knows of.
    if row == acquire and history.type[row] == Type.OK:
        last = int(history.complete_ns[row])
    starts = [*(int(start) for start in held.start[rest] if start < last), last]
    free = [min(FOREVER, int(t) + lease_ns) for t in history.invoke_ns[unknown]]
    permits = permits_of(history, int(history.key[row]))
    asking = aimed_acquires(analysis)
    asking = asking[(history.key[asking] == history.key[row]) & (asking != row)]
    asking = asking[~compatible(analysis, asking, acquire)]
    usual_ns = _usual_ns(analysis, int(history.invoke_ns[row]))
    kept_ns = min(KEPT_NS, max(KEPT_NS_MIN, HELD_BACK * usual_ns))
    # Nobody else asked for a free key while this was on its way, and the servers were at work.
    there = [end for end, start in zip(ends, held.start[rest], strict=True) if start <= since]
    alone = len(between(analysis, asking, since, since + 2 * usual_ns)) == 0
    taken_now = sum(end > since for end in [*there, *free])
    if (
        row == acquire
        and alone
        and taken_now < permits
        and _others_answered(analysis, row, since, until)
    ):
        return "it alone asked for a key that was free, of servers that went on answering others"
    for place, start in enumerate(starts):
        # When so many of those granted before were gone that one more would have been let in.
        taken = sorted((end for end in [*ends[:place], *free] if end > since), reverse=True)
        begin = max(since, taken[permits - 1] if len(taken) >= permits else since)
        if begin >= until:
            return None
        waiting = between(analysis, asking, begin, start)
        since_ns = np.maximum(history.invoke_ns[waiting], begin)
        kept = np.minimum(answered_ns(history, waiting), start) - since_ns > kept_ns
        if not np.any(kept):
            continue
        first = int(since_ns[kept].min())
        if _others_answered(analysis, row, first + kept_ns // 2, start - kept_ns // 2):
            count = int(np.count_nonzero(kept))
            return f"{many(count, 'attempt')} of others found the key taken by nobody else"
    return None


def _usual_ns(analysis: Analysis, before_ns: int) -> int:
    """How long it took until then to be granted a key that nobody held (95th percentile); of few
    grants nobody knows. A key that is kept from others for far longer than this is taken."""
    took = _took_when_free(analysis, F.ACQUIRE, before_ns)
    return KEPT_NS if len(took) < USUAL_MIN else int(np.quantile(took, 0.95))


def _took_when_free(analysis: Analysis, f: F, before_ns: int) -> Ints:
    """How long requests took that were answered ok before a time, of keys that nobody held."""
    history = analysis.history
    rows = rows_of(history, f, Type.OK)
    rows = rows[history.complete_ns[rows] < before_ns]
    rows = rows[~_taken(analysis, rows, FOREVER)]
    return history.complete_ns[rows] - history.invoke_ns[rows]


def _gone(analysis: Analysis, i: int) -> int:
    """When a hold was not there any more: its release was answered, or its lease over."""
    history, held = analysis.history, analysis.promises
    release = int(held.release[i])
    if release >= 0 and history.type[release] != Type.INFO:
        return int(history.complete_ns[release])
    return int(held.lease[i])


def _others_answered(analysis: Analysis, row: int, begin: int, end: int) -> bool:
    """Whether the servers granted other keys, or refused this one, between two times: while they
    stall nobody is granted anything."""
    history = analysis.history
    answered = rows_of(history, F.ACQUIRE, Type.OK, Type.FAIL)
    held = [i for i, error in enumerate(history.errors) if error.endswith("held")]
    granted = (history.type[answered] == Type.OK) & (history.key[answered] != history.key[row])
    refused = np.isin(history.error[answered], held) & (history.type[answered] == Type.FAIL)
    done = history.complete_ns[answered[granted | refused]]
    return bool(np.any((done >= begin) & (done <= end)))


def _taken(analysis: Analysis, rows: Rows, until: int) -> Bools:
    """Which of these acquires asked for a key that somebody else held at some time before they were
    answered, or before ``until``. False for other operations."""
    history, held = analysis.history, analysis.promises
    found = np.zeros(len(rows), np.bool_)
    if len(rows) == 0 or history.f[rows[0]] != F.ACQUIRE:
        return found
    ends = np.minimum(answered_ns(history, rows), until)
    starts = np.full(len(history), FOREVER)
    starts[held.row] = held.start
    mine = starts[rows] <= ends
    for key in np.unique(history.key[rows]):
        of = history.key[rows] == key
        there = np.flatnonzero(held.key == key)
        found[of] = held.during(there, history.invoke_ns[rows[of]], ends[of]) > mine[of]
    return found
