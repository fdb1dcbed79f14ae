"""Actors do as they are told, can be frozen, and are never waited for when they are gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as evolved

from lockbench.explore.actors import Actors, Gone
from lockbench.explore.orders import Acquire, Answer, Close, Open, Release
from lockbench.history.recording import read_recording, write_meta
from lockbench.locks.shared.sidecar import has_ended
from lockbench.workloads.fork_server import ForkServer
from lockbench.workloads.load import Pace
from tests.locks.fakes import closed_port

LIMIT_S = 20.0
PACE = replace(Pace(), lease_ttl_s=1.0, client_timeout_s=0.2)

pytestmark = pytest.mark.slow  # a fork server imports everything


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer("test", ["lockbench.explore.actor"]) as server:
        yield server


@pytest.fixture(scope="module")
def actors(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Actors]:
    with Actors(fork_server, tmp_path_factory.mktemp("logs")) as pool:
        yield pool


def opened(folder: Path) -> Open:
    return Open("redis-token", (closed_port(),), PACE, str(folder), 0)


def test_what_it_does_is_recorded(actors: Actors, tmp_path: Path) -> None:
    actors.raise_to(1)
    with actors.lent(1) as (actor,):
        for order in (opened(tmp_path), Acquire("k", 0.0), Release(), Close()):
            actor.tell(order)
            answer = actor.answer(LIMIT_S)
            assert answer is not None
            assert not answer.failed
            assert not answer.granted
    write_meta(tmp_path, {}, wall_minus_monotonic_ns=0)
    history = read_recording(tmp_path)
    # There is no hold, so there is nothing to release.
    assert [history.keys[key] for key in history.key] == ["k"]


# A lock whose sidecar ends when it is asked for anything.
SHORT_LIVED = """
import sys
from lockbench.locks.base import System
from lockbench.locks.shared.library import python_path
from lockbench.locks.shared.sidecar import Sidecar, SidecarLock, shared

LIBRARY = '''
import os
from lockbench_sidecar import Client, serve
class Library(Client):
    def __init__(self, setup): pass
    def acquire(self, key, hold, ttl_s, wait_s): os._exit(3)
    def release(self, hold, lock): pass
    def close(self): pass
serve("pip", Library)
'''

def connect(nodes, **how):
    command = [sys.executable, "-P", "-c", LIBRARY]
    made = shared("it", lambda: Sidecar("it", command, {"PYTHONPATH": python_path()}))
    return SidecarLock(made, nodes, safe=True, **how)

SYSTEM = System(
    name="short-lived", topologies=("redis",), family="redis", fence=None, waits_by="nothing",
    source="this test", connect=connect, outcomes={},
)
"""


UNUSABLE = """
from lockbench.locks.base import LockUnusableError, System

def connect(nodes, **how):
    raise LockUnusableError("nobody is there")

SYSTEM = System(
    name="unusable", topologies=("redis",), family="redis", fence=None, waits_by="nothing",
    source="this test", connect=connect, outcomes={},
)
"""


def test_a_sidecar_that_has_ended_is_started_anew_for_the_next_play(
    actors: Actors, tmp_path: Path
) -> None:
    (lock := tmp_path / "lock.py").write_text(SHORT_LIVED)
    actors.raise_to(1)
    with actors.lent(1) as (actor,):
        for number in ("1", "2"):
            (folder := tmp_path / number).mkdir()
            opening = Open(str(lock), (closed_port(),), PACE, str(folder), 0)
            for order in (opening, Acquire("k", 0.0), Close()):
                actor.tell(order)
                answer = actor.answer(LIMIT_S)
                assert answer is not None
                assert not answer.failed
            write_meta(folder, {}, wall_minus_monotonic_ns=0)
            assert any(map(has_ended, read_recording(folder).errors))


def test_a_frozen_actor_answers_when_it_is_thawed(actors: Actors, tmp_path: Path) -> None:
    actors.raise_to(1)
    with actors.lent(1) as (actor,):
        actor.freeze()
        actor.tell(opened(tmp_path))
        assert actor.answer(0.5) is None
        actor.thaw()
        assert actor.answer(LIMIT_S) is not None


def test_a_killed_actor_is_gone_and_lent_to_nobody_again(actors: Actors, tmp_path: Path) -> None:
    actors.raise_to(2)
    with actors.lent(1) as (killed,):
        before_ns = time.monotonic_ns()
        killed.kill()
        assert killed.killed_ns is not None
        assert killed.killed_ns >= before_ns
        with pytest.raises(Gone):
            killed.answer(LIMIT_S)
        with pytest.raises(Gone):
            killed.tell(opened(tmp_path))
    actors.raise_to(2)
    with actors.lent(2) as lent:
        assert killed not in lent


def test_who_waits_for_an_actor_is_told_when_all_are_killed(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    with Actors(fork_server, tmp_path) as pool, ThreadPoolExecutor() as thread:
        pool.raise_to(2)
        with pool.lent(1) as (frozen,):
            frozen.freeze()
            frozen.tell(opened(tmp_path))
            waiting = thread.submit(frozen.answer, LIMIT_S)
            pool.kill()
            with pytest.raises(Gone):
                waiting.result()
            with pytest.raises(Gone), pool.lent(1):
                pass
            with pytest.raises(Gone):
                pool.raise_to(3)
            assert len(list(tmp_path.glob("actor-*.log"))) == 2, "one was started for nothing"


def test_who_has_not_answered_is_lent_to_nobody_again(actors: Actors, tmp_path: Path) -> None:
    actors.raise_to(1)
    with actors.lent(1) as (busy,):
        busy.freeze()
        busy.tell(opened(tmp_path))
    actors.raise_to(1)
    with actors.lent(1) as (other,):
        assert other is not busy


def test_who_could_make_no_client_is_closed_like_others(actors: Actors, tmp_path: Path) -> None:
    (lock := tmp_path / "lock.py").write_text(UNUSABLE)
    actors.raise_to(1)
    with actors.lent(1) as (actor,):
        actor.tell(Open(str(lock), (closed_port(),), PACE, str(tmp_path), 0))
        answer = actor.answer(LIMIT_S)
        assert answer is not None
        assert "nobody is there" in answer.failed
        actor.tell(Close())
        assert actor.answer(LIMIT_S) == Answer()


def test_what_an_actor_cannot_do_is_told(actors: Actors, tmp_path: Path) -> None:
    actors.raise_to(1)
    with actors.lent(1) as (actor,):
        actor.tell(evolved(opened(tmp_path), lock="no-such-lock"))
        answer = actor.answer(LIMIT_S)
        assert answer is not None
        assert "no-such-lock" in answer.failed


def test_actors_that_are_started_at_once_are_those_that_answer(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    """Each pool has its own thread, as on several clusters: who is told to stop is who stops."""
    folders = [tmp_path / str(n) for n in range(4)]
    for folder in folders:
        folder.mkdir()
    with ExitStack() as stack, ThreadPoolExecutor(len(folders)) as threads:
        pools = [stack.enter_context(Actors(fork_server, folder)) for folder in folders]
        [*threads.map(lambda pool: pool.raise_to(4), pools)]
        for pool in pools:
            with pool.lent(4) as lent:
                for number, actor in enumerate(lent):
                    folder = tmp_path / f"{actor.name}-{number}"
                    folder.mkdir()
                    actor.freeze()
                    actor.tell(opened(folder))
                    assert actor.answer(0.05) is None, "another one is frozen"
                    actor.thaw()
                    assert actor.answer(LIMIT_S) is not None
