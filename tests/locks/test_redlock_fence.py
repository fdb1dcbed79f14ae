"""The counter on one of five nodes: what its errors mean, and that it is one node's alone."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from lockbench.locks.base import Denied, Granted, Unknown
from lockbench.locks.redis import redlock_fence
from lockbench.locks.redis.redlock_fence import COUNTER, SYSTEM, RedlockFence
from lockbench.locks.redis.redlock_nodes import Question
from tests.eventually import eventually
from tests.locks.asking import granted, said, take
from tests.locks.fakes import Action, Close, FakeRedis, Reply, Silent
from tests.locks.test_redlock import TTL_S, connected

ERROR = Reply(b"-ERR no\r\n")


def test_fences_grow_by_the_count_of_one_node(servers: list[FakeRedis]) -> None:
    with connected(servers, RedlockFence) as lock:
        for expected in (1, 2, 3):
            grant = granted(lock, ttl_s=TTL_S)
            assert grant.fence == expected
            lock.release(grant.hold)
    assert ["INCR" in server.names() for server in servers] == [True, *[False] * 4]


@pytest.mark.parametrize(
    ("row", "action"),
    [
        ("acquire: counting node closes", Close()),
        ("acquire: counting node replies with errors", ERROR),
        ("acquire: counting node closes", Silent()),
    ],
)
def test_without_a_number_the_hold_is_given_back(
    servers: list[FakeRedis], row: str, action: Action
) -> None:
    servers[COUNTER].on("INCR", action)
    with connected(servers, RedlockFence) as lock:
        if isinstance(action, Silent):
            lock._limit_s = 1.0  # that the others are given too
        answer = take(lock, ttl_s=TTL_S)
        assert said(answer) == SYSTEM.outcomes[row]
        # The last nodes are not waited for.
        eventually(lambda: not any(server.value("k") for server in servers[1:]))


@pytest.mark.parametrize("frozen", [False, True])
def test_who_is_stopped_until_the_promise_has_ended_gives_the_hold_back(
    servers: list[FakeRedis], monkeypatch: pytest.MonkeyPatch, *, frozen: bool
) -> None:
    """While the number is on its way."""
    with connected(servers, RedlockFence) as lock:
        ask = lock._nodes.ask

        def asked(question: Question, *how: Any) -> None:
            ask(question, *how)
            if frozen and b"INCR" in question.command:
                over_ns = time.monotonic_ns() + int(1e9 * TTL_S)
                later = SimpleNamespace(monotonic_ns=lambda: over_ns)
                monkeypatch.setattr(redlock_fence, "time", later)

        monkeypatch.setattr(lock._nodes, "ask", asked)
        answer = take(lock, ttl_s=TTL_S)
        assert isinstance(answer, Denied if frozen else Granted)
        if frozen:
            eventually(lambda: not any(server.value("k") for server in servers))


def test_without_a_number_and_without_a_release_it_is_unknown(servers: list[FakeRedis]) -> None:
    servers[COUNTER].on("INCR", Close())
    for server in servers:
        server.on("EVALSHA", Silent())
    with connected(servers, RedlockFence) as lock:
        lock._limit_s = 0.1
        assert isinstance(take(lock, ttl_s=TTL_S), Unknown)
