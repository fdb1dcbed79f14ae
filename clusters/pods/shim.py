"""The library that is preloaded into servers of our own images (``images/compiler/shim.c``).

It moves the wall clock that a server reads, and notes how much of each of its files is synced. The
containers of a pod share a file in memory (``/dev/shm``; the link container's program makes it and
outlives the server), so nothing is mounted from the host and nothing is left there. Only what asks
the C library is moved: not Go, and not the kernel, which decides about absolute waits and the times
of files.

A topology whose image is swapped has no library in it: it then offers neither capability.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from lockbench.clusters.base import HARNESS, ClusterError, ClusterPlan
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.wire import PROBE_FAILURES, Address

NS = 1_000_000_000
OFFSET_S_MAX = 100 * 365 * 86400

C = TypeVar("C", bound=PodCluster)


def by_image(swapped: type[C], ours: type[C], **how: Any) -> Callable[[ClusterPlan], C]:
    """What makes a cluster that can do what its image can: ``ours``, or one of a swapped image.
    ``how`` is what else it is made with."""
    return lambda plan: (swapped if plan.is_swapped(swapped.kind) else ours)(plan, **how)


class ClockedPods(PodCluster):
    """Servers that read a clock which can be moved. ``Clocked``."""

    preloaded = True

    @abstractmethod
    def read_clock_s(self, node: int, address: Address, limit_s: float) -> float:
        """The server's wall clock in seconds since 1970, as it was at a moment during this call.
        Raises OSError or ProbeFailed."""

    def shift_clock(self, nodes: Iterable[int], offset_s: float) -> None:
        """One write into shared memory per node, all at once; the next reading sees it."""
        if not abs(offset_s) <= OFFSET_S_MAX:
            raise ClusterError(f"a clock cannot be moved by {offset_s} s")
        offset_ns = round(offset_s * NS)
        chosen = [self._known(node) for node in nodes]
        self._each(chosen, lambda node: self._pods[node].links.set_clock(offset_ns))

    def clock_offset_s(self, node: int, timeout_s: float) -> float:
        """As exact as half the time that the question took. The machine is that of the server."""
        self._known(node)
        try:
            before = time.time()
            found = self.read_clock_s(node, self.address(HARNESS, node), timeout_s)
            after = time.time()
        except PROBE_FAILURES as error:
            raise ClusterError(f"{self.node_name(node)} does not tell its time: {error}") from error
        least_ns, most_ns = self._engine_of(node).ahead_ns
        return found - (before + after) / 2 - (least_ns + most_ns) / 2 / NS


class SyncingPods(PodCluster):
    """Servers that append to files below one folder and sync them through the C library.
    ``Syncing``."""

    preloaded = True

    data: str
    """The folder, in the server's container."""

    def lose_unsynced(self, nodes: Iterable[int]) -> Mapping[int, int]:
        """Cut every file of killed nodes back to what was in it when the last sync began that had
        returned; a file that was never synced becomes empty. Names are taken as synced."""
        chosen = list(nodes)
        for node in chosen:
            if node not in self._killed:
                raise ClusterError(f"{self.node_name(node)} runs: kill it before it loses power")
        return dict(zip(chosen, self._each(chosen, self._lose_unsynced), strict=True))

    def _lose_unsynced(self, node: int) -> int:
        synced = self._pods[node].links.synced()
        return self._engine_of(node).cut_files(self._server(node), self.data, synced)
