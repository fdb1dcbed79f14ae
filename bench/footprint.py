"""What the servers of a case cost: memory, CPU and requests per grant, before any fault.

Their counters are read at the boundaries of phases, by the process that only watches, so the load
is not delayed by it. Guarantees: only time without faults is counted, and what a system does not
tell is None. Per grant means everything that the servers did in that time, divided by the grants:
release, polling, heartbeats and replication are in it, at the rate that is named beside it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from lockbench.clusters.base import Cluster, ClusterError, Metered, Usage
from lockbench.history.columns import History
from lockbench.history.op import F, Type
from lockbench.results.documents import Footprint, PerGrant

Reading = tuple[int, Usage]  # monotonic nanoseconds, and what had been used by then


class Meter:
    """Reads a cluster's counters once for each boundary."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._tried: set[str] = set()
        self.readings: dict[str, Reading] = {}

    def read(self, boundary: str) -> None:
        """Reads at the first call with this name; what cannot be read is left out."""
        if boundary in self._tried or not isinstance(self._cluster, Metered):
            return
        self._tried.add(boundary)
        with suppress(ClusterError):
            begun = time.monotonic_ns()
            usage = self._cluster.usage()
            self.readings[boundary] = ((begun + time.monotonic_ns()) // 2, usage)


def footprint(
    readings: Mapping[str, Reading], spans: Mapping[str, tuple[str, str]], history: History
) -> Footprint | None:
    """``spans`` maps the name of a span → its boundaries. None where nothing could be read."""
    if not readings:
        return None
    _, last = max(readings.values(), key=lambda reading: reading[0])
    per_grant = {
        span: _per_grant(readings[first], readings[end], history)
        for span, (first, end) in spans.items()
        if first in readings and end in readings
    }
    return Footprint(last.servers, last.memory_bytes, **per_grant)


def _per_grant(first: Reading, last: Reading, history: History) -> PerGrant | None:
    (begin_ns, before), (end_ns, after) = first, last
    granted = (history.f == F.ACQUIRE) & (history.type == Type.OK)
    during = (history.complete_ns >= begin_ns) & (history.complete_ns < end_ns)
    grants = int(np.count_nonzero(granted & during))
    if grants == 0:
        return None
    return PerGrant(
        grants=grants,
        grants_per_second=grants * 1e9 / (end_ns - begin_ns),
        commands_per_grant=_ratio(before.commands, after.commands, grants),
        cpu_us_per_grant=_ratio(before.cpu_ns, after.cpu_ns, 1000 * grants),
    )


def _ratio(before: int | None, after: int | None, by: int) -> float | None:
    return None if before is None or after is None else (after - before) / by
