"""What each recipe sends for an uncontended acquire and its release, sent with nothing around it:
what ``perf.recipe`` measures a recipe's CPU against.

The client library and the class of the connection are the recipe's. The bare commands are sent
after the recipe was used once on the same servers, which leaves there what both need: the scripts,
the table, the parent node.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import hiredis
import pymysql
from kazoo.client import KazooClient
from pg8000.native import Connection

from lockbench.clusters.mariadb.protocol import DATABASE as MARIADB_DATABASE
from lockbench.clusters.mariadb.protocol import USER as MARIADB_USER
from lockbench.clusters.nats import bucket
from lockbench.clusters.nats.protocol import Session as NatsSession
from lockbench.clusters.postgres.protocol import DATABASE, USER
from lockbench.locks.bare import KEY, TIMEOUT_S, TOKEN, TTL_S, WAIT_S
from lockbench.locks.base import Address, System, new_hold_id, token_of
from lockbench.locks.consul import client as consul
from lockbench.locks.etcd.gateway import client_of, encoded
from lockbench.locks.etcd.mutex import by_creation
from lockbench.locks.redis.cluster_link import ClusterLink
from lockbench.locks.redis.link import Link
from lockbench.locks.redis.sentinel_link import SentinelLink
from lockbench.locks.registry import find, systems
from lockbench.locks.zookeeper.mutex import ROOT

READ_BYTES: Final = 65536

Cycle = Callable[[str], None]  # an acquire and a release under this token
# Connects to these nodes, to say this; the stack closes the connections.
Speak = Callable[[Sequence[Address], Sequence[str], ExitStack], Cycle]


def recipes() -> dict[str, list[str]]:
    """Every lock that declares what it sends, those of one topology together → the locks that
    differ from it in their servers alone."""
    found: dict[object, list[System]] = {}
    for system in sorted(systems().values(), key=lambda system: system.topologies):
        if system.bare:
            found.setdefault(system.connect, []).append(system)
    grouped = (sorted(alike, key=lambda system: system.variant) for alike in found.values())
    return {first.name: [one.name for one in others] for first, *others in grouped}


@contextmanager
def bare_cycle(name: str, nodes: Sequence[Address]) -> Iterator[Callable[[], None]]:
    """Connected for the time of the context: sends the bare commands of this recipe once."""
    with ExitStack() as stack:
        parts = [
            SPEAKERS[part.speaks](nodes[part.nodes], part.says, stack) for part in find(name).bare
        ]

        def cycle() -> None:
            token = token_of(new_hold_id())
            for part in parts:
                part(token)

        yield cycle


# The speakers.


def _words(commands: Sequence[str]) -> list[list[str]]:
    """Each command's; that for the token is ``TOKEN`` itself."""
    return [[TOKEN if word == TOKEN else word for word in said.split()] for said in commands]


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
    commands: Sequence[str],
    stack: ExitStack,
    connect: Callable[[Sequence[Address]], Link] = _alone,
) -> Cycle:
    """One command after the other, over redis-py's connection."""
    link = connect(nodes)
    stack.callback(link.close)
    link.open()

    split = _words(commands)

    def cycle(token: str) -> None:
        for words in split:
            link.call(*[token if word is TOKEN else word for word in words])

    return cycle


def each_redis(nodes: Sequence[Address], commands: Sequence[str], stack: ExitStack) -> Cycle:
    """Each command to all nodes, then all answers; plain sockets and hiredis, as Redlock has."""
    connections = [socket.create_connection(node, timeout=TIMEOUT_S) for node in nodes]
    links = [(stack.enter_context(made), hiredis.Reader()) for made in connections]

    split = _words(commands)

    def cycle(token: str) -> None:
        for words in split:
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
    parent = f"{ROOT}/{KEY}"

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
                    {"request_range": {**by_creation(prefix), "limit": 2}},
                ],
                "failure": [{"request_range": {"key": name, "keys_only": True}}],
            },
        )
        post("lease/revoke", {"ID": lease})

    return cycle


def consul_session(nodes: Sequence[Address], says: Sequence[str], stack: ExitStack) -> Cycle:
    """A session, the key acquired by it and read; the key released, and the session destroyed."""
    key, behavior, lock_delay_s = says
    client = consul.client_of(nodes[0], TIMEOUT_S)
    stack.callback(consul.close, client)

    def cycle(token: str) -> None:
        session = consul.create_session(
            client, ttl_s=TTL_S, lock_delay_s=float(lock_delay_s), behavior=behavior
        )
        client.kv.put(key, token, acquire=session)
        client.kv.get(key)
        client.kv.put(key, "", release=session)
        client.session.destroy(session)

    return cycle


def nats_bucket(nodes: Sequence[Address], says: Sequence[str], stack: ExitStack) -> Cycle:
    """The key made, which a marker of it refuses, and read; then the publishes that are said."""
    key, *publishes = says
    session = stack.enter_context(NatsSession(nodes[0], TIMEOUT_S))
    ttl = {bucket.TTL: f"{TTL_S:g}s"}

    def cycle(token: str) -> None:
        session.within(TIMEOUT_S)
        value = token.encode()
        with suppress(bucket.Refused):
            bucket.put(session, key, value, {bucket.EXPECTED: "0", **ttl})
        marker = bucket.look(session, key)
        revision = marker.revision if marker else 0
        for said in publishes:
            expected = {bucket.EXPECTED: str(revision)} if said.startswith("expecting ") else {}
            if said.endswith("delete"):
                bucket.put(session, key, b"", {**expected, **bucket.DELETE})
            else:
                revision = bucket.put(session, key, value, {**expected, **ttl})

    return cycle


def postgres(nodes: Sequence[Address], statements: Sequence[str], stack: ExitStack) -> Cycle:
    """One statement after the other, over pg8000's connection to the first node, the primary."""
    line = stack.enter_context(socket.create_connection(nodes[0], timeout=TIMEOUT_S + WAIT_S))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection: Any = Connection(USER, database=DATABASE, sock=line, ssl_context=False)
    stack.callback(connection.close)

    def cycle(token: str) -> None:
        for statement in statements:
            connection.run(statement.replace(TOKEN, token))

    return cycle


def mariadb(nodes: Sequence[Address], statements: Sequence[str], stack: ExitStack) -> Cycle:
    """One statement after the other, over PyMySQL's connection to the first node."""
    host, port = nodes[0]
    connection = pymysql.connect(
        host=host, port=port, user=MARIADB_USER, database=MARIADB_DATABASE, ssl_disabled=True
    )
    stack.callback(connection.close)

    def cycle(_: str) -> None:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                cursor.fetchall()

    return cycle


# By the name that ``lockbench.locks.bare.Bare`` has for each.
SPEAKERS: Final[Mapping[str, Speak]] = MappingProxyType(
    {
        "redis": one_redis,
        "sentinel": partial(one_redis, connect=_primary),
        "redis-cluster": partial(one_redis, connect=_owner),
        "redlock": each_redis,
        "zookeeper": zookeeper_queue,
        "etcd": etcd_lease,
        "consul": consul_session,
        "nats": nats_bucket,
        "postgres": postgres,
        "mariadb": mariadb,
    }
)
