"""``reply-lost``: the victim's request is applied, the answer never arrives.

The ambiguous outcome that most lock libraries get wrong: they report a failure while their own key
lives, or try again and find themselves locked out. Only the replies to the victim's client group
are dropped, so its request is served. ``of`` says which request: it stands before that request when
the link is cut, and makes it then.

Verified by the proxies' word that its links are cut, and by a write over one of them, whose answer
must not come. Exposed only if the victim's request ended unknown or refused during the fault and
its effect was seen (``lockbench.checker.rules``).
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from lockbench.clusters.base import Cluster, Cuttable, Edge
from lockbench.declarations.parameters import Parameter
from lockbench.nemesis.base import LINKS, VICTIM, Arena, Asked, Fault
from lockbench.nemesis.links import all_broken, cuttable_of
from lockbench.nemesis.probes import serving, silent_while
from lockbench.nemesis.staging import about_to_ask, fresh_hold
from lockbench.nemesis.targets import DECISIVE, headed, resolve

ACQUIRE, EXTEND, RELEASE = "acquire", "extend", "release"


class ReplyLost(Fault):
    """See the module."""

    name = "reply-lost"
    summary = "lets the victim's request through and drops the reply"
    during = "when a reply was lost"
    suites = frozenset({"nightly", "full", "variants"})
    rules = ("proven", "grants-around", "reply-lost")
    # Until the client has given up, and well within the lease that it does not know of.
    lasts_leases = 0.5
    touches = frozenset({LINKS, VICTIM})
    parameters: ClassVar = {
        "of": Parameter("whose reply is lost", ACQUIRE, (ACQUIRE, EXTEND, RELEASE)),
    }

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        return None if isinstance(cluster, Cuttable) else "its links cannot be cut"

    def needs_extend(self, asked: Asked) -> bool:
        return asked["of"] == EXTEND

    def aim(self, arena: Arena) -> None:
        arena.targets = resolve(arena, DECISIVE if headed(arena.cluster) else "all")
        arena.facts.worker, arena.facts.of = arena.clients.victim_worker, arena.word("of")

    def stage(self, arena: Arena) -> None:
        if arena.word("of") == ACQUIRE:
            about_to_ask(arena)
        else:
            fresh_hold(arena)

    def begin(self, arena: Arena) -> None:
        group = self._group(arena)
        replies = [Edge(node, -group) for node in arena.cluster.nodes]
        arena.facts.links_cut = len(replies)
        cuttable_of(arena).cut_one_way(replies, "drop")
        if arena.word("of") == ACQUIRE:
            arena.clients.go_on()
        elif arena.word("of") == EXTEND:
            arena.clients.extend()
        else:
            arena.clients.let_go()

    def took_effect(self, arena: Arena) -> bool:
        cut = partial(all_broken, arena, arena.facts.links_cut)
        return silent_while(cut, arena, arena.targets, self._group(arena))

    def heal(self, arena: Arena) -> None:
        cuttable_of(arena).heal()

    def recovered(self, arena: Arena) -> bool:
        return serving(arena, arena.targets, self._group(arena))

    @staticmethod
    def _group(arena: Arena) -> int:
        return arena.clients.group(arena.clients.victim_worker)


FAULT = ReplyLost()
