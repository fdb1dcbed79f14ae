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

Sent = Callable[[], list[Any]]  # what the servers were sent
Served = tuple[Sequence[Address], Sent]


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


def same(by_recipe: list[Any], by_bare: list[Any], *, most: bool) -> bool:
    """``most``: a minority of the servers may have been sent nothing by the recipe."""
    if not most:
        return by_recipe == by_bare
    alike = [mine == bare for mine, bare in zip(by_recipe, by_bare, strict=True)]
    others = [mine for mine, is_alike in zip(by_recipe, alike, strict=True) if not is_alike]
    return not any(others) and 2 * sum(alike) > len(alike)


def twice(
    name: str, serve: Callable[[], Served], *, most: bool = False
) -> tuple[list[Any], list[Any]]:
    """What a hold of the recipe sends, and what the bare cycle does, each to servers of its own and
    sorted: two parts of a bare cycle come one after the other. Waits until they are the ``same``,
    for a while."""
    (nodes, by_recipe), (others, by_bare) = serve(), serve()
    with bare_cycle(name, others) as bare, closing(connected(name, nodes)):
        bare()
        until = time.monotonic() + 5.0
        while not same(*(found := (_sorted(by_recipe), _sorted(by_bare))), most=most):
            if time.monotonic() > until:
                break
            time.sleep(0.005)
    return found


def _sorted(sent: Sent) -> list[Any]:
    return [sorted(log) for log in sent()]


ON_REDIS = [name for name in BARE if systems()[name].family == "redis"]


@pytest.mark.parametrize("name", ON_REDIS)
def test_a_redis_is_sent_the_same(name: str, stack: ExitStack) -> None:
    # Redlock's first acquire needs most of its nodes, and has connected to no more in time.
    most = systems()[name].topologies[0] == "redlock"
    by_recipe, bare = twice(name, lambda: served(name, stack), most=most)
    assert any(bare)
    assert same(by_recipe, bare, most=most), (by_recipe, bare)


@pytest.mark.parametrize("name", ["postgres-advisory", "postgres-for-update"])
def test_postgres_is_sent_the_same(name: str, stack: ExitStack) -> None:
    def serve() -> Served:
        server = FakePostgres()
        stack.callback(server.stop)

        def sent() -> list[Any]:
            asked = [sql for sql in server.queries if not re.search(CONNECTING, sql)]
            return [[re.sub(r"lock_timeout = \d+", "lock_timeout", sql) for sql in asked]]

        return [server.address], sent

    by_recipe, bare = twice(name, serve)
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
    def serve() -> Served:
        server = Noting()
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        return [server.address], lambda: [
            [(path, _without_lease(body)) for path, body in server.asked]
        ]

    by_recipe, bare = twice(name, serve)
    assert [path for path, _ in bare[0]] == ["kv/txn", "lease/grant", "lease/revoke"]
    assert bare == by_recipe


def _without_lease(body: dict[str, Any]) -> str:
    """A lease is called anew each time, and so is the key under it and what it holds."""
    text = json.dumps(body, sort_keys=True)
    for compared in body.get("compare", []):
        text = text.replace(compared["key"], "NAME")
    text = re.sub(r'"value": "[\w+/=]+"', '"value": "TOKEN"', text)
    return re.sub(r'"(ID|lease)": \d+', r'"\1": 0', text)
