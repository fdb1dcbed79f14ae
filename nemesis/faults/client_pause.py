"""``client-pause``: client processes are frozen for longer than a lease.

What a garbage collection, a suspended virtual machine or an overloaded host does (Kleppmann, "How
to do distributed locking", 2016). Applies to every lock. Verified by the kernel's own word on the
process; healed by SIGCONT. ``when`` says what the victim does as it freezes:

``holding``  it has been granted the lock and has checked that the grant is still good;
``asking``   its acquire was granted, but the reply was held back in its link: it freezes before it
             could check. The reply arrives while it sleeps; whoever takes it for a grant afterwards
             without looking at the clock returns a lock that is no longer held;
``queued``   it waits behind another holder, who releases while it sleeps.

``who=half`` freezes half of all other workers instead of the victim.
"""

from __future__ import annotations

import time
from typing import ClassVar

from lockbench.clusters.base import Cluster, Cuttable, Edge
from lockbench.declarations.parameters import Parameter
from lockbench.nemesis.base import LINKS, VICTIM, WORKERS, Arena, Asked, Fault
from lockbench.nemesis.links import cuttable_of
from lockbench.nemesis.staging import ASKED_S, STAGE_S, about_to_ask, fresh_hold, in_line, until

HOLDING, ASKING, QUEUED = "holding", "asking", "queued"
THE_VICTIM, HALF = "victim", "half"


class ClientPause(Fault):
    """See the module."""

    name = "client-pause"
    summary = "freezes the process of a client for longer than the lease"
    during = "under a client pause"
    suites = frozenset({"quick", "full", "variants"})
    rules = ("proven", "grants-around", "holder-frozen")
    lasts_leases = 1.6
    touches = frozenset({VICTIM})
    stops_clients = True
    parameters: ClassVar = {
        "when": Parameter("what the victim does as it freezes", HOLDING, (HOLDING, ASKING, QUEUED)),
        "who": Parameter("the victim, or half of the others", THE_VICTIM, (THE_VICTIM, HALF)),
    }

    def duration_s(self, lease_ttl_s: float, kept_leases: float = 1.0) -> float:
        """Longer than the service keeps what nobody renews."""
        return (self.lasts_leases + kept_leases - 1.0) * lease_ttl_s

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        if asked["who"] == HALF and asked["when"] != HOLDING:
            return "half of the workers are frozen whatever they do"
        if asked["when"] == ASKING and not isinstance(cluster, Cuttable):
            return "its links cannot hold a reply back"
        return None

    def aim(self, arena: Arena) -> None:
        clients = arena.clients
        others = list(clients.other_workers)
        half = tuple(sorted(arena.rng.sample(others, max(1, len(others) // 2))))
        frozen = half if arena.word("who") == HALF else (clients.victim_worker,)
        arena.facts.worker, arena.facts.workers = frozen[0], list(frozen)

    def stage(self, arena: Arena) -> None:
        if arena.word("who") == HALF:
            return
        stage = {HOLDING: fresh_hold, ASKING: about_to_ask, QUEUED: in_line}
        stage[arena.word("when")](arena)

    def begin(self, arena: Arena) -> None:
        if arena.word("when") != ASKING:
            arena.clients.freeze(self._workers(arena))
            return
        group = arena.clients.group(arena.clients.victim_worker)
        links = cuttable_of(arena)
        links.cut_one_way([Edge(node, -group) for node in arena.cluster.nodes], "stall")
        arena.clients.go_on()
        until(arena.clients.asking, STAGE_S)
        time.sleep(ASKED_S)
        arena.clients.freeze(self._workers(arena))

    def took_effect(self, arena: Arena) -> bool:
        frozen = all(arena.clients.frozen(worker) for worker in self._workers(arena))
        if frozen and arena.word("when") == QUEUED:
            # Only now: its turn has to come while it sleeps.
            arena.clients.vacate()
        if frozen and arena.word("when") == ASKING:
            # Likewise the reply.
            cuttable_of(arena).heal()
        return frozen

    def heal(self, arena: Arena) -> None:
        # So that it goes on with what it was about to do as soon as it wakes.
        arena.clients.let_go()
        arena.clients.thaw(self._workers(arena))
        if arena.word("when") == ASKING and isinstance(arena.cluster, Cuttable):
            arena.cluster.heal()

    def recovered(self, arena: Arena) -> bool:
        return not any(arena.clients.frozen(worker) for worker in self._workers(arena))

    def rules_for(self, arena: Arena) -> tuple[str, ...]:
        if arena.word("who") == HALF:
            return ("proven", "grants-around", "attempts-during")
        if arena.word("when") == HOLDING:
            return self.rules
        return ("proven", "grants-around", "waiter-frozen")

    def holds_of(self, asked: Asked) -> frozenset[str]:
        if asked["who"] == HALF:
            return frozenset({WORKERS})
        return frozenset({VICTIM, LINKS}) if asked["when"] == ASKING else self.touches

    @staticmethod
    def _workers(arena: Arena) -> tuple[int, ...]:
        return tuple(arena.facts.workers or ())


FAULT = ClientPause()
