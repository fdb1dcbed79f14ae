"""What the faults share that make links slow: which links, the proof by a stopwatch, the heal.

Proof: the same write as before, sent over a link that was made slow, takes longer by what the shape
must cost at least; both times are recorded. Of links between servers that no write waits for it is
the proxies' own word. Healed to the base state of the links, not to zero.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import ClassVar, Final

from clusters.base import Cluster, Cuttable, Edge, Led, Shapable, Shape
from nemesis.base import LINKS, Arena, Asked, Fault, NemesisError, Parameter
from nemesis.targets import DECISIVE, headed, resolve

CLIENTS, SERVERS, EVERYTHING = "clients", "servers", "all"
PATIENCE_S: Final = 5.0
ROUNDS: Final = 5
ON: Final = Parameter(
    "which links: from clients, between servers, or all",
    EVERYTHING,
    (CLIENTS, SERVERS, EVERYTHING),
)


class Slow(Fault):
    """See the module."""

    rules = ("proven", "grants-around", "attempts-during")
    touches = frozenset({LINKS})
    parameters: ClassVar = {"on": ON}

    @abstractmethod
    def shape(self, arena: Arena) -> Shape:
        """What the links are like while the fault is on."""

    @abstractmethod
    def cost_s(self, arena: Arena) -> float:
        """What one request and its answer must take longer, at the least."""

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        if not isinstance(cluster, Shapable) or not isinstance(cluster, Cuttable):
            return "its links cannot be made slow"
        if asked["on"] == SERVERS and not any(edge.source > 0 for edge in cluster.edges()):
            return "its nodes do not talk to each other"
        return None

    def duration_s(self, lease_ttl_s: float, asked: Asked) -> float:
        return 1.5 * lease_ttl_s

    def aim(self, arena: Arena) -> None:
        arena.targets = resolve(arena, DECISIVE if headed(arena.cluster) else "all")
        arena.facts["leader_due"] = False
        before = [_took_s(arena)]
        if before[0] >= PATIENCE_S:
            raise NemesisError("a write was not served before the fault: nothing to compare with")
        before += [_took_s(arena) for _ in range(ROUNDS - 1)]
        arena.facts["took_s_before"] = min(before)

    def begin(self, arena: Arena) -> None:
        edges = self.edges(arena)
        arena.facts["links_slowed"] = len(edges)
        shapable(arena).shape(edges, self.shape(arena))

    def edges(self, arena: Arena) -> list[Edge]:
        """The links of the parameter ``on``."""
        on = arena.word("on")
        found = [] if not isinstance(arena.cluster, Cuttable) else arena.cluster.edges()
        return [e for e in found if on == EVERYTHING or (e.source > 0) == (on == SERVERS)]

    def took_effect(self, arena: Arena) -> bool:
        if arena.word("on") == SERVERS and not isinstance(arena.cluster, Led):
            # Writes wait for nobody else there; what is left is the proxies' own word.
            found = arena.cluster.broken_links() if isinstance(arena.cluster, Cuttable) else ()
            return len(found) >= int(str(arena.facts["links_slowed"]))
        before = arena.facts["took_s_before"]
        assert isinstance(before, float)
        took = arena.facts["took_s_during"] = _fastest_s(arena)
        return took >= before + self.cost_s(arena)

    def heal(self, arena: Arena) -> None:
        if isinstance(arena.cluster, Cuttable):
            arena.cluster.heal()

    def recovered(self, arena: Arena) -> bool:
        return _took_s(arena) < PATIENCE_S


def shapable(arena: Arena) -> Shapable:
    """The cluster as one whose links can be made slow. Raises NemesisError."""
    if not isinstance(arena.cluster, Shapable):
        raise NemesisError("the cluster's links cannot be made slow")
    return arena.cluster


def _fastest_s(arena: Arena) -> float:
    """The fastest of a few, because a busy machine slows single ones down. Only the first may end
    after the heal was due: a heal lets go of what was held back."""
    fastest = _took_s(arena)
    for _ in range(ROUNDS - 1):
        took = _took_s(arena)
        if time.monotonic_ns() >= arena.heal_due_ns:
            break
        fastest = min(fastest, took)
    return fastest


def _took_s(arena: Arena) -> float:
    """How long a write takes that is sent over the victim's link to the first target; links
    between servers are crossed by it as well."""
    group = arena.clients.group(arena.clients.victim_worker)
    began = time.monotonic()
    served = arena.cluster.serves(arena.targets[0], PATIENCE_S, group)
    return time.monotonic() - began if served else PATIENCE_S
