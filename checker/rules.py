"""The rules of exposure: what must have happened for a fault to have been able to hurt.

Each answers for one fault of a history, with a sentence that says what was seen or was missing.
Faults name theirs (``lockbench.nemesis.base.Fault.rules_for``). What is not known does not meet a
rule. Only keys that the load shares count, and promises that others were kept out by
(``lockbench.checker.contention``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.contention import (
    aimed_acquires,
    all_permits,
    compatible,
    held_by,
    in_force,
    kept_out,
    worker_of,
)
from lockbench.checker.exclusion import permits_of
from lockbench.checker.faults import Answer, healed_ns, proven, span, struck_workers, worker_struck
from lockbench.checker.kinds import REENTRANT, keys_of
from lockbench.checker.leaks import leaked_keys
from lockbench.checker.replies import held_back, reply_lost
from lockbench.checker.rows import AIMED_ROLES, FOREVER, Rows, answered_ns, keys_with, rows_of
from lockbench.checker.words import many
from lockbench.history.op import NULL, F, Fault, Type

# What a holder does at the resource. To be told that it lost the lock is not acting.
ACTS: Final = (F.READ, F.WRITE, F.CAS, F.ADD, F.EFFECT)


def _grants_around(analysis: Analysis, fault: Fault) -> Answer:
    granted = aimed_acquires(analysis, Type.OK)
    done = analysis.history.complete_ns[granted]
    before = int(np.count_nonzero(done < fault.begin_ns[0]))
    after = 0 if fault.heal_ns is None else int(np.count_nonzero(done > fault.heal_ns[1]))
    taken = left = 0
    if not after and fault.heal_ns is not None:
        taken = _kept_for_ever(analysis, fault.heal_ns[1])
        left = _left_behind(analysis, fault.begin_ns[0])
    return before > 0 and after + taken + left > 0, (
        f"{many(before, 'grant')} before the fault, {after} after the heal"
        + (f", {many(taken, 'attempt')} found a hold that nothing ends" if taken else "")
        + (f", {many(left, 'key')} left behind while the service granted others" if left else "")
    )


def _kept_for_ever(analysis: Analysis, since_ns: int) -> int:
    """How many attempts after a heal found the key taken, where no hold ends by itself: what the
    fault left behind stays, so nobody can be granted it, and that is what the lock does."""
    history, held = analysis.history, analysis.promises
    if not np.all(held.lease[keys_with(history, AIMED_ROLES)[held.key]] >= FOREVER):
        return 0
    refused = aimed_acquires(analysis, Type.FAIL)
    refused = refused[history.invoke_ns[refused] > since_ns]
    return sum(
        history.errors[error].removeprefix("gave-up: ").startswith("held")
        for error in history.error[refused].tolist()
        if error >= 0
    )


def _left_behind(analysis: Analysis, begin_ns: int) -> int:
    """How many keys an operation left behind that was under way at some time since the fault began:
    nobody can be granted such a key after the heal, and that is what the lock does. It is only
    called leaked if the service granted another key."""
    history, aimed = analysis.history, keys_with(analysis.history, AIMED_ROLES)
    leaked = leaked_keys(analysis)
    rows = np.array([row for key, row in leaked.items() if aimed[key]], np.int64)
    done = history.complete_ns[rows]
    waited = history.invoke_ns[rows] + _longest_wait(analysis, begin_ns)
    return int(np.count_nonzero(np.where(done == NULL, waited, done) >= begin_ns))


def _attempts_during(analysis: Analysis, fault: Fault) -> Answer:
    """Somebody was kept out during the fault. Where clients were struck, by one of them, or one of
    them was."""
    begin, end = span(fault)
    rows, holds = _struck_pairs(analysis, fault, in_force(analysis, begin, end), begin, end)
    return len(rows) > 0, (
        f"{many(len(rows), 'attempt')} during it at a key that another was promised"
        f"{_of_struck(fault)} ({many(holds, 'such promise')})"
    )


def _holder_frozen(analysis: Analysis, fault: Fault) -> Answer:
    """The frozen client was promised the lock, its place was taken while it slept, and afterwards
    it acted at the resource, or released while others had its place."""
    history, held = analysis.history, analysis.promises
    begin, worker = fault.begin_ns[0], worker_struck(fault)
    frozen = [
        i
        for i in held_by(analysis, fault)
        if held.end[i] > begin and keys_with(history, AIMED_ROLES)[held.key[i]]
    ]
    if not frozen:
        return False, "the frozen client held nothing"
    if fault.heal_ns is None:
        return False, "the frozen client was never thawed"
    thaw = fault.heal_ns[0]
    overtaken = acted = 0
    for i in frozen:
        others = (
            (held.key == held.key[i]) & held.nonempty & (worker_of(analysis, held.row) != worker)
        )
        others &= ~compatible(analysis, held.row, int(held.row[i]))
        rest = np.flatnonzero(others)
        meanwhile = rest[(held.start[rest] > begin) & (held.start[rest] < thaw)]
        # As many as may hold it at once have to, or the frozen one took nobody's place.
        permits = permits_of(history, int(held.key[i]))
        passed = int(held.at_once(rest, held.start[meanwhile]).max(initial=0)) >= permits
        passed = passed or (permits == 1 and len(meanwhile) > 0)
        overtaken += passed
        # Nothing ends a hold without limit, so nobody is to be granted it; but they have to ask.
        endless = held.lease[i] >= FOREVER and len(kept_out(analysis, i, begin, thaw)) > 0
        if not passed and not endless:
            continue
        under = np.flatnonzero(analysis.links.acquire == held.row[i])
        after = (history.invoke_ns[under] >= thaw) | (
            # An operation under way when the process froze ends after the thaw.
            (history.complete_ns[under] >= thaw) & (history.invoke_ns[under] >= begin)
        )
        after |= history.applied_ns[under] >= thaw
        late = under[after]
        released = late[history.f[late] == F.RELEASE]
        done = answered_ns(history, released)
        taken = held.during(rest, history.invoke_ns[released], done) >= permits
        acted += bool(np.any(np.isin(history.f[late], ACTS)) or np.any(taken))
    return acted > 0, (
        f"the frozen client held {many(len(frozen), 'lock')}; {overtaken} of them granted to "
        f"another before the thaw; it acted on {acted} of those afterwards"
    )


def _hold_across(analysis: Analysis, fault: Fault) -> Answer:
    """A promise lasted into the fault and kept others out there."""
    across = [i for i in _held_at(analysis, fault) if analysis.promises.end[i] > fault.begin_ns[1]]
    begin, end = span(fault)
    waiting_since = begin - _longest_wait(analysis, begin)
    rows, _ = _struck_pairs(analysis, fault, across, begin, end, lost_since=waiting_since)
    return len(rows) > 0, (
        f"{many(len(across), 'hold')} lasted beyond the beginning of the fault, "
        f"{many(len(rows), 'attempt')} by others on those keys during it while they "
        f"lasted{_of_struck(fault)}"
    )


def _changed(_analysis: Analysis, fault: Fault, who: str) -> Answer:
    """The part of the leader, or of the primary, went to another server."""
    before, during = getattr(fault.seen, f"{who}_before"), getattr(fault.seen, f"{who}_during")
    met = before is not None and during is not None and before != during
    return met, f"{who} before {before}, during {during}"


def _promise_outlives_restart(analysis: Analysis, fault: Fault) -> Answer:
    restarted, delay_s = fault.seen.restarted_ns, fault.seen.restart_delay_s
    if restarted is None:
        return False, "the time of the restart is not known"
    if delay_s is not None and restarted - fault.begin_ns[0] >= delay_s * 1e9:
        # The servers see to it that none does; then the fault only has to meet a hold.
        return _hold_across(analysis, fault)
    held = analysis.promises
    at_once = _held_at(analysis, fault)
    told = [i for i in at_once if fault.begin_ns[0] <= held.lost[i] <= restarted]
    lasting = [i for i in at_once if held.end[i] > restarted]
    if told and not lasting:
        return _told_of_the_loss(analysis, fault, told)
    attempts = _kept_out(analysis, lasting, restarted, FOREVER)
    return len(attempts) > 0, (
        f"{many(len(lasting), 'promise')} outlived the restart, {many(len(attempts), 'attempt')} "
        f"by others between the restart and the end of the promise"
    )


def _told_of_the_loss(analysis: Analysis, fault: Fault, told: list[int]) -> Answer:
    """A promise that ends with its session cannot outlive the server. What the fault can do then is
    to let somebody else in before the holder knows, so others must have been asking until then."""
    attempts = _kept_out(analysis, told, *span(fault))
    return len(attempts) > 0, (
        f"{many(len(told), 'holder')} told of the loss as the session ended, "
        f"{many(len(attempts), 'attempt')} by others during the fault before that"
    )


def _waiter_frozen(analysis: Analysis, fault: Fault) -> Answer:
    """An acquire of the frozen worker was under way as it froze, it slept for longer than any
    grant of that key was promised, and the key went on to others."""
    history, held = analysis.history, analysis.promises
    rows = aimed_acquires(analysis)
    mine = rows[worker_of(analysis, rows) == worker_struck(fault)]
    frozen_ns = fault.begin_ns[1]
    thaw = healed_ns(fault)
    waiting = mine[(history.invoke_ns[mine] <= frozen_ns) & (answered_ns(history, mine) >= thaw)]
    granted = np.flatnonzero(held.nonempty & np.isin(held.key, history.key[waiting]))
    limited = held.row[granted][history.valid_until_ns[held.row[granted]] != NULL]
    lease_ns = int((history.valid_until_ns - history.complete_ns)[limited].max(initial=0))
    if len(waiting) > 0 and lease_ns == 0:
        return False, "no grant of the key has an end that the client could have slept through"
    other = granted[worker_of(analysis, held.row[granted]) != worker_struck(fault)]
    others = other[(held.start[other] > frozen_ns) & (held.start[other] < thaw)]
    slept = thaw - frozen_ns
    met = len(waiting) > 0 and all_permits(analysis, other, others) and slept > lease_ns
    return met, (
        f"{many(len(waiting), 'acquire')} of the frozen client under way as it froze and until it "
        f"woke after {_seconds(slept)}; {many(len(others), 'grant')} to others meanwhile; grants "
        f"are promised for up to {_seconds(lease_ns)}"
    )


def _seconds(nanoseconds: int) -> str:
    return "ever" if nanoseconds >= FOREVER // 2 else f"{nanoseconds / 1e9:.3g} s"


def _holder_killed(analysis: Analysis, fault: Fault) -> Answer:
    """The killed worker held a key that others asked for before its promise could have ended."""
    held = analysis.promises
    # A promise that its death ended, with ε taken off.
    died = fault.begin_ns[0] - 1 - analysis.history.epsilon_ns
    killed = [
        i
        for i in in_force(analysis, died, fault.begin_ns[1])
        if worker_of(analysis, held.row[[i]])[0] == worker_struck(fault)
        and not _is_given_back(analysis, i)
    ]
    begin = fault.begin_ns[0]
    attempts = [kept_out(analysis, i, begin, FOREVER, until=int(held.lease[i])) for i in killed]
    count = len(_together(attempts))
    return count > 0, (
        f"the killed client held {many(len(killed), 'lock')}, {many(count, 'attempt')} by others "
        f"before the lease was over"
    )


def _is_given_back(analysis: Analysis, i: int) -> bool:
    """Whether the client had the answer to its release: then it lived, and left nothing behind."""
    release = int(analysis.promises.release[i])
    return release >= 0 and analysis.history.type[release] == Type.OK


def _clock_beyond_lease(analysis: Analysis, fault: Fault) -> Answer:
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
    held = analysis.promises
    met = in_force(analysis, *span(fault))
    if np.all(held.lease[met] >= FOREVER):
        return (
            False,
            f"{many(len(met), 'promise')} during it, none with an end for a clock to reach",
        )
    passed: dict[int, int] = {}  # promise → when the clocks had gone beyond it
    for _, at_ns, offset_s in moves:
        for i in in_force(analysis, at_ns, at_ns):
            until, before_s = _acknowledged(analysis, i, at_ns, moves)
            if (offset_s - before_s) * 1e9 > until - at_ns:
                passed.setdefault(i, at_ns)
    rows = [kept_out(analysis, i, at_ns, FOREVER) for i, at_ns in passed.items()]
    attempts = len(_together(rows))
    furthest = max((offset_s for _, _, offset_s in moves), key=abs, default=0.0)
    return attempts > 0, (
        f"the clocks moved by up to {furthest:+.3g} s, {which}; so they gained more than "
        f"{many(len(passed), 'held promise')} had left; {many(attempts, 'attempt')} by others "
        f"before that end"
    )


def _acknowledged(
    analysis: Analysis, i: int, at_ns: int, moves: list[tuple[int, int, float]]
) -> tuple[int, float]:
    """Of the last acknowledgement that the holder of a promise had by a time: until when it
    promised, and how far ahead the clocks may have been as the server counted it."""
    history, held = analysis.history, analysis.promises
    row = int(held.row[i])
    mine = analysis.links.acquire == row
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


def _data_lost(_analysis: Analysis, fault: Fault) -> Answer:
    met, some = _deciding(fault, fault.targets)
    return met, f"{some} came back without data"


def _unsynced_lost(_analysis: Analysis, fault: Fault) -> Answer:
    lost = fault.seen.bytes_lost
    if lost is None:
        return False, "what was lost is not known"
    met, some = _deciding(fault, [name for name, bytes_ in lost.items() if bytes_ > 0])
    return met, f"{sum(lost.values()):,} bytes were lost that had not been synced, by {some}"


def _all_restarted(analysis: Analysis, fault: Fault) -> Answer:
    """Every server was away once, and back before the next; and as one of them went away a promise
    was in force that others were kept out by from then on."""
    back = fault.seen.away_ns
    if back is None:
        return False, "when each server was away is not known"
    met = sum(
        any(
            len(kept_out(analysis, i, since, FOREVER)) > 0 for i in in_force(analysis, since, since)
        )
        for since, _ in back.values()
    )
    return set(back) == set(fault.targets) and met > 0, (
        f"{len(back)} of {many(len(fault.targets), 'server')} away once and serving again before "
        f"the next; as {met} of them went away a promise kept others out"
    )


def _longest_wait(analysis: Analysis, begin: int) -> int:
    """How long clients wait for an answer when there is one: the longest acquire that was answered
    before the fault, and after the one before it. Who had waited for less and got no answer was
    still waiting as the fault began. (go-redis waits through a pause of 6 s, whatever the
    limit.)"""
    history = analysis.history
    healed = [f.heal_ns[1] for f in history.faults if f.heal_ns and f.begin_ns[0] < begin]
    answered = rows_of(history, F.ACQUIRE, Type.OK, Type.FAIL)
    invoked, completed = history.invoke_ns[answered], history.complete_ns[answered]
    normal = (invoked >= max(healed, default=0)) & (completed < begin)
    return int(np.max((completed - invoked)[normal], initial=0))


def _kept_out(analysis: Analysis, chosen: list[int], begin: int, end: int) -> Rows:
    """The acquires that some of these promises kept out during an interval."""
    return _together([kept_out(analysis, i, begin, end) for i in chosen])


def _together(rows: list[Rows]) -> Rows:
    return np.unique(np.concatenate(rows)) if rows else np.empty(0, np.intp)


def _struck_pairs(
    analysis: Analysis,
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
    found, holds = [], 0
    for i in chosen:
        rows = kept_out(analysis, i, begin, end, lost_since=lost_since)
        if struck and worker_of(analysis, analysis.promises.row[[i]])[0] not in struck:
            rows = rows[np.isin(worker_of(analysis, rows), struck)]
        holds += len(rows) > 0
        found.append(rows)
    return _together(found), holds


def _of_struck(fault: Fault) -> str:
    return ", a struck client among them" if struck_workers(fault) else ""


def _held_at(analysis: Analysis, fault: Fault) -> list[int]:
    """The promises on shared keys that were given before a fault began and not over by then."""
    return in_force(analysis, fault.begin_ns[0], fault.begin_ns[0])


RULES: Final[Mapping[str, Callable[[Analysis, Fault], Answer]]] = {
    "grants-around": _grants_around,
    "attempts-during": _attempts_during,
    "holder-frozen": _holder_frozen,
    "hold-across": _hold_across,
    "leader-changed": partial(_changed, who="leader"),
    "promise-outlives-restart": _promise_outlives_restart,
    "proven": proven,
    "waiter-frozen": _waiter_frozen,
    "holder-killed": _holder_killed,
    "reply-lost": reply_lost,
    "held-back": held_back,
    "clock-beyond-lease": _clock_beyond_lease,
    "data-lost": _data_lost,
    "unsynced-lost": _unsynced_lost,
    "promoted": partial(_changed, who="primary"),
    "all-restarted": _all_restarted,
}
