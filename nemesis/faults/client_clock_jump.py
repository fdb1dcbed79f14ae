"""``client-clock-jump``: the victim's process reads a wall clock that is off.

Matters to clients that count their lease by the wall clock; those that use the monotonic clock, as
every recipe here does, must not notice. Only what Python's ``time.time`` and ``time.time_ns`` tell
is moved. Verified by the victim's own reading; healed by the truth.
"""

from __future__ import annotations

from typing import ClassVar

from lockbench.clusters.base import Cluster
from lockbench.declarations.parameters import Parameter
from lockbench.nemesis.base import VICTIM, Arena, Asked, Fault
from lockbench.nemesis.clock import BY

CLOSE_S = 0.5


class ClientClockJump(Fault):
    """See the module."""

    name = "client-clock-jump"
    summary = "shifts the wall clock that the victim's process reads"
    rules = ("proven", "grants-around", "attempts-during")
    touches = frozenset({VICTIM})
    parameters: ClassVar[dict[str, Parameter]] = {"by_s": BY}

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        if abs(float(asked["by_s"])) < 2 * CLOSE_S:
            return f"less than {2 * CLOSE_S:g} s cannot be told from a slow answer"
        return None

    def begin(self, arena: Arena) -> None:
        arena.clients.shift_clock(arena.number("by_s"))

    def took_effect(self, arena: Arena) -> bool:
        off_s = arena.facts.read_off_s = arena.clients.clock_offset_s()
        return abs(off_s - arena.number("by_s")) < CLOSE_S

    def heal(self, arena: Arena) -> None:
        arena.clients.let_go()
        arena.clients.shift_clock(0.0)

    def recovered(self, arena: Arena) -> bool:
        return abs(arena.clients.clock_offset_s()) < CLOSE_S


FAULT = ClientClockJump()
