"""A cluster behind links that can be broken: verified, cut, slowed.

A topology is a subclass that says where the servers are and how to probe them.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import TypeVar

from lockbench.clusters.base import HARNESS, Cluster, ClusterError, Cut, Edge, Led, Shape
from lockbench.clusters.engine.docker import EngineError, EngineUnreachable
from lockbench.clusters.engine.removal import left_behind
from lockbench.clusters.pods import links
from lockbench.clusters.pods.launch import START_LIMIT_S, LinkContainers
from lockbench.clusters.pods.links import Proxy, ProxyCut
from lockbench.clusters.pods.toxiproxy import LinkServer
from lockbench.clusters.wire import PROBE_FAILURES, Address, ProbeFailed

VERIFY_LIMIT_S = 15.0
PROBE_LIMIT_S = 2.0
PINGS_LIMIT_S = 20.0

AtPod = TypeVar("AtPod", Proxy, ProxyCut)
Answer = TypeVar("Answer")


class LinkedCluster(LinkContainers, Cluster):
    """What a cluster is and can do by its links alone, whoever has started its servers.

    Not for several threads at once, except ``serves`` and what only reads.
    """

    # --- what a topology says ---

    @abstractmethod
    def check_serves(self, address: Address, limit_s: float, *, read: bool) -> None:
        """The shortest request that proves service, as a rule a write; with ``read`` it is read
        back. Raises OSError or ProbeFailed."""

    @abstractmethod
    def check_answer(self, address: Address, limit_s: float) -> None:
        """Any answer of the server process itself. Raises OSError or ProbeFailed."""

    @abstractmethod
    def pinger(
        self, address: Address, limit_s: float
    ) -> AbstractContextManager[Callable[[], object]]:
        """One open connection and the cheapest request on it, until ``limit_s`` is over."""

    # --- life ---

    def start(self) -> None:
        """Start and verify everything. Whatever goes wrong, Ctrl-C included, nothing is left that
        the engine can remove."""
        try:
            self._launch()
            self._verify(START_LIMIT_S)
        except (EngineError, ClusterError) as error:
            said = "" if isinstance(error, EngineUnreachable) else self._last_words()
            left = self.stop()
            more = f"; {left_behind(left)}" if left else ""
            raise ClusterError(f"{error}{said}{more}") from error
        except BaseException:
            self.stop()
            raise

    def verify(self) -> None:
        """A write and a read through every client link, and a leader where there is one."""
        self._verify(VERIFY_LIMIT_S)

    def stop(self) -> Sequence[str]:
        """Save the logs and remove everything of this cluster, found by its label."""
        try:
            return self._remove_all()
        except KeyboardInterrupt:
            self._remove_all()
            raise

    # --- capabilities: probes ---

    def serves(self, node: int, timeout_s: float, group: int = HARNESS) -> bool:
        try:
            self.check_serves(self.address(group, node), timeout_s, read=False)
        except PROBE_FAILURES:
            return False
        return True

    # --- capabilities: links ---

    def edges(self) -> Sequence[Edge]:
        return links.edges(self.nodes, self.plan.groups, self.peers)

    def cut(self, edges: Iterable[Edge], how: Cut) -> None:
        self._in_pods(links.cut_plan(edges, how, self.peers), LinkServer.cut)

    def cut_one_way(self, edges: Iterable[Edge], how: Cut) -> None:
        self._in_pods(links.one_way_plan(edges, how, self.peers), LinkServer.cut)

    def shape(self, edges: Iterable[Edge], shape: Shape) -> None:
        link = links.shaped(shape)
        self._in_pods(
            self._proxies(edges), lambda pod, found: pod.shape([one.name for one in found], link)
        )

    def reset(self, edges: Iterable[Edge]) -> int:
        return sum(
            self._in_pods(
                self._proxies(edges), lambda pod, found: pod.reset([one.name for one in found])
            )
        )

    def broken_links(self) -> Sequence[str]:
        lines = self._each(self.nodes, lambda node: self._pods[node].links.broken())
        return [line for found in lines for line in found]

    def heal(self) -> None:
        self._each(self.nodes, lambda node: self._pods[node].links.heal())

    def _proxies(self, edges: Iterable[Edge]) -> list[Proxy]:
        return [proxy for edge in edges for proxy, _ in links.proxies(edge, self.peers)]

    def _in_pods(
        self, each: Iterable[AtPod], do: Callable[[LinkServer, Sequence[AtPod]], Answer]
    ) -> list[Answer]:
        """One call per pod, the pods at once; what each answered."""
        by_pod: dict[int, list[AtPod]] = defaultdict(list)
        for one in each:
            by_pod[self._known(one.pod)].append(one)
        return self._each(by_pod, lambda pod: do(self._pods[pod].links, by_pod[pod]))

    def _known(self, node: int) -> int:
        if node not in self._pods:
            raise ClusterError(f"{self.plan.topology} has no running node {node}")
        return node

    # --- verifying ---

    def _verify(self, limit_s: float) -> None:
        self._each(self.nodes, lambda node: self._verify_links(node, limit_s))
        if isinstance(self, Led):
            self._poll(self._verify_leader, limit_s, f"{self.plan.topology} has no leader")

    def _verify_leader(self: Led) -> None:
        if self.leader() is None:
            raise ProbeFailed("no majority agrees on one")

    def _verify_links(self, node: int, limit_s: float) -> None:
        for group in self._groups:
            whose = f"of client group {group}" if group else "of the harness"
            self._poll(
                partial(self.check_serves, self.address(group, node), PROBE_LIMIT_S, read=True),
                limit_s,
                f"no write and read through the link {whose} to {self.node_name(node)}",
            )

    def _pings_us(self, rounds: int, **ways: Address) -> Mapping[str, float]:
        """Way → median microseconds of the cheapest request to where it leads, in turns."""
        times: dict[str, list[int]] = {way: [] for way in ways}
        with ExitStack() as open_lines:
            pings = {
                way: open_lines.enter_context(self.pinger(at, PINGS_LIMIT_S))
                for way, at in ways.items()
            }
            for _ in range(rounds):
                for way, ping in pings.items():
                    began = time.perf_counter_ns()
                    ping()
                    times[way].append(time.perf_counter_ns() - began)
        from statistics import median

        return {way: median(taken) / 1000 for way, taken in times.items()}

    def _poll_nodes(
        self, nodes: Iterable[int], attempt: Callable[[int], None], limit_s: float, complaint: str
    ) -> None:
        """Try with each of these nodes, all at once, until it works."""

        def poll(node: int) -> None:
            self._poll(lambda: attempt(node), limit_s, f"{self.node_name(node)} {complaint}")

        self._each(nodes, poll)
