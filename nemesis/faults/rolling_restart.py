"""``rolling-restart``: every server in turn is killed and started again, as an upgrade does it.

The next one follows when the last one serves again. Verified for each by its answers: silent after
the kill, serving after the restart. Exposed only if each was restarted so before the fault's end.
Healed by starting whatever is down.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import ClassVar

from lockbench.clusters.base import Cluster, Killable
from lockbench.nemesis.base import SERVERS, Arena, Asked, Fault
from lockbench.nemesis.faults.kill import killable
from lockbench.nemesis.probes import PROBE_S, serving
from lockbench.nemesis.staging import until

BACK_S = 10.0


class RollingRestart(Fault):
    """See the module."""

    name = "rolling-restart"
    summary = "every server in turn is killed and started again"
    rules = ("proven", "all-restarted", "grants-around")
    lasts_leases = 3.0
    touches = frozenset({SERVERS})
    ends_servers = True
    period_s: ClassVar = 0.5

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        return None if isinstance(cluster, Killable) else "its servers cannot be killed"

    def aim(self, arena: Arena) -> None:
        arena.targets = tuple(arena.cluster.nodes)
        arena.facts.killed_nodes, arena.facts.away_ns = [], {}

    def begin(self, arena: Arena) -> None:
        self.tick(arena)

    def tick(self, arena: Arena) -> None:
        killed, away = arena.facts.killed_nodes, arena.facts.away_ns
        assert killed is not None
        assert away is not None
        left = [node for node in arena.targets if node not in killed]
        if not left:
            return
        node = left[0]
        killed.append(node)
        since_ns = monotonic_ns()
        killable(arena).kill([node])
        was_silent = not arena.cluster.serves(node, PROBE_S)
        killable(arena).restart([node])
        if until(lambda: arena.cluster.serves(node, PROBE_S), BACK_S) and was_silent:
            away[arena.cluster.node_name(node)] = (since_ns, monotonic_ns())

    def took_effect(self, arena: Arena) -> bool:
        return bool(arena.facts.away_ns)

    def heal(self, arena: Arena) -> None:
        if isinstance(arena.cluster, Killable):
            arena.cluster.restart(arena.targets)

    def recovered(self, arena: Arena) -> bool:
        return serving(arena, arena.targets)


FAULT = RollingRestart()
