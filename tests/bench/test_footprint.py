"""What servers cost per grant: the difference of two readings, over the grants between them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from bench.footprint import Meter, footprint
from clusters.base import Cluster, ClusterError, Usage
from history.columns import History
from history.op import F, Type
from history.recorder import Recorder
from history.recording import read_recording, write_meta
from results.documents import Footprint, PerGrant

MS = 10**6


def granted_at(folder: Path, *times_ns: int) -> History:
    recorder = Recorder(folder, 0)
    for hold, at in enumerate(times_ns, 1):
        handle = recorder.invoke(hold, F.ACQUIRE, "own-1", hold=hold, invoke_ns=at - 5)
        recorder.complete(handle, Type.OK, complete_ns=at, valid_until_ns=at + 10**9)
    refused = recorder.invoke(99, F.ACQUIRE, "own-1", hold=99, invoke_ns=times_ns[0])
    recorder.complete(refused, Type.FAIL, error="held", complete_ns=times_ns[0] + 1)
    recorder.close()
    write_meta(folder, {}, wall_minus_monotonic_ns=0)
    return read_recording(folder)


def usage(cpu_ns: int | None, commands: int | None) -> Usage:
    return Usage(3, 7000, cpu_ns, commands)


def test_only_grants_between_the_readings_count(tmp_path: Path) -> None:
    history = granted_at(tmp_path, 50 * MS, 150 * MS, 250 * MS, 350 * MS)
    readings = {"a": (100 * MS, usage(10_000, 20)), "b": (300 * MS, usage(70_000, 27))}
    found = footprint(readings, {"own": ("a", "b"), "contended": ("b", "c")}, history)
    own = PerGrant(grants=2, grants_per_second=10.0, commands_per_grant=3.5, cpu_us_per_grant=30.0)
    assert found == Footprint(servers=3, memory_bytes=7000, own=own, contended=None)


def test_what_is_unknown_stays_blank(tmp_path: Path) -> None:
    history = granted_at(tmp_path, 150 * MS)
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
