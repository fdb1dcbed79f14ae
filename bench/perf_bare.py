"""What each recipe sends for an uncontended acquire and its release, sent with nothing around it:
what ``bench.perf_recipe`` measures a recipe's CPU against.

The client library and the class of the connection are the recipe's. The bare commands are sent
after the recipe was used once on the same servers, which leaves there what both need: the scripts,
the table, the parent node.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import hiredis
from kazoo.client import KazooClient
from pg8000.native import Connection, literal

from clusters.pgwire import DATABASE, USER
from locks import (
    etcd,
    hybrid_redlock_else_zookeeper,
    redis_fair,
    redis_fence,
    redis_pubsub,
    redis_reentrant,
    redis_sentinel_wait,
    redlock_fence,
    zookeeper,
    zookeeper_read_write,
)
from locks.base import Address, new_hold_id, token_of
from locks.cluster_link import ClusterLink
from locks.etcd_gateway import client_of, encoded
from locks.postgres_recipe import milliseconds, number
from locks.redis_link import DELETE_OWN, Link, Script
from locks.sentinel_link import SentinelLink

KEY: Final = "perf"
TTL_S, TIMEOUT_S, WAIT_S = 5.0, 1.0, 1.0
READ_BYTES: Final = 65536
TOKEN: Final = object()  # in what is said: where the token of the cycle goes

Cycle = Callable[[str], None]  # an acquire and a release under this token
# Connects to these nodes, to say this; the stack closes the connections.
Speak = Callable[[Sequence[Address], Sequence[Any], ExitStack], Cycle]


class Part(NamedTuple):
    """Who sends what to which of the nodes. What ``says`` holds is the speaker's affair."""

    speak: Speak
    says: tuple[Any, ...]
    nodes: slice = slice(None)


@contextmanager
def bare_cycle(name: str, nodes: Sequence[Address]) -> Iterator[Callable[[], None]]:
    """Connected for the time of the context: sends the bare commands of this recipe once."""
    with ExitStack() as stack:
        parts = [part.speak(nodes[part.nodes], part.says, stack) for part in BARE[name]]

        def cycle() -> None:
            token = token_of(new_hold_id())
            for part in parts:
                part(token)

        yield cycle


# The speakers.


def _alone(nodes: Sequence[Address]) -> Link:
    return Link(nodes[0], timeout_s=TIMEOUT_S)


def _primary(nodes: Sequence[Address]) -> Link:
    return SentinelLink(nodes, timeout_s=TIMEOUT_S)


def _owner(nodes: Sequence[Address]) -> Link:
    link = ClusterLink(nodes, timeout_s=TIMEOUT_S)
    link.aim(KEY)
    return link


def one_redis(
    nodes: Sequence[Address],
    commands: Sequence[Any],
    stack: ExitStack,
    connect: Callable[[Sequence[Address]], Link] = _alone,
) -> Cycle:
    """One command after the other, over redis-py's connection."""
    link = connect(nodes)
    stack.callback(link.close)
    link.open()

    def cycle(token: str) -> None:
        for words in commands:
            link.call(*[token if word is TOKEN else word for word in words])

    return cycle


def each_redis(nodes: Sequence[Address], commands: Sequence[Any], stack: ExitStack) -> Cycle:
    """Each command to all nodes, then all answers; plain sockets and hiredis, as Redlock has."""
    connections = [socket.create_connection(node, timeout=TIMEOUT_S) for node in nodes]
    links = [(stack.enter_context(made), hiredis.Reader()) for made in connections]

    def cycle(token: str) -> None:
        for words in commands:
            filled: Any = tuple([token if word is TOKEN else word for word in words])
            packed = hiredis.pack_command(filled)
            for connection, _ in links:
                connection.sendall(packed)
            for connection, reader in links:
                while (answer := reader.gets()) is False:
                    reader.feed(connection.recv(READ_BYTES))
                if isinstance(answer, hiredis.ReplyError):
                    raise answer

    return cycle


def zookeeper_queue(nodes: Sequence[Address], marks: Sequence[str], stack: ExitStack) -> Cycle:
    """Create and list, together, and delete. The mark is what the name of the node says."""
    from kazoo.handlers.gevent import SequentialGeventHandler

    (mark,) = marks
    hosts = ",".join(f"{node.host}:{node.port}" for node in nodes)
    client = KazooClient(hosts, timeout=TTL_S, handler=SequentialGeventHandler())
    client.start()
    stack.callback(client.close)
    stack.callback(client.stop)
    parent = f"{zookeeper.ROOT}/{KEY}"

    def cycle(token: str) -> None:
        made = client.create_async(
            f"{parent}/{token}{mark}", ephemeral=True, sequence=True, include_data=True
        )
        listed = client.get_children_async(parent)
        path, _ = made.get()
        listed.get()
        client.delete_async(path).get()

    return cycle


def etcd_lease(nodes: Sequence[Address], prefixes: Sequence[str], stack: ExitStack) -> Cycle:
    """Grant of a lease, the transaction that writes the key, revocation."""
    (prefix,) = prefixes
    client = client_of(nodes[0], TIMEOUT_S)
    stack.callback(client.session.close)

    def post(path: str, body: dict[str, Any]) -> Any:
        return client.post(client.get_url(path), json=body)

    def cycle(token: str) -> None:
        lease = int(post("lease/grant", {"TTL": int(TTL_S)})["ID"])
        name = encoded(f"{prefix}{lease:x}")
        post(
            "kv/txn",
            {
                "compare": [{"key": name, "target": "CREATE", "create_revision": 0}],
                "success": [
                    {"request_put": {"key": name, "value": encoded(token), "lease": lease}},
                    {"request_range": {**etcd.by_creation(prefix), "limit": 2}},
                ],
                "failure": [{"request_range": {"key": name, "keys_only": True}}],
            },
        )
        post("lease/revoke", {"ID": lease})

    return cycle


def postgres(nodes: Sequence[Address], statements: Sequence[str], stack: ExitStack) -> Cycle:
    """One statement after the other, over pg8000's connection to the first node, the primary."""
    line = stack.enter_context(socket.create_connection(nodes[0], timeout=TIMEOUT_S + WAIT_S))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection: Any = Connection(USER, database=DATABASE, sock=line, ssl_context=False)
    stack.callback(connection.close)

    def cycle(_: str) -> None:
        for statement in statements:
            connection.run(statement)

    return cycle


# What they say.

TTL_MS: Final = int(TTL_S * 1e3)


def _script(script: Script, *words: Any) -> tuple[Any, ...]:
    return ("EVALSHA", script.sha, script.keys, *words)


_SET = ("SET", KEY, TOKEN, "NX", "PX", TTL_MS)
_SETNX = ("SETNX", KEY, TOKEN)
_DEL = ("DEL", KEY)
_DELETE_OWN = _script(DELETE_OWN, KEY, TOKEN)
_INCR = ("INCR", f"{KEY}:fence")
_WAIT_MS = int(1e3 * redis_sentinel_wait.WAIT_SHARE * TIMEOUT_S)
_FAIR = (KEY, f"{KEY}:queue", f"{KEY}:seen", TOKEN, TTL_MS, redis_fair.PATIENCE_MS, 1)
_LIMIT = f"lock_timeout = {milliseconds(WAIT_S)}"
_ROW = f"SELECT FROM lockbench_locks WHERE key = {literal(KEY)} FOR UPDATE"
_LOCK_ROW = f"SELECT nextval('lockbench_fences') FROM ({_ROW}) AS locked"  # noqa: S608

_TOKEN = (Part(one_redis, (_SET, _DELETE_OWN)),)
_REDIS_NODES = slice(hybrid_redlock_else_zookeeper.REDIS_NODES)
_ZOOKEEPER_NODES = slice(hybrid_redlock_else_zookeeper.REDIS_NODES, None)
_QUEUE = (Part(zookeeper_queue, (zookeeper.MARK,)),)
_LEASE = (Part(etcd_lease, (f"{etcd.PREFIX}/{KEY}/",)),)

BARE: Final[dict[str, tuple[Part, ...]]] = {
    "redis-setnx": (Part(one_redis, (_SETNX, _DEL)),),
    "redis-setnx-expire": (Part(one_redis, (_SETNX, ("PEXPIRE", KEY, TTL_MS), _DEL)),),
    "redis-no-owner": (Part(one_redis, (_SET, _DEL)),),
    "redis-token": _TOKEN,
    "redis-watchdog": _TOKEN,  # the first renewal is due long after such a hold
    "redis-renew-no-owner": _TOKEN,
    "redis-reentrant": (
        Part(
            one_redis,
            (
                _script(redis_reentrant.TAKE, KEY, TOKEN, TTL_MS),
                _script(redis_reentrant.FREE, KEY, TOKEN),
            ),
        ),
    ),
    "redis-fair": (Part(one_redis, (_script(redis_fair.TAKE, *_FAIR), _DELETE_OWN)),),
    "redis-pubsub": (
        Part(
            one_redis,
            (
                _script(redis_pubsub.TAKE, KEY, TOKEN, TTL_MS),
                _script(redis_pubsub.FREE, KEY, TOKEN, f"{KEY}:freed"),
            ),
        ),
    ),
    "redis-fence": (
        Part(
            one_redis, (_script(redis_fence.TAKE, KEY, f"{KEY}:fence", TOKEN, TTL_MS), _DELETE_OWN)
        ),
    ),
    "redis-fence-incr-first": (Part(one_redis, (_INCR, _SET, _DELETE_OWN)),),
    "redis-sentinel": (Part(partial(one_redis, connect=_primary), (_SET, _DELETE_OWN)),),
    "redis-sentinel-wait": (
        Part(
            partial(one_redis, connect=_primary),
            (_SET, ("WAIT", redis_sentinel_wait.REPLICAS, _WAIT_MS), _DELETE_OWN),
        ),
    ),
    "redis-cluster": (Part(partial(one_redis, connect=_owner), (_SET, _DELETE_OWN)),),
    "redlock": (Part(each_redis, (_SET, _DELETE_OWN)),),
    "redlock-fence": (
        Part(each_redis, (_SET, _DELETE_OWN)),
        Part(each_redis, (_INCR,), slice(redlock_fence.COUNTER, redlock_fence.COUNTER + 1)),
    ),
    "zookeeper": _QUEUE,
    "zookeeper-herd": _QUEUE,
    "zookeeper-read-write": (Part(zookeeper_queue, (zookeeper_read_write.WRITE,)),),
    "zookeeper-semaphore": _QUEUE,
    "etcd": _LEASE,
    "etcd-no-recheck": _LEASE,
    "postgres-advisory": (
        Part(
            postgres,
            (
                f"SET {_LIMIT}; SELECT pg_advisory_lock({number(KEY)})",
                f"SELECT pg_advisory_unlock({number(KEY)})",
            ),
        ),
    ),
    "postgres-for-update": (
        Part(
            postgres,
            (
                f"BEGIN; SET LOCAL {_LIMIT}; {_LOCK_ROW}",
                "COMMIT",
            ),
        ),
    ),
    "hybrid-redis-confirmed-by-zookeeper": (
        Part(each_redis, (_SET, _DELETE_OWN), _REDIS_NODES),
        Part(zookeeper_queue, (zookeeper.MARK,), _ZOOKEEPER_NODES),
    ),
    # Nobody is refused by the first of the two while the key is free.
    "hybrid-redlock-else-zookeeper": (Part(each_redis, (_SET, _DELETE_OWN), _REDIS_NODES),),
}

_SERVERS_ONLY: Final = "the recipe is redlock's; only the servers are set up differently"
# Recipes without bare commands of their own, and why. Libraries (``locks/library_*``) are no
# recipes: what is around their commands is not ours, and ``bench.perf_sidecar`` measures the way.
EXCEPTIONS: Final[dict[str, str]] = {
    "redlock-delayed-restart": _SERVERS_ONLY,
    "redlock-fsync": _SERVERS_ONLY,
}
