"""What the faults of the servers' wall clocks share.

They apply to systems whose wall clock can be moved from outside (``Clocked``): those that read it
through the C library. Go programs read it without, so a cluster of them is not Clocked and these
faults do not apply to it. Monotonic clocks are never moved. Verified by the time that the server
itself tells; healed by moving the clock back to the machine's, which is a jump, too.

By default they strike what decides: one jumped node of five independent ones breaks nothing.
"""

from __future__ import annotations

import math
import time
from typing import ClassVar, Final

from lockbench.clusters.base import Clocked, Cluster
from lockbench.declarations.parameters import Parameter
from lockbench.nemesis.base import CLOCKS, Arena, Asked, Fault, NemesisError
from lockbench.nemesis.targets import WHO, nobody, note_deciding, resolve

CLOSE_S: Final = 0.25
ASK_S: Final = 0.5
BY: Final = Parameter("seconds to move it ahead; negative: back", 10.0, least=-1e9, most=1e9)


class ClockFault(Fault):
    """See the module."""

    rules = ("proven", "grants-around", "clock-beyond-lease")
    touches = frozenset({CLOCKS})
    parameters: ClassVar[dict[str, Parameter]] = {"by_s": BY, "who": WHO}

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        if not isinstance(cluster, Clocked):
            return (
                "its servers' wall clocks cannot be moved: they read them without the C library "
                "(Go does), or their image is not ours"
            )
        if abs(float(asked.get("by_s", math.inf))) < 2 * CLOSE_S:
            return f"less than {2 * CLOSE_S:g} s cannot be told from a slow answer"
        return nobody(cluster, str(asked["who"]), kept=True)

    def needs_lease(self) -> bool:
        return True

    def aim(self, arena: Arena) -> None:
        arena.targets = resolve(arena, arena.word("who"), kept=True)
        note_deciding(arena)
        arena.facts.offset_s, arena.facts.moves = 0.0, []

    def begin(self, arena: Arena) -> None:
        self.shift(arena, arena.number("by_s"))

    def shift(self, arena: Arena, offset_s: float) -> None:
        _move(arena, offset_s)
        arena.facts.offset_s = max(arena.facts.offset_s or 0.0, offset_s, key=abs)

    def took_effect(self, arena: Arena) -> bool:
        seen = arena.facts.read_off_s
        if not isinstance(seen, dict):
            seen = arena.facts.read_off_s = {}
        ordered = arena.facts.offset_s or 0.0
        for node in arena.targets:
            began = time.monotonic()
            off_s = clocked(arena).clock_offset_s(node, ASK_S)
            # A slow answer is as inexact, so a clock is not off by what it may have waited. One
            # that strobes is not off at every moment.
            sure_s = math.copysign(1, ordered) * off_s - (time.monotonic() - began) / 2
            if sure_s > CLOSE_S:
                seen.setdefault(arena.cluster.node_name(node), round(off_s, 3))
        return len(seen) == len(arena.targets)

    def heal(self, arena: Arena) -> None:
        if isinstance(arena.cluster, Clocked):
            _move(arena, 0.0)

    def recovered(self, arena: Arena) -> bool:
        return all(
            abs(clocked(arena).clock_offset_s(node, ASK_S)) < CLOSE_S for node in arena.targets
        )


def _move(arena: Arena, offset_s: float) -> None:
    """Moves the clocks, and writes down between which times and to how far ahead."""
    before_ns = time.monotonic_ns()
    clocked(arena).shift_clock(arena.targets, offset_s)
    moves = [] if arena.facts.moves is None else arena.facts.moves
    arena.facts.moves = [*moves, (before_ns, time.monotonic_ns(), offset_s)]


def clocked(arena: Arena) -> Clocked:
    """The cluster as one whose clocks can be moved. Raises NemesisError."""
    if not isinstance(arena.cluster, Clocked):
        raise NemesisError("the cluster's wall clocks cannot be moved")
    return arena.cluster
