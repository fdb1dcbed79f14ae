"""``reset``: open connections are ended abruptly, again and again; new ones are served.

What a proxy or a firewall does that is restarted or forgets its state. Verified by a connection of
our own over the same link, which must be closed from the other side; between servers, where we have
none, by the proxies, which say how many they ended. The proxy knows a connection only some time
after the kernel took it, so the reset is repeated until ours is among the ended.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import ClassVar

from lockbench.clusters.base import Cluster
from lockbench.nemesis import links
from lockbench.nemesis.base import LINKS, Arena, Asked, Fault
from lockbench.nemesis.probes import PROBE_S, serving
from lockbench.nemesis.targets import DECISIVE, headed, resolve

# How often a connection is looked at, and until when it must have been ended.
LOOK_S = 0.1
LOOKS = 20


class Reset(Fault):
    """See the module."""

    name = "reset"
    summary = "ends every open connection, again and again"
    rules = ("proven", "grants-around", "attempts-during")
    touches = frozenset({LINKS})
    parameters: ClassVar = {
        "on": links.on(links.CLIENTS),
    }
    period_s: ClassVar = 0.5

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        return links.unfit(cluster, asked, "its connections cannot be ended from outside")

    def aim(self, arena: Arena) -> None:
        arena.targets = resolve(arena, DECISIVE if headed(arena.cluster) else "all")
        arena.facts.ended = False

    def begin(self, arena: Arena) -> None:
        self.tick(arena)

    def tick(self, arena: Arena) -> None:
        edges = links.chosen(arena)
        if arena.word("on") == links.SERVERS:
            ended = links.shapable_of(arena).reset(edges) > 0
            arena.facts.ended = arena.facts.ended or ended
            return
        group = arena.clients.group(arena.clients.victim_worker)
        at = arena.cluster.addresses(group)[arena.targets[0] - 1]
        with socket.create_connection(at, PROBE_S) as ours:
            ended = ended_by(lambda: links.shapable_of(arena).reset(edges), ours)
        arena.facts.ended = arena.facts.ended or ended

    def took_effect(self, arena: Arena) -> bool:
        return arena.facts.ended is True

    def heal(self, arena: Arena) -> None:
        links.cuttable_of(arena).heal()

    def recovered(self, arena: Arena) -> bool:
        return serving(arena, arena.targets)


def ended_by(reset: Callable[[], object], connection: socket.socket) -> bool:
    """Whether the other side ends the connection, ``reset`` being called until it does. One that is
    ended before the first call, as by a proxy whose server is down, was not reset."""
    connection.settimeout(LOOK_S)
    if _ended(connection) is not None:
        return False
    for _ in range(LOOKS):
        reset()
        ended = _ended(connection)
        if ended is not None:
            return ended
    return False


def _ended(connection: socket.socket) -> bool | None:
    """None while the other side neither says anything nor ends it; False if it says something."""
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return None
    except OSError:
        return True


FAULT = Reset()
