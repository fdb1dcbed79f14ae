"""``failover``: the primary dies before replication has caught up, and a replica takes its place.

Replication from the primary is cut first, for longer than a lease; then the victim is granted the
lock, and then the primary is killed and the replica promoted, by the system's own mechanism. A lock
that waits for its replica before it trusts a grant is not granted while replication is cut; then
the links are healed before the kill, and the fault says so (``lagged``). Where nobody would be
promoted now (Sentinels after a jump of their clocks), the fault is not injected.

Applies to clusters with a primary and replicas. Verified by who is primary afterwards; healed by
starting the old primary, which must come back as a replica.
"""

from __future__ import annotations

import time
from time import monotonic_ns
from typing import Final

from lockbench.clusters.base import Cluster, Cuttable, Edge, Killable, Promotable, Replicated
from lockbench.nemesis.base import LINKS, SERVERS, Arena, Asked, Fault, Impossible, NemesisError
from lockbench.nemesis.faults.kill import killable
from lockbench.nemesis.probes import serving
from lockbench.nemesis.staging import fresh_hold

PROMOTION_S: Final = 15.0
NOBODY: Final = "nobody would be promoted"
# A lock that is not granted in this time waits for its replica.
LAG_S: Final = 1.5


class Failover(Fault):
    """See the module."""

    name = "failover"
    summary = "the primary dies before replication has caught up, and a replica takes its place"
    during = "when the primary died before replication had caught up"
    suites = frozenset({"full", "variants"})
    rules = ("proven", "grants-around", "promoted", "promise-outlives-restart")
    touches = frozenset({SERVERS, LINKS})
    ends_servers = True
    outlived = True
    # Sentinels make a primary that is back a replica after some ten seconds, and until then a lock
    # that waits for its replica is not granted.
    settles_s = 12.0

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        if not isinstance(cluster, Promotable):
            if isinstance(cluster, Replicated):
                return "its replicas cannot be promoted"
            return Impossible("it has no primary that a replica could replace")
        if not isinstance(cluster, Killable) or not isinstance(cluster, Cuttable):
            return "its servers cannot be killed or its links not be cut"
        return None

    def aim(self, arena: Arena) -> None:
        primary, replica = _pair(arena)
        arena.targets = (primary,)
        arena.facts.primary_before, arena.facts.replica = arena.cluster.node_name(primary), replica

    def stage(self, arena: Arena) -> None:
        cluster = arena.cluster
        assert isinstance(cluster, Cuttable)
        assert isinstance(cluster, Promotable)
        if why := cluster.promotes_nobody():
            raise NemesisError(f"{NOBODY}: {why}")
        primary, replica = arena.targets[0], arena.facts.replica
        assert replica is not None
        lag = {Edge(primary, replica), Edge(replica, primary)}
        arena.facts.staged_ns = monotonic_ns()
        cluster.cut([edge for edge in cluster.edges() if edge in lag], "drop")
        arena.facts.lagged = arena.clients.hold(LAG_S) is not None
        if arena.facts.lagged:
            # Whoever was granted before the cut lets go, so that the newest grant is unreplicated,
            # and what the replica still has of the grants before it is over.
            arena.clients.let_go()
            time.sleep(arena.lease_ttl_s)
        else:
            cluster.heal()
        fresh_hold(arena)

    def begin(self, arena: Arena) -> None:
        assert isinstance(arena.cluster, Promotable)
        assert arena.facts.replica is not None
        killable(arena).kill(arena.targets)
        arena.cluster.promote(arena.facts.replica, PROMOTION_S)
        arena.facts.restarted_ns = monotonic_ns()

    def took_effect(self, arena: Arena) -> bool:
        assert isinstance(arena.cluster, Replicated)
        primary = arena.cluster.primary()
        if primary is None or primary in arena.targets:
            return False
        arena.facts.primary_during = arena.cluster.node_name(primary)
        return True

    def heal(self, arena: Arena) -> None:
        # First the links: who comes back may have to copy everything from the new primary.
        if isinstance(arena.cluster, Cuttable):
            arena.cluster.heal()
        killable(arena).restart(arena.targets)

    def recovered(self, arena: Arena) -> bool:
        return serving(arena, arena.cluster.nodes)


def _pair(arena: Arena) -> tuple[int, int]:
    cluster = arena.cluster
    if not isinstance(cluster, Replicated):
        raise NemesisError("the cluster has no primary")
    primary, replicas = cluster.primary(), sorted(cluster.replicas())
    if primary is None or not replicas:
        raise NemesisError("the cluster has no primary with a replica: it was not healthy")
    return primary, arena.rng.choice(replicas)


FAULT = Failover()
