"""From a history that cannot be linearized to a few of its operations that cannot either.

Two steps keep the claim true. First the past is cut off as late as possible: before the cut the
object may have been in *any* state that the search ever saw, and what was under way at the cut may
or may not have happened; if no order explains the rest even so, the rest alone is the explanation.
Then operations that only look (reads, refusals) are left out one by one for as long as the rest
stays impossible. Unknown operations stay: less is possible without them, which proves nothing.
Everything after the failed answer is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Final

from checker.models import Model, State
from checker.search import Call, Found, search

SECONDS_MAX: Final = 3.0
ONE_SEARCH_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Explanation:
    """``calls`` as they are after the cut; those numbered are impossible from all ``initials``."""

    numbers: tuple[int, ...]
    calls: Sequence[Call]
    initials: Sequence[State]


def smallest(model: Model, calls: Sequence[Call], found: Found) -> Explanation:
    """A few calls, in the order of their beginning, that are still impossible together."""
    deadline = perf_counter() + SECONDS_MAX
    end = calls[found.failed].end
    assert end is not None
    kept = [i for i, call in enumerate(calls) if call.begin <= end]
    initials: Sequence[State] = (model.initial,)
    states = found.states or initials
    cut = _latest_cut(model, calls, kept, states, deadline)
    if cut is not None:
        calls, initials = [_after(call, cut) for call in calls], states
        kept = [i for i in kept if not _over(calls[i], cut)]
    for i in list(kept):
        if perf_counter() > deadline:
            break
        if i != found.failed and calls[i].operation.observes:
            fewer = [j for j in kept if j != i]
            if _impossible(model, calls, fewer, initials):
                kept = fewer
    return Explanation(tuple(sorted(kept, key=lambda i: (calls[i].begin, i))), calls, initials)


def _latest_cut(
    model: Model, calls: Sequence[Call], kept: list[int], states: Sequence[State], deadline: float
) -> int | None:
    """The latest beginning of a call from which on the rest is impossible from every state. The
    later the cut, the more is allowed, so it is found by halving."""
    times = sorted({calls[i].begin for i in kept})
    low, high = 0, len(times)  # below low it is impossible, from high on it is not known to be
    best = None
    while low < high and perf_counter() < deadline:
        middle = (low + high) // 2
        cut = times[middle]
        rest = [_after(call, cut) for call in calls]
        if _impossible(model, rest, [i for i in kept if not _over(rest[i], cut)], states):
            best, low = cut, middle + 1
        else:
            high = middle
    return best


def _after(call: Call, cut: int) -> Call:
    """What is left of a call: one under way at the cut may have happened, then or later, or not."""
    if call.begin >= cut or (call.end is not None and call.end < cut):
        return call
    answer = call.operation.answer
    return Call(replace(call.operation, answer="info" if answer == "ok" else answer), cut, None)


def _over(call: Call, cut: int) -> bool:
    return call.end is not None and call.end < cut


def _impossible(
    model: Model, calls: Sequence[Call], chosen: list[int], initials: Sequence[State]
) -> bool:
    found = search(model, [calls[i] for i in chosen], seconds_max=ONE_SEARCH_S, initials=initials)
    return found.result == "invalid"
