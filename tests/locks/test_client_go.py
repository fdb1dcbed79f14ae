"""client-go's leader election against a scripted API server: what each answer must mean."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from lockbench.clusters.kubernetes.servers import LEASES, TOKEN
from lockbench.locks import registry
from lockbench.locks.base import Acquired, Address, Granted, Lock, Unknown
from lockbench.locks.shared import sidecar
from tests.elsewhere.servers import certificates
from tests.eventually import eventually
from tests.locks.asking import PATIENT_S, Told, granted, said, take

NAME: Final = "client-go-lease"
LEASE_S: Final = 9.0  # renewed each 1.2 s; an answer is waited for 3 s
SHORT_S: Final = 3.0  # renewed each 0.4 s, for 2 s; an answer is waited for 1 s
WAITED_S: Final = 0.3
MAGIC: Final = b"k8s\0"
TRANSITIONS: Final = 7  # of a Lease that somebody wrote

# What the server does in place of what it is asked. DONE: that, and it does not answer. GATED: that
# and an answer, when the gate opens.
REFUSED: Final = (409, "Conflict")
GONE: Final = (404, "NotFound")
FAILED: Final = (500, "InternalError")
SILENT: Final = (0, "silent")
DONE: Final = (0, "done")
GATED: Final = (0, "gated")
Action = tuple[int, str]

pytestmark = pytest.mark.docker


def fields(message: bytes) -> dict[int, Any]:
    """The last value of each field of a Protobuf message: its bytes, or a number."""
    found: dict[int, Any] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = number()
        value: Any = number()
        if tag & 7 == 2:  # of that length
            at, value = at + value, message[at : at + value]
        found[tag >> 3] = value
    return found


def lease_of(sent: bytes) -> dict[str, Any]:
    """A Lease as client-go sends it, Protobuf in an envelope of Kubernetes; its times left out."""
    assert sent.startswith(MAGIC)
    lease = fields(fields(sent.removeprefix(MAGIC))[2])
    metadata, spec = fields(lease[1]), fields(lease[2])
    return {
        "metadata": {"name": metadata[1].decode(), "resourceVersion": metadata[6].decode()},
        "spec": {
            "holderIdentity": spec[1].decode(),
            "leaseDurationSeconds": spec[2],
            "leaseTransitions": spec[5],
        },
    }


class Api(ThreadingHTTPServer):
    """Enough of the API server for Leases. ``on(method, *actions)`` replaces its next answers."""

    daemon_threads = True

    def __init__(self, keys: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys / "server.pem", keys / "server.key")
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        self.planned: dict[str, deque[Action]] = {}
        self.log: list[tuple[str, str]] = []  # whether asked or answered, and the method
        self.leases: dict[str, dict[str, Any]] = {}
        self.version = 1
        self.mutex = threading.Lock()
        self.gate = threading.Event()
        self.over = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.server_port)

    def on(self, method: str, *actions: Action) -> None:
        self.planned.setdefault(method, deque()).extend(actions)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are what these tests are about."""

    def effect(self, method: str, name: str, body: dict[str, Any]) -> tuple[Action, Any]:
        """What is asked, and the object it came to."""
        with self.mutex:
            there = self.leases.get(name)
            if method == "GET":
                return ((200, ""), there) if there else (GONE, None)
            if method == "POST" and there:
                return (409, "AlreadyExists"), None
            if method == "PUT" and not there:
                return GONE, None
            meant = body["metadata"]["resourceVersion"]
            if there and meant != there["metadata"]["resourceVersion"]:
                return REFUSED, None
            return (200, ""), self._kept(name, body)

    def lead(self, key: str, holder: str) -> None:
        """Somebody writes the Lease, or its holder gives it back."""
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": 60,
            "leaseTransitions": TRANSITIONS,
        }
        with self.mutex:
            self._kept(f"k{key}", {"metadata": {"name": f"k{key}"}, "spec": spec})

    def _kept(self, name: str, lease: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.leases[name] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease}
        return self.leases[name]

    def spec(self, key: str) -> Any:
        with self.mutex:
            return self.leases[f"k{key}"]["spec"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Api

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self._serve({})

    def do_POST(self) -> None:
        self._serve(lease_of(self.rfile.read(int(self.headers["Content-Length"]))))

    def do_PUT(self) -> None:
        self.do_POST()

    def _serve(self, body: dict[str, Any]) -> None:
        api, method = self.server, self.command
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        path = self.path.partition("?")[0]
        assert path.startswith(LEASES)
        name = path.removeprefix(LEASES).strip("/") or body["metadata"]["name"]
        api.log.append(("asked", method))
        planned = api.planned.get(method)
        action = planned.popleft() if planned else (200, "")
        if action == GATED:
            api.gate.wait(PATIENT_S)
        lease = None
        if action in {(200, ""), DONE, GATED}:
            done, lease = api.effect(method, name, body)
            action = DONE if action == DONE else done
        status, reason = action
        if status == 0:
            api.over.wait(2 * PATIENT_S)
            self.close_connection = True
            return
        failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        answer = json.dumps(lease or {**failure, "reason": reason, "code": status}).encode()
        api.log.append(("answered", method))
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with certificates(tmp_path_factory.mktemp("keys")) as folder:
        yield folder


@pytest.fixture
def api(keys: Path) -> Iterator[Api]:
    made = Api(keys)
    yield made
    made.over.set()
    made.gate.set()
    made.shutdown()
    made.server_close()


@pytest.fixture(scope="module", autouse=True)
def _sidecar() -> Iterator[None]:
    prepare = registry.find(NAME).prepare
    assert prepare is not None
    prepare()
    yield
    sidecar.close_shared()


@pytest.fixture
def client(api: Api) -> Iterator[Callable[..., Lock]]:
    made: list[Lock] = []

    def connect(told: Told | None = None, ttl_s: float = SHORT_S) -> Lock:
        made.append(
            registry.find(NAME).connect(
                [api.address], timeout_s=PATIENT_S, ttl_s=ttl_s, observer=told or Told()
            )
        )
        return made[-1]

    yield connect
    api.over.set()
    for lock in made:
        lock.close()


@pytest.mark.parametrize(
    ("holder", "method", "action", "means"),
    [
        (None, "GET", (200, ""), "Granted"),
        (None, "GET", SILENT, "Denied: no-effect"),
        (None, "GET", FAILED, "Denied: no-effect"),
        (None, "POST", (409, "AlreadyExists"), "Denied: held"),
        (None, "POST", SILENT, "Unknown"),
        (None, "POST", DONE, "Unknown"),
        (None, "POST", FAILED, "Unknown"),
        ("", "GET", (200, ""), "Granted"),
        ("", "PUT", REFUSED, "Denied: held"),
        ("", "PUT", GONE, "Denied: held"),
        ("", "PUT", SILENT, "Unknown"),
        ("", "PUT", DONE, "Unknown"),
        ("", "PUT", FAILED, "Unknown"),
        ("another", "GET", (200, ""), "Denied: held"),
    ],
)
def test_what_one_try_comes_to(
    api: Api,
    client: Callable[..., Lock],
    holder: str | None,
    method: str,
    action: Action,
    means: str,
) -> None:
    """``holder``: None where there is no Lease, empty where it was given back."""
    if holder is not None:
        api.lead("k", holder)
    api.on(method, action)
    answer = take(client(), ttl_s=SHORT_S)
    assert said(answer) == means, answer


def test_a_wait_that_runs_out_is_given_up(api: Api, client: Callable[..., Lock]) -> None:
    api.lead("k", "another")
    answer = take(client(), WAITED_S, ttl_s=SHORT_S)
    assert said(answer) == "Denied: gave-up"
    assert api.spec("k")["holderIdentity"] == "another"


def test_a_write_without_an_answer_that_took_effect_is_found_by_the_next_look(
    api: Api, client: Callable[..., Lock]
) -> None:
    api.on("POST", DONE)
    granted(client(), PATIENT_S, ttl_s=SHORT_S)


def test_a_write_without_an_answer_is_not_forgotten_for_one_that_was_refused(
    api: Api, client: Callable[..., Lock]
) -> None:
    """It may take effect later still."""
    api.lead("k", "")
    api.on("PUT", SILENT, *[REFUSED] * 20)
    answer = take(client(), SHORT_S, ttl_s=SHORT_S)
    assert isinstance(answer, Unknown), answer
    assert api.planned["PUT"][0] == REFUSED
    assert len(api.planned["PUT"]) < 20, "none was refused after it"


def test_a_lease_is_promised_for_the_seconds_that_its_record_has(
    api: Api, client: Callable[..., Lock]
) -> None:
    lock = client(ttl_s=2.9)
    answer = granted(lock, ttl_s=2.9)
    spec = api.spec("k")
    assert spec["leaseDurationSeconds"] == 2
    assert answer.valid_until_ns == answer.sent_ns + 2 * 10**9
    assert said(lock.release(answer.hold)) == "Released"
    assert api.spec("k")["holderIdentity"] == ""


def held(api: Api, lock: Lock, told: Told, ttl_s: float = LEASE_S) -> Granted:
    """A grant whose first renewal was answered, so that the next one is a RetryPeriod away."""
    answer = granted(lock, ttl_s=ttl_s)
    eventually(lambda: told.until_ns, "it is not renewed")
    return answer


@pytest.mark.parametrize(
    ("method", "action", "means"),
    [
        ("PUT", (200, ""), "Released"),
        ("PUT", REFUSED, "Unknown"),
        ("PUT", GONE, "NotHeld"),
        ("PUT", FAILED, "Unknown"),
        ("PUT", SILENT, "Unknown"),
        ("PUT", DONE, "Unknown"),
        ("GET", GONE, "NotHeld"),
        ("GET", FAILED, "Unknown"),
        ("GET", SILENT, "Unknown"),
    ],
)
def test_what_a_release_comes_to(
    api: Api, client: Callable[..., Lock], method: str, action: Action, means: str
) -> None:
    told = Told()
    lock = client(told, LEASE_S)
    answer = held(api, lock, told)
    api.on(method, action)
    assert said(lock.release(answer.hold)) == means
    assert not told.losses


def test_a_release_waits_for_a_renewal_that_is_on_its_way(
    api: Api, client: Callable[..., Lock]
) -> None:
    """Else the renewal may be served between the two requests of the release."""
    lock = client(ttl_s=LEASE_S)
    api.on("PUT", GATED)
    answer = granted(lock, ttl_s=LEASE_S)
    eventually(lambda: ("asked", "PUT") in api.log, "it is not renewed")
    before = len(api.log)
    threading.Timer(WAITED_S, api.gate.set).start()
    assert said(lock.release(answer.hold)) == "Released"
    assert api.log[before] == ("answered", "PUT")
    assert api.spec("k")["holderIdentity"] == ""


def test_a_leader_that_has_seen_another_is_told_and_gives_nothing_back(
    api: Api, client: Callable[..., Lock]
) -> None:
    told = Told()
    lock = client(told)
    answer = held(api, lock, told, SHORT_S)
    api.lead("k", "another")
    eventually(lambda: told.losses, "it is not told")
    assert said(lock.release(answer.hold)) == "NotHeld"
    assert api.spec("k")["holderIdentity"] == "another"


def test_what_was_given_back_when_it_was_lost_is_not_released_later(
    api: Api, client: Callable[..., Lock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run gives a lease back by itself when it could not renew it. Another may have led since."""
    told, effect = Told(), api.effect
    lock = client(told)
    answer = held(api, lock, told, SHORT_S)

    def gives_back(method: str, name: str, body: Any) -> Any:
        renews = method == "PUT" and body["spec"]["holderIdentity"]
        return (FAILED, None) if renews else effect(method, name, body)

    monkeypatch.setattr(api, "effect", gives_back)
    eventually(lambda: told.losses, "it is not told")
    assert api.spec("k")["holderIdentity"] == ""
    asked = len(api.log)
    assert said(lock.release(answer.hold)) == "NotHeld"
    assert len(api.log) == asked, "nothing is sent for it"


def test_a_leader_that_has_not_looked_gives_back_what_another_has_taken(
    api: Api, client: Callable[..., Lock]
) -> None:
    """Its defect, as declared: ``release`` looks, and decides by what was known before."""
    told = Told()
    lock = client(told, LEASE_S)
    answer = held(api, lock, told)
    api.lead("k", "another")
    assert said(lock.release(answer.hold)) == "Released"
    assert api.spec("k")["holderIdentity"] == ""


def test_a_leader_leads_on_when_another_has_led_and_given_it_back(
    api: Api, client: Callable[..., Lock]
) -> None:
    """As declared: its user is not told that another has led meanwhile."""
    told = Told()
    held(api, client(told), told, SHORT_S)
    api.lead("k", "")
    eventually(lambda: api.spec("k")["leaseTransitions"] == TRANSITIONS + 1, "it is not taken anew")
    renewed = len(told.until_ns)
    eventually(lambda: len(told.until_ns) > renewed, "it is not renewed")
    assert not told.losses


def test_a_leader_whose_server_is_silent_is_told_later_than_its_lease(
    api: Api, client: Callable[..., Lock]
) -> None:
    """As declared: Run tries to give the lease back before it calls OnStoppedLeading."""
    told = Told()
    answer = held(api, client(told), told, SHORT_S)
    for method in ("PUT", "GET"):
        api.on(method, *[SILENT] * 20)
    eventually(lambda: told.losses, "it is not told")
    assert time.monotonic_ns() > told.newest_ns(answer)


def test_a_client_that_is_given_two_keys_holds_both(api: Api, client: Callable[..., Lock]) -> None:
    lock = client()
    answers: list[Acquired] = [take(lock, ttl_s=SHORT_S, key=key) for key in ("k", "K", "k-4b")]
    assert [said(answer) for answer in answers] == ["Granted"] * 3
    assert sorted(api.leases) == ["k-4b", "kk", "kk-2d4b"]
