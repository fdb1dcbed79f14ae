"""The adapter, against a server that answers as Toxiproxy does, or as badly as it can."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from clusters import toxiproxy
from clusters.base import ClusterError
from clusters.links import ProxyCut, Toxic, toxics
from clusters.toxiproxy import LinkError, LinkServer, Listen


class Fake(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, Any]] = []
        self.connections: set[int] = set()
        self.answers: dict[str, tuple[int, Any]] = {}
        self.hang = threading.Event()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Fake

    def answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.server.asked.append((self.command, self.path, body))
        self.server.connections.add(self.client_address[1])
        if self.path == "/hang":
            self.server.hang.wait(10)
        status, found = self.server.answers.get(self.path, (200, {}))
        if self.path == "/populate" and isinstance(body, list) and not found:
            found = {"proxies": body}
        content = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the names that the base class looks for

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving(name: str) -> Iterator[tuple[Fake, LinkServer]]:
    fake = Fake()
    thread = threading.Thread(target=fake.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    links = LinkServer(name, "127.0.0.1", fake.server_port)
    try:
        yield fake, links
    finally:
        links.close()
        fake.hang.set()
        fake.shutdown()
        thread.join()
        fake.server_close()


PEER = Listen("peer-2", "127.0.0.1:1", "10.0.0.2:1")
CLEAN = {"peer-2": {"enabled": True, "toxics": []}}


def test_toxics_are_always_certain_and_in_order() -> None:
    with serving("a") as (fake, links):
        links.populate([PEER])
        links.apply(ProxyCut(1, "peer-2", toxics("drop")))
        sent = [body for _, path, body in fake.asked if path == "/proxies/peer-2/toxics"]
        assert [body["name"] for body in sent] == [toxic.name for toxic in toxics("drop")]
        assert {body["toxicity"] for body in sent} == {1.0}
        assert not any("jitter" in body["attributes"] for body in sent)


def test_two_servers_in_one_process_do_not_mix_and_keep_their_connections() -> None:
    with serving("a") as (one, a), serving("b") as (two, b):
        for links in (a, b):
            links.populate([PEER])
        together = threading.Barrier(2)

        def add(links: LinkServer, count: int) -> None:
            together.wait()
            for number in range(count):
                links.add("peer-2", Toxic(f"t{number}", "upstream", {}))

        threads = [threading.Thread(target=add, args=(x, n)) for x, n in ((a, 30), (b, 20))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(one.asked), len(two.asked)) == (31, 21)
        assert len(one.connections) == len(two.connections) == 1


@pytest.mark.parametrize("status", [400, 404, 409, 500, 503])
def test_no_failure_is_swallowed(status: int) -> None:
    with serving("pod-7") as (fake, links):
        links.populate([PEER])
        fake.answers["/proxies/peer-2/toxics"] = (status, {"error": "no such thing"})
        with pytest.raises(LinkError, match=r"pod-7.*no such thing"):
            links.add("peer-2", Toxic("timeout", "upstream", {"timeout": 0}))
        fake.answers["/reset"] = (status, {"error": "no such thing"})
        with pytest.raises(ClusterError):
            links.heal()


def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toxiproxy, "CALL_TIMEOUT_S", 0.1)
    with serving("pod-7") as (_, links), pytest.raises(LinkError, match="does not answer"):
        links._call(lambda: toxiproxy._Transport.get("/hang"))


def test_nobody_there_is_an_error_after_the_limit() -> None:
    links = LinkServer("pod-7", "127.0.0.1", 1)
    with pytest.raises(LinkError, match="pod-7: Toxiproxy does not answer"):
        links.wait_until_up(0.05)
    links.close()


def test_a_link_that_does_not_listen_is_an_error() -> None:
    with serving("a") as (fake, links):
        fake.answers["/populate"] = (
            201,
            {"proxies": [{"name": "peer-2", "listen": "", "upstream": "", "enabled": False}]},
        )
        with pytest.raises(LinkError, match=r"do not listen: \['peer-2', 'peer-3'\]"):
            links.populate([PEER, Listen("peer-3", "", "")])


def test_a_heal_that_leaves_something_is_an_error() -> None:
    with serving("a") as (fake, links):
        links.populate([PEER])
        fake.answers["/proxies"] = (200, CLEAN)
        links.heal()
        left = {"type": "timeout", "name": "timeout_upstream"}
        fake.answers["/proxies"] = (200, {"peer-2": {"enabled": False, "toxics": [left]}})
        with pytest.raises(LinkError, match="peer-2: disabled; peer-2: timeout_upstream"):
            links.heal()
        fake.answers["/proxies"] = (200, {})
        with pytest.raises(LinkError, match="peer-2: missing"):
            links.heal()


def test_a_stall_is_let_go_before_it_is_removed() -> None:
    with serving("a") as (fake, links):
        links.populate([PEER])
        held = [{"type": t.type, "name": t.name} for t in toxics("stall")]
        fake.answers["/proxies"] = (200, {"peer-2": {"enabled": True, "toxics": held}})
        with pytest.raises(LinkError):
            links.heal()  # the fake forgets nothing
        paths = [path.rpartition("/")[2] for method, path, _ in fake.asked if method == "POST"]
        assert paths == [
            "populate",
            "latency_upstream",
            "latency_downstream",
            "slow_close_upstream",
            "slow_close_downstream",
            "reset",
        ]


def test_an_unknown_link_is_named() -> None:
    with (
        serving("pod-7") as (_, links),
        pytest.raises(LinkError, match="pod-7 has no link called nix"),
    ):
        links.apply(ProxyCut(1, "nix", [], disable=True))
