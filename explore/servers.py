"""Strikes at servers that many plays share: all come to their events, one strike, all go on.

Who comes much earlier than the others is not struck, who comes much later finds it over: such plays
are played again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from lockbench.clusters.base import (
    Clocked,
    Cluster,
    ClusterError,
    Composed,
    Direct,
    Killable,
    Led,
    Pausable,
    Promotable,
    Topology,
    Wipeable,
)
from lockbench.explore.faults import FREEZES, OF_MAJORITIES, Act

# How long the first that has come waits for the others. Its event is held meanwhile, for less than
# a client waits for an answer.
GATHERS_S: Final = 0.5
ENOUGH: Final = 0.25  # of them come in this time, or those that have come were too early
BEGINS_S: Final = 60.0
# From the kill until it is started again: clients notice it.
DOWN_S: Final = 0.2
ELECTS_S: Final = 15.0
SERVES_S: Final = 30.0
POLL_S: Final = 0.05
JUMPS: Final = 5.0  # how far a clock jumps, in leases
LED: Final = "leader-changed"
APART: Final = "its event did not come together with those of the other plays"
ELSEWHERE: Final = "its event came at another server"


def possible(act: Act, cluster: Cluster) -> bool:
    """Whether it can be done to the servers of this cluster."""
    if act in OF_MAJORITIES and not isinstance(cluster, Led):
        return False
    if act in FREEZES:
        return isinstance(cluster, Pausable)
    if act in {"server-killed", "majority-killed"}:
        return isinstance(cluster, Killable)
    replicated = isinstance(cluster, Led | Promotable)
    if act == "leader-changed":
        return isinstance(cluster, Killable) and replicated
    if act == "server-wiped":
        # One of a quorum copies everything from the others.
        return isinstance(cluster, Killable) and isinstance(cluster, Wipeable) and not replicated
    if act == "clock-jumped":
        return isinstance(cluster, Clocked)
    return True


def quorums(cluster: Cluster) -> Sequence[Sequence[int]]:
    """The nodes of which a majority decides: all of them, or those of each part."""
    return cluster.quorums if isinstance(cluster, Composed) else [cluster.nodes]


def independent(cluster: Cluster, topology: Topology) -> Sequence[int]:
    """The nodes that know nothing of each other: a lock asks all of them the same."""
    if isinstance(cluster, Composed):
        return cluster.independent
    return () if topology.quorum or topology.fails_over else cluster.nodes


def interchangeable(cluster: Cluster, topology: Topology) -> Sequence[int]:
    """The nodes that know nothing of each other, where there are no others."""
    return () if isinstance(cluster, Composed) else independent(cluster, topology)


def of_one_quorum(cluster: Cluster, topology: Topology) -> bool:
    """Whether a client may ask any of the servers, and is told the same by each."""
    return topology.quorum and not isinstance(cluster, Composed)


def addresses(cluster: Cluster, topology: Topology, group: int) -> Sequence[tuple[str, int]]:
    """Where the clients of a group reach the nodes: past links that nothing is done to here, which
    take more of the processors than servers do, unless servers tell clients of other addresses."""
    if topology.over_hosts and isinstance(cluster, Direct):
        return cluster.direct_addresses()
    return cluster.addresses(group)


class Blow:
    """One strike, for so many plays. ``run`` belongs to a thread of its own; ``ready``, ``struck``
    and ``healed`` are called by the plays (``lockbench.explore.stage.Server``)."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: Sequence[int],
        act: Act,
        *,
        plays: int,
        lease_s: float,
        frozen_s: float,
        gathers_s: float = GATHERS_S,
        serves_s: float = SERVES_S,
    ) -> None:
        """``frozen_s``: how long a frozen server stays so. ``serves_s``: how long it may take until
        all serve again."""
        self._cluster = cluster
        self._nodes = nodes
        self._act = act
        self._plays = plays
        self._lease_s = lease_s
        self._frozen_s = frozen_s
        self._gathers_s = gathers_s
        self._serves_s = serves_s
        self._start = threading.Barrier(plays)
        self._arrived: dict[object, int] = {}  # play → the node of its first event
        self._early: set[object] = set()
        self._changed = threading.Condition()
        self._struck = threading.Event()
        self._healed = threading.Event()
        self._closed = False
        self.failure = ""

    def ready(self) -> None:
        """Waits for the other plays, so that all begin at once."""
        with suppress(threading.BrokenBarrierError):
            self._start.wait(BEGINS_S)

    def struck(self, play: object, node: int) -> str:
        """Waits until the servers are struck. Why that was none for this play, whose event came at
        this node; empty if it was. A play may have an event at each of several nodes; the first
        that comes stands for all."""
        with self._changed:
            if self._struck.is_set() and play not in self._arrived:
                return APART
            if play not in self._early:
                node = self._arrived.setdefault(play, node)
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._struck.is_set() or play in self._early)
            if play in self._early:
                return APART
        return self.failure or ("" if self._act == LED or node in self._nodes else ELSEWHERE)

    def healed(self) -> None:
        """Waits until they serve again."""
        self._healed.wait()

    def over(self) -> None:
        """No play comes any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def run(self) -> None:
        """Strikes when all have come, or the first of enough of them has waited long enough.
        ``failure`` says why they could not be struck or healed."""
        with self._changed:
            while not self._have_gathered():
                self._early.update(self._arrived)
                self._arrived.clear()
                self._changed.notify_all()
            if self._arrived and len(self._nodes) == 1:
                # Clients may choose their server by lot.
                ((node, _),) = Counter(self._arrived.values()).most_common(1)
                self._nodes = self._with(node)
        try:
            if self._arrived:
                self._strike()
                self._await_service()
        except Exception as error:  # noqa: BLE001 - told by who began it
            self.failure = f"{type(error).__name__}: {error}"
        finally:
            self._go_on()
            self._healed.set()

    def _have_gathered(self) -> bool:
        """Whether as many have come as are to be struck together; also where none comes any
        more."""
        self._changed.wait_for(lambda: self._arrived or self._closed)
        awaited = self._plays - len(self._early)
        self._changed.wait_for(
            lambda: self._closed or len(self._arrived) == awaited, self._gathers_s
        )
        return self._closed or len(self._arrived) >= ENOUGH * awaited

    def _with(self, node: int) -> Sequence[int]:
        """The servers to strike where the events are at this one."""
        if self._act not in OF_MAJORITIES:
            return [node]
        part = next(part for part in quorums(self._cluster) if node in part)
        others = [other for other in part if other != node]
        return [node, *others[: len(part) // 2]]

    def _strike(self) -> None:
        cluster = self._cluster
        if self._act in FREEZES:
            assert isinstance(cluster, Pausable)
            try:
                cluster.pause(self._nodes)
                self._go_on()
                time.sleep(self._frozen_s)
            finally:
                cluster.unpause(self._nodes)
            return
        if self._act == "clock-jumped":
            assert isinstance(cluster, Clocked)
            try:
                cluster.shift_clock(self._nodes, JUMPS * self._lease_s)
                self._go_on()
                time.sleep(self._lease_s)
            finally:
                cluster.shift_clock(self._nodes, 0.0)
            return
        assert isinstance(cluster, Killable)
        nodes, next_one = self._nodes, None
        if self._act == LED:
            nodes = [_leader(cluster)]
            # Asked before: a primary that is gone does not say who follows it.
            next_one = _follower(cluster) if isinstance(cluster, Promotable) else None
        try:
            cluster.kill(nodes)
            self._go_on()
            time.sleep(DOWN_S)
            if self._act == LED:
                _elect(cluster, nodes[0], next_one)
            if self._act == "server-wiped":
                assert isinstance(cluster, Wipeable)
                cluster.wipe(nodes)
        finally:
            cluster.restart(nodes)

    def _await_service(self) -> None:
        """A server that answers may wait for an election. Raises ClusterError: a lock whose servers
        do not serve is not late."""
        end = time.monotonic() + self._serves_s
        while not all(self._cluster.serves(node, 1.0) for node in self._cluster.nodes):
            if time.monotonic() > end:
                raise ClusterError(f"the servers did not serve again within {self._serves_s:g} s")
            time.sleep(POLL_S)

    def _go_on(self) -> None:
        with self._changed:
            self._struck.set()
            self._changed.notify_all()


def _leader(cluster: Cluster) -> int:
    """Raises ClusterError where there is none now."""
    found = cluster.leader() if isinstance(cluster, Led) else None
    found = cluster.primary() if isinstance(cluster, Promotable) else found
    if found is None:
        raise ClusterError("the cluster had no leader")
    return found


def _follower(cluster: Promotable) -> int:
    """Raises ClusterError where nobody follows the primary."""
    replicas = sorted(cluster.replicas())
    if not replicas:
        raise ClusterError("the primary had no replica")
    return replicas[0]


def _elect(cluster: Cluster, dead: int, next_one: int | None) -> None:
    """Waits until another leads. Raises ClusterError."""
    if isinstance(cluster, Promotable):
        assert next_one is not None
        cluster.promote(next_one, ELECTS_S)
        return
    assert isinstance(cluster, Led)
    end = time.monotonic() + ELECTS_S
    while cluster.leader() in {None, dead}:
        if time.monotonic() > end:
            raise ClusterError(f"nobody was elected within {ELECTS_S:g} s")
        time.sleep(POLL_S)
