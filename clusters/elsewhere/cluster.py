"""A cluster of somebody else: reached through near links, broken by these and by the file's
commands.

A near link is a Toxiproxy on this machine for each node, with a link for each client group:

    client → relay (127.0.0.<1+group>:PORT) → Toxiproxy (the same host, LINK) → HOST:PORT

The harness' own way goes past Toxiproxy. A command of the file is a capability: with ``pause`` and
``resume`` the cluster is ``Pausable``, with ``kill`` and ``start`` it is ``Killable``, with ``cut``
and ``join`` it has links between servers (``CutByCommand``). That a command ended with 0 is its
word that it did it.

Guarantees: nothing is written before it is known that nothing is under the prefix; at the end it is
empty again, and every command was undone, or ``stop`` says what is left
(``lockbench.clusters.elsewhere.keeper``); of two benches with one prefix one is refused
(``lockbench.clusters.elsewhere.claim``).

Does not guarantee: that anybody but Lockbench heeds a claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lockbench.clusters.base import HARNESS, ClusterError, ClusterPlan
from lockbench.clusters.elsewhere import claim
from lockbench.clusters.elsewhere.examine import examine
from lockbench.clusters.elsewhere.kept import Kept
from lockbench.clusters.elsewhere.leftovers import end_all
from lockbench.clusters.elsewhere.place import place_of
from lockbench.clusters.elsewhere.site import Site, Whom
from lockbench.clusters.engine import ports
from lockbench.clusters.engine.docker import Engine
from lockbench.clusters.pods import links
from lockbench.clusters.pods.launch import API, CLIENT, PEERS, START_LIMIT_S, Pod, host
from lockbench.clusters.pods.linked import VERIFY_LIMIT_S, LinkedCluster
from lockbench.clusters.pods.toxiproxy import LinkServer, Listen
from lockbench.clusters.wire import Address


class Elsewhere(LinkedCluster):
    """See the module. ``Measurable``, ``Cuttable`` and ``Shapable`` by its near links, ``Attended``
    by its keeper."""

    site: Site
    sees_peers = False
    """Whether ``deaf`` finds anybody."""

    def __init__(self, plan: ClusterPlan, site: Site) -> None:
        super().__init__(plan)
        self.site = site
        self.probes = site.prefix
        self.key_prefix = site.key_prefix
        self._keeper: Kept | None = None
        self._claim = ""
        self._ended = False
        self._handled: set[int] = set()  # whom a command has frozen

    def node_name(self, node: int) -> str:
        """As the file has it."""
        return str(self.site.nodes[node - 1])

    def attendants(self) -> Sequence[tuple[str, int]]:
        return [] if self._keeper is None else [("keeper", self._keeper.pid)]

    # --- life ---

    def _launch(self) -> None:
        self._engine = Engine()
        hosts = [host(group) for group in self._groups]
        offsets = [base + node for base in (CLIENT, API, PEERS) for node in self.nodes]
        self._block = ports.take(hosts, offsets)
        logs = Path(self.plan.log_dir)
        logs.mkdir(parents=True, exist_ok=True)
        self._keeper = Kept(self.site, logs / "keeper.log")
        here = {node: self.address(HARNESS, node) for node in self.nodes}
        self._keeper.ask(open=[(*at, node, None) for node, at in here.items()])
        examine(self.site, here, self._keeper)
        word = claim.new()
        self._keeper.ask(claim=word)
        self._claim = word
        self._each(self.nodes, self._start_links)
        groups = [group for group in self._groups if group != HARNESS]
        self._keeper.ask(
            open=[
                (*self.address(group, node), node, self._near(group, node))
                for group in groups
                for node in self.nodes
            ]
        )

    def stop(self) -> Sequence[str]:
        """Undo every command, empty the prefix, and remove the near links."""
        left: list[str] = []
        try:
            if self._keeper is not None and not self._ended:
                told = self._keeper.end()
                left = told if told is not None else self._end_without_keeper()
                self._ended = True
        finally:
            removed = super().stop()
        return [*left, *removed]

    def empty(self) -> None:
        """What is under the prefix; nothing else there is ours."""
        place = place_of(self.site)

        def clear(node: int) -> None:
            place.clear(self.site, self.address(HARNESS, node))

        self._poll_nodes(self.nodes, clear, VERIFY_LIMIT_S, "was not emptied")

    def _end_without_keeper(self) -> list[str]:
        assert self._keeper is not None
        claims = [self._claim] if self._claim else None
        try:
            return end_all(self.site, self._keeper.undo, claims=claims)
        except ClusterError as error:
            return [str(error)]

    def _start_links(self, node: int) -> None:
        api = self._block.base + API + node
        link = self._engine.create_container(
            self._image("toxiproxy"),
            self._name(f"near-{node}-link"),
            entrypoint=["toxiproxy", f"-host={ports.LOOPBACK}", f"-port={api}"],
            host_network=True,
            labels=self._labels(),
        )
        pod = self._pods[node] = Pod(
            node, link, LinkServer(f"near-{node}-link", ports.LOOPBACK, api)
        )
        self._engine.start(link)
        self._poll(pod.links.check_up, START_LIMIT_S, "a near link: Toxiproxy does not answer")
        pod.links.populate(
            Listen(
                links.client_link(group),
                "{}:{}".format(*self._near(group, node)),
                str(self.site.nodes[node - 1]),
                self._base,
            )
            for group in self._groups
            if group != HARNESS
        )

    def _near(self, group: int, node: int) -> Address:
        """Where the relay finds a group's near link."""
        return (host(group), self._block.base + PEERS + node)

    # --- what it costs ---

    def link_overhead_us(self, rounds: int) -> Mapping[str, float]:
        """``linked``: through relay and near link; ``direct``: through the relay alone, which alone
        has the password."""
        linked, direct = self.address(1, 1), self.address(HARNESS, 1)
        return self._pings_us(rounds, linked=linked, direct=direct)

    # --- commands ---

    def _hand(self, verb: str, whom: Iterable[Whom]) -> None:
        if self._keeper is None:
            raise ClusterError(f"{self.plan.topology} is not started")
        self._keeper.hand(verb, list(whom))

    def deaf(self, pairs: set[frozenset[int]]) -> set[frozenset[int]]:
        """Those of these pairs of which a server now says that it hears nothing of the other."""
        del pairs
        return set()
