"""Servers' own records, read from bytes: Redis' append-only file, ZooKeeper's transaction log; and
etcd's revisions, from a member that is played."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from pathlib import Path
from typing import Any
from zlib import adler32

import pytest

from lockbench.clusters.base import Change, ClusterPlan, ServerLog
from lockbench.clusters.etcd.cluster import EtcdCluster
from lockbench.clusters.redis import append_only_file as aof
from lockbench.clusters.redis.nodes import RedisNodes
from lockbench.clusters.wire import ProbeFailed
from lockbench.clusters.zookeeper import transaction_log as txnlog
from tests.clusters.json_server import answering

# --- Redis ---


class Unstarted(RedisNodes):
    """Its node is killed and its server was never there."""

    def _server_log(self, node: int, *, lost: bool = False) -> ServerLog:
        return ServerLog(f"redis-{node}", "", (), lost)

    def _replace(self, node: int) -> None:
        self._killed.add(node)


@pytest.mark.parametrize(("keeps_records", "lost"), [(True, [True, True, False]), (False, [False])])
def test_records_of_wiped_nodes_are_kept_where_somebody_reads_them(
    keeps_records: bool, lost: list[bool], tmp_path: Path
) -> None:
    plan = ClusterPlan("redis", 1, 1, "run", 3.0, str(tmp_path), keeps_records=keeps_records)
    cluster = Unstarted(plan)
    cluster._killed.add(1)
    for _ in range(2):
        cluster.wipe([1])
    assert [log.lost for log in cluster.server_logs()] == lost


INCR = "/data/appendonlydir/appendonly.aof.1.incr.aof"


def command(*words: str) -> bytes:
    parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
    return "".join(parts).encode()


def redis(*commands: bytes) -> list[Change]:
    return aof.changes({INCR: b"".join(commands), "/data/x.manifest": b"file"})


def test_what_took_effect_in_redis() -> None:
    found = redis(
        command("SELECT", "0"),
        command("SET", "k", "t1", "PXAT", "5000"),
        command("MULTI"),
        command("incr", "f"),
        command("PEXPIREAT", "k", "6000"),
        command("EXEC"),
        command("DEL", "k", "other"),
        command("setnx", "k", "t2"),
        command("SET", "k", "t3"),
        command("PERSIST", "k"),
        command("UNLINK", "k"),
    )
    assert found == [
        Change(1, "made", "k", "t1", 5000),
        Change(4, "renewed", "k", "t1", 6000),
        Change(6, "deleted", "k"),
        Change(7, "made", "k", "t2"),
        Change(8, "made", "k", "t3"),
        Change(9, "renewed", "k", "t3"),
        Change(10, "expired", "k"),
    ]


def test_a_term_may_be_named_like_an_option() -> None:
    assert redis(command("SET", "PXAT", "PXAT", "KEEPTTL")) == [Change(0, "made", "PXAT", "PXAT")]


def test_a_command_that_was_being_written_is_left_out() -> None:
    whole = command("SET", "k", "t1")
    torn = command("SET", "k", "t2")
    for cut in range(1, len(torn)):
        assert redis(whole, torn[:-cut]) == [Change(0, "made", "k", "t1")]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"/data/appendonlydir/appendonly.aof.2.incr.aof": b""},
        {INCR: b"", "/data/appendonlydir/appendonly.aof.2.incr.aof": b""},
        {INCR: b"nonsense\r\n"},
        {INCR: b"*x\r\n"},
    ],
)
def test_a_file_that_does_not_tell_all_is_refused(files: dict[str, bytes]) -> None:
    with pytest.raises(aof.UnreadableFile):
        aof.changes(files)


# --- ZooKeeper ---

LOG = "/data/version-2/log."
HEADER = b"ZKLG" + struct.pack(">iq", 2, 0)


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def made(path: str, *, ephemeral: bool) -> bytes:
    acl = struct.pack(">ii", 1, 31) + text("world") + text("anyone")
    return text(path) + text("v") + acl + (b"\1" if ephemeral else b"\0") + struct.pack(">i", 1)


def transaction(zxid: int, type_: int, body: bytes = b"", session: int = 7) -> bytes:
    record = struct.pack(">qiqqi", session, 0, zxid, 1000, type_) + body
    return struct.pack(">qi", adler32(record), len(record)) + record + b"B"


def zookeeper(*transactions: bytes, first: int = 1) -> list[Change]:
    return txnlog.changes({f"{LOG}{first:x}": HEADER + b"".join(transactions) + bytes(4096)})


def test_what_took_effect_in_zookeeper() -> None:
    found = zookeeper(
        transaction(1, -10, struct.pack(">i", 4000)),
        transaction(2, txnlog.CREATE, made("/l", ephemeral=False)),
        transaction(3, txnlog.CREATE_2, made("/l/a", ephemeral=True)),
        transaction(4, txnlog.CREATE, made("/l/b", ephemeral=True)),
        transaction(5, txnlog.DELETE, text("/l/a")),
        transaction(6, -1, struct.pack(">i", -101)),
        transaction(7, txnlog.CLOSE),
        transaction(8, txnlog.CLOSE, session=9),
    )
    assert found == [
        Change(2, "made", "/l", "v"),
        Change(3, "made", "/l/a", "v"),
        Change(4, "made", "/l/b", "v"),
        Change(5, "deleted", "/l/a"),
        Change(7, "session", "/l/b"),
    ]


def test_several_changes_in_one_transaction() -> None:
    parts = [(txnlog.CREATE, made("/m", ephemeral=True)), (txnlog.DELETE, text("/m"))]
    body = struct.pack(">i", 2)
    body += b"".join(struct.pack(">ii", kind, len(part)) + part for kind, part in parts)
    found = zookeeper(transaction(1, txnlog.MULTI, body))
    assert [change.how for change in found] == ["made", "deleted"]


def test_a_new_epoch_and_files_of_their_own() -> None:
    second = 1 << 32 | 1
    files = {
        f"{LOG}{second:x}": HEADER + transaction(second, txnlog.DELETE, text("/a")),
        f"{LOG}1": HEADER + transaction(1, txnlog.CREATE, made("/a", ephemeral=False)),
        "/data/version-2/snapshot.0": b"other",
    }
    assert [change.how for change in txnlog.changes(files)] == ["made", "deleted"]


def test_a_gap_is_no_record() -> None:
    create = made("/a", ephemeral=False)
    for zxid in (3, 1 << 32 | 2):
        with pytest.raises(txnlog.UnreadableLog, match="nothing between"):
            zookeeper(transaction(1, txnlog.CREATE, create), transaction(zxid, -1))


def test_a_torn_transaction_is_left_out() -> None:
    whole = transaction(1, txnlog.CREATE, made("/a", ephemeral=False))
    torn = bytearray(transaction(2, txnlog.DELETE, text("/a")))
    torn[-3] ^= 1
    assert len(zookeeper(whole, bytes(torn))) == 1
    assert len(zookeeper(whole, bytes(torn)[:-9])) == 1
    # A server that was killed wrote nothing behind it.
    with pytest.raises(txnlog.UnreadableLog, match="damaged at byte"):
        zookeeper(whole, bytes(torn), transaction(3, txnlog.DELETE, text("/b")))
    with pytest.raises(txnlog.UnreadableLog):
        txnlog.changes({f"{LOG}1": b"no log at all"})


# --- etcd ---


def event(revision: int, key: str, value: str | None, created: int = 0) -> dict[str, Any]:
    entry = {"key": b64encode(key.encode()).decode(), "mod_revision": str(revision)}
    if value is None:
        return {"type": "DELETE", "kv": entry}
    entry["create_revision"] = str(created or revision)
    return {"kv": {**entry, "value": b64encode(value.encode()).decode()}}


def revisions(*messages: dict[str, Any]) -> list[Change]:
    """What a member tells that answers every put, and a watch with these results and the put that
    came last."""
    last: list[str] = []

    def answer(_: str, path: str, body: Any) -> tuple[int, object]:
        if path.endswith("put"):
            last.append(body["key"])
            return 200, {}
        put = {"kv": {"key": last[-1], "mod_revision": "99", "create_revision": "99"}}
        results = [{"result": message} for message in (*messages, {"events": [put]})]
        return 200, "".join(json.dumps(result) + "\n" for result in results).encode()

    cluster = EtcdCluster(ClusterPlan("etcd", 3, 1, "run", 3.0, "logs"))
    with answering(answer) as (port, _):
        return cluster._revisions(("127.0.0.1", port))


def test_what_took_effect_in_etcd() -> None:
    found = revisions(
        {"created": True},
        {"events": [event(2, "a", "t"), event(3, "a", "u", created=2)]},
        {"events": [event(4, "a", None)]},
    )
    assert found[:-1] == [
        Change(2, "made", "a", "t"),
        Change(3, "renewed", "a", "u"),
        Change(4, "deleted", "a"),
    ]


def test_what_is_written_behind_the_last_revision_is_not_waited_for() -> None:
    """A lease may run out before the watch has caught up: its deletion comes with the mark."""

    def answer(_: str, path: str, body: Any) -> tuple[int, object]:
        if path.endswith("put"):
            last.append(body["key"])
            return 200, {}
        put = {"kv": {"key": last[-1], "mod_revision": "9", "create_revision": "9"}}
        events = [event(8, "a", "t"), put, event(10, "a", None)]
        return 200, json.dumps({"result": {"events": events}}).encode() + b"\n"

    last: list[str] = []
    cluster = EtcdCluster(ClusterPlan("etcd", 3, 1, "run", 3.0, "logs"))
    with answering(answer) as (port, _):
        found = cluster._revisions(("127.0.0.1", port))
    assert [change.place for change in found] == [8, 9]


def test_revisions_that_were_compacted_are_no_record() -> None:
    with pytest.raises(ProbeFailed, match="ended"):
        revisions({"created": True}, {"canceled": True, "compact_revision": "7"})
