"""The declared suites: what is in them, how long they take, and slices of them."""

from __future__ import annotations

import pytest

from lockbench.bench import plan, suites
from lockbench.locks.base import ANY
from lockbench.locks.registry import systems
from lockbench.nemesis.registry import NONE, faults
from lockbench.results.errors import BadInput


def test_the_quick_suite_is_what_it_says() -> None:
    cases = suites.suite("quick", seed=1).cases
    names = {c.name for c in cases}
    for lock in suites.sampled():
        for fault in (NONE, "client-pause", "pause", "partition-drop", "kill"):
            assert f"{lock}-{fault}" in names
    assert {"redis-token-wipe", "redlock-wipe", "redis-no-owner-client-pause"} <= names
    assert {"redis-sentinel-failover", "redis-token-client-pause-payment"} <= names
    assert "etcd-wipe" not in names
    assert all(c.rates.steps for c in cases if c.fault == NONE)
    assert {c.lock for c in cases if c.fault == NONE} == {*suites.sampled(), *suites.alike()}
    assert all(c.injections for c in cases if c.fault != NONE)


def test_what_a_declaration_says_of_suites_is_known() -> None:
    of_locks = {word for system in systems().values() for word in system.suites}
    of_faults = {word for fault in faults().values() for word in fault.suites}
    assert of_locks <= {"quick", "nightly", "capacity"}
    assert of_faults <= {"quick", "nightly", "full", "variants"}
    under = {f for s in systems().values() for chosen in s.suites.values() for f in chosen}
    assert under <= {ANY, NONE, *faults()}
    derived = systems()["redis-token"].derived(name="other")
    assert derived.suites == {}, "what derives from a lock of a sample is not in it"


def test_every_phase_has_room_for_every_fault() -> None:
    for c in suites.suite("quick", seed=3).cases:
        for injection in c.injections:
            end_s = injection.begin_s + injection.duration_s + plan.AFTER_S
            assert end_s <= c.phases.contended_s
            assert injection.fault in faults()


def test_the_nightly_suite_is_quick_and_more_and_fits_into_the_night() -> None:
    quick, nightly = suites.suite("quick", seed=1), suites.suite("nightly", seed=1)
    names = {c.name for c in nightly.cases}
    assert {c.name for c in quick.cases} <= names
    assert {"redlock-clock-jump", "redis-token-power-loss", "etcd-client-kill"} <= names
    assert "etcd-clock-jump" not in names
    assert sum(c.workload == plan.PUBLISHED for c in nightly.cases) == 2
    assert quick.expected_s <= 12.5 * 60
    # The comparison takes about as long again, and 90 minutes are all there is.
    assert nightly.expected_s <= 40 * 60


def test_the_capacity_suite_sweeps_the_main_locks_within_an_hour() -> None:
    found = suites.suite("capacity", seed=1)
    assert found.expected_s <= 3600
    names = {case.lock for case in found.cases}
    assert {*suites.sampled(), "redisson-rlock", "curator-mutex", "postgres-advisory"} <= names
    assert not {"redis-no-owner", "jetcd-safe", "redis-py-safe", "tooz"} & names
    assert all(sum(case.lock == name for case in found.cases) == 3 for name in names)


def test_the_full_suite_has_every_lock_under_every_canonical_fault_that_applies() -> None:
    assert len(set(suites.faults_of("full"))) == 10
    assert set(suites.faults_of("full")) <= set(faults())
    found = {(c.lock, c.fault): c for c in suites.suite("full", seed=0).cases}
    for lock, system in systems().items():
        assert (lock, NONE) in found, "the baseline is mandatory"
        wanted = suites.faults_of("variants") if system.variant else suites.faults_of("full")
        for fault in suites.faults_of("full"):
            applies = plan.applies(plan.make_case(lock, fault, seed=0))
            assert ((lock, fault) in found) == (applies and fault in wanted)


def test_a_variant_has_fewer_faults_than_the_lock_that_it_varies() -> None:
    assert set(suites.faults_of("variants")) < set(suites.faults_of("full"))
    for name in ("redisson-rlock", "curator-mutex", "etcd-concurrency", "redis-py", "zookeeper"):
        assert suites.full_faults(name) == suites.faults_of("full")
    for name in ("redisson-rlock-safe", "curator-mutex-no-listener", "zookeeper-herd"):
        assert suites.full_faults(name) == suites.faults_of("variants")
    assert all(system.variant for name, system in systems().items() if name.endswith("-safe"))


def test_the_full_suite_fits_into_a_night_and_every_fault_into_its_case() -> None:
    full = suites.suite("full", seed=5)
    assert full.expected_s <= 4.5 * 3600
    for c in full.cases:
        assert c.time_limit_s >= plan.needed_s(c, c.injections)


def test_exhaustive_has_every_fault_on_every_topology_and_all_of_full() -> None:
    cases = suites.suite("exhaustive", seed=0).cases
    found = {(c.lock, c.topology, c.fault) for c in cases}
    assert len(found) == len(cases)
    assert {(c.lock, c.topology, c.fault) for c in suites.suite("full", seed=0).cases} <= found
    assert {(name, t) for name, s in systems().items() for t in s.topologies} == {
        (lock, topology) for lock, topology, fault in found if fault == NONE
    }
    assert len({c.name for c in cases}) == len(cases)


def test_a_slice_has_the_cases_of_the_whole() -> None:
    whole = suites.suite("full", seed=3)
    part = suites.sliced(whole, ["redlock*", "etcd"], ["wipe", "none"])
    assert {c.name for c in part.cases} >= {"redlock-wipe", "redlock-fence-none", "etcd-none"}
    assert {c.fault for c in part.cases} == {"wipe", NONE}
    assert all(c in whole.cases for c in part.cases)
    assert suites.sliced(whole, [], []).cases == whole.cases
    assert part.expected_s < whole.expected_s


@pytest.mark.parametrize(
    ("locks", "wanted", "said"),
    [
        (["etdc"], [], "no lock of the suite full is called 'etdc'; did you mean etcd"),
        (["etcd"], ["wip"], "no fault of the suite full is called 'wip'; did you mean wipe"),
        (["etcd", "zoo?"], [], "'zoo\\?'"),
        (["etcd"], ["wipe"], "etcd under wipe"),
    ],
)
def test_a_slice_of_nothing_is_refused(locks: list[str], wanted: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        suites.sliced(suites.suite("full", seed=0), locks, wanted)


def test_the_duration_is_said_in_words() -> None:
    assert suites.suite("quick", seed=0).duration == "29 cases, about 12 minutes"
    one = suites.sliced(suites.suite("full", seed=0), ["etcd"], [NONE])
    assert one.duration == "1 case, about 13 seconds"


def test_a_fault_that_leaves_nothing_to_judge_is_left_out_and_can_still_be_run() -> None:
    full = {(c.lock, c.fault) for c in suites.suite("full", seed=0).cases}
    assert ("jetcd", "reply-lost") not in full
    assert {("jetcd", "kill"), ("etcd-concurrency", "reply-lost")} <= full
    plan.refuse_impossible(plan.make_case("jetcd", "reply-lost", seed=0))


def test_parts_take_about_as_long_and_add_up_to_the_whole() -> None:
    whole = suites.suite("full", seed=3)
    parts = [suites.part(whole, f"{n}/8") for n in range(1, 9)]
    every = [case for one in parts for case in one.cases]
    assert sorted(every, key=lambda c: c.name) == sorted(whole.cases, key=lambda c: c.name)
    lasting = [one.expected_s for one in parts]
    assert max(lasting) - min(lasting) <= max(plan.expected_s(case) for case in whole.cases)
    assert suites.part(whole, "1/1") == whole


@pytest.mark.parametrize(
    "text", ["", "3", "0/8", "9/8", "1/0", "-1/8", "1/8/2", "a/b", "99/99", "1/999999999999"]
)
def test_parts_that_there_are_not_are_refused(text: str) -> None:
    few = suites.sliced(suites.suite("full", seed=0), ["etcd"], [])
    with pytest.raises(BadInput, match="--part is"):
        suites.part(few, text)
