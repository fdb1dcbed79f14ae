"""The proof of a reset is neither missed because the proxy was slow, nor given for nothing."""

from __future__ import annotations

import socket

import pytest

from lockbench.nemesis.faults import reset


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
