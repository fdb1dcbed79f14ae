"""The adapter, against a server that answers as Toxiproxy does, or as badly as it can."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from clusters.base import ClusterError, Shape
from clusters.pods import toxiproxy
from clusters.pods.links import Direction, Link, ProxyCut, base, shaped
from clusters.pods.toxiproxy import LinkError, LinkServer, Listen

UP: Direction = "upstream"


class Fake(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, Any]] = []
        self.connections: set[int] = set()
        self.answers: dict[str, tuple[int, Any]] = {}
        self.links: dict[str, Any] = {}
        self.hang = threading.Event()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Fake

    def answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.server.asked.append((self.command, self.path, body))
        self.server.connections.add(self.client_address[1])
        if self.path == "/version" and not self.server.answers:
            self.server.hang.wait(10)
        status, found = self.server.answers.get(self.path, (200, {}))
        if self.path == "/populate" and isinstance(body, list) and not found:
            found = {"proxies": body}
        if self.path == "/links" and body and not found:
            self.server.links |= {name: _state(order) for name, order in body.items()}
            found = self.server.links
        content = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the names that the base class looks for

    def log_message(self, *_: object) -> None: ...


def _state(order: dict[str, Any]) -> dict[str, Any]:
    """A proxy as Toxiproxy shows it after an order."""
    streams = {way: state for way, state in order.items() if way != "enabled"}
    toxics = [{"name": f"link_{way}", "attributes": state} for way, state in streams.items()]
    return {"enabled": order["enabled"], "toxics": toxics}


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


PEER = Listen("peer-2", "127.0.0.1:1", "10.0.0.2:1", base("az"))
OTHER = Listen("peer-3", "127.0.0.1:2", "10.0.0.3:1", base("az"))
HARNESS = Listen("client-0", "0.0.0.0:9000", "127.0.0.1:1")


def test_many_links_are_cut_in_one_call_and_keep_their_shape() -> None:
    with serving("a") as (fake, links):
        links.populate([PEER, OTHER, HARNESS])
        del fake.asked[:]
        links.cut([ProxyCut(1, "peer-2", "drop", (UP,)), ProxyCut(1, "peer-3", "stall")])
        ((_, path, body),) = fake.asked
        assert path == "/links"
        ways = {name: [order["upstream"], order["downstream"]] for name, order in body.items()}
        assert [state["cut"] for state in ways["peer-2"]] == ["drop", ""]
        assert [state["cut"] for state in ways["peer-3"]] == ["stall", "stall"]
        assert {states[0]["latency_ms"] for states in ways.values()} == {1}


def test_cuts_of_one_link_add_up() -> None:
    with serving("a") as (fake, links):
        links.populate([PEER])
        links.cut([ProxyCut(1, "peer-2", "drop", ("upstream",))])
        links.cut([ProxyCut(1, "peer-2", "stall", ("downstream",))])
        links.cut([ProxyCut(1, "peer-2", "reject")])
        order = fake.asked[-1][2]["peer-2"]
        assert (order["upstream"]["cut"], order["downstream"]["cut"]) == ("drop", "stall")
        assert not order["enabled"]


def test_a_shape_is_set_in_place_and_leaves_a_cut_alone() -> None:
    with serving("a") as (fake, links):
        links.populate([PEER])
        links.cut([ProxyCut(1, "peer-2", "stall", (UP,))])
        links.shape(["peer-2"], shaped(Shape(7, 8, 9)))
        order = fake.asked[-1][2]["peer-2"]
        assert (order["upstream"]["cut"], order["downstream"]["cut"]) == ("stall", "")
        assert (order["upstream"]["latency_ms"], order["downstream"]["latency_ms"]) == (7, 8)
        assert order["upstream"]["rate_kb_s"] == order["downstream"]["rate_kb_s"] == 9


def test_a_heal_restores_the_base_and_not_nothing() -> None:
    with serving("a") as (fake, links):
        links.populate([PEER, HARNESS])
        whole = dict(fake.links)
        links.cut([ProxyCut(1, "peer-2", "drop"), ProxyCut(1, "peer-2", "reject")])
        links.heal()
        assert fake.links == whole
        assert fake.links["client-0"] == {"enabled": True, "toxics": []}
        assert fake.links["peer-2"]["toxics"][0]["attributes"]["latency_ms"] == 1
        fake.answers["/proxies"] = (200, fake.links)
        assert links.broken() == []


def test_two_servers_in_one_process_do_not_mix_and_keep_their_connections() -> None:
    with serving("a") as (one, a), serving("b") as (two, b):
        for links in (a, b):
            links.populate([PEER])
        together = threading.Barrier(2)

        def cut(links: LinkServer, count: int) -> None:
            together.wait()
            for _ in range(count):
                links.cut([ProxyCut(1, "peer-2", "drop")])

        threads = [threading.Thread(target=cut, args=(x, n)) for x, n in ((a, 30), (b, 20))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(one.asked), len(two.asked)) == (32, 22)
        assert len(one.connections) == len(two.connections) == 1


@pytest.mark.parametrize("status", [400, 404, 409, 500, 503])
def test_no_failure_is_swallowed(status: int) -> None:
    with serving("pod-7") as (fake, links):
        links.populate([PEER])
        fake.answers["/links"] = (status, {"error": "no such thing"})
        with pytest.raises(LinkError, match=r"pod-7.*no such thing"):
            links.cut([ProxyCut(1, "peer-2", "drop")])
        with pytest.raises(ClusterError, match="no such thing"):
            links.heal()


def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toxiproxy, "CALL_TIMEOUT_S", 0.1)
    with serving("pod-7") as (_, links), pytest.raises(LinkError, match="does not answer"):
        links.wait_until_up(0.0)


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
            links.populate([PEER, OTHER])


def test_what_is_not_as_ordered_is_an_error_that_names_the_link() -> None:
    with serving("a") as (fake, links):
        links.populate([PEER, HARNESS])
        whole = dict(fake.links)
        with_cut = _state({"enabled": True, "upstream": {"cut": "drop"}})
        for found, complaint in (
            (whole | {"peer-2": with_cut}, "peer-2: upstream is {'cut': 'drop'}"),
            (whole | {"peer-2": {**whole["peer-2"], "enabled": False}}, "peer-2: disabled"),
            (whole | {"client-0": {"enabled": True, "toxics": [{"name": "x"}]}}, "client-0: x"),
            ({"client-0": whole["client-0"]}, "peer-2: missing"),
        ):
            fake.answers = {"/links": (200, found), "/proxies": (200, found)}
            with pytest.raises(LinkError, match="not healed: ") as failed:
                links.heal()
            assert complaint in str(failed.value)
            assert links.broken()
        fake.answers = {"/links": (200, whole)}
        with pytest.raises(LinkError, match="not as ordered: peer-2: "):
            links.cut([ProxyCut(1, "peer-2", "drop")])


def test_an_unknown_link_is_named() -> None:
    with serving("pod-7") as (_, links):
        with pytest.raises(LinkError, match="pod-7 has no link called nix"):
            links.cut([ProxyCut(1, "nix", "reject")])
        with pytest.raises(LinkError, match="pod-7 has no link called nix"):
            links.shape(["nix"], Link())
        with pytest.raises(LinkError, match="pod-7 has no link called nix"):
            links.reset(["nix"])
