"""What recipes are measured against: every recipe has bare commands, and they are what it sends.

ZooKeeper's are not compared here: there is no server for kazoo to talk to without containers.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

import pytest

from lockbench import declarations, locks
from lockbench.locks.bare import KEY
from lockbench.locks.base import Address, System
from lockbench.locks.redis import fair as redis_fair
from lockbench.locks.redis import pubsub as redis_pubsub
from lockbench.locks.redis.redlock import Redlock
from lockbench.locks.registry import NO_LOCKS, systems
from perf.bare import bare_cycle, recipes
from perf.recipe import connected, cycle
from tests.eventually import LIMIT_S, eventually
from tests.locks import test_redis_cluster, test_redis_sentinel
from tests.locks.fakes import FakeRedis
from tests.locks.nats_server import FakeNats
from tests.locks.test_consul import FakeConsul
from tests.locks.test_etcd import Gateway
from tests.locks.test_mariadb import FakeMariadb
from tests.locks.test_postgres import FakePostgres
from tests.locks.test_postgres_lease_row import Rows

PREPARING = (b"PING", b"SCRIPT", b"ROLE", b"SENTINEL", b"CLUSTER")
CONNECTING = r"pg_is_in_recovery|to_regclass"
GRANTS = {redis_fair.TAKE.sha.encode(): 0, redis_pubsub.TAKE.sha.encode(): "OK"}

Sent = Callable[[], list[Any]]  # what the servers were sent
Served = tuple[Sequence[Address], Sent]


def test_every_recipe_has_bare_commands() -> None:
    """Libraries have none: what is around their commands is not ours."""
    ours = declarations.declared(locks, "SYSTEM", System, skip=(*NO_LOCKS, "libraries/*/lock.py"))
    assert len(ours) > 20
    assert [name for name, system in systems().items() if system.bare] == list(ours)
    servers_differ = {
        "redlock": ["redlock-delayed-restart", "redlock-fsync"],
        "postgres-advisory": ["postgres-advisory-pooled"],
        "mariadb-get-lock": ["galera-get-lock"],
        "mariadb-for-update": ["galera-for-update"],
    }
    assert {name: others for name, others in recipes().items() if others} == servers_differ
    assert set(recipes()) == set(ours).difference(*servers_differ.values())


class Granting(FakeRedis):
    """Every script grants and gives back."""

    def _effect(self, command: tuple[bytes, ...]) -> Any:
        match command:
            case (b"EVALSHA", sha, *_) if sha not in self.known:
                return GRANTS.get(sha, 1)
            case (b"PEXPIRE", *_):
                return 1
        return super()._effect(command)


def sent_to(servers: Sequence[FakeRedis]) -> Sent:
    def sent() -> list[Any]:
        found = []
        for server in servers:
            commands = [words for words in server.log if words[0] not in PREPARING]
            found.append([[_masked(word) for word in words] for words in commands])
        return found

    return sent


def _masked(word: bytes) -> bytes:
    """Without what differs between two holds."""
    return re.sub(rb"^[0-9a-f]{16}(\.\d+)?$", b"TOKEN", word)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def served(name: str, stack: ExitStack) -> Served:
    """Servers for a lock on Redis."""
    servers: Sequence[FakeRedis]
    match systems()[name].topologies[0]:
        case "sentinel":
            site = test_redis_sentinel.Site()
            site.name(site.data[0])
            nodes, servers = site.nodes, [*site.data, *site.sentinels]
        case "redis-cluster":
            cluster = test_redis_cluster.Site()
            nodes, servers = cluster.addresses, [*cluster.nodes]
        case topology:
            servers = [Granting() for _ in range(5 if topology == "redlock" else 1)]
            nodes = [server.address for server in servers]
    for server in servers:
        stack.callback(server.stop)
    return nodes, sent_to(servers)


def both(name: str, serve: Callable[[], Served]) -> tuple[list[Any], list[Any]]:
    """What a hold of the recipe sends and what the bare cycle does, each to servers of its own and
    sorted: two parts of a bare cycle come one after the other. It is not the recipe's first hold,
    which may have to do without servers that are not connected yet."""
    (nodes, by_recipe), (others, by_bare) = serve(), serve()
    with closing(connected(name, nodes)) as lock, bare_cycle(name, others) as bare:
        if isinstance(lock, Redlock):
            connect_to_all(lock)
        before = [len(log) for log in by_recipe()]
        cycle(lock)
        bare()

        def found() -> tuple[list[Any], list[Any]]:
            logs = [log[count:] for log, count in zip(by_recipe(), before, strict=True)]
            return _sorted(logs), _sorted(by_bare())

        # Nobody waits for the last answers of a release.
        with contextlib.suppress(AssertionError):
            eventually(lambda: len(set(map(str, found()))) == 1)
        return found()


def connect_to_all(lock: Redlock) -> None:
    """Returns when every node is connected and owes no answer. From then on it waits for as long as
    the node needs: an acquire that is tried again sends more."""
    lock._limit_s = LIMIT_S
    while not all(node.ready for node in lock._nodes.nodes):
        cycle(lock)

    def settled() -> bool:
        lock._nodes.drain()
        return not any(node._owed for node in lock._nodes.nodes)

    eventually(settled)


def _sorted(logs: list[Any]) -> list[Any]:
    return [sorted(log) for log in logs]


ON_REDIS = [name for name in recipes() if systems()[name].family == "redis"]


@pytest.mark.parametrize("name", ON_REDIS)
def test_a_redis_is_sent_the_same(name: str, stack: ExitStack) -> None:
    by_recipe, bare = both(name, lambda: served(name, stack))
    assert any(bare)
    assert by_recipe == bare


@pytest.mark.parametrize(
    "name",
    [
        *("postgres-advisory", "postgres-for-update", "postgres-advisory-xact"),
        "postgres-lease-row",
    ],
)
def test_postgres_is_sent_the_same(name: str, stack: ExitStack) -> None:
    def serve() -> Served:
        server = Rows() if name == "postgres-lease-row" else FakePostgres()
        stack.callback(server.stop)

        def sent() -> list[Any]:
            asked = [sql for sql in server.queries if not re.search(CONNECTING, sql)]
            alike = r"(?<=lock_timeout = )\d+|(?<=')[0-9a-f]{16}(?=')"
            return [[re.sub(alike, "", sql) for sql in asked]]

        return [server.address], sent

    by_recipe, bare = both(name, serve)
    assert len(bare[0]) == 2
    assert bare == by_recipe


@pytest.mark.parametrize("name", ["mariadb-get-lock", "mariadb-for-update"])
def test_mariadb_is_sent_the_same(name: str, stack: ExitStack) -> None:
    def serve() -> Served:
        server = FakeMariadb()
        stack.callback(server.stop)

        def sent() -> list[Any]:
            asked = [sql for sql in server.queries if re.search("LOCK|lockbench_locks|MIT$", sql)]
            begun = [sql for sql in asked if "SHOW" not in sql]
            return [[re.sub(r"(?<=, )[\d.]+(?=\))", "", sql) for sql in begun]]

        return [server.address], sent

    by_recipe, bare = both(name, serve)
    assert bare == by_recipe
    assert any(bare)


class Noting(Gateway):
    """It notes what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def effect(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((path, body))
        return super().effect(path, body)


@pytest.mark.parametrize("name", ["etcd", "etcd-no-recheck"])
def test_etcd_is_sent_the_same(name: str, stack: ExitStack) -> None:
    def serve() -> Served:
        server = Noting()
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        return [server.address], lambda: [
            [(path, _without_lease(body)) for path, body in server.asked]
        ]

    by_recipe, bare = both(name, serve)
    assert [path for path, _ in bare[0]] == ["kv/txn", "lease/grant", "lease/revoke"]
    assert bare == by_recipe


CONSUL = [name for name in recipes() if systems()[name].family == "consul"]


@pytest.mark.parametrize("name", CONSUL)
def test_consul_is_sent_the_same(name: str, stack: ExitStack) -> None:
    def serve() -> Served:
        server = FakeConsul()
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        return [server.address], lambda: [
            [f"{path} {_without_session(str(said))}" for path, said in server.asked]
        ]

    by_recipe, bare = both(name, serve)
    assert len(bare[0]) == 5
    assert bare == by_recipe


NATS = [name for name in recipes() if systems()[name].family == "nats"]


@pytest.mark.parametrize("name", NATS)
def test_nats_is_sent_the_same(name: str, stack: ExitStack) -> None:
    def serve() -> Served:
        server = stack.enter_context(FakeNats())
        server.store(KEY, None)
        return [server.address], lambda: [
            [re.sub(r"'[1-9]\d*'", "…", str(asked[:3])) for asked in server.asked]
        ]

    by_recipe, bare = both(name, serve)
    assert len(bare[0]) == 4
    assert bare == by_recipe


def _without_session(said: str) -> str:
    """A session is called anew each time, and so is the hold."""
    return re.sub(r"'release': '\d+'|^[0-9a-f]{16}$", "…", said)


def _without_lease(body: dict[str, Any]) -> str:
    """A lease is called anew each time, and so is the key under it and what it holds."""
    text = json.dumps(body, sort_keys=True)
    for compared in body.get("compare", []):
        text = text.replace(compared["key"], "NAME")
    text = re.sub(r'"value": "[\w+/=]+"', '"value": "TOKEN"', text)
    return re.sub(r'"(ID|lease)": \d+', r'"\1": 0', text)
