"""Every fault on real clusters: its effect is proven while it is on, and everything is healed.

Faults of clients have no clients here; ``tests/bench/test_real.py`` plays those under load.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from lockbench.clusters import registry
from lockbench.clusters.base import Cluster, ClusterPlan, Cuttable
from lockbench.history import op
from lockbench.nemesis import schedule
from lockbench.nemesis.base import CLOCKS, LINKS, SERVERS, VICTIM, WORKERS, Arena, Injection
from lockbench.nemesis.conductor import TargetClaims, play
from lockbench.nemesis.registry import faults
from tests.nemesis.fakes import FakeClients

pytestmark = [pytest.mark.docker, pytest.mark.slow]
TTL_S = 3.0
SETTLED_S = 20.0
SHORT_S = 0.3
TRIES = 3

# What every cluster of a kind is put through, beside the defaults of every fault that applies.
VARIANTS = {
    "redlock": (
        "pause:who=minority",
        "pause:who=all",
        "partition-drop:shape=group",
        "partition-drop:shape=group-node",
        "partition-drop:shape=minority:way=out",
        "partition-stall:way=in",
        "partition-drop:for=0.047",
        "partition-stall:for=0.047",
        "kill:who=one",
        "clock-jump:by_s=-5",
        "clock-jump:who=one",
    ),
    "etcd": (
        "pause:who=leader:for=0.1",
        "partition-drop:shape=minority",
        "partition-drop:shape=majority",
        "partition-drop:shape=bridge",
        "partition-drop:shape=clients",
        "partition-drop:way=in",
        "partition-stall:way=out",
        "partition-reject:shape=leader",
        "latency:on=servers",
        "latency:on=clients:ms=50",
        "reset:on=all",
    ),
}


@pytest.fixture(scope="module", params=["redlock", "etcd"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    logs = tmp_path_factory.mktemp(request.param)
    plan = ClusterPlan(request.param, 3, 3, f"test-{os.getpid()}", TTL_S, str(logs))
    with registry.make(plan) as made:
        yield made


def played(cluster: Cluster, text: str) -> op.Fault:
    """Plays one fault, shortly, and holds it to its word."""
    ((one,),) = schedule.parse(text)
    fault = faults()[one.name]
    usual_s = min(SHORT_S, fault.duration_s(TTL_S))
    # A clock that drifts takes its time, and so does a restart of one server after the other.
    lasts_s = one.for_s or (2.0 if fault.period_s else usual_s)
    injection = Injection(one.name, 0.0, lasts_s, seed=5, parameters=one.parameters)
    clients = FakeClients()
    arena = Arena(cluster, clients, injection, TTL_S)
    result = play(
        fault,
        arena,
        start_ns=time.monotonic_ns(),
        on_change=lambda _: None,
        stop=threading.Event(),
        claims=TargetClaims(clients),
    )
    assert result.failure is None
    assert result.fault is not None
    return result.fault


def proven(cluster: Cluster, text: str) -> bool:
    """Whether the fault can be shown to have happened, and to be healed, in one of a few tries: on
    a machine that others load a probe may come too late, which is inconclusive and not wrong."""
    assert isinstance(cluster, Cuttable)
    for _ in range(TRIES):
        happened = played(cluster, text)
        assert happened.heal_ns is not None
        assert cluster.broken_links() == [], text
        assert settled(cluster), text
        if happened.facts["proven"] is True:
            return True
    return False


def settled(cluster: Cluster) -> bool:
    end = time.monotonic() + SETTLED_S
    while not all(cluster.serves(node, 1.0) for node in cluster.nodes):
        if time.monotonic() > end:
            return False
    return True


def texts(cluster: Cluster) -> list[str]:
    """Every fault of servers, links and clocks that applies, by itself and in its variants."""
    needs = LINKS, SERVERS, CLOCKS
    own = [
        name
        for name, fault in faults().items()
        if fault.unfit(cluster, fault.defaults()) is None
        and fault.touches & set(needs)
        and not fault.touches & {VICTIM, WORKERS}
        and not fault.outlived
    ]
    return own + list(VARIANTS[cluster.plan.topology])


def test_every_fault_is_proven_and_healed(cluster: Cluster) -> None:
    assert [text for text in texts(cluster) if not proven(cluster, text)] == []
    cluster.verify()


def test_what_restarts_within_a_promise(cluster: Cluster) -> None:
    """These wait for the end of the promise, so they have a test of their own."""
    names = [n for n, f in faults().items() if f.outlived and not f.touches & {LINKS}]
    for name in names:
        if faults()[name].unfit(cluster, faults()[name].defaults()) is None:
            assert proven(cluster, name), name
    cluster.verify()


def test_a_pause_that_does_not_pause_is_not_proven(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(cluster), "pause", lambda *_: None)
    assert played(cluster, "pause").facts["proven"] is False


def test_a_cut_that_does_not_cut_is_not_proven(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(cluster), "cut", lambda *_: None)
    assert played(cluster, "partition-drop").facts["proven"] is False
    assert played(cluster, "partition-drop:for=0.047").facts["proven"] is False


def test_links_that_do_not_slow_down_are_not_proven(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(cluster), "shape", lambda *_: None)
    assert played(cluster, "latency").facts["proven"] is False
    assert played(cluster, "slicer").facts["proven"] is False
