"""The rules of exposure: what must have happened for a fault to have been able to hurt.

Each answers for one fault of a history, with a sentence that says what was seen or was missing.
Faults name theirs (``nemesis.base.Fault.rules_for``). What is not known does not meet a rule. Only
keys that the load shares count, and promises that others were kept out by (``checker.contention``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import numpy as np

from checker.contention import (
    aimed_acquires,
    between,
    compatible,
    in_force,
    kept_out,
    worker_of,
)
from checker.exclusion import permits_of
from checker.kinds import REENTRANT, keys_of
from checker.measure import AIMED_ROLES, held_by, keys_with
from checker.promises import FOREVER, Bools, Rows, known_leases, link, rows_of
from checker.words import Case, many
from history.op import NULL, F, Fault, Type

Answer = tuple[bool, str]
# What a holder does at the resource. To be told that it lost the lock is not acting.
ACTS: Final = (F.READ, F.WRITE, F.CAS, F.ADD, F.EFFECT)


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
    """Somebody was kept out during the fault. Where clients were struck, by one of them, or one of
    them was."""
    begin, end = span(fault)
    rows, holds = _struck_pairs(case, fault, in_force(case, begin, end), begin, end)
    return len(rows) > 0, (
        f"{many(len(rows), 'attempt')} during it at a key that another was promised"
        f"{_of_struck(fault)} ({many(holds, 'such promise')})"
    )


def _holder_frozen(case: Case, fault: Fault) -> Answer:
    """The frozen client was promised the lock, its place was taken while it slept, and afterwards
    it acted at the resource, or released while others had its place."""
    history, held = case.history, case.promises
    begin, worker = fault.begin_ns[0], _worker(fault)
    frozen = [
        i
        for i in held_by(case, fault)
        if held.end[i] > begin and keys_with(history, AIMED_ROLES)[held.key[i]]
    ]
    if not frozen:
        return False, "the frozen client held nothing"
    if fault.heal_ns is None:
        return False, "the frozen client was never thawed"
    thaw = fault.heal_ns[0]
    overtaken = acted = 0
    links = link(history)
    for i in frozen:
        others = (held.key == held.key[i]) & held.nonempty & (worker_of(case, held.row) != worker)
        others &= ~compatible(case, held.row, int(held.row[i]))
        rest = np.flatnonzero(others)
        meanwhile = rest[(held.start[rest] > begin) & (held.start[rest] < thaw)]
        # As many as may hold it at once have to, or the frozen one took nobody's place.
        permits = permits_of(history, int(held.key[i]))
        passed = int(held.at_once(rest, held.start[meanwhile]).max(initial=0)) >= permits
        passed = passed or (permits == 1 and len(meanwhile) > 0)
        overtaken += passed
        # Nothing ends a hold without limit, so nobody is to be granted it; but they have to ask.
        endless = held.lease[i] >= FOREVER and len(kept_out(case, i, begin, thaw)) > 0
        if not passed and not endless:
            continue
        under = np.flatnonzero(links.acquire == held.row[i])
        after = (history.invoke_ns[under] >= thaw) | (
            # An operation under way when the process froze ends after the thaw.
            (history.complete_ns[under] >= thaw) & (history.invoke_ns[under] >= begin)
        )
        after |= history.applied_ns[under] >= thaw
        late = under[after]
        released = late[history.f[late] == F.RELEASE]
        done = np.where(history.complete_ns[released] == NULL, FOREVER, 0)
        done = np.maximum(done, history.complete_ns[released])
        taken = held.during(rest, history.invoke_ns[released], done) >= permits
        acted += bool(np.any(np.isin(history.f[late], ACTS)) or np.any(taken))
    return acted > 0, (
        f"the frozen client held {many(len(frozen), 'lock')}; {overtaken} of them granted to "
        f"another before the thaw; it acted on {acted} of those afterwards"
    )


def _hold_across(case: Case, fault: Fault) -> Answer:
    """A promise lasted into the fault and kept others out there."""
    across = [i for i in _held_at(case, fault) if case.promises.end[i] > fault.begin_ns[1]]
    begin, end = span(fault)
    waiting_since = begin - _longest_wait(case, begin)
    rows, _ = _struck_pairs(case, fault, across, begin, end, lost_since=waiting_since)
    return len(rows) > 0, (
        f"{many(len(across), 'hold')} lasted beyond the beginning of the fault, "
        f"{many(len(rows), 'attempt')} by others on those keys during it while they "
        f"lasted{_of_struck(fault)}"
    )


def _leader_changed(_case: Case, fault: Fault) -> Answer:
    before, during = fault.seen.leader_before, fault.seen.leader_during
    met = before is not None and during is not None and before != during
    return met, f"leader before {before}, during {during}"


def _promise_outlives_restart(case: Case, fault: Fault) -> Answer:
    restarted, delay_s = fault.seen.restarted_ns, fault.seen.restart_delay_s
    if restarted is None:
        return False, "the time of the restart is not known"
    if delay_s is not None and restarted - fault.begin_ns[0] >= delay_s * 1e9:
        # The servers see to it that none does; then the fault only has to meet a hold.
        return _hold_across(case, fault)
    held = case.promises
    at_once = _held_at(case, fault)
    told = [i for i in at_once if fault.begin_ns[0] <= held.lost[i] <= restarted]
    lasting = [i for i in at_once if held.end[i] > restarted]
    if told and not lasting:
        return _told_of_the_loss(case, fault, told)
    attempts = _kept_out(case, lasting, restarted, FOREVER)
    return len(attempts) > 0, (
        f"{many(len(lasting), 'promise')} outlived the restart, {many(len(attempts), 'attempt')} "
        f"by others between the restart and the end of the promise"
    )


def _told_of_the_loss(case: Case, fault: Fault, told: list[int]) -> Answer:
    """A promise that ends with its session cannot outlive the server. What the fault can do then is
    to let somebody else in before the holder knows, so others must have been asking until then."""
    attempts = _kept_out(case, told, *span(fault))
    return len(attempts) > 0, (
        f"{many(len(told), 'holder')} told of the loss as the session ended, "
        f"{many(len(attempts), 'attempt')} by others during the fault before that"
    )


def _waiter_frozen(case: Case, fault: Fault) -> Answer:
    """An acquire of the frozen worker was under way as it froze, it slept for longer than any
    grant of that key was promised, and the key went on to others."""
    history, held = case.history, case.promises
    rows = aimed_acquires(case)
    mine = rows[worker_of(case, rows) == _worker(fault)]
    frozen_ns = fault.begin_ns[1]
    done = history.complete_ns[mine]
    thaw = FOREVER if fault.heal_ns is None else fault.heal_ns[0]
    waiting = mine[(history.invoke_ns[mine] <= frozen_ns) & ((done == NULL) | (done >= thaw))]
    granted = np.flatnonzero(held.nonempty & np.isin(held.key, history.key[waiting]))
    limited = held.row[granted][history.valid_until_ns[held.row[granted]] != NULL]
    lease_ns = int((history.valid_until_ns - history.complete_ns)[limited].max(initial=0))
    if len(waiting) > 0 and lease_ns == 0:
        return False, "no grant of the key has an end that the client could have slept through"
    other = granted[worker_of(case, held.row[granted]) != _worker(fault)]
    others = other[(held.start[other] > frozen_ns) & (held.start[other] < thaw)]
    slept = thaw - frozen_ns
    met = len(waiting) > 0 and _all_permits(case, other, others) and slept > lease_ns
    return met, (
        f"{many(len(waiting), 'acquire')} of the frozen client under way as it froze and until it "
        f"woke after {_seconds(slept)}; {many(len(others), 'grant')} to others meanwhile; grants "
        f"are promised for up to {_seconds(lease_ns)}"
    )


def _all_permits(case: Case, there: Rows, at: Rows) -> bool:
    """Whether, as one of the promises ``at`` began, those of ``there`` took all that there is."""
    held = case.promises
    for i in at.tolist():
        same = there[held.key[there] == held.key[i]]
        permits = permits_of(case.history, int(held.key[i]))
        if permits == 1 or int(held.at_once(same, held.start[[i]])[0]) >= permits:
            return True
    return False


def _seconds(nanoseconds: int) -> str:
    return "ever" if nanoseconds >= FOREVER // 2 else f"{nanoseconds / 1e9:.3g} s"


def _holder_killed(case: Case, fault: Fault) -> Answer:
    """The killed worker held a key that others asked for before its promise could have ended."""
    held = case.promises
    killed = [
        i
        for i in in_force(case, fault.begin_ns[0] - 1, fault.begin_ns[1])
        if worker_of(case, held.row[[i]])[0] == _worker(fault)
    ]
    begin = fault.begin_ns[0]
    attempts = [kept_out(case, i, begin, FOREVER, until=int(held.lease[i])) for i in killed]
    count = len(np.unique(np.concatenate(attempts))) if attempts else 0
    return count > 0, (
        f"the killed client held {many(len(killed), 'lock')}, {many(count, 'attempt')} by others "
        f"before the lease was over"
    )


def _reply_lost(case: Case, fault: Fault) -> Answer:
    """The victim's request ended without an answer, and its effect was seen at the service."""
    history = case.history
    f = {"acquire": F.ACQUIRE, "extend": F.EXTEND, "release": F.RELEASE}[str(fault.seen.of)]
    begin, end = span(fault)
    rows = rows_of(history, f)
    rows = rows[keys_with(history, AIMED_ROLES)[history.key[rows]]]
    mine = rows[worker_of(case, rows) == _worker(fault)]
    asked = mine[(history.invoke_ns[mine] >= begin) & (history.invoke_ns[mine] <= end)]
    # Nothing is answered before the heal; a client that asks again may find out afterwards.
    healed = FOREVER if fault.heal_ns is None else fault.heal_ns[0]
    done = history.complete_ns[asked]
    lost = asked[(history.type[asked] != Type.OK) | (done == NULL) | (done >= healed)]
    if len(lost) == 0:
        return False, f"no {f.name.lower()} of the victim was left without its answer"
    seen = next(filter(None, (_effect_seen(case, row, f, end) for row in lost.tolist())), None)
    return seen is not None, (
        f"the victim's {f.name.lower()} was left without its answer, and "
        f"{seen or 'nothing showed that it was applied'}"
    )


# Rivals hold the aimed key for a third of a second: a key that nobody gets for this long is kept.
KEPT_NS: Final = 600_000_000
# Below this a wait is noise, and of fewer grants nobody knows what is usual.
KEPT_NS_MIN: Final = 100_000_000
USUAL_MIN: Final = 20


def _effect_seen(case: Case, row: int, f: F, until: int) -> str | None:
    """What shows that an unanswered request was applied, or None. Requests arrive: only their
    answers are lost."""
    history, held = case.history, case.promises
    asked_ns = int(history.invoke_ns[row])
    links = link(history)
    own = np.flatnonzero(held.row == links.acquire[row])
    if f == F.ACQUIRE:
        return _kept_by_nobody(case, row, row, asked_ns, until)
    if len(own) == 0:
        return None
    i = int(own[0])
    if f == F.EXTEND:
        if history.type[row] == Type.OK:
            return "it was answered only when it asked again"
        over = int(known_leases(history, links, held, asked_ns)[i])
        return _kept_by_nobody(case, row, int(held.row[i]), over, FOREVER)
    others = (held.key == held.key[i]) & held.nonempty
    others &= worker_of(case, held.row) != worker_of(case, held.row[[i]])[0]
    others &= ~compatible(case, held.row, int(held.row[i]))
    rest = np.flatnonzero(others)
    granted = rest[(held.start[rest] > asked_ns) & (held.start[rest] < held.lease[i])]
    # Of a semaphore another permit may have been free.
    freed = _all_permits(case, rest, granted)
    return "the key was granted again before its lease was over" if freed else None


def _kept_by_nobody(case: Case, row: int, acquire: int, since: int, until: int) -> str | None:
    """Others asked for the key of ``row`` for a while that began before ``until``, were not granted
    it, and nobody else could have held it: so the hold of ``acquire`` was there. Or the acquire
    ``row`` found nobody's hold there and nobody else asking."""
    history, held = case.history, case.promises
    granted = (held.key == history.key[row]) & held.outer & (held.row != acquire)
    rest = np.flatnonzero(granted & ~compatible(case, held.row, acquire))
    rest = rest[np.argsort(held.start[rest], kind="stable")]
    leases = (history.valid_until_ns - history.invoke_ns)[held.row[rest]]
    limited = history.valid_until_ns[held.row[rest]] != NULL
    lease_ns = int(leases[limited].max(initial=0)) or FOREVER
    # Of others' acquires without an outcome: nobody knows whether they are there.
    unknown = aimed_acquires(case, Type.INFO)
    unknown = unknown[(history.key[unknown] == history.key[row]) & (unknown != row)]
    unknown = unknown[history.invoke_ns[unknown] < history.invoke_ns[row]]
    ends = [*(_gone(case, int(j)) for j in rest)]
    last = int(max(history.invoke_ns.max(), history.complete_ns.max()))
    # From its own answer on, the hold is one that everybody knows of.
    if row == acquire and history.type[row] == Type.OK:
        last = int(history.complete_ns[row])
    starts = [*(int(start) for start in held.start[rest] if start < last), last]
    free = [min(FOREVER, int(t) + lease_ns) for t in history.invoke_ns[unknown]]
    permits = permits_of(history, int(history.key[row]))
    asking = aimed_acquires(case)
    asking = asking[(history.key[asking] == history.key[row]) & (asking != row)]
    asking = asking[~compatible(case, asking, acquire)]
    usual_ns = _usual_ns(case, int(history.invoke_ns[row]))
    kept_ns = min(KEPT_NS, max(KEPT_NS_MIN, HELD_BACK * usual_ns))
    # Nobody else asked for a free key while this was on its way, and the servers were at work.
    there = [end for end, start in zip(ends, held.start[rest], strict=True) if start <= since]
    alone = len(between(case, asking, since, since + 2 * usual_ns)) == 0
    taken_now = sum(end > since for end in [*there, *free])
    if (
        row == acquire
        and alone
        and taken_now < permits
        and _others_answered(case, row, since, until)
    ):
        return "it alone asked for a key that was free, of servers that went on answering others"
    for place, start in enumerate(starts):
        # When so many of those granted before were gone that one more would have been let in.
        taken = sorted((end for end in [*ends[:place], *free] if end > since), reverse=True)
        begin = max(since, taken[permits - 1] if len(taken) >= permits else since)
        if begin >= until:
            return None
        waiting = between(case, asking, begin, start)
        asked, done = history.invoke_ns[waiting], history.complete_ns[waiting]
        since_ns = np.maximum(asked, begin)
        kept = np.where(done == NULL, start, np.minimum(done, start)) - since_ns > kept_ns
        if not np.any(kept):
            continue
        first = int(since_ns[kept].min())
        if _others_answered(case, row, first + kept_ns // 2, start - kept_ns // 2):
            count = int(np.count_nonzero(kept))
            return f"{many(count, 'attempt')} of others found the key taken by nobody else"
    return None


def _usual_ns(case: Case, before_ns: int) -> int:
    """How long it took until then to be granted a key that nobody held (95th percentile); of few
    grants nobody knows. A key that is kept from others for far longer than this is taken."""
    history = case.history
    free = rows_of(history, F.ACQUIRE, Type.OK)
    free = free[history.complete_ns[free] < before_ns]
    free = free[~_taken(case, free, FOREVER)]
    if len(free) < USUAL_MIN:
        return KEPT_NS
    took = history.complete_ns[free] - history.invoke_ns[free]
    return int(np.quantile(took, 0.95))


def _gone(case: Case, i: int) -> int:
    """When a hold was not there any more: its release was answered, or its lease over."""
    history, held = case.history, case.promises
    release = int(held.release[i])
    if release >= 0 and history.type[release] != Type.INFO:
        return int(history.complete_ns[release])
    return int(held.lease[i])


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
    """The cut kept requests for shared keys from their answers: it was on when they should have
    been answered, and they were answered after it, or never, or far later than usual. Who waits for
    another to release is kept by that other, and what is asked just before the heal by nobody."""
    history = case.history
    begin, end = fault.begin_ns[1], FOREVER if fault.heal_ns is None else fault.heal_ns[0]
    shared = keys_with(history, AIMED_ROLES)
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
        rows = rows[shared[history.key[rows]]]
        rows = rows[~_taken(case, rows, end)]
        asked, done = history.invoke_ns[rows], history.complete_ns[rows]
        over = (asked <= end - usual) & ((done == NULL) | (done >= end))
        count += int(np.count_nonzero(over | (done - asked > HELD_BACK * usual)))
    return count > 0, f"{many(count, 'request')} for shared keys kept from an answer by the cut"


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
    """The clocks of the servers that decide gained more on a promise than it had left, while others
    asked. A server that was asked at one reading of its clock forgets the hold when the clock has
    gone on by the time to live. So a jump ahead can end what was granted before it, and the way
    back to the truth from behind what was granted meanwhile. A clock that goes back ends nothing
    early, and what has no limit no clock ends."""
    moves = fault.seen.moves
    if moves is None:
        return False, "when and how far the clocks moved is not known"
    enough, which = _deciding(fault, fault.targets)
    if not enough:
        return False, which
    held = case.promises
    met = in_force(case, *span(fault))
    if np.all(held.lease[met] >= FOREVER):
        return (
            False,
            f"{many(len(met), 'promise')} during it, none with an end for a clock to reach",
        )
    passed: dict[int, int] = {}  # promise → when the clocks had gone beyond it
    for _, at_ns, offset_s in moves:
        for i in in_force(case, at_ns, at_ns):
            until, before_s = _acknowledged(case, i, at_ns, moves)
            if (offset_s - before_s) * 1e9 > until - at_ns:
                passed.setdefault(i, at_ns)
    rows = [kept_out(case, i, at_ns, FOREVER) for i, at_ns in passed.items()]
    attempts = len(np.unique(np.concatenate(rows))) if rows else 0
    furthest = max((offset_s for _, _, offset_s in moves), key=abs, default=0.0)
    return attempts > 0, (
        f"the clocks moved by up to {furthest:+.3g} s, {which}; so they gained more than "
        f"{many(len(passed), 'held promise')} had left; {many(attempts, 'attempt')} by others "
        f"before that end"
    )


def _acknowledged(
    case: Case, i: int, at_ns: int, moves: list[tuple[int, int, float]]
) -> tuple[int, float]:
    """Of the last acknowledgement that the holder of a promise had by a time: until when it
    promised, and how far ahead the clocks may have been as the server counted it."""
    history, held = case.history, case.promises
    row = int(held.row[i])
    mine = link(history).acquire == row
    if keys_of(history, REENTRANT)[held.key[i]]:
        # An inner grant renews, too.
        mine |= (history.process == history.process[row]) & (history.key == history.key[row])
        mine &= history.invoke_ns >= history.invoke_ns[row]
    mine &= np.isin(history.f, (F.ACQUIRE, F.EXTEND)) & (history.type == Type.OK)
    last = int(np.flatnonzero(mine & (history.complete_ns <= at_ns))[-1])
    until = int(history.valid_until_ns[last])
    sent, done = int(history.sent_ns[last]), int(history.complete_ns[last])
    sent = int(history.invoke_ns[last]) if sent == NULL else sent
    ahead = [0.0, *(offset for _, after, offset in moves if after <= sent)][-1:]
    ahead += [offset for before, after, offset in moves if after > sent and before <= done]
    return FOREVER if until == NULL else until, max(ahead)


def _deciding(fault: Fault, struck: Collection[str]) -> Answer:
    """Whether these are a majority of the servers that decide. Which nodes of independent ones have
    a key is not known, so a fault of fewer proves nothing."""
    names = fault.seen.deciding
    if not names:
        return False, "which servers decide is not known"
    count = len(set(names) & set(struck))
    some = f"{count} of the {many(len(names), 'server')} that decide"
    return 2 * count > len(names), some if 2 * count > len(names) else f"only {some}"


def _data_lost(_case: Case, fault: Fault) -> Answer:
    met, some = _deciding(fault, fault.targets)
    return met, f"{some} came back without data"


def _unsynced_lost(_case: Case, fault: Fault) -> Answer:
    lost = fault.seen.bytes_lost
    if lost is None:
        return False, "what was lost is not known"
    met, some = _deciding(fault, [name for name, bytes_ in lost.items() if bytes_ > 0])
    return met, f"{sum(lost.values()):,} bytes were lost that had not been synced, by {some}"


def _promoted(_case: Case, fault: Fault) -> Answer:
    before, during = fault.seen.primary_before, fault.seen.primary_during
    met = before is not None and during is not None and before != during
    return met, f"primary before {before}, during {during}"


def _all_restarted(case: Case, fault: Fault) -> Answer:
    """Every server was away once, and back before the next; and as one of them went away a promise
    was in force that others were kept out by from then on."""
    back = fault.seen.away_ns
    if back is None:
        return False, "when each server was away is not known"
    met = sum(
        any(len(kept_out(case, i, since, FOREVER)) > 0 for i in in_force(case, since, since))
        for since, _ in back.values()
    )
    return set(back) == set(fault.targets) and met > 0, (
        f"{len(back)} of {many(len(fault.targets), 'server')} away once and serving again before "
        f"the next; as {met} of them went away a promise kept others out"
    )


def proven(_case: Case, fault: Fault) -> Answer:
    """The nemesis saw the effect of the fault."""
    met = fault.seen.proven is True
    return met, "its effect was proven" if met else "its effect was not proven"


def span(fault: Fault) -> tuple[int, int]:
    """From the first moment it may have been on, to the last; nanoseconds."""
    return fault.begin_ns[0], FOREVER if fault.heal_ns is None else fault.heal_ns[1]


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


def _kept_out(case: Case, chosen: list[int], begin: int, end: int) -> Rows:
    """The acquires that some of these promises kept out during an interval."""
    rows = [kept_out(case, i, begin, end) for i in chosen]
    return np.unique(np.concatenate(rows)) if rows else np.empty(0, np.intp)


def _struck_pairs(
    case: Case,
    fault: Fault,
    chosen: list[int],
    begin: int,
    end: int,
    *,
    lost_since: int | None = None,
) -> tuple[Rows, int]:
    """The acquires that some of these promises kept out during an interval, and by how many. Where
    clients were struck, only what they had a part in, as holders or as those who asked."""
    struck = struck_workers(fault)
    found, holds = [np.empty(0, np.intp)], 0
    for i in chosen:
        rows = kept_out(case, i, begin, end, lost_since=lost_since)
        if struck and worker_of(case, case.promises.row[[i]])[0] not in struck:
            rows = rows[np.isin(worker_of(case, rows), struck)]
        holds += len(rows) > 0
        found.append(rows)
    return np.unique(np.concatenate(found)), holds


def struck_workers(fault: Fault) -> list[int]:
    """The workers whose clients a fault was aimed at; none where it was not aimed at clients."""
    seen = fault.seen
    if seen.workers is not None:
        return seen.workers
    return [] if seen.worker is None else [seen.worker]


def _of_struck(fault: Fault) -> str:
    return ", a struck client among them" if struck_workers(fault) else ""


def _held_at(case: Case, fault: Fault) -> list[int]:
    """The promises on shared keys that were given before a fault began and not over by then."""
    return in_force(case, fault.begin_ns[0], fault.begin_ns[0])


def _worker(fault: Fault) -> int:
    worker = fault.seen.worker
    return -1 if worker is None else worker


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
    "data-lost": _data_lost,
    "unsynced-lost": _unsynced_lost,
    "promoted": _promoted,
    "all-restarted": _all_restarted,
}
