"""What is declared of stores, and what is answered to who asks for something else."""

from __future__ import annotations

import pytest

from lockbench.bench import plan
from lockbench.bench.document import required_of
from lockbench.clusters.registry import topologies
from lockbench.locks.registry import systems
from lockbench.results.errors import BadInput, Unfit
from lockbench.stores.base import UNGUARDED
from lockbench.stores.registry import StoreError, declared, find

STORES = declared()


@pytest.mark.parametrize("name", STORES)
def test_a_store_is_declared_whole(name: str) -> None:
    store = STORES[name]
    assert set(store.topologies) <= set(topologies())
    assert set(store.loses) <= set(store.topologies)
    assert store.guards[-1].name == UNGUARDED
    for guard in store.guards:
        assert guard.snippet.strip() == guard.snippet
        assert guard.source.startswith("https://")
        assert set(guard.locks) <= set(systems())


def test_a_store_is_found_with_everything_decided() -> None:
    assert find("postgres").spec == "postgres:guard=fence:on=postgres"
    assert find("postgres:on=postgres-sync").topology == "postgres-sync"
    assert find("file:guard=compare-and-set").spec == "file:guard=compare-and-set"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("postgre", "no resource is called 'postgre'; did you mean postgres?"),
        ("redis:guard=hope", "redis:guard=hope: it is one of fence, compare-and-set, unguarded"),
        ("file:on=etcd", "file has no parameter 'on'; its parameters: guard"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(spec: str, said: str) -> None:
    with pytest.raises(StoreError, match="^" + said.replace("?", r"\?") + "$"):
        find(spec)


def test_a_guard_that_needs_a_fence_needs_a_lock_that_has_one() -> None:
    with pytest.raises(Unfit, match="redis-token offers no fence"):
        plan.make_case("redis-token", "none", seed=0, resource="postgres")
    case = plan.make_case("redis-token", "none", seed=0, resource="redis:guard=compare-and-set")
    assert case.resource == "redis:guard=compare-and-set:on=redis"


def test_a_guard_by_the_locks_own_key_is_for_that_lock_on_its_own_cluster() -> None:
    with pytest.raises(Unfit, match="the guard own-key is made for etcd"):
        plan.make_case("redis-fence", "none", seed=0, resource="etcd:guard=own-key")
    case = plan.make_case("etcd", "none", seed=0, resource="etcd:guard=own-key")
    assert plan.store_topology_of(case) is None
    assert plan.store_topology_of(plan.make_case("etcd", "none", seed=0, resource="etcd"))


def test_a_workload_that_does_more_than_write_once_does_not_run_on_a_store() -> None:
    with pytest.raises(BadInput, match="payment does not run on a store with the guard fence; the"):
        plan.make_case("redis-fence", "none", seed=0, workload="payment", resource="file")


def test_an_idempotency_key_is_for_work_of_which_each_piece_has_a_number() -> None:
    resource = "postgres:guard=idempotency-key"
    said = "mutex does not run on a store with the guard idempotency-key; these do: payment"
    with pytest.raises(BadInput, match=f"^{said}$"):
        plan.make_case("redis-token", "none", seed=0, resource=resource)
    case = plan.make_case("redis-token", "none", seed=0, workload="payment", resource=resource)
    required = required_of(case)
    assert {"charged-twice", "lost-charge", "broken-guard"} <= set(required)
    assert "lost-update" not in required


def test_a_fault_strikes_the_store_where_it_has_servers() -> None:
    def why(resource: str | None, fault: str) -> str | None:
        return plan.unfit(plan.make_case("redis-fence", fault, seed=0, resource=resource))

    assert why("postgres", "failover:strikes=resource") is None
    assert "needs a resource with servers" in str(why(None, "kill:strikes=resource"))
    assert "needs a resource with servers" in str(why("file", "kill:strikes=resource"))
    assert "does not strike servers" in str(why("redis", "client-pause:strikes=resource"))
    assert "no primary" in str(why("etcd", "failover:strikes=resource"))


def test_a_fault_of_the_store_is_none_of_the_lock() -> None:
    fault = "failover:strikes=resource"
    case = plan.resolve(
        plan.with_time_for_faults(plan.make_case("redis-fence", fault, seed=0, resource="postgres"))
    )
    expected = plan.expected_of(case)
    assert expected.faults == ("none",)
    assert expected.of("lost-update").expected == "may-break"
    assert expected.of("double-grant").expected == "holds"
    assert expected.of("broken-guard").expected == "holds"


@pytest.mark.parametrize(
    ("fault", "word"),
    [("wipe", "may-break"), ("kill", "may-break"), ("pause", "holds"), ("partition-drop", "holds")],
)
def test_a_redis_that_forgets_may_lose_an_update(fault: str, word: str) -> None:
    resource = "redis:guard=compare-and-set"
    case = plan.make_case("redis-token", f"{fault}:strikes=resource", seed=0, resource=resource)
    case = plan.resolve(plan.with_time_for_faults(case))
    assert plan.expected_of(case).of("lost-update").expected == word


@pytest.mark.parametrize(
    ("resource", "word"),
    [
        ("postgres:guard=compare-and-set", "may-break"),
        ("postgres:on=postgres-sync", "may-break"),
        ("postgres:guard=compare-and-set:on=postgres-sync", "holds"),
    ],
)
def test_an_update_may_be_lost_with_the_primary_or_by_a_write_without_an_answer(
    resource: str, word: str
) -> None:
    fault = "failover:strikes=resource"
    case = plan.make_case("redis-fence", fault, seed=0, resource=resource)
    case = plan.resolve(plan.with_time_for_faults(case))
    assert plan.expected_of(case).of("lost-update").expected == word


@pytest.mark.parametrize(("topology", "word"), [("postgres", "may-break"), ("mariadb", "holds")])
def test_a_ledger_loses_with_its_primary_and_by_nothing_that_comes_late(
    topology: str, word: str
) -> None:
    resource = f"{topology}:guard=idempotency-key"
    fault = "failover:strikes=resource" if topology == "postgres" else "kill:strikes=resource"
    case = plan.make_case("redis-token", fault, seed=0, workload="payment", resource=resource)
    case = plan.resolve(plan.with_time_for_faults(case))
    assert plan.expected_of(case).of("lost-charge").expected == word


def test_faults_of_lock_and_store_may_overlap() -> None:
    both = plan.steps_of("kill:at=2 + kill:at=2:strikes=resource".replace(" ", ""))
    assert [one.strikes for one in both[0]] == ["lock", "resource"]
    case = plan.make_case(
        "redis-fence", "kill:at=2+kill:at=2:strikes=resource", seed=0, resource="redis"
    )
    assert len(plan.draw(case)) == 2
