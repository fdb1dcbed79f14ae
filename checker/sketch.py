"""A violation in a few lines of text: who held what when, and the faults that were on.

``lockbench.checker.drawing`` draws the same for a browser, with all that happened around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lockbench.checker.verdict import Verdict

WIDTH: Final = 60
NAME_MAX: Final = 24
HOLD, CLASH, FAULT, OPEN = "━", "█", "░", "→"


@dataclass(frozen=True, slots=True)
class _Lane:
    name: str
    begin_ns: int
    end_ns: int | None
    sign: str


def sketch(verdict: Verdict) -> str:
    """A line for each grant and fault of the evidence, under a line with the seconds of its first
    and last moment; nothing where it has no grant. Where all the grants meet, they are solid."""
    lanes = [lane for item in verdict.evidence if (lane := _lane(item)) is not None]
    grants = [lane for lane in lanes if lane.sign == HOLD]
    if not grants:
        return ""
    first = min(lane.begin_ns for lane in grants)
    ends = [lane.end_ns for lane in grants if lane.end_ns is not None]
    last = max([*ends, *(lane.begin_ns for lane in grants)])
    span = max(last - first, 1)
    clash = (max(lane.begin_ns for lane in grants), min(ends, default=last))

    def at(time_ns: int) -> int:
        return min(max(time_ns - first, 0) * (WIDTH - 1) // span, WIDTH - 1)

    def bar(lane: _Lane) -> str:
        end_ns = last if lane.end_ns is None else lane.end_ns
        cells = [" "] * WIDTH
        cells[at(lane.begin_ns) : at(end_ns) + 1] = lane.sign * (at(end_ns) + 1 - at(lane.begin_ns))
        if lane.sign == HOLD and clash[0] < clash[1]:
            cells[at(clash[0]) : at(clash[1]) + 1] = CLASH * (at(clash[1]) + 1 - at(clash[0]))
        return "".join(cells) + (OPEN if lane.end_ns is None else "")

    wide = max(len(lane.name) for lane in lanes)
    scale = "0.000" + f"{span / 1e9:.3f} s".rjust(WIDTH - len("0.000"))
    return "\n".join(
        [f"{'':{wide}}  {scale}", *(f"{lane.name:{wide}}  {bar(lane)}".rstrip() for lane in lanes)]
    )


def _lane(item: Mapping[str, object]) -> _Lane | None:
    if item.get("what") == "grant":
        begin, end = item["granted_ns"], item["promised_until_ns"]
        name, sign = str(item["process"]), HOLD
    elif item.get("what") == "fault":
        (begin, *_), healed = _times(item["begin_ns"]), item["heal_ns"]
        end = None if healed is None else _times(healed)[-1]
        name, sign = str(item["name"]), FAULT
    else:
        return None
    assert isinstance(begin, int)
    assert end is None or isinstance(end, int)
    return _Lane(name[:NAME_MAX], begin, end, sign)


def _times(pair: object) -> list[int]:
    assert isinstance(pair, list)
    return pair
