"""What recipes are measured against: every recipe has bare commands, and they are what it sends.

ZooKeeper's are not compared here: there is no server for kazoo to talk to without containers.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

import pytest

import locks
from bench.perf_bare import BARE, EXCEPTIONS, bare_cycle
from bench.perf_recipe import connected
from locks import redis_fair, redis_pubsub
from locks.base import Address
from locks.registry import collected, systems
from tests.locks import test_redis_cluster, test_redis_sentinel
from tests.locks.fakes import FakeRedis
from tests.locks.test_etcd import Gateway
from tests.locks.test_postgres import FakePostgres

PREPARING = (b"PING", b"SCRIPT", b"ROLE", b"SENTINEL", b"CLUSTER")
CONNECTING = r"pg_is_in_recovery|to_regclass"
GRANTS = {redis_fair.TAKE.sha.encode(): 0, redis_pubsub.TAKE.sha.encode(): "OK"}

Sent = Callable[[], list[Any]]  # what the servers were sent since the last call


def recipes() -> list[str]:
    """Every lock that is declared in a file of its own commands."""
    names = [module.name for module in pkgutil.iter_modules(locks.__path__)]
    own = [name for name in names if not name.startswith("library")]
    return list(collected(importlib.import_module(f"locks.{name}") for name in own))


def test_every_recipe_has_bare_commands_or_a_reason_to_have_none() -> None:
    assert len(recipes()) > 20
    assert sorted([*BARE, *EXCEPTIONS]) == recipes()
    assert all(reason.strip() for reason in EXCEPTIONS.values())


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
            server.log.clear()
        return found

    return sent


def _masked(word: bytes) -> bytes:
    """Without what differs between two holds."""
    return re.sub(rb"^[0-9a-f]{16}(\.\d+)?$", b"TOKEN", word)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def served(name: str, stack: ExitStack) -> tuple[Sequence[Address], Sent]:
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


def twice(name: str, nodes: Sequence[Address], sent: Sent) -> tuple[list[Any], list[Any]]:
    """What a hold of the recipe sends, and what the bare cycle does, each sorted: two parts of a
    bare cycle come one after the other."""
    with bare_cycle(name, nodes) as bare:
        bare()
    by_bare = sent()
    with closing(connected(name, nodes)):
        by_recipe = sent()
        # Nobody waits for a minority of Redlock's nodes, so their logs may be behind.
        until = time.monotonic() + 2.0
        while sum(map(len, by_recipe)) < sum(map(len, by_bare)) and time.monotonic() < until:
            time.sleep(0.005)
            by_recipe = [log + more for log, more in zip(by_recipe, sent(), strict=True)]
    return [sorted(log) for log in by_recipe], [sorted(log) for log in by_bare]


ON_REDIS = [name for name in BARE if systems()[name].family == "redis"]


@pytest.mark.parametrize("name", ON_REDIS)
def test_a_redis_is_sent_the_same(name: str, stack: ExitStack) -> None:
    by_recipe, bare = twice(name, *served(name, stack))
    assert any(bare)
    assert bare == by_recipe


@pytest.mark.parametrize("name", ["postgres-advisory", "postgres-for-update"])
def test_postgres_is_sent_the_same(name: str, stack: ExitStack) -> None:
    server = FakePostgres()
    stack.callback(server.stop)

    def sent() -> list[Any]:
        asked = [sql for sql in server.queries if not re.search(CONNECTING, sql)]
        found = [re.sub(r"lock_timeout = \d+", "lock_timeout", sql) for sql in asked]
        server.queries.clear()
        return [found]

    by_recipe, bare = twice(name, [server.address], sent)
    assert len(bare[0]) == 2
    assert bare == by_recipe


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
    server = Noting()
    stack.callback(server.server_close)
    stack.callback(server.shutdown)

    def sent() -> list[Any]:
        found = [(path, _without_lease(body)) for path, body in server.asked]
        server.asked.clear()
        return [found]

    by_recipe, bare = twice(name, [server.address], sent)
    assert [path for path, _ in bare[0]] == ["kv/txn", "lease/grant", "lease/revoke"]
    assert bare == by_recipe


def _without_lease(body: dict[str, Any]) -> str:
    """A lease is called anew each time, and so is the key under it."""
    text = json.dumps(body, sort_keys=True)
    for compared in body.get("compare", []):
        text = text.replace(compared["key"], "NAME")
    return re.sub(r'"(ID|lease)": \d+', r'"\1": 0', text)
