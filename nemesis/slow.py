"""What the faults share that make links slow: which links, the proof by a stopwatch, the heal.

Proof: the proxies say that the links are not in their base state, and the same write as before,
sent over one of them, takes longer by what the shape must cost at least; both times are recorded.
Neither is enough: a write may be slow because the machine is. Of links between servers that no
write waits for it is the proxies' word alone. Healed to the base state of the links, not to zero.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Final

from lockbench.clusters.base import Cluster, Led, Shape
from lockbench.nemesis import links
from lockbench.nemesis.base import LINKS, Arena, Asked, Fault, NemesisError
from lockbench.nemesis.targets import DECISIVE, headed, resolve

PATIENCE_S: Final = 5.0
ROUNDS: Final = 5
# Writes take this much more or less by themselves, the fastest of a few too.
SHOWN_S: Final = 0.0015


class Slow(Fault):
    """See the module."""

    rules = ("proven", "grants-around", "attempts-during")
    lasts_leases = 1.5
    touches = frozenset({LINKS})

    @abstractmethod
    def shape(self, arena: Arena) -> Shape:
        """What the links are like while the fault is on."""

    @abstractmethod
    def cost_s(self, asked: Asked) -> float:
        """What one request and its answer must take longer, at the least."""

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        if self.cost_s(asked) < SHOWN_S:
            return "a write would not take measurably longer"
        return links.unfit(cluster, asked, "its links cannot be made slow")

    def aim(self, arena: Arena) -> None:
        arena.targets = resolve(arena, DECISIVE if headed(arena.cluster) else "all")
        before = [_took_s(arena)]
        if before[0] >= PATIENCE_S:
            raise NemesisError("a write was not served before the fault: nothing to compare with")
        before += [_took_s(arena) for _ in range(ROUNDS - 1)]
        arena.facts.took_s_before = min(before)

    def begin(self, arena: Arena) -> None:
        edges = links.chosen(arena)
        arena.facts.links_slowed = len(edges)
        links.shapable_of(arena).shape(edges, self.shape(arena))

    def took_effect(self, arena: Arena) -> bool:
        if not links.all_broken(arena, arena.facts.links_slowed):
            return False
        if arena.word("on") == links.SERVERS and not isinstance(arena.cluster, Led):
            return True  # Writes wait for nobody else there.
        took = arena.facts.took_s_during = _fastest_s(arena)
        before = arena.facts.took_s_before
        return before is not None and took >= before + self.cost_s(arena.asked)

    def heal(self, arena: Arena) -> None:
        links.cuttable_of(arena).heal()

    def recovered(self, arena: Arena) -> bool:
        return _took_s(arena) < PATIENCE_S


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
