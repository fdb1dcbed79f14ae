"""A cluster of loopback pods (see ``lockbench.clusters.pods.launch``): verified, and broken in
every way.

A topology is a subclass that says what runs in the server containers and how to probe it.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import TypeVar

from lockbench.clusters.base import HARNESS, Cluster, ClusterError, Cut, Edge, Led, Shape, Usage
from lockbench.clusters.engine import cgroups
from lockbench.clusters.engine.docker import Act, EngineError, EngineUnreachable
from lockbench.clusters.pods import compose, links
from lockbench.clusters.pods.launch import START_LIMIT_S, Pods
from lockbench.clusters.pods.links import PeerPort, Proxy, ProxyCut
from lockbench.clusters.pods.toxiproxy import LinkServer
from lockbench.clusters.wire import PROBE_FAILURES, Address, ProbeFailed

VERIFY_LIMIT_S = 15.0
RESTART_LIMIT_S = 20.0
PROBE_LIMIT_S = 2.0
PINGS_LIMIT_S = 20.0
EXIT_LIMIT_S = 10.0

AtPod = TypeVar("AtPod", Proxy, ProxyCut)


class PodCluster(Pods, Cluster):
    """Everything about a cluster of pods that does not depend on what runs in them.

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

    def before_linking(self, peer: PeerPort) -> None:
        """When all answer, so that nobody is hung up on."""
        self._poll_nodes(
            self.nodes,
            lambda node: self.check_answer(self._peer_address(0, node), PROBE_LIMIT_S),
            START_LIMIT_S,
            "does not answer",
        )

    @abstractmethod
    def remove_everything(self, node: int) -> None:
        """Remove what clients have written, as far as this node is asked for it. Raises OSError or
        ProbeFailed."""

    # --- life ---

    def start(self) -> None:
        """Start and verify everything. Whatever goes wrong, Ctrl-C included, nothing is left that
        the engine can remove."""
        try:
            self._launch()
            self._verify(START_LIMIT_S)
        except (EngineError, ClusterError) as error:
            said = "" if isinstance(error, EngineUnreachable) else self._last_words()
            self.stop()
            raise ClusterError(f"{error}{said}") from error
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

    def empty(self) -> None:
        """Every node once, and again until it does it."""
        self._poll_nodes(self.nodes, self.remove_everything, VERIFY_LIMIT_S, "was not emptied")

    def acts(self) -> Sequence[Act]:
        """What was done to its containers from here."""
        return self._engine.acts

    def compose(self) -> str:
        return compose.text(self.plan.topology, self.parts())

    # --- capabilities: probes ---

    def serves(self, node: int, timeout_s: float, group: int = HARNESS) -> bool:
        try:
            self.check_serves(self.address(group, node), timeout_s, read=False)
        except PROBE_FAILURES:
            return False
        return True

    def link_overhead_us(self, rounds: int) -> Mapping[str, float]:
        """Median microseconds of the cheapest request, through the link and past it, in turns."""
        ways = {
            "linked": self.address(HARNESS, 1),
            "direct": (self._pods[1].ip, self.port(1)),
        }
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

    # --- capabilities: what they cost ---

    def commands(self, address: Address, limit_s: float) -> int | None:
        """How many requests a server says that it has answered, None where it does not count.
        Raises OSError or ProbeFailed."""
        del address, limit_s
        return None

    def usage(self) -> Usage:
        """The servers' counters, all servers at once."""
        try:
            read = self._each(self.nodes, self._usage)
        except (*PROBE_FAILURES, EngineError) as error:
            raise ClusterError(f"what {self.plan.topology} uses cannot be read: {error}") from error
        return Usage.total(read)

    def _usage(self, node: int) -> Usage:
        server = self._server(node)
        state = self._engine.state(server)
        pid = 0 if state is None else state.pid
        return Usage(
            servers=1,
            memory_bytes=cgroups.memory_bytes(pid, server.id),
            cpu_ns=cgroups.cpu_ns(pid, server.id),
            commands=self.commands(self.address(HARNESS, node), PROBE_LIMIT_S),
        )

    # --- capabilities: processes ---

    def pause(self, nodes: Iterable[int]) -> None:
        chosen = [node for node in nodes if node not in self._paused]
        self._paused.update(chosen)  # before the call: what is half done must be thawed too
        self._each(chosen, lambda node: self._engine.pause(self._server(node)))

    def unpause(self, nodes: Iterable[int]) -> None:
        chosen = list(nodes)
        self._each(chosen, lambda node: self._engine.unpause(self._server(node)))
        self._paused.difference_update(chosen)

    def frozen(self, node: int) -> bool:
        state = self._engine.state(self._server(node))
        return state is not None and state.paused

    def kill(self, nodes: Iterable[int]) -> None:
        chosen = list(nodes)
        self._killed.update(chosen)
        self._each(chosen, self._kill)

    def restart(self, nodes: Iterable[int]) -> None:
        chosen = list(nodes)
        self._each(chosen, lambda node: self._engine.start(self._server(node)))
        self._poll_nodes(
            chosen,
            lambda node: self.check_answer(self.address(HARNESS, node), PROBE_LIMIT_S),
            RESTART_LIMIT_S,
            "does not answer after its restart",
        )
        self._killed.difference_update(chosen)

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

    def reset(self, edges: Iterable[Edge]) -> None:
        self._in_pods(
            self._proxies(edges), lambda pod, found: pod.reset([one.name for one in found])
        )

    def broken_links(self) -> Sequence[str]:
        lines = self._each(self.nodes, lambda node: self._pods[node].links.broken())
        return [line for found in lines for line in found]

    def heal(self) -> None:
        self._each(self.nodes, lambda node: self._pods[node].links.heal())

    def _proxies(self, edges: Iterable[Edge]) -> list[Proxy]:
        return [proxy for edge in edges for proxy, _ in links.proxies(edge, self.peers)]

    def _in_pods(
        self, each: Iterable[AtPod], do: Callable[[LinkServer, Sequence[AtPod]], None]
    ) -> None:
        """One call per pod, the pods at once."""
        by_pod: dict[int, list[AtPod]] = defaultdict(list)
        for one in each:
            by_pod[self._known(one.pod)].append(one)
        self._each(by_pod, lambda pod: do(self._pods[pod].links, by_pod[pod]))

    def _known(self, node: int) -> int:
        if node not in self._pods:
            raise ClusterError(f"{self.plan.topology} has no running node {node}")
        return node

    # --- processes ---

    def _kill(self, node: int) -> None:
        server = self._server(node)
        if node in self._paused:
            # Engines refuse to kill what is frozen.
            self._engine.unpause(server)
            self._paused.discard(node)
        self._engine.kill(server)

        def gone() -> None:
            state = self._engine.state(server)
            if state is not None and state.running:
                raise ProbeFailed("its process is still there")

        self._poll(gone, EXIT_LIMIT_S, f"{self.node_name(node)} does not die")

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

    def _poll_nodes(
        self, nodes: Iterable[int], attempt: Callable[[int], None], limit_s: float, complaint: str
    ) -> None:
        """Try with each of these nodes, all at once, until it works."""

        def poll(node: int) -> None:
            self._poll(lambda: attempt(node), limit_s, f"{self.node_name(node)} {complaint}")

        self._each(nodes, poll)
