"""The proof of a reset is neither missed because the proxy was slow, nor given for nothing."""

from __future__ import annotations

import socket

import pytest

from lockbench.nemesis import links
from lockbench.nemesis.base import Arena, Injection
from lockbench.nemesis.faults import reset
from lockbench.nemesis.registry import faults
from tests.nemesis.fakes import FakeClients


def test_a_connection_that_the_proxy_did_not_know_yet_is_ended_by_a_later_call() -> None:
    ours, theirs = socket.socketpair()
    calls = []

    def third_time() -> None:
        calls.append(1)
        if len(calls) == 3:
            theirs.close()

    with ours, theirs:
        assert reset.ended_by(third_time, ours)
    assert len(calls) == 3


def test_a_connection_that_stays_open_was_not_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reset, "LOOK_S", 0.01)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not reset.ended_by(lambda: None, ours)


def test_what_a_server_says_is_no_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        assert not reset.ended_by(lambda: None, ours)


def test_a_proxy_that_hangs_up_by_itself_has_reset_nothing() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        assert not reset.ended_by(lambda: None, ours)


@pytest.mark.parametrize("ended", [(0, 0), (0, 4), (4, 0)])
def test_between_servers_a_reset_that_ended_nothing_is_none(
    ended: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made again and again: one that ended something is enough."""
    counts = iter(ended)
    monkeypatch.setattr(links, "chosen", lambda _: [])
    monkeypatch.setattr(links, "shapable_of", lambda arena: arena.cluster)

    class Cluster:
        def reset(self, edges: object) -> int:
            return next(counts)

    injection = Injection("reset", 0.0, 1.0, parameters=(("on", "servers"),))
    arena = Arena(Cluster(), FakeClients(), injection, 3.0)  # type: ignore[arg-type]
    arena.facts.ended = False
    fault = faults()["reset"]
    fault.begin(arena)
    fault.tick(arena)
    assert fault.took_effect(arena) is any(ended)
