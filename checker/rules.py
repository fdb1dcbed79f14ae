"""The rules of exposure: what must have happened for a fault to have been able to hurt.

Each answers for one fault of a history, with a sentence that says what was seen or was missing.
Faults name theirs (``nemesis.base.Fault.rules``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from checker.exclusion import permits_of
from checker.measure import AIMED_ROLES, held_by, keys_with
from checker.promises import FOREVER, Bools, Rows, known_leases, link, rows_of
from checker.words import Case, many
from history.columns import Ints
from history.op import NULL, F, Fault, Type
from history.recorder import PROCESSES_PER_WORKER

Answer = tuple[bool, str]
# What a holder does. To be told that it lost the lock is not acting.
ACTS: Final = (F.READ, F.WRITE, F.CAS, F.ADD, F.EFFECT, F.RELEASE)


def aimed_acquires(case: Case, *types: Type) -> Rows:
    """The acquires of shared keys that ended so."""
    history = case.history
    rows = rows_of(history, F.ACQUIRE, *types)
    return rows[keys_with(history, AIMED_ROLES)[history.key[rows]]]


def _grants_around(case: Case, fault: Fault) -> Answer:
    granted = aimed_acquires(case, Type.OK)
    done = case.history.complete_ns[granted]
    before = int(np.count_nonzero(done < fault.begin_ns[0]))
    after = 0 if fault.heal_ns is None else int(np.count_nonzero(done > fault.heal_ns[1]))
    taken = 0 if after or fault.heal_ns is None else _kept_for_ever(case, fault.heal_ns[1])
    return before > 0 and after + taken > 0, (
        f"{many(before, 'grant')} before the fault, {after} after the heal"
        + (f", {many(taken, 'attempt')} found a hold that nothing ends" if taken else "")
    )


def _kept_for_ever(case: Case, healed_ns: int) -> int:
    """How many attempts after a heal found the key taken, where no hold ends by itself: what the
    fault left behind stays, so nobody can be granted it, and that is what the lock does."""
    history, held = case.history, case.promises
    if not np.all(held.lease[keys_with(history, AIMED_ROLES)[held.key]] >= FOREVER):
        return 0
    refused = aimed_acquires(case, Type.FAIL)
    refused = refused[history.invoke_ns[refused] > healed_ns]
    return sum(
        history.errors[error].removeprefix("gave-up: ").startswith("held")
        for error in history.error[refused].tolist()
        if error >= 0
    )


def _attempts_during(case: Case, fault: Fault) -> Answer:
    rows = between(case, aimed_acquires(case), *span(fault))
    holders = {int(case.history.process[case.promises.row[i]]) for i in _held_at(case, fault)}
    others = [row for row in rows.tolist() if int(case.history.process[row]) not in holders]
    return len(others) > 0, f"{many(len(others), 'attempt')} by others than the holders during it"


def _holder_frozen(case: Case, fault: Fault) -> Answer:
    history, held = case.history, case.promises
    frozen = [
        i for i in held_by(case, fault) if history.invoke_ns[held.row[i]] <= fault.begin_ns[0]
    ]
    if not frozen:
        return False, "the frozen client held nothing"
    if fault.heal_ns is None:
        return False, "the frozen client was never thawed"
    thaw = fault.heal_ns[0]
    granted = acted = 0
    links = link(history)
    for i in frozen:
        others = (
            (held.key == held.key[i])
            & (held.start > fault.begin_ns[0])
            & (held.start < thaw)
            & (history.process[held.row] // PROCESSES_PER_WORKER != _worker(fault))
        )
        rest = np.flatnonzero(others)
        most = int(held.at_once(rest, held.start[rest]).max(initial=0))
        # As many as may hold it at once have to, or the frozen one took nobody's place.
        permits = permits_of(case.history, int(held.key[i]))
        overtaken = len(rest) > 0 and (permits == 1 or most >= permits)
        granted += overtaken
        # Nothing ends a hold without limit, so nobody is to be granted it; but they have to ask.
        asked = between(case, rows_of(history, F.ACQUIRE), fault.begin_ns[0], thaw)
        endless = held.lease[i] >= FOREVER and _by_others(case, asked, i) > 0
        if not overtaken and not endless:
            continue
        under = np.flatnonzero(links.acquire == held.row[i])
        after = (history.invoke_ns[under] >= thaw) | (
            # An operation under way when the process froze ends after the thaw.
            (history.complete_ns[under] >= thaw) & (history.invoke_ns[under] >= fault.begin_ns[0])
        )
        after |= history.applied_ns[under] >= thaw
        acted += bool(np.any(after & np.isin(history.f[under], ACTS)))
    return acted > 0, (
        f"the frozen client held {many(len(frozen), 'lock')}; {granted} of them granted to another "
        f"before the thaw; it acted on {acted} of those afterwards"
    )


def _hold_across(case: Case, fault: Fault) -> Answer:
    held, history = case.promises, case.history
    across = [
        i
        for i in _held_at(case, fault)
        if held.lease[i] > fault.begin_ns[1] and held.end[i] > fault.begin_ns[1]
    ]
    attempts = 0
    begin, end = span(fault)
    asked = rows_of(history, F.ACQUIRE)
    waiting_since = begin - _longest_wait(case, begin)
    for i in across:
        since = min(int(held.start[i]), waiting_since)
        attempts += _by_others(case, between(case, asked, begin, end), i)
        attempts += _by_others(case, _lost_in(case, asked, since, begin), i)
    return attempts > 0, (
        f"{many(len(across), 'hold')} lasted beyond the beginning of the fault, "
        f"{many(attempts, 'attempt')} by others on those keys during it"
    )


def _leader_changed(_case: Case, fault: Fault) -> Answer:
    if fault.facts.get("leader_due") is False:
        return True, "no change of leader was due"
    before, during = fault.facts.get("leader_before"), fault.facts.get("leader_during")
    met = before is not None and during is not None and before != during
    return met, f"leader before {before}, during {during}"


def _promise_outlives_restart(case: Case, fault: Fault) -> Answer:
    if "restart_delay_s" in fault.facts:
        # The servers see to it that none does; then the fault only has to meet a hold.
        return _hold_across(case, fault)
    restarted = fault.facts.get("restarted_ns")
    if not isinstance(restarted, int):
        return False, "the time of the restart is not known"
    held = case.promises
    at_once = _held_at(case, fault)
    told = [i for i in at_once if fault.begin_ns[0] <= held.lost[i] <= restarted]
    lasting = [i for i in at_once if held.end[i] > restarted]
    if told and not lasting:
        return _told_of_the_loss(case, fault, told)
    attempts = _attempts_until(case, lasting, restarted, held.end)
    return attempts > 0, (
        f"{many(len(lasting), 'promise')} outlived the restart, {many(attempts, 'attempt')} by "
        f"others between the restart and the end of the promise"
    )


def _told_of_the_loss(case: Case, fault: Fault, told: list[int]) -> Answer:
    """A promise that ends with its session cannot outlive the server. What the fault can do then is
    to let somebody else in before the holder knows, so others must have been asking."""
    asked = rows_of(case.history, F.ACQUIRE)
    attempts = sum(_by_others(case, between(case, asked, *span(fault)), i) for i in told)
    return attempts > 0, (
        f"{many(len(told), 'holder')} told of the loss as the session ended, "
        f"{many(attempts, 'attempt')} by others during the fault"
    )


def _waiter_frozen(case: Case, fault: Fault) -> Answer:
    """An acquire of the frozen worker was under way as it froze, and it slept for a lease."""
    history = case.history
    rows = aimed_acquires(case)
    mine = rows[history.process[rows] // PROCESSES_PER_WORKER == _worker(fault)]
    frozen_ns = fault.begin_ns[1]
    done = history.complete_ns[mine]
    thaw = FOREVER if fault.heal_ns is None else fault.heal_ns[0]
    waiting = mine[(history.invoke_ns[mine] <= frozen_ns) & ((done == NULL) | (done >= thaw))]
    granted = aimed_acquires(case, Type.OK)
    other = history.process[granted] // PROCESSES_PER_WORKER != _worker(fault)
    other &= np.isin(history.key[granted], history.key[waiting])
    meanwhile = (history.complete_ns[granted] > frozen_ns) & (history.complete_ns[granted] < thaw)
    others = int(np.count_nonzero(other & meanwhile))
    return len(waiting) > 0 and others > 0, (
        f"{many(len(waiting), 'acquire')} of the frozen client under way as it froze and until it "
        f"woke; {many(others, 'grant')} to others meanwhile"
    )


def _holder_killed(case: Case, fault: Fault) -> Answer:
    """The killed worker held a key that others asked for before its promise could have ended."""
    history, held = case.history, case.promises
    before = [i for i in range(len(held.row)) if held.start[i] < fault.begin_ns[1]]
    killed = [
        i
        for i in before
        if history.process[held.row[i]] // PROCESSES_PER_WORKER == _worker(fault)
        and held.end[i] >= fault.begin_ns[0]
    ]
    attempts = _attempts_until(case, killed, fault.begin_ns[0], held.lease)
    return attempts > 0, (
        f"the killed client held {many(len(killed), 'lock')}, {many(attempts, 'attempt')} by "
        f"others before the lease was over"
    )


def _reply_lost(case: Case, fault: Fault) -> Answer:
    """The victim's request ended without an answer, and its effect was seen at the service."""
    history = case.history
    f = {"acquire": F.ACQUIRE, "extend": F.EXTEND, "release": F.RELEASE}[str(fault.facts["of"])]
    begin, end = fault.begin_ns[0], FOREVER if fault.heal_ns is None else fault.heal_ns[1]
    rows = rows_of(history, f)
    mine = rows[history.process[rows] // PROCESSES_PER_WORKER == _worker(fault)]
    asked = mine[(history.invoke_ns[mine] >= begin) & (history.invoke_ns[mine] <= end)]
    # Nothing is answered before the heal; a client that asks again may find out afterwards.
    healed = FOREVER if fault.heal_ns is None else fault.heal_ns[0]
    done = history.complete_ns[asked]
    unanswered = (history.type[asked] != Type.OK) | (done == NULL) | (done >= healed)
    lost = asked[unanswered]
    if len(lost) == 0:
        return False, f"no {f.name.lower()} of the victim was left without its answer"
    if history.type[lost[0]] == Type.OK:
        return True, f"the victim's {f.name.lower()} was answered only when it asked again"
    seen = _effect_seen(case, int(lost[0]), f)
    return seen is not None, (
        f"the victim's {f.name.lower()} was left without its answer, and "
        f"{seen or 'nothing showed that it was applied'}"
    )


# Rivals hold the aimed key for a third of a second: a key that nobody gets for this long is kept.
KEPT_NS: Final = 600_000_000


def _effect_seen(case: Case, row: int, f: F) -> str | None:
    """What shows that an unanswered request was applied, or None."""
    history, held = case.history, case.promises
    granted = rows_of(history, F.ACQUIRE, Type.OK)
    granted = granted[history.key[granted] == history.key[row]]
    done = np.sort(history.complete_ns[granted])
    asked_ns = int(history.invoke_ns[row])
    after = done[done > asked_ns]
    if f == F.RELEASE:
        mine = link(history).acquire[row]
        own = np.flatnonzero(held.row == mine)
        lease = int(held.lease[own[0]]) if len(own) else asked_ns
        freed = len(after) > 0 and int(after[0]) < lease
        return "the key was granted again before its lease was over" if freed else None
    asking = rows_of(history, F.ACQUIRE)
    asking = asking[(history.key[asking] == history.key[row]) & (asking != row)]
    refused = between(case, asking, asked_ns, asked_ns + KEPT_NS)
    kept_until = int(after[0]) if len(after) else FOREVER
    if len(refused) == 0 or kept_until - asked_ns <= KEPT_NS:
        return None
    if not _others_answered(case, row, asked_ns + KEPT_NS // 2, kept_until - KEPT_NS // 2):
        return None
    return f"{many(len(refused), 'attempt')} of others found the key taken meanwhile"


def _others_answered(case: Case, row: int, begin: int, end: int) -> bool:
    """Whether the servers granted other keys, or refused this one, between two times: while they
    stall nobody is granted anything."""
    history = case.history
    answered = rows_of(history, F.ACQUIRE, Type.OK, Type.FAIL)
    held = [i for i, error in enumerate(history.errors) if error.endswith("held")]
    granted = (history.type[answered] == Type.OK) & (history.key[answered] != history.key[row])
    refused = np.isin(history.error[answered], held) & (history.type[answered] == Type.FAIL)
    done = history.complete_ns[answered[granted | refused]]
    return bool(np.any((done >= begin) & (done <= end)))


# A request that was asked in a cut and takes so many times as long as usual was held back, although
# it is answered before the heal: others were elected, or the client asked once more.
HELD_BACK: Final = 10


def _held_back(case: Case, fault: Fault) -> Answer:
    """The cut kept requests of a lock from their answers: it was on when they should have been
    answered, and they were answered after it, or never, or far later than usual. Who waits for
    another to release is kept by that other, and what is asked just before the heal by nobody."""
    history = case.history
    begin, end = fault.begin_ns[1], FOREVER if fault.heal_ns is None else fault.heal_ns[0]
    count = 0
    for f in (F.ACQUIRE, F.RELEASE, F.EXTEND):
        answered = rows_of(history, f, Type.OK)
        answered = answered[history.complete_ns[answered] < fault.begin_ns[0]]
        answered = answered[~_taken(case, answered, FOREVER)]
        if len(answered) == 0:
            continue
        took = history.complete_ns[answered] - history.invoke_ns[answered]
        usual = int(np.quantile(took, 0.95))
        rows = between(case, rows_of(history, f), begin, end)
        rows = rows[~_taken(case, rows, end)]
        asked, done = history.invoke_ns[rows], history.complete_ns[rows]
        over = (asked <= end - usual) & ((done == NULL) | (done >= end))
        count += int(np.count_nonzero(over | (done - asked > HELD_BACK * usual)))
    if count == 0 and fault.facts.get("held_back_due") is False:
        return True, "no request had to cross the cut"
    return count > 0, f"{many(count, 'request')} of locks kept from an answer by the cut"


def _taken(case: Case, rows: Rows, until: int) -> Bools:
    """Which of these acquires asked for a key that somebody else held at some time before they were
    answered, or before ``until``. False for other operations."""
    history, held = case.history, case.promises
    found = np.zeros(len(rows), np.bool_)
    if len(rows) == 0 or history.f[rows[0]] != F.ACQUIRE:
        return found
    done = history.complete_ns[rows]
    ends = np.minimum(np.where(done == NULL, FOREVER, done), until)
    starts = np.full(len(history), FOREVER)
    starts[held.row] = held.start
    mine = starts[rows] <= ends
    for key in np.unique(history.key[rows]):
        of = history.key[rows] == key
        there = np.flatnonzero(held.key == key)
        found[of] = held.during(there, history.invoke_ns[rows[of]], ends[of]) > mine[of]
    return found


def _clock_beyond_lease(case: Case, fault: Fault) -> Answer:
    """The clocks moved further than a promise that was held had left, while others asked."""
    history, held = case.history, case.promises
    offset = fault.facts.get("offset_s")
    if not isinstance(offset, int | float):
        return False, "how far the clocks moved is not known"
    moved_ns, begin = abs(offset) * 1e9, fault.begin_ns[0]
    known = known_leases(history, link(history), held, begin)
    lasting = [
        i for i in _held_at(case, fault) if known[i] == FOREVER or known[i] - begin < moved_ns
    ]
    attempts = _attempts_until(case, lasting, begin, held.lease)
    return attempts > 0, (
        f"the clocks moved by up to {offset:+.3g} s, further than "
        f"{many(len(lasting), 'held promise')} had left; {many(attempts, 'attempt')} by others "
        f"before that end"
    )


def _unsynced_lost(_case: Case, fault: Fault) -> Answer:
    lost = fault.facts.get("bytes_lost")
    if not isinstance(lost, Mapping):
        return False, "what was lost is not known"
    total = sum(int(bytes_) for bytes_ in lost.values())
    return total > 0, f"{total:,} bytes were lost that had not been synced"


def _promoted(_case: Case, fault: Fault) -> Answer:
    before, during = fault.facts.get("primary_before"), fault.facts.get("primary_during")
    met = before is not None and during is not None and before != during
    return met, f"primary before {before}, during {during}"


def _all_restarted(_case: Case, fault: Fault) -> Answer:
    nodes = [fault.facts.get("restarted"), fault.facts.get("killed")]
    counts = [len(some) if isinstance(some, list) else 0 for some in nodes]
    met = fault.facts.get("all_restarted") is True
    return met, f"{counts[0]} of {many(counts[1], 'killed server')} served again before the next"


def proven(_case: Case, fault: Fault) -> Answer:
    """The nemesis saw the effect of the fault."""
    met = fault.facts.get("proven") is True
    return met, "its effect was proven" if met else "its effect was not proven"


def span(fault: Fault) -> tuple[int, int]:
    """From the first moment it may have been on, to the last; nanoseconds."""
    return fault.begin_ns[0], FOREVER if fault.heal_ns is None else fault.heal_ns[1]


def between(case: Case, rows: Rows, begin: int, end: int) -> Rows:
    """Operations under way at some time of the interval: who waits in a queue is asking all along,
    though it asked before. When an unknown ended is not known, so it must have been asked in it."""
    invoked, completed = case.history.invoke_ns[rows], case.history.complete_ns[rows]
    asking = (invoked >= begin) | ((completed != NULL) & (completed >= begin))
    under_way: Rows = rows[asking & (invoked <= end)]
    return under_way


def _lost_in(case: Case, rows: Rows, since: int, begin: int) -> Rows:
    """Operations that were asked for since a time before the fault began, and never answered: the
    fault took their answer."""
    invoked, completed = case.history.invoke_ns[rows], case.history.complete_ns[rows]
    lost: Rows = rows[(completed == NULL) & (invoked >= since) & (invoked < begin)]
    return lost


def _longest_wait(case: Case, begin: int) -> int:
    """How long clients wait for an answer when there is one: the longest acquire that was answered
    before the fault, and after the one before it. Who had waited for less and got no answer was
    still waiting as the fault began. (go-redis waits through a pause of 6 s, whatever the
    limit.)"""
    history = case.history
    healed = [f.heal_ns[1] for f in history.faults if f.heal_ns and f.begin_ns[0] < begin]
    answered = rows_of(history, F.ACQUIRE, Type.OK, Type.FAIL)
    invoked, completed = history.invoke_ns[answered], history.complete_ns[answered]
    normal = (invoked >= max(healed, default=0)) & (completed < begin)
    return int(np.max((completed - invoked)[normal], initial=0))


def _attempts_until(case: Case, chosen: list[int], begin: int, ends: Ints) -> int:
    """How many acquires of others asked for the key of one of these promises between a time and the
    end of that promise."""
    asked = rows_of(case.history, F.ACQUIRE)
    return sum(
        _by_others(case, between(case, asked, begin, min(int(ends[i]), FOREVER - 1)), i)
        for i in chosen
    )


def _by_others(case: Case, rows: Rows, promise: int) -> int:
    """How many of these operations ask for the key of a promise in another worker than its
    holder's. A client takes a new process number after an unknown, so a process of the same worker
    may be the holder itself."""
    history, row = case.history, case.promises.row[promise]
    worker = history.process // PROCESSES_PER_WORKER
    others = (history.key[rows] == history.key[row]) & (worker[rows] != worker[row])
    return int(np.count_nonzero(others))


def _held_at(case: Case, fault: Fault) -> list[int]:
    """The promises on shared keys that were given before a fault began and not over by then."""
    held = case.promises
    begin = fault.begin_ns[0]
    shared = keys_with(case.history, AIMED_ROLES)[held.key]
    return [int(i) for i in np.flatnonzero(shared & (held.start < begin) & (held.end > begin))]


def _worker(fault: Fault) -> int:
    worker = fault.facts.get("worker")
    return worker if isinstance(worker, int) else -1


RULES: Final[Mapping[str, Callable[[Case, Fault], Answer]]] = {
    "grants-around": _grants_around,
    "attempts-during": _attempts_during,
    "holder-frozen": _holder_frozen,
    "hold-across": _hold_across,
    "leader-changed": _leader_changed,
    "promise-outlives-restart": _promise_outlives_restart,
    "proven": proven,
    "waiter-frozen": _waiter_frozen,
    "holder-killed": _holder_killed,
    "reply-lost": _reply_lost,
    "held-back": _held_back,
    "clock-beyond-lease": _clock_beyond_lease,
    "unsynced-lost": _unsynced_lost,
    "promoted": _promoted,
    "all-restarted": _all_restarted,
}
