"""The headline: what a reader takes away, computed from the results and from nothing else.

Every claim carries k of n: n counts the cases that are evidence (the verdict broke, or it held
although the fault could have hurt). A clause without evidence is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from checker.catalogue import CATALOGUE
from checker.follows import told
from nemesis.registry import faults
from results.cases import (
    COULD_NOT_RUN,
    DISTURBED,
    NO_FAULT,
    attempts,
    before_any_fault,
    broken,
    expected_of,
    fault_name,
    faults_during,
    fenced,
    in_order,
    is_control,
    k_of_n,
    lock_of,
    results_of,
    undecided,
)
from results.documents import CaseResult
from results.judgements import HELD_UNDECLARED, NOT_AS_ASKED
from results.wording import times, words

CLIENT_PAUSE: Final = "client-pause"
STALE: Final = "stale-holder"
# Cases that say nothing about the lock, whatever verdict they reached.
AMISS: Final = frozenset({COULD_NOT_RUN, DISTURBED})


def headline(cases: Sequence[CaseResult]) -> str:
    """The headline of these cases. It is honest also when there is little to say."""
    tries = [attempt for case in cases for attempt in attempts(case)]
    locks = [case for case in tries if not is_control(case)]
    pauses = [case for case in locks if fault_name(case) == CLIENT_PAUSE]
    first = _acting_at_once(pauses)
    clauses = [
        *first,
        *_fenced(pauses),
        *_violations(locks, also=bool(first)),
        *_kept(locks),
        *_controls([case for case in tries if is_control(case)]),
        *_without_evidence(cases),
    ]
    if not clauses:
        return "Nothing was decided: no case is evidence for or against a lock."
    text = "; ".join(clauses)
    return text[0].upper() + text[1:] + "." if not _is_name(text, cases) else text + "."


def _is_name(text: str, cases: Iterable[CaseResult]) -> bool:
    """Names of locks keep their spelling, at the beginning too."""
    return any(text.startswith(lock_of(case)) for case in cases)


def _by_lock(cases: Sequence[CaseResult]) -> dict[str, list[CaseResult]]:
    return {
        lock: [case for case in cases if lock_of(case) == lock]
        for lock in in_order(lock_of(case) for case in cases)
    }


def _acting_at_once(pauses: Sequence[CaseResult]) -> list[str]:
    tries = {lock: k_of_n(of, STALE) for lock, of in _by_lock(pauses).items()}
    failed = [lock for lock, (k, _) in tries.items() if k]
    held = [lock for lock, (k, n) in tries.items() if n and not k]
    doing = "two clients from acting at once under a client pause"
    clauses = []
    if failed:
        k, n = (sum(tries[lock][i] for lock in failed) for i in (0, 1))
        if len(failed) == 1:
            clause = f"alone, {failed[0]} did not keep {doing} ({k} of {n})"
        elif len(failed) == 2:
            clause = f"neither {failed[0]} nor {failed[1]} alone kept {doing} ({k} of {n})"
        else:
            clause = f"none of {words(failed)} alone kept {doing} ({k} of {n})"
        unexpected = _unexpected([c for c in pauses if lock_of(c) in failed], STALE)
        clauses.append(clause + unexpected)
    if held:
        n = sum(tries[lock][1] for lock in held)
        clauses.append(f"{words(held)} kept {doing} (0 of {n})")
    return clauses


def _fenced(pauses: Sequence[CaseResult]) -> list[str]:
    """Only cases that broke without the check say anything about the check."""
    tried = [(case, fenced(case)) for case in pauses if STALE in broken(case)]
    scored = [(case, score) for case, score in tried if score is not None]
    if not scored:
        return []
    k = sum(bool(score.stale_applied) for _, score in scored)
    locks = words(in_order(lock_of(case) for case, _ in scored))
    return [f"with the fence of {locks} checked at the resource, {k} of {len(scored)}"]


def _violations(locks: Sequence[CaseResult], *, also: bool) -> list[str]:
    """Every other violation, by what happened and when; tries are counted by the case's fault."""
    clauses = []
    for verdict in in_order([*CATALOGUE, *(v for case in locks for v in broken(case))]):
        groups: dict[tuple[str, str], list[CaseResult]] = {}
        for case in locks:
            fault = fault_name(case)
            if verdict in told(broken(case)) and (verdict, fault) != (STALE, CLIENT_PAUSE):
                groups.setdefault((fault, when(case, verdict)), []).append(case)
        for (fault, during), here in groups.items():
            parts = []
            for lock, broke in _by_lock(here).items():
                of = [c for c in locks if (lock_of(c), fault_name(c)) == (lock, fault)]
                _, n = k_of_n(of, verdict)
                parts.append(f"{lock} ({len(broke)} of {n}{_unexpected(of, verdict, ', ')})")
            entry = CATALOGUE.get(verdict)
            did = f"broke {verdict}" if entry is None else entry.did
            clauses.append(f"{words(parts)} {'also ' if also else ''}{did} {during}")
    return clauses


def when(case: CaseResult, verdict: str) -> str:
    """When a verdict broke, in words: during the fault of its own evidence. No cause is named where
    that tells of several; a shorter schedule decides (``run --replay --shrink``)."""
    whole, found = fault_name(case), faults_during(case, verdict)
    if len(found) > 1:
        return f"while several faults were on ({words(found)})"
    if whole != NO_FAULT and not found:
        if before_any_fault(case, verdict):
            return "before any fault"
        if not {"+", " "}.isdisjoint(whole) or len(case.injections) > 1:
            return f"in a schedule of several faults ({whole}), during none of them"
    cause = found[0] if found else whole
    if cause == NO_FAULT:
        return "without any fault"
    known = faults().get(cause)
    return known.during if known is not None and known.during else f"under {cause}"


def _unexpected(cases: Sequence[CaseResult], verdict: str, before: str = ", ") -> str:
    words_of = {expected_of(case, verdict) for case in cases if verdict in broken(case)}
    if "holds" in words_of:
        return f"{before}not expected"
    return f"{before}undeclared" if "undeclared" in words_of else ""


def _kept(locks: Sequence[CaseResult]) -> list[str]:
    """Locks of which no verdict broke, but for client pauses, which have a clause of their own
    where it was asked who acted after its time."""
    clauses = []
    clean: dict[str, int] = {}
    asked = [c for c in locks if fault_name(c) == CLIENT_PAUSE and STALE in results_of(c)]
    for lock, of in _by_lock([c for c in locks if c not in asked]).items():
        evidence = [case for case in of if case.exposed is True and not undecided(case)]
        if evidence and not any(broken(case) for case in of):
            clean[lock] = len(evidence)
    if clean:
        other = "else " if asked else ""
        n = sum(clean.values())
        clauses.append(f"{words(list(clean))} broke nothing {other}(0 of {n})")
    return clauses


def _controls(controls: Sequence[CaseResult]) -> list[str]:
    clauses = []
    for lock, of in _by_lock(controls).items():
        caught = sum(bool(broken(case)) for case in of)
        what = words(in_order(v for case in of for v in broken(case)))
        if caught:
            clauses.append(f"the control {lock} was caught ({what}: {caught} of {len(of)})")
        else:
            clauses.append(f"the control {lock} was not caught (0 of {len(of)})")
    return clauses


def _without_evidence(cases: Sequence[CaseResult]) -> list[str]:
    """What nobody may read as green."""
    clauses = []
    ran = [
        case
        for case in cases
        if results_of(case) and not broken(case) and case.judgement not in AMISS
    ]
    groups = {
        "not exposed, and so proof of nothing": [c for c in ran if c.exposed is not True],
        "not the load that was asked for": [c for c in ran if c.judgement == NOT_AS_ASKED],
        "held under a fault of which nothing is declared": [
            c for c in ran if c.judgement == HELD_UNDECLARED
        ],
        "undecided": [c for c in ran if c.exposed is True and undecided(c)],
        "disturbed from outside": [c for c in cases if c.judgement == DISTURBED],
        "could not run": [c for c in cases if c.judgement == COULD_NOT_RUN],
        "failed": [c for c in cases if not results_of(c) and c.judgement not in AMISS],
    }
    for what, group in groups.items():
        if group:
            clauses.append(f"{what}: {len(group)} of {times(len(cases), 'case')}")
    return clauses
