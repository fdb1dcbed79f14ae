"""What the three partitions share: shapes, directions, proof and heal.

*drop*, *stall* and *reject* are different faults; see ``lockbench.clusters.pods.links`` for what
each does to a connection. ``shape`` says who no longer hears whom:

``decisive``    the leader or primary cut from the other servers (its clients still reach it: the
                dangerous side to be on); of independent nodes a majority, from every client;
``leader``      the same for the leader or primary, by name;
``minority``    fewer than half of the servers, the leader not among them, from the rest;
``majority``    a majority of the servers from the leader and whoever is left with it;
``bridge``      two halves that share one server;
``ring``        every server hears a majority, no two hear the same one;
``clients``     every client from the decisive nodes;
``group``       the victim's client group from everything;
``group-node``  the victim's client group from one node (the decisive one, else a drawn one).

For independent nodes ``minority`` and ``majority`` are cut from every client. ``way`` cuts only
what the struck side sends (``out``) or only what is sent to it (``in``).

Proof: the proxies' word that every link is cut, and a write that the struck node must not complete,
sent from the side that it was cut from. The proxies' word alone where it completes writes all the
same (in ``bridge`` and ``ring`` every server still reaches a majority; a primary with asynchronous
replicas asks nobody), and for a cut that is over before a write could fail.

Where a command cuts servers from each other (``CutByCommand``), its success is no more than a word,
so it is never enough alone: where writes go on, the servers themselves have to say that they no
longer hear each other. Commands only *drop*; *stall* and *reject* are for links of clients there.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from lockbench.clusters.base import (
    HARNESS,
    Cluster,
    Cut,
    CutByCommand,
    Cuttable,
    Edge,
    Electing,
    Led,
    Replicated,
)
from lockbench.declarations.parameters import Parameter
from lockbench.nemesis import shapes
from lockbench.nemesis.base import LINKS, Arena, Asked, Fault, Impossible, NemesisError
from lockbench.nemesis.links import all_broken, cuttable_of, joined, unlinked
from lockbench.nemesis.probes import PROBE_S, serving, silent_while
from lockbench.nemesis.targets import (
    DECISIVE,
    eligible,
    head_of,
    headed,
    leader_due,
    majority,
    minority,
    note_head,
    note_head_during,
    resolve,
)

BOTH, OUT, IN = "both", "out", "in"
SHAPES: Final = (DECISIVE, *shapes.BETWEEN_SERVERS, *shapes.OF_CLIENTS)
EVERYBODY_SERVES: Final = (shapes.BRIDGE, shapes.RING)
ONE_GROUP: Final = (shapes.GROUP, shapes.GROUP_NODE)
# Until servers say that they no longer hear each other: some wait for half of a time limit.
SAID_S: Final = 10.0
UNCUT: Final = "its servers cannot be cut from each other"


class Partition(Fault):
    """See the module. ``how`` is the kind of cut."""

    how: ClassVar[Cut]
    touches = frozenset({LINKS})
    rules = ("proven", "grants-around", "hold-across")
    lasts_leases = 2.0
    parameters: ClassVar = {
        "shape": Parameter("who no longer hears whom", DECISIVE, SHAPES),
        "way": Parameter(
            "both ways, only what the struck side sends, or only what is sent to it",
            BOTH,
            (BOTH, OUT, IN),
        ),
    }

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        if not isinstance(cluster, Cuttable):
            return "its links cannot be cut"
        shape, way = str(asked["shape"]), asked["way"]
        if way != BOTH and self.how == "reject":
            return "a refusal has no direction"
        if way != BOTH and shape in EVERYBODY_SERVES:
            return f"a {shape} has no struck side"
        return None if shape in shapes.OF_CLIENTS else self._unfit_between(cluster, shape)

    def _unfit_between(self, cluster: Cluster, shape: str) -> str | None:
        """The same of a shape that is not of clients."""
        if serves_alone(cluster):
            if not _elects(cluster):
                return Impossible(
                    "its primary answers without its replica, and none takes its place by itself,"
                    " so a cut between them hurts nobody; shape=clients cuts it from its clients"
                )
            if not self._joined(cluster):
                return self._apart(cluster)
        if shape == DECISIVE:
            return None
        if not self._joined(cluster) and shape not in (shapes.MINORITY, shapes.MAJORITY):
            return self._apart(cluster)
        if shape == shapes.LEADER and not headed(cluster):
            return Impossible("it has no leader")
        unsaid = isinstance(cluster, CutByCommand) and not cluster.sees_peers
        if shape in EVERYBODY_SERVES and unsaid:
            return f"its servers do not tell whom they hear, so nothing would show a {shape}"
        least = shapes.NODES_MIN[shape]
        if len(eligible(cluster)) < least:
            return f"a {shape} takes {least} nodes"
        return None

    def aim(self, arena: Arena) -> None:
        pairs, arena.targets = _resolve(arena, self._joined(arena.cluster))
        arena.facts.pairs = sorted((edge.source, edge.target) for edge in pairs)
        if arena.word("shape") in ONE_GROUP:
            arena.facts.workers = [arena.clients.victim_worker]

    def begin(self, arena: Arena) -> None:
        cuttable = cuttable_of(arena)
        pairs = {Edge(*pair) for pair in arena.facts.pairs or ()}
        way = arena.word("way")
        if way == BOTH:
            edges = [edge for edge in cuttable.edges() if edge in pairs]
            arena.facts.links_cut = len(edges)
            cuttable.cut(edges, self.how)
            return
        struck = _struck(arena)
        edges = [pair for pair in pairs if (pair.source in struck) == (way == OUT)]
        arena.facts.links_cut = len(edges)
        cuttable.cut_one_way(edges, self.how)

    def took_effect(self, arena: Arena) -> bool:
        cut = partial(all_broken, arena, arena.facts.links_cut)
        over_too_soon = arena.injection.duration_s <= PROBE_S
        if (by_command := _by_command(arena)) is not None:
            if _goes_on_serving(arena):
                pairs = arena.facts.pairs or ()
                return cut() and by_command.apart(frozenset(pair) for pair in pairs)
        elif _goes_on_serving(arena) or over_too_soon:
            return cut()
        return silent_while(cut, arena, arena.targets, _probe_group(arena))

    def shown_in_s(self, arena: Arena) -> float:
        told = _by_command(arena) is not None and _goes_on_serving(arena)
        return SAID_S if told else super().shown_in_s(arena)

    def heal(self, arena: Arena) -> None:
        try:
            note_head_during(arena)
        finally:
            cuttable_of(arena).heal()

    def recovered(self, arena: Arena) -> bool:
        return serving(arena, arena.targets, _probe_group(arena))

    def rules_for(self, arena: Arena) -> tuple[str, ...]:
        shape = arena.word("shape")
        led = leader_due(arena) and shape not in (
            *EVERYBODY_SERVES,
            shapes.MINORITY,
            *shapes.OF_CLIENTS,
        )
        # Who answers without those that it was cut off from does so rightly until one of them is
        # put in its place.
        replaced = serves_alone(arena.cluster) and shape not in shapes.OF_CLIENTS
        changed = ("leader-changed",) if led or replaced else ()
        late = ("held-back",) if self.how == "stall" and not replaced else ()
        return (*self.rules, *changed, *late)

    def cuts_servers(self, asked: Asked) -> bool:
        """Whether commands that cut servers from each other are run, where there are some."""
        return self.how == "drop" and asked["shape"] not in shapes.OF_CLIENTS

    def _joined(self, cluster: Cluster) -> bool:
        """Whether it can cut nodes from each other."""
        if not isinstance(cluster, Cuttable) or not joined(cluster):
            return False
        return self.how == "drop" or not isinstance(cluster, CutByCommand)

    def _apart(self, cluster: Cluster) -> str:
        """Why it cannot."""
        way = " in this way, only by partition-drop" if isinstance(cluster, CutByCommand) else ""
        return unlinked(cluster, UNCUT + way)


def _resolve(arena: Arena, linked: bool) -> tuple[frozenset[Edge], tuple[int, ...]]:
    """Who no longer hears whom, and the nodes that the fault is aimed at; ``linked``: nodes can be
    cut from each other."""
    cluster, shape = arena.cluster, arena.word("shape")
    nodes = list(eligible(cluster))
    groups = sorted({-e.source for e in cuttable_of(arena).edges() if e.source < 0})
    if shape in shapes.OF_CLIENTS:
        mine = [arena.clients.group(arena.clients.victim_worker)]
        chosen = groups if shape == shapes.CLIENTS else mine
        if shape == shapes.GROUP_NODE:
            targets = resolve(arena, DECISIVE if headed(cluster) else "one")
        else:
            targets = tuple(cluster.nodes) if shape == shapes.GROUP else resolve(arena, DECISIVE)
        return shapes.client_side(targets, chosen), targets
    if not linked:
        count = minority(nodes) if shape == shapes.MINORITY else majority(nodes)
        targets = tuple(sorted(arena.rng.sample(nodes, count)))
        return shapes.client_side(targets, groups), targets
    note_head(arena)
    head = head_of(cluster)
    shape = shapes.LEADER if shape == DECISIVE else shape
    if head is None and headed(cluster):
        raise NemesisError("no leader to aim at: the cluster was not healthy before the fault")
    sides = shapes.server_side(shape, nodes, head, arena.rng)
    return sides.pairs, sides.targets


def _struck(arena: Arena) -> frozenset[int]:
    """The side that ``way`` is told from: the cut-off nodes, or the cut-off clients."""
    if arena.word("shape") in shapes.OF_CLIENTS:
        return frozenset(a for a, _ in arena.facts.pairs or () if a < 0)
    return frozenset(arena.targets)


def _goes_on_serving(arena: Arena) -> bool:
    """Whether the struck nodes complete writes all the same: they still reach a majority, or they
    never asked for one, as a primary whose replicas follow in their own time."""
    between_servers = _probe_group(arena) == HARNESS
    alone = between_servers and serves_alone(arena.cluster)
    return arena.word("shape") in EVERYBODY_SERVES or alone


def _by_command(arena: Arena) -> CutByCommand | None:
    """The cluster where commands have cut its servers from each other."""
    cluster = arena.cluster
    between_servers = _probe_group(arena) == HARNESS
    return cluster if between_servers and isinstance(cluster, CutByCommand) else None


def serves_alone(cluster: Cluster) -> bool:
    """Whether its primary answers without asking its replicas."""
    return isinstance(cluster, Replicated) and not isinstance(cluster, Led)


def _elects(cluster: Cluster) -> bool:
    """Whether a replica takes its primary's place by the system's own decision."""
    return isinstance(cluster, Electing) and cluster.elects


def _probe_group(arena: Arena) -> int:
    """The client group that the targets were cut from, or the harness, whose link is never cut,
    where they were cut from other servers."""
    cut_off = [-a for a, _ in arena.facts.pairs or () if a < 0]
    return min(cut_off) if cut_off else HARNESS
