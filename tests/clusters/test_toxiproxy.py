"""The adapter, against a server that answers as Toxiproxy does, or as badly as it can."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from lockbench.clusters.base import ClusterError, Shape
from lockbench.clusters.pods import toxiproxy
from lockbench.clusters.pods.links import Direction, Link, ProxyCut, base, shaped
from lockbench.clusters.pods.toxiproxy import LinkError, LinkServer, Listen
from tests.clusters.json_server import answering

UP: Direction = "upstream"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toxiproxy, "CALL_TIMEOUT_S", 60.0)


@dataclass
class Fake:
    """Does what it is ordered, unless ``answers`` says what comes instead."""

    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    links: dict[str, Any] = field(default_factory=dict)
    hangs: bool = False
    hang_ups: int = 0  # so many requests are not answered
    released: threading.Event = field(default_factory=threading.Event)
    connections: set[int] = field(default_factory=set)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, object] | None:
        self.asked.append((method, path, body))
        if self.hang_ups:
            self.hang_ups -= 1
            return None
        if self.hangs:
            self.released.wait(10)
        if path in self.answers:
            return self.answers[path]
        if path == "/populate":
            return 201, {"proxies": body}
        if path == "/links":
            self.links |= {name: _state(order) for name, order in body.items()}
            return 200, self.links
        return 200, {}


def _state(order: dict[str, Any]) -> dict[str, Any]:
    """A proxy as Toxiproxy shows it after an order."""
    streams = {way: state for way, state in order.items() if way != "enabled"}
    toxics = [{"name": f"link_{way}", "attributes": state} for way, state in streams.items()]
    return {"enabled": order["enabled"], "toxics": toxics}


@contextmanager
def serving(name: str) -> Iterator[tuple[Fake, LinkServer]]:
    fake = Fake()
    with answering(fake.answer) as (port, fake.connections):
        links = LinkServer(name, "127.0.0.1", port)
        try:
            yield fake, links
        finally:
            links.close()
            fake.released.set()


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
        assert {states[0]["latency_us"] for states in ways.values()} == {450}


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
        links.shape(["peer-2"], shaped(Shape(7, 8, rate_kb_s=9)))
        order = fake.asked[-1][2]["peer-2"]
        assert (order["upstream"]["cut"], order["downstream"]["cut"]) == ("stall", "")
        assert (order["upstream"]["latency_us"], order["downstream"]["latency_us"]) == (7, 8)
        assert order["upstream"]["rate_kb_s"] == order["downstream"]["rate_kb_s"] == 9


def test_a_heal_restores_the_base_and_not_nothing() -> None:
    with serving("a") as (fake, links):
        links.populate([PEER, HARNESS])
        whole = dict(fake.links)
        links.cut([ProxyCut(1, "peer-2", "drop"), ProxyCut(1, "peer-2", "reject")])
        links.heal()
        assert fake.links == whole
        assert fake.links["client-0"] == {"enabled": True, "toxics": []}
        assert fake.links["peer-2"]["toxics"][0]["attributes"]["latency_us"] == 450
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


def test_a_server_that_hangs_or_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("pod-7") as (fake, links):
        links.populate([PEER])
        monkeypatch.setattr(toxiproxy, "CALL_TIMEOUT_S", 0.1)
        fake.hangs = True
        with pytest.raises(OSError, match="timed out"):
            links.check_up()
        with pytest.raises(LinkError, match="pod-7: Toxiproxy does not answer"):
            links.heal()
    links = LinkServer("pod-7", "127.0.0.1", 1)
    with pytest.raises(OSError, match="refused"):
        links.check_up()
    links.close()


def test_a_heal_that_is_not_answered_is_tried_again() -> None:
    with serving("pod-7") as (fake, links):
        links.populate([PEER])
        links.cut([ProxyCut(1, "peer-2", "drop")])
        fake.hang_ups = toxiproxy.HEAL_TRIES - 1
        links.heal()
        fake.answers["/proxies"] = (200, fake.links)
        assert links.broken() == []
        fake.hang_ups = toxiproxy.HEAL_TRIES
        with pytest.raises(LinkError, match="does not answer"):
            links.heal()
        fake.hang_ups = 1
        with pytest.raises(LinkError, match="does not answer"):
            links.cut([ProxyCut(1, "peer-2", "drop")])


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
