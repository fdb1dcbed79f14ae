"""What a run came to: at most three short lines, and a sentence for each lock behind them.

Computed from the results and from nothing else. Tries are counted for one lock under one fault and
never added up over several; without a fault is a column of its own. "Kept" stands beside the number
of tries that could have broken it: one try is "one try", and from three on the 95 % bound says how
often it may break all the same. What is no evidence is named, so that nobody reads it as green.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lockbench.checker.catalogue import CATALOGUE
from lockbench.checker.follows import told
from lockbench.nemesis.registry import faults
from lockbench.report.labels import flat_labels
from lockbench.results.cases import (
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
    is_published,
    k_of_n,
    lock_of,
    proven,
    results_of,
    undecided,
)
from lockbench.results.documents import CaseResult
from lockbench.results.judgements import (
    AS_EXPECTED,
    BROKE_UNDECLARED,
    CONTRADICTED,
    DID_NOT_SHOW,
    HELD_UNDECLARED,
    NOT_AS_ASKED,
    NOTHING_DECLARED,
    WORSE,
)
from lockbench.results.statistics import BOUND_TRIES_MIN, share
from lockbench.results.wording import times, tries, words

NOTHING: Final = "Nothing was decided: no case is evidence for or against a lock."
# Cases that say nothing about the lock, whatever verdict they reached.
AMISS: Final = frozenset({COULD_NOT_RUN, DISTURBED, "failed", CONTRADICTED})
NAMED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Headline:
    """``lines``: one to three. ``by_lock``: a sentence or two for each lock, in the order of the
    cases."""

    lines: tuple[str, ...]
    by_lock: tuple[str, ...] = ()


def headline(cases: Sequence[CaseResult]) -> Headline:
    """The headline of these cases. It is honest also when there is little to say."""
    lines = [line for line in (_ended(cases), _open(cases), _controls(cases)) if line]
    ordinary = [case for case in cases if not is_published(case) or broken(case)]
    by_label: dict[str, list[CaseResult]] = {}
    for label, case in zip(flat_labels(ordinary), ordinary, strict=True):
        by_label.setdefault(label, []).append(case)
    by_lock = (f"{label}: {said}" for label, of in by_label.items() if (said := _lock(of)))
    return Headline(tuple(lines) or (NOTHING,), tuple(by_lock))


def _ended(cases: Sequence[CaseResult]) -> str:
    """What is not as declared, or that everything is."""
    missed = [case for case in cases if is_control(case) and _missed(case)]
    wrong = [
        *_named("broke what it is expected to keep", _judged(cases, WORSE), broke=True),
        *_named("broke, and nothing is declared", _judged(cases, BROKE_UNDECLARED), broke=True),
        *_named("known to be broken, and not caught", missed),
    ]
    if wrong:
        return f"Not as declared: {'; '.join(wrong)}."
    as_declared = len(_judged(cases, AS_EXPECTED))
    if not as_declared:
        return ""
    if as_declared == len(cases):
        one = len(cases) == 1
        return (
            "The case ended as declared." if one else f"All {len(cases)} cases ended as declared."
        )
    return f"{as_declared} of {times(len(cases), 'case')} ended as declared, none of them worse."


def _open(cases: Sequence[CaseResult]) -> str:
    """What nobody may read as green."""
    held = [case for case in cases if _held(case)]
    # What broke as it may is no word about the rest of the case.
    groups = {
        "not exposed": [
            c for c in cases if c.judgement == "not exposed" or (_held(c) and c.exposed is not True)
        ],
        "not the load that was asked for": _judged(cases, NOT_AS_ASKED),
        "undecided": [
            c
            for c in cases
            if c.judgement == "undecided" or (_held(c) and c.exposed is True and undecided(c))
        ],
        "a declared break did not show": [
            c for c in _judged(cases, DID_NOT_SHOW) if not is_control(c)
        ],
        "nothing is declared of what broke": _judged(cases, NOTHING_DECLARED),
        "disturbed from outside": _judged(cases, DISTURBED),
        "could not run": _judged(cases, COULD_NOT_RUN),
        "refuted by the service's own record": _judged(cases, CONTRADICTED),
        "failed": [
            c
            for c in cases
            if c.judgement == "failed" or (not results_of(c) and c.judgement not in AMISS)
        ],
    }
    said = [text for what, of in groups.items() for text in _named(what, of)]
    said += _named("kept, and nothing is declared", _judged(held, HELD_UNDECLARED))
    return f"Proof of nothing: {'; '.join(said)}." if said else ""


def _controls(cases: Sequence[CaseResult]) -> str:
    """The locks that are known to be broken, each in every case that was run."""
    ran = [case for case in cases if is_control(case) and case.judgement not in AMISS]
    caught = [
        lock
        for lock in in_order(lock_of(case) for case in ran)
        if all(broken(c) and not _missed(c) for c in ran if lock_of(c) == lock)
    ]
    if not caught:
        return ""
    return f"Known to be broken, and caught: {_several(caught)}."


def _missed(case: CaseResult) -> bool:
    """Of a control: it was not caught."""
    return case.judgement == DID_NOT_SHOW or _held(case)


def _held(case: CaseResult) -> bool:
    """Whether nothing broke in it, of what was decided."""
    return bool(results_of(case)) and not broken(case) and case.judgement not in AMISS


def _judged(cases: Iterable[CaseResult], judgement: str) -> list[CaseResult]:
    return [case for case in cases if case.judgement == judgement]


def _named(what: str, cases: Sequence[CaseResult], *, broke: bool = False) -> list[str]:
    """``what: etcd under kill (double-grant), …``; nothing for no case."""
    if not cases:
        return []
    names = in_order(
        f"{lock_of(case)} {_under(case.fault)}"
        + (f" ({', '.join(told(broken(case)))})" if broke else "")
        for case in cases
    )
    return [f"{what}: {_several(names)}"]


def _several(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMED_MAX
    return words([*names[:NAMED_MAX], f"{more} more"] if more > 0 else names)


def _under(fault: str) -> str:
    return "without a fault" if fault == NO_FAULT else f"under {fault}"


def _lock(cases: Sequence[CaseResult]) -> str:
    """What one lock did: first what broke, then what was kept, then what is not known."""
    by_fault = {
        fault: [attempt for case in cases if case.fault == fault for attempt in attempts(case)]
        for fault in in_order(case.fault for case in cases)
    }
    broke: list[str] = []
    kept: dict[int, list[str]] = {}
    not_known: list[str] = []
    for fault, of in by_fault.items():
        if any(proven(case) for case in of):
            broke += [*_broke(of), *_fence(of)]
            continue
        evidence = [
            case
            for case in of
            if case.exposed is True
            and results_of(case)
            and not undecided(case)
            and case.judgement not in {*AMISS, NOT_AS_ASKED}
        ]
        if evidence:
            kept.setdefault(len(evidence), []).append(fault)
        else:
            not_known.append(_under(fault))
    parts = [
        "; ".join(broke),
        "; ".join(f"kept its promises {_faults(of)} ({_tries(n, of)})" for n, of in kept.items()),
        f"nothing is known {words(not_known)}" if not_known else "",
    ]
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts if part)


def _faults(names: Sequence[str]) -> str:
    """``under kill and pause, and without a fault``."""
    some = [name for name in names if name != NO_FAULT]
    under = f"under {words(some)}" if some else ""
    if NO_FAULT not in names:
        return under
    return f"{under}{',' * (len(some) > 1)} and without a fault" if some else "without a fault"


def _tries(n: int, of: Sequence[str]) -> str:
    """How many tries "kept" stands on, for each of these faults."""
    each = " each" if len(of) > 1 else ""
    if n < BOUND_TRIES_MIN:
        return tries(n) + each
    most = share(0, n).at_most_percent
    return f"{tries(n)}{each}, so it breaks in at most {most} % of such, with 95 % confidence"


def _broke(of: Sequence[CaseResult]) -> list[str]:
    """By what happened and when, with k of n of this lock under this fault."""
    found = in_order([*CATALOGUE, *(v for case in of for v in proven(case))])
    clauses = []
    for verdict in found:
        here = [case for case in of if verdict in told(proven(case))]
        for during in in_order(when(case, verdict) for case in here):
            k = sum(when(case, verdict) == during for case in here)
            _, n = k_of_n(of, verdict)
            entry = CATALOGUE.get(verdict)
            did = f"broke {verdict}" if entry is None else entry.did
            clauses.append(f"{did} {during} ({k} of {n}, {_declared(here, verdict)})")
    return clauses


def _declared(cases: Sequence[CaseResult], verdict: str) -> str:
    found = {expected_of(case, verdict) for case in cases if case.judgement != AS_EXPECTED}
    if "holds" in found:
        return "NOT as declared"
    return "undeclared" if found & {"undeclared", NOTHING_DECLARED, None} else "as declared"


def _fence(of: Sequence[CaseResult]) -> list[str]:
    """What a check of its fence let through, where a holder acted after its time."""
    scores = [
        score
        for case in of
        if "stale-holder" in broken(case) and (score := fenced(case)) is not None
    ]
    attempted = sum(score.stale_attempted or 0 for score in scores)
    if not attempted:
        return []
    applied = sum(score.stale_applied or 0 for score in scores)
    let = f"let {applied} of {attempted} such acts through"
    return [f"its fence, checked on reads and writes, {let}"]


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
