"""``linearizable``: whether some order of instantaneous effects explains every answer.

Locks are decided by the minimal hold rule (``lockbench.checker.exact``) wherever it is exact, in
one sort for all keys; registers with unique values by their zones (``lockbench.checker.zones``),
counters of equal amounts by one sweep (``lockbench.checker.counters``). Every other key goes to the
general search, which is bounded: a key that it gives up on is unknown, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.calls import LOCK_OPERATIONS, RESOURCE_OPERATIONS, Calls
from lockbench.checker.contradictions import contradiction, unpaired
from lockbench.checker.counters import by_sweep, fewest_reads
from lockbench.checker.exact import Sections, mutex_conflicts, sections, shared_conflict
from lockbench.checker.explain import whole_sections
from lockbench.checker.intervals import ByKey
from lockbench.checker.kinds import OWNED, OWNERLESS, REENTRANT, RESOURCES, SHARED, keys_of
from lockbench.checker.models import model_of
from lockbench.checker.reentrant import unbalanced
from lockbench.checker.rows import Bools, Rows
from lockbench.checker.search import Budget, Found, OverBudget, search
from lockbench.checker.shrink import smallest
from lockbench.checker.verdict import Verdict
from lockbench.checker.words import EVIDENCE_MAX, during, faults_on, many, operation
from lockbench.checker.zones import by_zones
from lockbench.history.op import NULL, F, Type

SECONDS_MAX: Final = 60.0  # for all keys that need a search together
CALLS_MAX: Final = 2_000_000  # calls of one key that a search is given at all
HANDFUL: Final = 32


@dataclass
class _Searched:
    """What the searches said. ``failed``: the rows of the first violation, most important first;
    ``undecided`` maps keys to reasons."""

    keys: int = 0
    failed: tuple[int, ...] = ()
    undecided: dict[str, str] = field(default_factory=dict)


def linearizable(analysis: Analysis) -> Verdict | None:
    """Absent when the history has no operations of an object with a model, or none of them was
    answered ok and so nothing can contradict anything."""
    judged = _judged(analysis)
    if not np.any(judged):
        return None
    # A contradiction of the minimal holds stands whatever else there is; only where they agree
    # may the rest of a key's answers still make a difference.
    exact = exact_keys(analysis)
    found = contradictory(analysis, exact)
    if found is not None:
        return found
    held = sections(analysis)
    rows = mutex_conflicts(analysis, held, keys_of(analysis.history, OWNED) & exact)
    shared = np.flatnonzero(keys_of(analysis.history, SHARED) & exact).tolist()
    mine = ByKey(held.key) if shared and rows is None else None
    for key in shared:
        if mine is not None and rows is None:
            rows = shared_conflict(analysis, held, mine[key], key)
    if rows is not None:
        rows = whole_sections(analysis, rows)
        return _invalid(analysis, rows, "no order of effects explains these grants")
    locks = keys_of(analysis.history, OWNED | SHARED)
    unsure = judged & (~exact | (locks & _refused_in_a_gap(analysis, held)))
    searched = _search(analysis, unsure)
    verdict = _verdict(analysis, judged, searched)
    return None if verdict.result == "valid" and not _anything_done(analysis) else verdict


def _anything_done(analysis: Analysis) -> bool:
    """Whether a lock or a resource confirmed anything that was asked of it."""
    history = analysis.history
    asked = [int(f) for f in LOCK_OPERATIONS | RESOURCE_OPERATIONS]
    return bool(np.any(np.isin(history.f[history.type == Type.OK], asked)))


def exact_keys(analysis: Analysis) -> Bools:
    """The keys of locks that the minimal hold rule covers."""
    exact: Bools = keys_of(analysis.history, OWNED | SHARED) & ~_unsure(analysis)
    return exact


def contradictory(analysis: Analysis, keys: Bools) -> Verdict | None:
    """Invalid where the answers inside one hold of these keys contradict each other, else None."""
    found = contradiction(analysis, keys)
    if found is None:
        return None
    return _invalid(analysis, whole_sections(analysis, found.rows), found.reason)


def _judged(analysis: Analysis) -> Bools:
    """The keys with an operation that their model knows."""
    history = analysis.history
    judged = np.zeros(len(history.keys), np.bool_)
    locking = (history.f == F.ACQUIRE) | (history.f == F.RELEASE) | (history.f == F.EXTEND)
    judged[history.key[locking]] = True
    resource = np.isin(history.f, [int(f) for f in RESOURCE_OPERATIONS])
    if np.any(resource):
        used = np.zeros(len(judged), np.bool_)
        used[history.key[resource]] = True
        judged |= used & keys_of(history, RESOURCES)
    return judged


def _unsure(analysis: Analysis) -> Bools:
    """The lock keys that the minimal hold rule does not cover."""
    history = analysis.history
    unsure = np.zeros(len(history.keys), np.bool_)
    unsure[unpaired(analysis)] = True
    unsure[unbalanced(history)] = True
    return unsure | keys_of(history, frozenset({"fenced", OWNERLESS}))


def _refused_in_a_gap(analysis: Analysis, held: Sections) -> Bools:
    """The keys with strict tries where a refusal is not explained by the smallest holds alone: its
    window touches no core. (Where every refusal touches one, the order of the smallest holds
    explains the refusals too.)"""
    history = analysis.history
    unsure = np.zeros(len(history.keys), np.bool_)
    strict = [k for k, name in enumerate(history.keys) if history.object_of(name).strict_try]
    if not strict:
        return unsure
    rows = np.flatnonzero(analysis.links.held & (history.f == F.ACQUIRE))
    refusals, sections_of = ByKey(history.key[rows]), ByKey(held.key)
    for key in strict:
        refused = rows[refusals[key]]
        if len(refused) == 0:
            continue
        if history.kinds[key] not in OWNED - REENTRANT:
            # A reentrant lock is never refused to its holder, whose own core would be touched.
            unsure[key] = True
            continue
        cores = sections_of[key]
        cores = cores[~held.floating[cores] & (held.begin[cores] < held.end[cores])]
        begin, end = np.sort(held.begin[cores]), np.sort(held.end[cores])
        # Disjoint cores: those that begin by the window's end, less those that ended before it.
        window_end = history.complete_ns[refused] + history.epsilon_ns
        window_begin = history.invoke_ns[refused] - history.epsilon_ns
        touching = np.searchsorted(begin, window_end, side="right") - np.searchsorted(
            end, window_begin, side="left"
        )
        unsure[key] = bool(np.any(touching <= 0))
    return unsure


def _search(analysis: Analysis, keys: Bools) -> _Searched:
    searched = _Searched()
    deadline = perf_counter() + SECONDS_MAX
    places, calls_of = ByKey(analysis.history.key), Calls(analysis)
    for key in np.flatnonzero(keys).tolist():
        name = analysis.history.keys[key]
        left = deadline - perf_counter()
        if left <= 0:
            searched.undecided[name] = "the time for all keys was up"
            continue
        given = analysis.history.object_of(name)
        searched.keys += 1
        # A handful of operations is searched faster than it is sorted.
        found = None
        if given.kind in RESOURCES and len(places[key]) > HANDFUL:
            found = _sorted(analysis, places[key], given.kind, given.initial)
        if found is None:
            _search_one(analysis, searched, calls_of, (key, places[key]), Budget(left))
        elif found.result == "invalid":
            searched.failed = (found.failed, *found.open_then)
        if searched.failed:
            break
    return searched


def _search_one(
    analysis: Analysis,
    searched: _Searched,
    calls_of: Calls,
    which: tuple[int, Rows],
    budget: Budget,
) -> None:
    """Notes what the search says of one key, given with its rows."""
    key, places = which
    name = analysis.history.keys[key]
    given = analysis.history.object_of(name)
    if len(places) > CALLS_MAX:
        searched.undecided[name] = f"{len(places)} operations are too many for the search"
        return
    try:
        calls, rows = calls_of.key(key, given.kind, places, budget)
    except OverBudget as bound:
        searched.undecided[name] = str(bound)
        return
    model = model_of(given.kind, given.permits, given.initial)
    found = search(model, calls, budget=budget)
    if found.result == "unknown":
        searched.undecided[name] = found.reason
    elif found.result == "invalid":
        few = [rows[i] for i in smallest(model, calls, found).numbers]
        searched.failed = (rows[found.failed], *few)


def _sorted(analysis: Analysis, places: Rows, kind: str, initial: int | None) -> Found | None:
    """What sorting says of a resource, where it can: in rows, and few where it is invalid."""
    if kind != "counter":
        return by_zones(analysis.history, places, initial)
    found = by_sweep(analysis.history, places, initial)
    if found is None or found.result == "valid":
        return found
    reads = fewest_reads(analysis.history, places, initial, found.failed)
    begin = int(analysis.history.invoke_ns[reads].min())
    end = int(analysis.history.complete_ns[found.failed])
    adds = places[analysis.history.f[places] == F.ADD]
    done = analysis.history.complete_ns[adds]
    beside = adds[(analysis.history.invoke_ns[adds] <= end) & ((done == NULL) | (done >= begin))]
    return replace(found, open_then=(*reads, *beside.tolist()))


def _verdict(analysis: Analysis, judged: Bools, searched: _Searched) -> Verdict:
    if searched.failed:
        # The operation at which every order broke down, and what was under way.
        name = analysis.name(searched.failed[0])
        reason = f"no order of effects explains the answer of {name}"
        return _invalid(analysis, searched.failed, reason)
    if searched.undecided:
        name, why = next(iter(searched.undecided.items()))
        count = many(len(searched.undecided), "key")
        return Verdict("unknown", f"{count} undecided; {name}: {why}")
    how = f", {searched.keys} of them searched" if searched.keys else ""
    return Verdict("valid", f"{many(int(judged.sum()), 'key')}{how}: every answer can be explained")


def _invalid(analysis: Analysis, rows: tuple[int, ...], why: str) -> Verdict:
    """The rows are given in the order of their importance and told in the order of time."""
    history = analysis.history
    rows = tuple(sorted(list(dict.fromkeys(rows))[:EVIDENCE_MAX]))
    evidence = [operation(analysis, row) for row in rows]
    begin, end = int(history.invoke_ns[rows[0]]), int(history.invoke_ns[rows[-1]])
    told = "; ".join(str(item["text"]) for item in evidence[:3])
    reason = f"{why}: {told}{during(analysis, begin, end)}"
    return Verdict("invalid", reason, (*evidence, *faults_on(analysis, begin, end)))
