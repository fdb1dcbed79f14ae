"""Every guard on its real servers, tried without a lock; and guards with a planted defect, which
the store's own record gives away."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from lockbench.bench.trial import check
from lockbench.clusters.base import ClusterPlan
from lockbench.clusters.registry import topologies
from lockbench.locks.base import Address
from lockbench.locks.postgres.session import Session, literal
from lockbench.stores import postgres, redis
from lockbench.stores.base import Applied, Guard, Where, Write
from lockbench.stores.registry import Asked, declared, find
from tests.eventually import one_of

pytestmark = pytest.mark.docker

SECONDS = 0.6
Start = Callable[[str], Where]
# Ensembles of three take seconds to start.
LONG = {"etcd", "zookeeper"}
GUARDS = [
    pytest.param(f"{name}:guard={guard.name}", marks=[pytest.mark.long] if name in LONG else [])
    for name, store in declared().items()
    for guard in store.guards
    if store.topologies and not guard.locks and guard.rule != "any"
]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    running: dict[str, Where] = {}
    with ExitStack() as stack:

        def started(topology: str) -> Where:
            if topology not in running:
                logs = tmp_path_factory.mktemp(topology)
                size = topologies()[topology].default_size
                plan = ClusterPlan(topology, size, 1, f"test-{os.getpid()}", 30.0, str(logs))
                cluster = stack.enter_context(topologies()[topology].make(plan))
                nodes = [Address(*address) for address in cluster.addresses(1)]
                running[topology] = Where(nodes, topology=topology, timeout_s=5.0)
            return running[topology]

        yield started


def test_a_new_client_of_postgres_waits_for_no_writer(start: Start) -> None:
    """Nor does anybody wait behind it."""
    there = replace(start("postgres"), timeout_s=1.0)
    store = find("postgres")
    first = store.connect(there)
    first.read("k0")
    first.read("k1")
    holder = Session(there.nodes, timeout_s=5.0)
    with closing(holder), closing(store.connect(there)) as second:
        holder.ask("BEGIN; UPDATE guarded SET version = version WHERE key = 'k0'")
        assert second.read("k1") == first.read("k1")
        assert first.write(Write("k1", 1, first.read("k1"), 1)) == Applied(1)
        holder.ask("ROLLBACK")
    first.close()


@pytest.mark.parametrize("spec", GUARDS)
def test_a_guard_does_what_its_rule_says(spec: str, start: Start, tmp_path: Path) -> None:
    store = find(spec)
    verdict = check(store, start(store.topology), tmp_path, seconds=SECONDS)
    assert verdict.result == "valid", verdict.reason
    assert ", 0 refused" not in verdict.reason, "nothing was put to the test"


def planted(spec: str, name: str, snippet: str | None = None) -> Asked:
    """A store with another text in the place of its guard's."""
    store = find(spec)
    guard = replace(store.guard, name=name, snippet=snippet or store.guard.snippet)
    return replace(store, guard=guard)


def test_a_condition_that_lets_an_equal_fence_in_is_found(start: Start, tmp_path: Path) -> None:
    condition = postgres.FENCE.replace("fence < $3", "fence <= $3")
    broken = planted("postgres", "equal", condition)
    verdict = check(broken, start("postgres"), tmp_path, seconds=SECONDS)
    assert verdict.result == "invalid"
    assert "refuses a fence that is not above every fence applied before" in verdict.reason


def test_a_script_that_compares_texts_is_found(start: Start, tmp_path: Path) -> None:
    """9 is above 10 as a text."""
    script = redis.FENCE.replace("tonumber(ARGV[1]) <= newest", "ARGV[1] <= tostring(newest)")
    verdict = check(planted("redis", "texts", script), start("redis"), tmp_path)
    assert verdict.result == "invalid"


class LooksFirst(postgres.Postgres):
    """Looks, decides and writes, in a transaction that does not see to it that this is one step."""

    def _written(self, session: Session, write: Write) -> int | None:
        def ask(sql: str) -> list[list[object]]:
            return session.ask(sql.replace(" ISOLATION LEVEL SERIALIZABLE", ""))

        key, value = literal(write.key), literal(write.value)
        return postgres.write_if_newer(ask, key, value, write.fence or 0)


def test_a_check_and_a_write_that_are_two_steps_are_found(start: Start, tmp_path: Path) -> None:
    def found(number: int) -> str:
        two_steps = planted("postgres:guard=serializable", f"two-steps-{number}")  # keys of its own
        two_steps = replace(two_steps, store=replace(two_steps.store, connect=LooksFirst))
        folder = tmp_path / str(number)
        return check(two_steps, start("postgres"), folder, seconds=2 * SECONDS).result

    assert one_of(found, "invalid".__eq__) == "invalid"


def test_a_guard_that_refuses_what_it_has_to_apply_is_found(start: Start, tmp_path: Path) -> None:
    script = "if math.random(4) == 1 then return 0 end\n" + redis.PLAIN
    guard = Guard("moody", "any", "lua", script, "nothing", "planted")
    moody = replace(find("redis"), guard=guard)
    verdict = check(moody, start("redis"), tmp_path, seconds=SECONDS)
    assert verdict.result == "invalid"
    assert "nothing had been applied that its check would refuse it for" in verdict.reason
