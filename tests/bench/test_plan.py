"""What can be asked for and what is refused, before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import plan
from bench.errors import BadInput
from nemesis.registry import NONE, faults
from workloads.load import Pace


def case(**changes: object) -> plan.Case:
    base = plan.make_case("redis-token", "client-pause", seed=0)
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"clients": -3}, "--clients is -3"),
        ({"keys": 0}, "--keys is 0"),
        ({"time_limit_s": float("nan")}, "--time-limit is nan"),
        ({"size": 2}, "redis is not offered with 2 nodes"),
        ({"workload": "mutexx"}, "did you mean mutex"),
        ({"network": "moon"}, "no network is called 'moon'"),
        ({"time_limit_s": 9.0}, "too short for client-pause"),
        ({"seed": -1}, "--seed is -1"),
        ({"pace": Pace(lease_ttl_s=0.5)}, "not longer than the client timeout"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        plan.resolve(case(**changes))


@pytest.mark.parametrize(
    ("lock", "fault", "topology", "said"),
    [
        ("redis-tokn", NONE, None, "did you mean redis-token"),
        ("redis-token", "wipee", None, "did you mean wipe"),
        ("redis-token", NONE, "etcd", "does not run on etcd"),
        ("redis-token", NONE, "mars", "no topology is called 'mars'"),
        ("nowhere.py:Lock", NONE, None, "nowhere.py"),
    ],
)
def test_unknown_names(lock: str, fault: str, topology: str | None, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        plan.make_case(lock, fault, seed=0, topology=topology)


def test_a_fault_that_does_not_apply_is_refused() -> None:
    with pytest.raises(BadInput, match="wipe does not apply to etcd"):
        plan.resolve(plan.make_case("etcd", "wipe", seed=0))


def test_the_seed_decides_the_schedule_and_all_locks_meet_the_same() -> None:
    first = plan.resolve(case(seed=7))
    assert first == plan.resolve(case(seed=7))
    assert first.injections != plan.resolve(case(seed=8)).injections
    other = plan.resolve(plan.make_case("etcd", "client-pause", seed=7))
    assert other.injections == first.injections


def test_the_quick_suite_is_what_it_says() -> None:
    cases = plan.suite("quick", seed=1).cases
    names = {c.name for c in cases}
    for lock in plan.FIRST_LOCKS:
        for fault in (NONE, "client-pause", "pause", "partition-drop", "kill"):
            assert f"{lock}-{fault}" in names
    assert {"redis-token-wipe", "redlock-wipe", "redis-no-owner-client-pause"} <= names
    assert "redis-sentinel-failover" in names
    assert "etcd-wipe" not in names
    assert sum(c.workload == plan.PUBLISHED for c in cases) == 2
    assert all(c.injections for c in cases if c.fault != NONE)


def test_every_phase_has_room_for_every_fault() -> None:
    for c in plan.suite("quick", seed=3).cases:
        for injection in c.injections:
            end_s = injection.begin_s + injection.duration_s + plan.AFTER_S
            assert end_s <= c.phases.contended_s
            assert injection.fault in faults()


def test_the_nightly_suite_is_quick_and_more_and_fits_into_the_night() -> None:
    quick, nightly = plan.suite("quick", seed=1), plan.suite("nightly", seed=1)
    names = {c.name for c in nightly.cases}
    assert {c.name for c in quick.cases} <= names
    assert {"redlock-clock-jump", "redis-token-power-loss", "etcd-client-kill"} <= names
    assert "etcd-clock-jump" not in names
    assert quick.expected_s <= 12 * 60
    # The comparison takes about as long again, and 90 minutes are all there is.
    assert nightly.expected_s <= 40 * 60


def test_a_long_fault_makes_the_case_longer_but_not_unasked_for_ever() -> None:
    longer = plan.make_case("etcd", "pause:for=30", seed=0)
    assert 30 < plan.resolve(plan.roomy(longer)).time_limit_s <= plan.UNASKED_S_MAX
    with pytest.raises(BadInput, match="--time-limit 90 s is too short for pause:for=1000"):
        plan.resolve(plan.roomy(plan.make_case("etcd", "pause:for=1000", seed=0)))
