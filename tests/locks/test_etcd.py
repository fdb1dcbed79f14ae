"""etcd's recipe against a scripted gateway: every error, and what it must mean."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lockbench.locks.base import (
    Acquired,
    Address,
    Denied,
    Granted,
    NoObserver,
    NotHeld,
    Released,
    Unknown,
)
from lockbench.locks.etcd.mutex import RENEW_AFTER, SYSTEM, Etcd
from tests.eventually import eventually, one_of
from tests.locks import asking
from tests.locks.asking import PATIENT_S, meanwhile, said

SHORT_S = 0.5  # to wait for a gateway that will not answer
LEASE_GONE = (404, '{"code":5, "message":"etcdserver: requested lease not found"}')
SILENT = (0, "silent")
CLOSE = (0, "close")
Action = tuple[int, str]

ACTIONS: dict[str, Action] = {
    "ConnectionTimeoutError": SILENT,
    "ConnectionFailedError": CLOSE,
    "InternalServerError": (500, '{"message":"oops"}'),
    "Etcd3Exception": (400, '{"message":"bad"}'),
    "JSONDecodeError": (200, "<html>"),
    "lease not found": LEASE_GONE,
}


class Gateway(ThreadingHTTPServer):
    """Enough of etcd for one key prefix. ``on(path, *actions)`` replaces the next answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.planned: dict[str, deque[Action]] = {}
        self.paths: list[str] = []
        self.leases: set[int] = set()
        self.created: dict[str, tuple[int, int]] = {}  # key → create revision, lease
        self.revision = 1
        self.ttl_s = 60  # long enough that no renewal comes between
        self.mutex = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.server_port)

    def on(self, path: str, *actions: Action) -> None:
        self.planned.setdefault(path, deque()).extend(actions)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are what these tests are about."""

    def effect(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        with self.mutex:
            return getattr(self, "_" + path.replace("/", "_"))(body)  # type: ignore[no-any-return]

    def _lease_grant(self, body: dict[str, Any]) -> dict[str, Any]:
        lease = 1000 + len(self.leases) + self.revision
        self.leases.add(lease)
        return {"ID": str(lease), "TTL": str(max(self.ttl_s, body["TTL"]))}

    def _lease_keepalive(self, body: dict[str, Any]) -> dict[str, Any]:
        alive = body["ID"] in self.leases
        return {"result": {"ID": body["ID"], **({"TTL": str(self.ttl_s)} if alive else {})}}

    def _lease_revoke(self, body: dict[str, Any]) -> dict[str, Any]:
        self.leases.remove(body["ID"])
        self.created = {k: v for k, v in self.created.items() if v[1] != body["ID"]}
        return {}

    def _kv_txn(self, body: dict[str, Any]) -> dict[str, Any]:
        compare = body["compare"][0]
        revision, _ = self.created.get(compare["key"], (0, 0))
        succeeded = revision == compare["create_revision"]
        responses: list[dict[str, Any]] = []
        for request in body.get("success" if succeeded else "failure", []):
            if put := request.get("request_put"):
                self.revision += 1
                self.created[put["key"]] = (self.revision, put["lease"])
                responses.append({"response_put": {}})
            else:
                responses.append({"response_range": self._range(request["request_range"])})
        return {
            "header": {"revision": str(self.revision)},
            "succeeded": succeeded,
            "responses": responses,
        }

    def _range(self, request: dict[str, Any]) -> dict[str, Any]:
        first, limit = b64decode(request["key"]), int(request.get("max_create_revision", 1 << 60))
        past = b64decode(request.get("range_end", b64encode(first + b"\0")))
        found = [
            {"key": key, "create_revision": str(revision)}
            for key, (revision, _) in self.created.items()
            if first <= b64decode(key) < past and revision <= limit
        ]
        found.sort(key=lambda kv: -int(kv["create_revision"]))
        return {"kvs": found[: request.get("limit", 100)]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Gateway

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        path = self.path.removeprefix("/v3/")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.paths.append(path)
        planned = self.server.planned.get(path)
        status, text = planned.popleft() if planned else (200, "")
        if (status, text) == SILENT:
            time.sleep(3 * SHORT_S)
        if status == 0:
            self.close_connection = True
            return
        if not text and path == "watch":
            self._watch(body["create_request"])
            return
        if not text:
            try:
                text = json.dumps(self.server.effect(path, body))
            except KeyError:
                status, text = LEASE_GONE
        self._answer(status, text.encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, request: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunk({"result": {"created": True}})
        while request["key"] in self.server.created:
            time.sleep(0.002)
        self._chunk({"result": {"events": [{"type": "DELETE"}]}})

    def _chunk(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


@contextmanager
def serving() -> Iterator[Gateway]:
    server = Gateway()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with serving() as server:
        yield server


def connect(gateway: Gateway, *, silent: bool = False) -> Etcd:
    timeout_s = SHORT_S if silent else PATIENT_S
    return Etcd([gateway.address], timeout_s=timeout_s, ttl_s=2, observer=NoObserver())


take = partial(asking.take, ttl_s=2.0)
granted = partial(asking.granted, ttl_s=2.0)


@pytest.mark.parametrize("row", SYSTEM.outcomes)
def test_every_error_means_what_the_table_says(row: str) -> None:
    path, _, case = row.partition(": ")
    error, _, then = case.partition(", ")
    silent = ACTIONS[error] == SILENT

    def play(_: int) -> str:
        with serving() as gateway:
            with closing(connect(gateway)) as holder:
                hold = granted(holder).hold if path == "lease/revoke" else None
            with closing(connect(gateway, silent=silent)) as lock:
                gateway.on(path, ACTIONS[error])
                if then == "not revoked":
                    gateway.on("lease/revoke", CLOSE)
                return said(lock.release(hold) if hold else take(lock))

    wanted = SYSTEM.outcomes[row]
    assert one_of(play, wanted.__eq__, 5 if silent else 1) == wanted


def test_nobody_before_it_takes_two_requests(gateway: Gateway) -> None:
    with closing(connect(gateway)) as lock:
        granted(lock)
    assert gateway.paths == ["lease/grant", "kv/txn"]


def test_a_refused_try_leaves_nothing(gateway: Gateway) -> None:
    with closing(connect(gateway)) as lock:
        hold = granted(lock).hold
        assert take(lock) == Denied("held")
        assert len(gateway.created) == 1
        assert len(gateway.leases) == 1
        assert isinstance(lock.release(hold), Released)
        assert not gateway.created


def test_a_lost_answer_is_made_good_at_the_next_endpoint(gateway: Gateway) -> None:
    """The write had run; writing again finds it and does not queue twice."""
    with closing(connect(gateway)) as lock:
        original = Gateway.effect

        def run_and_lose(self: Gateway, path: str, body: dict[str, Any]) -> dict[str, Any]:
            answer = original(self, path, body)
            if path == "kv/txn" and len(self.paths) < 3:
                raise ConnectionError  # the connection ends without an answer
            return answer

        gateway.effect = run_and_lose.__get__(gateway)  # type: ignore[method-assign]
        grant = granted(lock, 20)
        assert len(gateway.created) == 1
        assert grant.fence == gateway.revision


def test_waiting_goes_on_at_the_next_endpoint(gateway: Gateway) -> None:
    gateway.on("lease/grant", CLOSE, (503, '{"message":"etcdserver: no leader"}'))
    gateway.on("kv/txn", CLOSE, (503, '{"message":"etcdserver: leader changed"}'))
    with closing(connect(gateway)) as lock:
        granted(lock, 20)


def test_the_waiter_is_told_when_its_predecessor_goes(gateway: Gateway) -> None:
    with closing(connect(gateway)) as holder, closing(connect(gateway)) as waiter:
        first = granted(holder)
        with meanwhile(lambda: granted(waiter, 20)) as waiting:
            eventually(lambda: "watch" in gateway.paths)
            holder.release(first.hold)
        second = waiting.result()
        assert first.fence is not None
        assert second.fence is not None
        assert second.fence > first.fence
        assert gateway.paths.count("watch") == 1


def test_a_wait_that_ran_out_leaves_nothing(gateway: Gateway) -> None:
    with closing(connect(gateway)) as holder, closing(connect(gateway)) as waiter:
        granted(holder)
        began = time.monotonic()
        answer = take(waiter, 0.2)
        assert said(answer) == "Denied: gave-up"
        # What would end it, if nothing did, is that its lease has to be renewed.
        assert 0.2 <= time.monotonic() - began < RENEW_AFTER * gateway.ttl_s
        assert len(gateway.leases) == 1


def test_a_long_wait_renews_the_lease() -> None:
    def play(_: int) -> tuple[int, Acquired]:
        with serving() as gateway, closing(connect(gateway)) as holder:
            gateway.ttl_s = 1
            first = granted(holder)
            began_ns = time.monotonic_ns()
            with (
                closing(connect(gateway)) as waiter,
                meanwhile(lambda: take(waiter, 20, ttl_s=0.5)) as waiting,
            ):
                eventually(lambda: gateway.paths.count("lease/keepalive") >= 2)
                holder.release(first.hold)
            return began_ns, waiting.result()

    began_ns, answer = one_of(play, lambda played: isinstance(played[1], Granted))
    assert isinstance(answer, Granted), answer
    assert answer.sent_ns > began_ns + 300_000_000
    assert answer.valid_until_ns == answer.sent_ns + 1_000_000_000


def test_a_lease_that_ran_out_while_waiting_is_no_grant(gateway: Gateway) -> None:
    with closing(connect(gateway)) as holder, closing(connect(gateway)) as waiter:
        first = granted(holder)
        with meanwhile(lambda: take(waiter, 20)) as waiting:
            eventually(lambda: "watch" in gateway.paths)
            with gateway.mutex:
                gateway.leases.clear()
                gateway.created.clear()
        assert waiting.result() == Denied("gave-up: the lease ran out while waiting")
        assert isinstance(holder.release(first.hold), NotHeld)


@pytest.mark.parametrize(
    "broken",
    [
        (200, '{"result":{"canceled":true,"compact_revision":"9"}}'),
        (200, "<html>"),
        (503, '{"message":"etcdserver: no leader"}'),
        CLOSE,
        SILENT,
    ],
    ids=["cancelled", "nonsense", "unavailable", "closed", "silent"],
)
def test_a_broken_watch_is_not_a_deletion(broken: Action) -> None:
    silent = broken == SILENT

    def play(_: int) -> tuple[str, int]:
        with (
            serving() as gateway,
            closing(connect(gateway)) as holder,
            closing(connect(gateway, silent=silent)) as waiter,
        ):
            granted(holder)
            gateway.on("watch", broken)
            return said(take(waiter, 0.3)), len(gateway.leases)

    wanted = ("Denied: gave-up", 1)
    assert one_of(play, wanted.__eq__, 5 if silent else 1) == wanted


def test_a_lease_of_unknown_fate_is_revoked_before_the_next_acquire(gateway: Gateway) -> None:
    with closing(connect(gateway)) as lock:
        hold = granted(lock).hold
        gateway.on("lease/revoke", CLOSE)
        assert isinstance(lock.release(hold), Unknown)
        granted(lock)
        assert len(gateway.leases) == 1


def test_extending_is_a_keepalive(gateway: Gateway) -> None:
    with closing(connect(gateway)) as lock:
        hold = granted(lock).hold
        again = lock.extend(hold, 2)
        assert isinstance(again, Granted)
        assert again.valid_until_ns == again.sent_ns + 60_000_000_000
        assert isinstance(lock.release(hold), Released)
        assert isinstance(lock.extend(hold, 2), NotHeld)
        gateway.on("lease/keepalive", CLOSE)
        assert isinstance(lock.extend(hold, 2), Unknown)
