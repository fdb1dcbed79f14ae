"""Workloads on real clusters: a payment that is charged twice, one that needs no lock, and one more
inside than there are permits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.test_real import concluded

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.long]


def test_a_frozen_holder_charges_twice_and_a_fence_would_have_refused_it(tmp_path: Path) -> None:
    words = ("--lock", "etcd", "--fault", "client-pause", "--workload", "payment")
    found, _ = concluded(tmp_path, "run", *words)
    (case,) = found["cases"]
    assert case["observed"]["double-grant"] == "valid", "the service kept its word"
    assert case["observed"]["charged-twice"] == "invalid"
    assert case["observed"]["lost-charge"] == "valid"
    assert case["expected"]["charged-twice"] == "may-break"
    scored = case["measurements"]["fencing"]
    assert scored["unfenced"]["repeated_effects"] >= 1
    for policy in ("fence-on-write", "fence-on-read-and-write", "random-token-cas"):
        assert scored[policy]["repeated_effects"] == 0, policy
        assert scored[policy]["stale_refused"] == scored[policy]["stale_attempted"], policy
    assert case["latency_ms"]["job"]["before"]["count"] > 0


def test_without_a_lock_a_frozen_owner_delays_and_loses_nothing(tmp_path: Path) -> None:
    words = ("--lock", "without-actor", "--fault", "client-pause", "--workload", "payment")
    found, _ = concluded(tmp_path, "run", *words)
    (case,) = found["cases"]
    assert case["observed"] == {"charged-twice": "valid", "lost-charge": "valid"}
    assert case["exposed"] is True, case["exposure"]
    jobs = case["measurements"]["jobs"]["payment"]
    assert jobs["done"] > 100
    assert jobs["unknown"] == 0
    assert case["latency_ms"]["job"]["during"]["max"] > 1000, "the owner was frozen"


def test_a_permit_that_comes_too_late_lets_one_in_too_many(tmp_path: Path) -> None:
    words = ("--lock", "zookeeper-semaphore", "--fault", "client-pause", "--workload", "semaphore")
    found, _ = concluded(tmp_path, "run", *words)
    (case,) = found["cases"]
    assert case["observed"]["double-grant"] == "valid", "the service kept its word"
    assert case["observed"]["over-capacity"] == "invalid"
    assert case["measurements"]["jobs"]["gate"]["most_inside"] == 4
