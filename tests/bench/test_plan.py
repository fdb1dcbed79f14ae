"""What can be asked for and what is refused, before anything starts."""

from __future__ import annotations

import math
from dataclasses import replace
from unittest import mock

import pytest

from lockbench.bench import plan
from lockbench.locks.registry import find
from lockbench.nemesis.registry import NONE
from lockbench.results.errors import BadInput
from lockbench.workloads.load import Pace


def case(**changes: object) -> plan.Case:
    base = plan.make_case("redis-token", "client-pause", seed=0)
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"clients": -3}, "--clients is -3"),
        ({"keys": 0}, "--keys is 0"),
        ({"time_limit_s": float("nan")}, "--time-limit is nan"),
        ({"size": 3}, "redis is not offered with 3 nodes; it is with 1"),
        ({"workload": "mutexx"}, "did you mean mutex"),
        ({"network": "moon"}, "no network is called 'moon'"),
        ({"time_limit_s": 9.0}, "too short for client-pause"),
        ({"seed": -1}, "--seed is -1"),
        ({"seed": 2**63}, "9,223,372,036,854,775,807 or less"),
        ({"time_limit_s": 1e6 + 1}, "--time-limit is 1,000,001"),
        ({"pace": Pace(lease_ttl_s=math.inf)}, "--ttl is inf; it has to be 1,000,000"),
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


def test_two_locks_of_one_name_are_not_taken_together() -> None:
    cases = [case(), case(fault="kill"), case(lock="redis-token:ttl=3")]
    with mock.patch.object(plan.Case, "system", find("redis-token")):
        plan.refuse_namesakes(cases[:2])
        with pytest.raises(BadInput, match="both call their lock redis-token"):
            plan.refuse_namesakes(cases)


def test_a_fault_that_does_not_apply_is_refused() -> None:
    with pytest.raises(BadInput, match="wipe does not apply to etcd"):
        plan.resolve(plan.make_case("etcd", "wipe", seed=0))


def test_the_seed_decides_the_schedule_and_all_locks_meet_the_same() -> None:
    first = plan.resolve(case(seed=7))
    assert first == plan.resolve(case(seed=7))
    assert first.injections != plan.resolve(case(seed=8)).injections
    other = plan.resolve(plan.make_case("etcd", "client-pause", seed=7))
    assert other.injections == first.injections


def test_a_long_fault_makes_the_case_longer_but_not_unasked_for_ever() -> None:
    longer = plan.make_case("etcd", "pause:for=30", seed=0)
    assert 30 < plan.resolve(plan.with_time_for_faults(longer)).time_limit_s <= plan.UNASKED_S_MAX
    with pytest.raises(BadInput, match="--time-limit 90 s is too short for pause:for=1000"):
        plan.resolve(plan.with_time_for_faults(plan.make_case("etcd", "pause:for=1000", seed=0)))


@pytest.mark.parametrize(
    ("lock", "fault", "slower"),
    [
        ("postgres-advisory", "kill", True),
        ("postgres-advisory", "partition-drop:shape=clients", False),
        ("redis-sentinel-wait", "pause", True),
        ("redis-sentinel-wait", "partition-drop", True),
        ("redis-sentinel-wait", "client-pause", False),
        ("shedlock-postgres", "clock-jump", True),
        ("symfony-pdo", "clock-jump", True),
        ("symfony-redis", "clock-jump", False),
    ],
)
def test_what_needs_seconds_to_serve_again_gets_them(lock: str, fault: str, slower: bool) -> None:
    case, usual = (plan.make_case(name, fault, seed=0) for name in (lock, "redis-token"))
    needed, least = (plan.needed_s(one, plan.draw(one)) for one in (case, usual))
    assert (needed >= least + 5) == slower


@pytest.mark.parametrize(
    ("lock", "fault", "other", "said"),
    [
        ("redis-setnx", "clock-jump", "redis-token", "can only end a lease"),
        ("redis-setnx", "pause+clock-drift", "redis-token", "can only end a lease"),
        ("postgres-advisory", "partition-drop", "redis-sentinel", "hurts nobody; shape=clients"),
    ],
)
def test_what_cannot_be_hurt_by_a_fault_meets_it_in_no_matrix(
    lock: str, fault: str, other: str, said: str
) -> None:
    case = plan.make_case(lock, fault, seed=0)
    assert said in (plan.unfit(case) or "")
    assert not plan.applies(case)
    assert plan.applies(plan.make_case(other, fault, seed=0))


def test_a_lock_with_a_long_lease_gets_the_time_that_its_faults_need() -> None:
    """As a library's default of a minute: such a lock must not end every command that plans it."""
    usual = plan.make_case("redis-token", "client-pause", seed=0)
    slow = replace(usual, pace=replace(usual.pace, lease_ttl_s=60.0))
    with pytest.raises(BadInput, match="too short for client-pause"):
        plan.refuse_impossible(plan.resolve(slow))
    timed = plan.with_time_for_faults(slow)
    plan.refuse_impossible(plan.resolve(timed))
    assert plan.UNASKED_S_MAX < timed.time_limit_s < 3 * slow.pace.lease_ttl_s


@pytest.mark.parametrize(("workload", "hold_s"), [("payment", 0.005), ("payment:takes=0.3", 0.3)])
def test_a_charge_takes_as_long_as_it_is_asked_to(workload: str, hold_s: float) -> None:
    assert plan.make_case("redis-token", "none", seed=0, workload=workload).pace.hold_s == hold_s
