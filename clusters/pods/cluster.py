"""A cluster of loopback pods (see ``lockbench.clusters.pods.launch``): verified, and broken in
every way.

A topology is a subclass that says what runs in the server containers and how to probe it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from lockbench.clusters.base import HARNESS, ClusterError, Usage
from lockbench.clusters.engine import cgroups
from lockbench.clusters.engine.docker import EngineError
from lockbench.clusters.pods import compose
from lockbench.clusters.pods.launch import START_LIMIT_S, Pods
from lockbench.clusters.pods.linked import PROBE_LIMIT_S, VERIFY_LIMIT_S, LinkedCluster
from lockbench.clusters.pods.links import PeerPort
from lockbench.clusters.wire import PROBE_FAILURES, Address, ProbeFailed

RESTART_LIMIT_S = 20.0
EXIT_LIMIT_S = 10.0


class PodCluster(Pods, LinkedCluster):
    """Everything about a cluster of pods that does not depend on what runs in them."""

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

    def empty(self) -> None:
        """Every node once, and again until it does it."""
        self._poll_nodes(self.nodes, self.remove_everything, VERIFY_LIMIT_S, "was not emptied")

    def compose(self) -> str:
        return compose.text(self.plan.topology, self.parts())

    # --- capabilities: what they cost ---

    def link_overhead_us(self, rounds: int) -> Mapping[str, float]:
        """Median microseconds of the cheapest request, through the link and past it, in turns."""
        linked, direct = self.address(HARNESS, 1), self.direct_addresses()[0]
        return self._pings_us(rounds, linked=linked, direct=direct)

    def direct_addresses(self) -> Sequence[Address]:
        return [(self._pods[node].ip, self.port(node)) for node in self.nodes]

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
        state = self._engine_of(node).state(server)
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
        self._each(chosen, lambda node: self._engine_of(node).pause(self._server(node)))

    def unpause(self, nodes: Iterable[int]) -> None:
        chosen = list(nodes)
        self._each(chosen, lambda node: self._engine_of(node).unpause(self._server(node)))
        self._paused.difference_update(chosen)

    def frozen(self, node: int) -> bool:
        state = self._engine_of(node).state(self._server(node))
        return state is not None and state.paused

    def kill(self, nodes: Iterable[int]) -> None:
        chosen = list(nodes)
        self._killed.update(chosen)
        self._each(chosen, self._kill)

    def restart(self, nodes: Iterable[int]) -> None:
        chosen = list(nodes)
        self._each(chosen, lambda node: self._engine_of(node).start(self._server(node)))
        self._poll_nodes(
            chosen,
            lambda node: self.check_answer(self.address(HARNESS, node), PROBE_LIMIT_S),
            RESTART_LIMIT_S,
            "does not answer after its restart",
        )
        self._killed.difference_update(chosen)

    # --- processes ---

    def _kill(self, node: int) -> None:
        engine, server = self._engine_of(node), self._server(node)
        if node in self._paused:
            # Engines refuse to kill what is frozen.
            engine.unpause(server)
            self._paused.discard(node)
        engine.kill(server)

        def gone() -> None:
            state = engine.state(server)
            if state is not None and state.running:
                raise ProbeFailed("its process is still there")

        self._poll(gone, EXIT_LIMIT_S, f"{self.node_name(node)} does not die")
