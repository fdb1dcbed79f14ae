"""``pause``: servers are frozen (cgroup freezer), as a stalled host would be.

Their sockets stay open, the kernel goes on to acknowledge bytes, their clocks and TTLs run. Applies
to every cluster whose servers can be paused. Verified by the engine's word, and by a write that the
frozen node must not answer; healed by unpausing.
"""

from __future__ import annotations

from typing import ClassVar

from lockbench.clusters.base import Cluster, Pausable
from lockbench.nemesis.base import SERVERS, Arena, Asked, Fault, NemesisError
from lockbench.nemesis.probes import at_once, note_usual, serving, silent_while
from lockbench.nemesis.targets import WHO, leader_due, nobody, note_head_during, resolve


class Pause(Fault):
    """See the module."""

    name = "pause"
    summary = "freezes servers for a while"
    during = "when servers froze"
    suites = frozenset({"quick", "full"})
    rules = ("proven", "grants-around", "hold-across")
    lasts_leases = 2.0
    touches = frozenset({SERVERS})
    parameters: ClassVar = {"who": WHO}

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        if not isinstance(cluster, Pausable):
            return "its servers cannot be paused"
        return nobody(cluster, str(asked["who"]))

    def aim(self, arena: Arena) -> None:
        arena.targets = resolve(arena, arena.word("who"))
        note_usual(arena, arena.targets)

    def begin(self, arena: Arena) -> None:
        _pausable(arena).pause(arena.targets)

    def took_effect(self, arena: Arena) -> bool:
        frozen = _pausable(arena).frozen
        return silent_while(lambda: at_once(frozen, arena.targets), arena, arena.targets)

    def heal(self, arena: Arena) -> None:
        try:
            note_head_during(arena)
        finally:
            _pausable(arena).unpause(arena.targets)

    def recovered(self, arena: Arena) -> bool:
        return serving(arena, arena.targets)

    def rules_for(self, arena: Arena) -> tuple[str, ...]:
        # Of servers that are all frozen nobody is elected.
        due = leader_due(arena) and arena.word("who") != "all"
        return (*self.rules, "leader-changed") if due else self.rules


def _pausable(arena: Arena) -> Pausable:
    if not isinstance(arena.cluster, Pausable):
        raise NemesisError("the cluster's servers cannot be paused")
    return arena.cluster


FAULT = Pause()
