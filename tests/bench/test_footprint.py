"""What servers cost per grant: the difference of two readings, over the grants between them."""

from __future__ import annotations

from typing import cast

from lockbench.bench.footprint import Meter, footprint
from lockbench.clusters.base import Cluster, ClusterError, Usage
from lockbench.history.columns import History
from lockbench.results.documents import Footprint, PerGrant
from tests.checker.scenes import Scene

MS = 10**6


def granted_at(*times_s: float) -> History:
    """Grants at these times, and a refusal at the first."""
    scene = Scene().acquire("late", times_s[0], times_s[0], "fail", error="held")
    for number, at_s in enumerate(times_s):
        scene.acquire(number, at_s - 0.001, at_s)
    return scene.history()


def usage(cpu_ns: int | None, commands: int | None) -> Usage:
    return Usage(3, 7000, cpu_ns, commands)


def test_only_grants_between_the_readings_count() -> None:
    history = granted_at(0.05, 0.15, 0.25, 0.35)
    readings = {"a": (100 * MS, usage(10_000, 20)), "b": (300 * MS, usage(70_000, 27))}
    found = footprint(readings, {"own": ("a", "b"), "contended": ("b", "c")}, history)
    own = PerGrant(grants=2, grants_per_second=10.0, commands_per_grant=3.5, cpu_us_per_grant=30.0)
    assert found == Footprint(servers=3, memory_bytes=7000, own=own, contended=None)


def test_what_is_unknown_stays_blank() -> None:
    history = granted_at(0.15)
    readings = {"a": (100 * MS, usage(None, 20)), "b": (300 * MS, usage(5, None))}
    found = footprint(readings, {"own": ("a", "b")}, history)
    assert found is not None
    assert found.own is not None
    assert found.own.commands_per_grant is None
    assert found.own.cpu_us_per_grant is None
    assert footprint({}, {"own": ("a", "b")}, history) is None
    assert footprint({"a": readings["a"]}, {"own": ("a", "b")}, history) == Footprint(
        servers=3, memory_bytes=7000
    )


def test_totals_know_what_they_do_not_know() -> None:
    assert Usage.total([usage(1, 2), usage(3, 4)]) == Usage(6, 14000, 4, 6)
    assert Usage.total([usage(1, 2), usage(3, None)]) == Usage(6, 14000, 4, None)


class Counted:
    """A cluster of which only the counters are asked for; the second question fails."""

    def __init__(self) -> None:
        self.asked = 0

    def usage(self) -> Usage:
        self.asked += 1
        if self.asked == 2:
            raise ClusterError("a server does not answer")
        return usage(0, 0)


def test_a_boundary_is_read_once_and_a_failure_leaves_it_out() -> None:
    cluster = Counted()
    meter = Meter(cast("Cluster", cluster))
    for boundary in ("a", "a", "b", "b", "c"):
        meter.read(boundary)
    assert cluster.asked == 3
    assert list(meter.readings) == ["a", "c"]
    bare = Meter(cast("Cluster", object()))
    bare.read("a")
    assert not bare.readings
