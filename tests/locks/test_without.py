"""The ways to do without a lock: what was asked for twice is done once, in one row per key.

Where SQLite understands the statements (an append, an insert), it stands for the store, and the
order of events is forced; all five run on a real PostgreSQL too.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lockbench.bench.duties import Running
from lockbench.locks.base import Address, NoObserver, Unknown
from lockbench.locks.registry import without
from lockbench.locks.shared.sessions import NotSent
from lockbench.locks.without.base import Conflict, Done, DoneAlready, Thinking, Way
from lockbench.workloads.fleet import free_port
from tests.workloads.stored import StoredActor, StoredEventLog, StoredSingleOwner

NOTHING = Thinking(lambda: None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Callable[[type], Any]]:
    """Makes clients of a way whose store is a file."""
    nodes = [Address(str(tmp_path), free_port())]
    made: list[Any] = []

    def make(kind: type) -> Any:
        made.append(kind(nodes, timeout_s=30, ttl_s=30, observer=NoObserver()))
        return made[-1]

    yield make
    for way in made:
        way.close()


def test_of_two_that_append_at_one_place_the_second_begins_again(
    store: Callable[[type], Any],
) -> None:
    first, second = store(StoredEventLog), store(StoredEventLog)
    assert first.do("k", 10, by=1, work=NOTHING) == Done(0)
    meanwhile: list[object] = []
    work = Thinking(lambda: meanwhile.append(first.do("k", 11, by=1, work=NOTHING)))
    assert isinstance(second.do("k", 12, by=2, work=work), Conflict)
    assert meanwhile == [Done(1)]
    assert second.do("k", 12, by=2, work=NOTHING) == Done(2)
    assert second.do("k", 11, by=2, work=NOTHING) == DoneAlready()
    assert first.do("other", 12, by=1, work=NOTHING) == Done(0)
    assert [(e.key, e.thing, e.place, e.by) for e in first.ledger()] == [
        ("k", 10, 0, 1), ("k", 11, 1, 1), ("k", 12, 2, 2), ("other", 12, 0, 1),
    ]  # fmt: skip


def test_an_append_without_an_answer_is_unknown_and_is_not_done_again(
    store: Callable[[type], Any],
) -> None:
    way = store(StoredEventLog)
    assert way.do("k", 1, by=1, work=NOTHING) == Done(0)
    way.session().answers = False
    assert isinstance(way.do("k", 2, by=1, work=NOTHING), Unknown)
    way.session().answers = True
    assert way.do("k", 2, by=1, work=NOTHING) == DoneAlready()


@pytest.mark.parametrize("kind", [StoredActor, StoredSingleOwner])
def test_an_owner_works_on_one_message_after_the_other(
    store: Callable[[type], Any], kind: type
) -> None:
    clients = [store(kind) for _ in range(4)]
    outcomes: list[object] = []

    def send(client: Any, name: int) -> None:
        # Every client sends every number: one of them is done, the others are done already.
        outcomes.extend(
            client.do("k", thing, by=name, work=Thinking(lambda: None, 0.001))
            for thing in range(10)
        )

    threads = [
        threading.Thread(target=send, args=(client, name)) for name, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert Counter(type(outcome) for outcome in outcomes) == {Done: 10, DoneAlready: 30}
    assert sorted(entry.place for entry in clients[0].ledger()) == list(range(10))


@pytest.mark.parametrize("kind", [StoredActor, StoredSingleOwner])
def test_what_an_owner_could_not_reach_its_store_for_may_be_in_its_queue(
    store: Callable[[type], Any], kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(_: object) -> None:
        raise NotSent("connection refused")

    client = store(kind)
    client.ledger()  # the client's own session is open
    with monkeypatch.context() as owner:
        owner.setattr(kind, "new_session", cut)
        first = client.do("k", 7, by=1, work=NOTHING)
    assert isinstance(client.do("k", 8, by=2, work=NOTHING), Done)
    done = {entry.thing for entry in client.ledger()}
    assert done == ({8} if kind is StoredActor else {7, 8})
    assert isinstance(first, Conflict if kind is StoredActor else Unknown)


SOMEBODY = """
import os, socket, sys
os.setuid(65534)
line = socket.socket(socket.AF_UNIX)
if sys.argv[1] == "listens":
    line.bind(chr(0) + sys.argv[2])
    line.listen()
    print("listens", flush=True)
    line.accept()[0].makefile().readline()
else:
    line.connect(chr(0) + sys.argv[2])
    print(line.recv(1), flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act for another user")
@pytest.mark.parametrize("kind", [StoredActor, StoredSingleOwner])
def test_another_user_is_neither_asked_nor_answered(
    store: Callable[[type], Any], kind: type
) -> None:
    client = store(kind)
    address = client._address.removeprefix("\0")
    words = [sys.executable, "-c", SOMEBODY]
    with subprocess.Popen([*words, "listens", address], stdout=subprocess.PIPE) as somebody:
        assert somebody.stdout is not None
        assert somebody.stdout.readline() == b"listens\n"
        outcome = client.do("k", 1, by=1, work=NOTHING)
        # What stands in the queue already is done by whoever owns it next.
        assert isinstance(outcome, Unknown if kind is StoredSingleOwner else Conflict)
        assert "another user listens" in outcome.reason
        assert not outcome.reason.startswith("no-effect") or kind is StoredActor
    assert isinstance(client.do("k", 1, by=1, work=NOTHING), Done)
    asks = subprocess.run(
        [*words, "asks", address], capture_output=True, timeout=60, check=True, text=True
    )
    assert asks.stdout == "b''\n"
    with socket.socket(socket.AF_UNIX) as same_user:
        same_user.connect(client._address)
        same_user.settimeout(0.2)
        with pytest.raises(TimeoutError):
            same_user.recv(1)


# Two names of one way have one store.
WAYS = {system.connect: name for name, system in without().items()}.values()


@pytest.mark.docker
@pytest.mark.parametrize("name", WAYS)
def test_on_a_real_store_everything_is_done_once_and_in_a_row(
    name: str, running: Callable[[str], Running]
) -> None:
    nodes = running("postgres").nodes
    clients, keys, things = 4, ("a", "b"), 15
    outcomes: list[tuple[str, object]] = []
    gave_up: list[object] = []
    untold: list[object] = []  # an owner that leaves has done it and answers nobody

    def work(by: int) -> None:
        way = without()[name].connect(nodes, timeout_s=5, ttl_s=1, observer=NoObserver())
        assert isinstance(way, Way)
        with closing(way):
            for number in range(things):
                key = keys[number % 2]
                # Two clients each ask for the same.
                thing = 1000 * (by // 2) + number
                for _ in range(200):
                    outcome = way.do(key, thing, by=by, work=NOTHING)
                    if isinstance(outcome, Unknown):
                        untold.append(outcome)
                    elif not isinstance(outcome, Conflict):
                        break
                else:
                    gave_up.append(outcome)
                outcomes.append((key, outcome))

    threads = [threading.Thread(target=work, args=(by,)) for by in range(1, clients + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not gave_up
    expected = {1000 * (by // 2) + n for by in range(1, clients + 1) for n in range(things)}
    assert len(outcomes) == clients * things
    done = [(key, outcome.place) for key, outcome in outcomes if isinstance(outcome, Done)]
    assert len(expected) - len(untold) <= len(done) <= len(expected)
    way = without()[name].connect(nodes, timeout_s=5, ttl_s=1, observer=NoObserver())
    assert isinstance(way, Way)
    with closing(way):
        ledger = way.ledger()
    assert {entry.thing for entry in ledger} == expected
    assert len(ledger) == len(expected)
    for key in keys:
        places = sorted(entry.place for entry in ledger if entry.key == key)
        assert places == list(range(len(places))), key
        told = [place for k, place in done if k == key]
        assert len(told) == len(set(told))
        assert set(told) == set(places) if not untold else set(told) <= set(places)
