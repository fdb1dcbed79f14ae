"""A key of etcd. The guard is the condition of a transaction, which the leader decides in the order
of all writes.

The record is etcd's own revisions: nothing compacts them, and a watch from the first one tells all.
"""

from __future__ import annotations

import base64
import inspect
import secrets
from collections.abc import Callable
from typing import Any, Final

from lockbench.clusters.wire import PROBE_FAILURES, Http
from lockbench.locks.base import Unknown
from lockbench.locks.etcd.gateway import client_of, encoded, errors
from lockbench.locks.etcd.mutex import PREFIX as LOCKS
from lockbench.stores.base import (
    PREFIX,
    UNGUARDED,
    UNGUARDED_PROMISES,
    Applied,
    Away,
    Entry,
    Guard,
    Outcome,
    Refused,
    Seen,
    Store,
    Where,
    Write,
    entry,
)

RECORD_LIMIT_S: Final = 20.0
Txn = dict[str, Any]


def if_newer(key: str, value: str, fence: int) -> Txn:
    """``POST /v3/kv/txn``; ``encoded`` is base64. etcd compares text, so a fence has 20 digits. The
    key ``…/fence`` is put once before, as twenty zeros."""
    newest, mine = encoded(f"{key}/fence"), encoded(f"{fence:020d}")
    return {
        "compare": [{"key": newest, "target": "VALUE", "result": "LESS", "value": mine}],
        "success": [
            {"request_put": {"key": newest, "value": mine}},
            {"request_put": {"key": encoded(key), "value": encoded(value), "prev_kv": True}},
        ],
    }


def if_unchanged(key: str, value: str, mod_revision: int) -> Txn:
    """``POST /v3/kv/txn``; ``encoded`` is base64. ``mod_revision`` is that of the read."""
    return {
        "compare": [{"key": encoded(key), "target": "MOD", "mod_revision": mod_revision}],
        "success": [
            {"request_put": {"key": encoded(key), "value": encoded(value), "prev_kv": True}}
        ],
    }


def if_held(key: str, value: str, lock_key: str, create_revision: int) -> Txn:
    """``POST /v3/kv/txn``; ``encoded`` is base64. ``lock_key`` is the holder's own key in the queue
    of the lock, ``create_revision`` its fence."""
    return {
        "compare": [
            {"key": encoded(lock_key), "target": "CREATE", "create_revision": create_revision}
        ],
        "success": [
            {"request_put": {"key": encoded(key), "value": encoded(value), "prev_kv": True}}
        ],
    }


def plain(key: str, value: str) -> Txn:
    """``POST /v3/kv/txn``; ``encoded`` is base64."""
    return {
        "success": [
            {"request_put": {"key": encoded(key), "value": encoded(value), "prev_kv": True}}
        ]
    }


class Etcd:
    """One client, which goes on to the next member after an error."""

    def __init__(self, where: Where, guard: Guard, recorded: bool) -> None:
        self._where = where
        self._guard = guard
        self._clients = [client_of(node, where.timeout_s) for node in where.nodes]
        self._at = 0

    def read(self, key: str) -> Seen:
        """Makes the key where there is none, as version 0 of ours."""
        try:
            found = self._kv(_named(key))
            if found is None:
                self._post("kv/txn", _made(_named(key)))
                found = self._kv(_named(key))
        except errors() as error:
            raise Away(str(error)) from error
        assert found is not None
        return Seen(int(found["version"]) - 1, int(found["mod_revision"]))

    def write(self, write: Write) -> Outcome:
        try:
            answer = self._post("kv/txn", self._txn(write))
        except errors() as error:
            return Unknown(f"{type(error).__name__}: {error}")
        if not answer.get("succeeded"):
            return Refused()
        before = answer["responses"][-1]["response_put"].get("prev_kv", {})
        return Applied(int(before.get("version", 0)))

    def written(self) -> list[Entry]:
        said = "no member was asked"
        for node in self._where.nodes:
            try:
                return self._revisions(node)
            except (*PROBE_FAILURES, KeyError, TypeError, ValueError) as error:
                said = f"{node.host}:{node.port}: {error}"
        raise Away(f"no member tells its revisions; {said}")

    def close(self) -> None:
        for client in self._clients:
            client.session.close()

    def _txn(self, write: Write) -> Txn:
        name = _named(write.key)
        conditions: dict[str, Callable[[], Txn]] = {
            "newer": lambda: if_newer(name, write.value, write.fence or 0),
            "unchanged": lambda: if_unchanged(name, write.value, int(write.seen.mark)),
            "held": lambda: if_held(
                name, write.value, f"{LOCKS}/{write.key}/{write.handle.lease:x}", write.fence or 0
            ),
            "any": lambda: plain(name, write.value),
        }
        return conditions[self._guard.rule]()

    def _kv(self, name: str) -> Any:
        found = self._post("kv/range", {"key": encoded(name)}).get("kvs", [])
        return found[0] if found else None

    def _post(self, path: str, body: Txn) -> Any:
        client = self._clients[self._at]
        try:
            return client.post(client.get_url(f"/{path}"), json=body)
        except errors():
            self._at = (self._at + 1) % len(self._clients)
            raise

    def _revisions(self, node: tuple[str, int]) -> list[Entry]:
        last = f"{PREFIX}/.last/{secrets.token_hex(8)}"
        whole = {"key": encoded(f"{PREFIX}/"), "range_end": encoded(f"{PREFIX}0")}
        found: list[Entry] = []
        with Http(node, RECORD_LIMIT_S) as http:
            http.post("/v3/kv/put", {"key": encoded(last), "value": ""})
            for message in http.stream(
                "/v3/watch", {"create_request": {**whole, "start_revision": 1}}
            ):
                result = message["result"]
                if result.get("canceled"):
                    raise ValueError(f"the watch of all revisions ended: {result}")
                for event in result.get("events", []):
                    kv = event["kv"]
                    name = base64.b64decode(kv["key"]).decode()
                    if name == last:
                        return sorted(found, key=lambda one: (one.key, one.place))
                    value = base64.b64decode(kv.get("value", "")).decode()
                    if value.startswith("{"):
                        key = name.removeprefix(f"{PREFIX}/")
                        place, version = int(kv["mod_revision"]), int(kv["version"])
                        found.append(entry(key, place, version - 1, value))
        raise ValueError("the watch of all revisions ended before the last one")


def _named(key: str) -> str:
    return f"{PREFIX}/{key}"


def _made(name: str) -> Txn:
    """Makes a key and its fence, unless they are there."""
    puts = ((name, ""), (f"{name}/fence", f"{0:020d}"))
    return {
        "compare": [{"key": encoded(name), "target": "CREATE", "create_revision": 0}],
        "success": [{"request_put": {"key": encoded(k), "value": encoded(v)}} for k, v in puts],
    }


TXN_DOC = (
    "https://etcd.io/docs/v3.6/learning/api/#transaction: 'A transaction is an atomic If/Then/Else "
    "construct over the key-value store'"
)
OWN_KEY_DOC = (
    "https://etcd.io/docs/v3.4/dev-guide/api_concurrency_reference_v3/: 'This key can be used in "
    "conjunction with transactions to safely ensure updates to etcd only occur while holding lock "
    "ownership'"
)

STORE = Store(
    name="etcd",
    summary="a key of etcd",
    topologies=("etcd",),
    connect=Etcd,
    record="etcd's revisions",
    guards=(
        Guard(
            "fence",
            "newer",
            "python",
            inspect.getsource(if_newer).rstrip(),
            "A write is applied if its fence is above every fence applied before.",
            TXN_DOC,
        ),
        Guard(
            "compare-and-set",
            "unchanged",
            "python",
            inspect.getsource(if_unchanged).rstrip(),
            "A write is applied if the key still has the mod revision that it was made from; needs "
            "no fence.",
            TXN_DOC,
        ),
        Guard(
            "own-key",
            "held",
            "python",
            inspect.getsource(if_held).rstrip(),
            "A write is applied if the holder's own key of the lock is still there: the lock and "
            "what it guards are decided together.",
            OWN_KEY_DOC,
            locks=("etcd",),
        ),
        Guard(
            UNGUARDED,
            "any",
            "python",
            inspect.getsource(plain).rstrip(),
            UNGUARDED_PROMISES,
            TXN_DOC,
        ),
    ),
)
