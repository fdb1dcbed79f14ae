"""Exposure: whether a fault could have hurt. A case in which nothing happened is never green.

Each fault names the rules (``lockbench.checker.rules``) that must have been met, and the facts it
saw. A history without faults is exposed when at least two processes were granted contended keys and
somebody asked for a key while another held it. A foreign history, without objects and faults, has
no such minimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.contention import aimed_acquires, between, worker_of
from lockbench.checker.exclusion import permits_of
from lockbench.checker.faults import Answer, proven, span, struck_workers
from lockbench.checker.leaks import of_the_load
from lockbench.checker.rows import AIMED_ROLES, FOREVER, Bools, keys_with, rows_of
from lockbench.checker.rules import RULES
from lockbench.checker.words import describe, many
from lockbench.history.columns import History
from lockbench.history.op import F, Fault, Mode, Type


@dataclass(frozen=True, slots=True)
class Exposure:
    """``reasons`` says for every rule in a sentence what was seen or was missing."""

    exposed: bool
    reasons: tuple[str, ...]


def exposure(history: History) -> Exposure:
    """Whether every fault of a history met every one of its rules."""
    if not history.faults and not history.objects:
        return Exposure(True, ("a foreign history: no minimum is asked of it",))
    analysis = Analysis.of(history)
    if len(rows_of(history, F.ACQUIRE)) == 0:
        return _without_locks(analysis)
    if not history.faults:
        met, reason = _contention(analysis)
        return Exposure(met, (reason,))
    answers = [
        (met, f"{describe(fault)}: {reason}")
        for fault in history.faults
        for met, reason in (_answer(analysis, fault, rule) for rule in fault.rules)
    ]
    if not answers:
        return Exposure(False, ("no fault declares what would have exposed the lock to it",))
    return Exposure(all(met for met, _ in answers), tuple(reason for _, reason in answers))


def _without_locks(analysis: Analysis) -> Exposure:
    """Where no lock is asked for (``lockbench.locks.without``) there is no hold to be hurt: every
    fault has to be proven, with jobs done before it and after it, and under way while it was on, of
    a struck client where clients were struck. Without a fault, several clients have to have worked
    on one key."""
    history = analysis.history
    jobs = rows_of(history, F.JOB)
    jobs = jobs[keys_with(history, AIMED_ROLES)[history.key[jobs]]]
    done = jobs[history.type[jobs] == Type.OK]
    if not history.faults:
        shared = {(int(history.key[row]), int(history.process[row])) for row in done.tolist()}
        most = max((sum(k == key for k, _ in shared) for key, _ in shared), default=0)
        return Exposure(most >= 2, (f"up to {many(most, 'client')} worked on one key",))
    reasons, exposed = [], True
    for fault in history.faults:
        before = int(np.count_nonzero(history.complete_ns[done] < fault.begin_ns[0]))
        heal = FOREVER if fault.heal_ns is None else fault.heal_ns[1]
        after = int(np.count_nonzero(history.invoke_ns[done] > heal))
        struck = struck_workers(fault)
        mine = jobs[np.isin(worker_of(analysis, jobs), struck)] if struck else jobs
        during = len(between(analysis, mine, *span(fault)))
        exposed &= fault.seen.proven is True and min(before, after, during) > 0
        reasons.append(
            f"{describe(fault)}: {proven(analysis, fault)[1]}; {many(before, 'job')} before it, "
            f"{during} under way while it was on, {after} after it"
        )
    return Exposure(exposed, tuple(reasons))


def _answer(analysis: Analysis, fault: Fault, rule: str) -> Answer:
    ask = RULES.get(rule)
    if ask is None:
        return False, f"unknown rule {rule!r}"
    try:
        return ask(analysis, fault)
    except (TypeError, ValueError, KeyError) as error:
        return False, f"the facts for {rule} are unusable: {error}"


def _semaphores(analysis: Analysis) -> Bools:
    """Which shared keys more than one may hold."""
    several = [permits_of(analysis.history, key) > 1 for key in range(len(analysis.history.keys))]
    return np.array(several, np.bool_) & keys_with(analysis.history, AIMED_ROLES)


def _full(analysis: Analysis) -> Answer:
    """Somebody asked while all permits of a semaphore were taken: else nobody could have been let
    in who should not."""
    history, held = analysis.history, analysis.promises
    asked = of_the_load(history, rows_of(history, F.ACQUIRE))
    count = 0
    for key in np.flatnonzero(_semaphores(analysis)):
        at_ns = history.invoke_ns[asked[history.key[asked] == key]]
        there = held.at_once(np.flatnonzero(held.key == key), at_ns)
        count += int(np.count_nonzero(there >= permits_of(analysis.history, int(key))))
    return count > 0, f"{many(count, 'attempt')} found all permits taken"


def _contention(analysis: Analysis) -> Answer:
    if _semaphores(analysis).any():
        return _full(analysis)
    history, held = analysis.history, analysis.promises
    granted = aimed_acquires(analysis, Type.OK)
    processes = len(np.unique(history.process[granted]))
    order = held.in_order
    order = order[keys_with(history, AIMED_ROLES)[held.key[order]]]
    # Waited: asked for while the one who was granted the key before still held it.
    asked = history.invoke_ns[held.row[order[1:]]]
    waited = (held.key[order[1:]] == held.key[order[:-1]]) & (held.end[order[:-1]] > asked)
    waited &= held.owner[order[1:]] != held.owner[order[:-1]]
    waited &= np.isin(held.row[order[1:]], granted)
    # Readers do not wait for each other.
    reads = history.mode[held.row[order]] == Mode.READ
    waited &= ~(reads[1:] & reads[:-1])
    count = int(np.count_nonzero(waited))
    return processes >= 2 and count > 0, (
        f"{many(len(granted), 'grant')} of shared keys to {many(processes, 'process')}, "
        f"{count} of them asked for while another held the key"
    )
