"""Every guard on its real servers, tried without a lock; and guards with a planted defect, which
the store's own record gives away."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from lockbench.bench.trial import check
from lockbench.clusters.base import ClusterPlan
from lockbench.clusters.registry import topologies
from lockbench.locks.base import Address
from lockbench.locks.mariadb.session import Session as MariadbSession
from lockbench.locks.mariadb.session import literal as quoted
from lockbench.locks.postgres.session import Broken, Refused, Session, literal
from lockbench.stores import mariadb, postgres, redis, s3
from lockbench.stores.base import Applied, Connect, Guard, Where, Write
from lockbench.stores.mariadb import FENCE, IDEMPOTENCY_KEY
from lockbench.stores.registry import Asked, declared, find
from tests.eventually import eventually, one_of

pytestmark = pytest.mark.docker

SECONDS = 0.6
Start = Callable[[str], Where]
# Ensembles of three take seconds to start, and the image of the object store minutes to build.
LONG = {"etcd", "zookeeper", "s3"}
GUARDS = [
    pytest.param(f"{name}:guard={guard.name}", marks=[pytest.mark.long] if name in LONG else [])
    for name, store in declared().items()
    for guard in store.guards
    if store.topologies and not guard.locks and guard.rule != "any"
]
# Writers go to any of three servers there.
ON_GALERA = [
    pytest.param(f"mariadb:guard={guard.name}:on=galera", marks=pytest.mark.long)
    for guard in declared()["mariadb"].guards
    if guard.rule != "any"
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


@pytest.mark.parametrize("limited", [False, True])
def test_a_holder_that_is_frozen_in_its_transaction_writes_before_a_newer_one(
    start: Start, limited: bool
) -> None:
    """It has the row until it commits, so no newer fence comes first, unless the server ends what
    idles in a transaction."""
    there = start("postgres")
    key = f"frozen-{limited}"
    store = find("postgres:guard=serializable")
    may_commit = threading.Event()
    with (
        closing(store.connect(there)) as newer,
        closing(Session(there.nodes, timeout_s=60.0)) as frozen,
        closing(Session(there.nodes, timeout_s=5.0)) as looking,
        ThreadPoolExecutor() as pool,
    ):
        seen = newer.read(key)
        if limited:
            frozen.ask("SET idle_in_transaction_session_timeout = '500ms'")

        def ask(sql: str) -> list[list[object]]:
            if sql == "COMMIT":
                may_commit.wait(60.0)
            return frozen.ask(sql)

        def waiting() -> bool:
            ((count,),) = looking.ask(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            )
            return int(count) > 0

        value = literal(Write(key, 1, seen, 1).value)
        old = pool.submit(postgres.write_if_newer, ask, literal(key), value, 1)
        eventually(lambda: looking.ask("SELECT 1 FROM pg_locks WHERE mode = 'RowExclusiveLock'"))
        new = pool.submit(newer.write, Write(key, 2, seen, 2))
        if limited:
            assert new.result() == Applied(1), "while the holder still slept"
            may_commit.set()
            assert isinstance(old.exception(), Refused | Broken)
        else:
            eventually(waiting, "the newer one waits for the row")
            may_commit.set()
            assert (old.result(), new.result()) == (1, Applied(2))


@pytest.mark.parametrize("spec", [*GUARDS, *ON_GALERA])
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


@pytest.mark.parametrize(("name", "text"), [("postgres", postgres.FENCE), ("mariadb", FENCE)])
def test_a_condition_that_lets_an_equal_fence_in_is_found(
    name: str, text: str, start: Start, tmp_path: Path
) -> None:
    broken = planted(name, "equal", text.replace("fence <", "fence <="))
    verdict = check(broken, start(name), tmp_path, seconds=SECONDS)
    assert verdict.result == "invalid"
    assert "refuses a fence that is not above every fence applied before" in verdict.reason


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "postgres",
            postgres.IDEMPOTENCY_KEY.replace(
                "ON CONFLICT DO NOTHING",
                "ON CONFLICT (key, thing) DO UPDATE SET value = excluded.value",
            ),
        ),
        ("mariadb", f"{IDEMPOTENCY_KEY} ON DUPLICATE KEY UPDATE value = VALUES(value)"),
    ],
)
def test_a_key_that_lets_a_second_one_take_its_place_is_found(
    name: str, text: str, start: Start, tmp_path: Path
) -> None:
    """The table has one row for it all the same; its record has two."""
    broken = planted(f"{name}:guard=idempotency-key", "upsert", text)
    verdict = check(broken, start(name), tmp_path, seconds=SECONDS)
    assert verdict.result == "invalid"
    assert "refuses a thing that was done before" in verdict.reason


@pytest.mark.parametrize("name", ["postgres", "mariadb"])
def test_what_is_priced_keeps_no_record(name: str, start: Start) -> None:
    """Not even where one was kept before, which is kept again afterwards."""
    store, there = find(name), start(name)
    key = f"priced-{name}"

    def made(*, recorded: bool) -> list[int]:
        with closing(store.connect(there, recorded=recorded)) as client:
            seen = client.read(key)
            assert client.write(Write(key, 1, seen, seen.version + 1)) == Applied(seen.version + 1)
        with closing(store.connect(there, recorded=True)) as reader:
            return [one.made for one in reader.written() if one.key == key]

    assert made(recorded=True) == [1]
    assert made(recorded=False) == [1]
    assert made(recorded=True) == [1, 3]


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


class LooksFirstThere(mariadb.Mariadb):
    """The same, on MariaDB."""

    def _written(self, session: MariadbSession, write: Write) -> int | None:
        def ask(sql: str) -> list[list[object]]:
            return session.ask(sql.replace("SERIALIZABLE", "READ COMMITTED"))

        key, value = quoted(write.key), quoted(write.value)
        return mariadb.write_if_newer(ask, key, value, write.fence or 0)


class LooksFirstAtTheObject(s3.S3):
    """Looks whether the condition is met, and puts without one."""

    def put(self, key: str, made: Mapping[str, object], condition: Mapping[str, str]) -> bool:
        _, etag = self.get(key)
        return etag == condition.get("If-Match") and super().put(key, made, {})


@pytest.mark.parametrize(
    ("spec", "client"),
    [
        ("postgres:guard=serializable", LooksFirst),
        ("mariadb:guard=serializable", LooksFirstThere),
        *(
            pytest.param(f"s3:guard={guard}", LooksFirstAtTheObject, marks=pytest.mark.long)
            for guard in ("fence", "compare-and-set", "idempotency-key")
        ),
    ],
)
def test_a_check_and_a_write_that_are_two_steps_are_found(
    spec: str, client: Connect, start: Start, tmp_path: Path
) -> None:
    def found(number: int) -> str:
        two_steps = planted(spec, f"two-steps-{find(spec).guard.name}-{number}")  # its own keys
        two_steps = replace(two_steps, store=replace(two_steps.store, connect=client))
        folder = tmp_path / str(number)
        return check(two_steps, start(two_steps.topology), folder, seconds=2 * SECONDS).result

    assert one_of(found, "invalid".__eq__) == "invalid"


def test_a_guard_that_refuses_what_it_has_to_apply_is_found(start: Start, tmp_path: Path) -> None:
    script = "if math.random(4) == 1 then return 0 end\n" + redis.PLAIN
    guard = Guard("moody", "any", "lua", script, "nothing", "planted")
    moody = replace(find("redis"), guard=guard)
    verdict = check(moody, start("redis"), tmp_path, seconds=SECONDS)
    assert verdict.result == "invalid"
    assert "nothing had been applied that its check would refuse it for" in verdict.reason
