"""When the places of a service's log were reached: no sooner and no later than what.

A log has an order and no times. What its clients asked for had not happened before they asked, and
what they were told of had happened by then; so each place lies between two times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from lockbench.checker.promises import Links
from lockbench.checker.rows import FOREVER, rows_of
from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Type
from lockbench.history.service import Tenure

LONG_AGO: Final = -FOREVER


@dataclass(frozen=True, slots=True)
class Brackets:
    """The places of a log and the least and most that each time can be."""

    places: Sequence[int]
    first: Sequence[int]
    last: Sequence[int]

    @staticmethod
    def of(events: list[tuple[int, int, int]]) -> Brackets:
        events.sort()
        last = list(accumulate((event[2] for event in reversed(events)), min))
        return Brackets(
            [event[0] for event in events],
            list(accumulate((event[1] for event in events), max)),
            last[::-1],
        )

    def earliest(self, place: int) -> int:
        """Nothing before it in the log was asked for later than this."""
        at = bisect_left(self.places, place + 1) - 1
        return self.first[at] if at >= 0 else LONG_AGO

    def latest(self, place: int) -> int:
        """Nothing after it in the log was told earlier than this."""
        at = bisect_left(self.places, place)
        return self.last[at] if at < len(self.places) else FOREVER


def bracketed(
    history: History,
    links: Links,
    tenures: Sequence[Tenure],
    name_of: Mapping[int, tuple[str, int]],
    *,
    alone: bool,
) -> Mapping[str, Brackets]:
    """For each log, when its places were reached. ``name_of``: key and hold of each acquire by its
    row. ``alone``: one server decides; on one of several an entry may come and go long after the
    majority has decided."""
    often = Counter((tenure.key, tenure.hold) for tenure in tenures)
    asked: dict[tuple[str, int], int] = {}
    done: dict[tuple[str, int], int] = {}
    released: dict[tuple[str, int], int] = {}
    rows = rows_of(history, F.ACQUIRE, Type.OK, Type.INFO)
    times = zip(rows.tolist(), history.invoke_ns[rows].tolist(), strict=True)
    for (row, invoked), told_at in zip(times, history.complete_ns[rows].tolist(), strict=True):
        asked[name_of[row]] = invoked
        if told_at != NULL:
            done[name_of[row]] = told_at
    ended = rows_of(history, F.RELEASE, Type.OK)
    for row, acquire in zip(ended.tolist(), links.acquire[ended].tolist(), strict=True):
        if acquire >= 0:
            released[name_of[acquire]] = int(history.complete_ns[row])
    events: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for tenure in tenures:
        name = (tenure.key, tenure.hold)
        log = events[tenure.log]
        single = alone and often[name] == 1
        first = asked.get(name, LONG_AGO)
        told = done.get(name, FOREVER) if single else FOREVER
        log.append((tenure.made, first, told))
        if tenure.ended is not None:
            gone = released.get(name, FOREVER) if single else FOREVER
            log.append((tenure.ended, first, gone))
    return {log: Brackets.of(found) for log, found in events.items()}
