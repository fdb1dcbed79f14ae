"""From a history that cannot be linearized to a few of its operations that cannot either.

Three steps keep the claim true. First the past is cut off as late as possible: before the cut the
object may have been in *any* state that the search ever saw, and what was under way at the cut may
or may not have happened; if no order explains the rest even so, the rest alone is the explanation.
Then every client that is not needed is left out with all its operations: an order of effects stays
one without it, unless another was refused because of it or states before the cut name it. Then
operations that only look (reads, refusals) are left out one by one for as long as the rest stays
impossible. Single unknown operations stay: less is possible without them, which proves nothing.
Everything after the failed answer is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Final

from lockbench.checker.models import Model, State
from lockbench.checker.search import Call, Found, search

SECONDS_MAX: Final = 3.0
ONE_SEARCH_S: Final = 0.5
SHORT: Final = 4  # beginnings of calls, in the first end of a history that is tried


Numbered = Mapping[int, Call]


@dataclass(frozen=True, slots=True)
class Explanation:
    """``calls`` as they are after the cut; those numbered are impossible from all ``initials``."""

    numbers: tuple[int, ...]
    calls: Numbered
    initials: Sequence[State]


def smallest(model: Model, given: Sequence[Call], found: Found) -> Explanation:
    """A few calls, in the order of their beginning, that are still impossible together."""
    deadline = perf_counter() + SECONDS_MAX
    end = given[found.failed].end
    assert end is not None
    kept = [i for i, call in enumerate(given) if call.begin <= end]
    calls: Numbered = {i: given[i] for i in kept}
    initials: Sequence[State] = (model.initial,)
    states = found.states or initials
    cut = _latest_cut(model, given, kept, states, deadline)
    if cut is not None:
        calls = {i: _after(calls[i], cut) for i in kept if not _over(calls[i], cut)}
        kept, initials = list(calls), states
    for fewer in _candidates(model, calls, kept, found.failed, whole=cut is None):
        if perf_counter() > deadline:
            break
        rest = [i for i in kept if i not in fewer]
        if len(rest) < len(kept) and _impossible(model, calls, rest, initials):
            kept = rest
    return Explanation(tuple(sorted(kept, key=lambda i: (calls[i].begin, i))), calls, initials)


def _candidates(
    model: Model, calls: Numbered, kept: list[int], failed: int, *, whole: bool
) -> Iterator[frozenset[int]]:
    """What might be left out: everything that one identity did, then single observations."""
    by_identity: dict[int, set[int]] = {}
    for i in kept:
        who = calls[i].operation.who
        if who is not None:
            by_identity.setdefault(who, set()).add(i)
    refused = any(calls[i].operation.answer == "refused" for i in kept)
    if not refused and (whole or model.name == "owner-mutex"):
        yield from (frozenset(rows) for rows in by_identity.values() if failed not in rows)
    for i in kept:
        if i != failed and calls[i].operation.observes:
            yield frozenset((i,))


def _latest_cut(
    model: Model, calls: Sequence[Call], kept: list[int], states: Sequence[State], deadline: float
) -> int | None:
    """The latest beginning of a call from which on the rest is impossible from every state. The
    later the cut, the more is allowed: first ever longer ends of the history are tried, because
    short ones are quickly searched, then the cut is found by halving."""
    times = sorted({calls[i].begin for i in kept})

    def impossible_from(place: int) -> bool:
        cut = times[place]
        rest = {i: _after(calls[i], cut) for i in kept if not _over(calls[i], cut)}
        return _impossible(model, rest, list(rest), states)

    length = SHORT
    while not impossible_from(max(0, len(times) - length)):
        if length >= len(times) or perf_counter() > deadline:
            return None
        length *= 2
    low = max(0, len(times) - length)
    high = len(times) if length == SHORT else max(0, len(times) - length // 2)
    while low + 1 < high and perf_counter() < deadline:  # at low it is impossible
        middle = (low + high) // 2
        low, high = (middle, high) if impossible_from(middle) else (low, middle)
    return times[low]


def _after(call: Call, cut: int) -> Call:
    """What is left of a call: one under way at the cut may have happened, then or later, or not."""
    if call.begin >= cut or (call.end is not None and call.end < cut):
        return call
    answer = call.operation.answer
    return Call(replace(call.operation, answer="info" if answer == "ok" else answer), cut, None)


def _over(call: Call, cut: int) -> bool:
    return call.end is not None and call.end < cut


def _impossible(
    model: Model, calls: Numbered, chosen: list[int], initials: Sequence[State]
) -> bool:
    found = search(model, [calls[i] for i in chosen], seconds_max=ONE_SEARCH_S, initials=initials)
    return found.result == "invalid"
