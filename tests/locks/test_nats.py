"""NATS' recipe against a scripted server: every error, and what it must mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Final

import pytest

from lockbench.clusters.nats.bucket import EXPECTED, TTL, Entry, Refused, look
from lockbench.locks.base import Denied, Granted, NoObserver, NotHeld, Released, Unknown, token_of
from lockbench.locks.nats.create_by_put import NatsCreateByPut
from lockbench.locks.nats.kv import SYSTEM, NatsKv, name_of
from lockbench.locks.nats.no_revision import NatsNoRevision
from tests.eventually import one_of
from tests.locks import asking
from tests.locks.asking import PATIENT_S, meanwhile, said
from tests.locks.fakes import closed_port
from tests.locks.nats_server import FakeNats

SHORT_S: Final = 0.3  # to wait for a server that will not answer
take = partial(asking.take, ttl_s=60.0)
granted = partial(asking.granted, ttl_s=60.0)


@pytest.fixture
def nats() -> Iterator[FakeNats]:
    with FakeNats() as server:
        yield server


def connect(nats: FakeNats, kind: type[NatsKv] = NatsKv, *, timeout_s: float = PATIENT_S) -> NatsKv:
    return kind([nats.address], timeout_s=timeout_s, ttl_s=60, observer=NoObserver())


@pytest.mark.parametrize("row", SYSTEM.outcomes)
def test_every_error_means_what_the_table_says(row: str) -> None:
    kind, _, action = row.partition(": ")
    action = {"granted too late": "late"}.get(action, action)
    silent = action == "silent"

    def play(_: int) -> str:
        with FakeNats() as nats:
            with closing(connect(nats)) as holder:
                hold = granted(holder).hold if kind == "release" else None
            if kind in {"look", "create after a marker"}:
                nats.store("k", None)
            with closing(connect(nats, timeout_s=SHORT_S if silent else PATIENT_S)) as lock:
                if action == "no connection":
                    lock._nodes = [closed_port()]
                else:
                    nats.on(kind, action)
                return said(lock.release(hold) if hold else take(lock, ttl_s=1.0))

    wanted = SYSTEM.outcomes[row]
    assert one_of(play, wanted.__eq__, 5 if silent else 1) == wanted


def test_a_key_that_was_never_used_takes_one_request(nats: FakeNats) -> None:
    with closing(connect(nats)) as lock:
        grant = granted(lock)
        assert nats.kinds == ["create"]
        assert nats.asked[0].headers == {EXPECTED: "0", TTL: "60s"}
        assert grant.fence == 1
        assert grant.valid_until_ns == grant.sent_ns + 60_000_000_000
        assert nats.keys == {"k": (1, token_of(grant.hold.id).encode())}
        assert isinstance(lock.release(grant.hold), Released)
        assert nats.keys == {"k": (2, None)}
        assert isinstance(lock.release(grant.hold), NotHeld)
        again = granted(lock)
        assert nats.kinds[3:] == ["create", "look", "create after a marker"]
        assert nats.asked[-1].headers == {EXPECTED: "2", TTL: "60s"}
        assert again.fence == 3


def test_a_time_to_live_is_of_whole_seconds(nats: FakeNats) -> None:
    with closing(connect(nats)) as lock:
        grant = granted(lock, ttl_s=1.2)
    assert nats.asked[0].headers[TTL] == "2s"
    assert grant.valid_until_ns == grant.sent_ns + 2_000_000_000


def test_a_held_key_is_denied_and_given_to_who_waits(nats: FakeNats) -> None:
    with closing(connect(nats)) as holder, closing(connect(nats)) as other:
        hold = granted(holder).hold
        assert take(other) == Denied("held")
        assert take(other, 0.05) == Denied("gave-up: held")
        with meanwhile(lambda: granted(other, PATIENT_S)) as waiting:
            assert isinstance(holder.release(hold), Released)
        assert waiting.result().fence == 3


def test_of_two_who_find_the_same_marker_only_the_first_is_granted(nats: FakeNats) -> None:
    marker = Entry(nats.store("k", None), None)
    with closing(connect(nats)) as lock, closing(connect(nats, NatsCreateByPut)) as control:
        assert look(lock.open(), "k") == marker
        assert lock.renew_marker(lock.open(), "k", b"first", marker, {}) == 2
        with pytest.raises(Refused, match="10071"):
            lock.renew_marker(lock.open(), "k", b"second", marker, {})
        assert control.renew_marker(control.open(), "k", b"second", marker, {}) == 3


def test_a_release_that_comes_too_late_leaves_the_next_hold_alone(nats: FakeNats) -> None:
    with closing(connect(nats)) as lock:
        hold = granted(lock).hold
        nats.store("k", None)  # its time to live has ended
        held = nats.store("k", b"another's")
        assert isinstance(lock.extend(hold, 60), NotHeld)
        assert isinstance(lock.release(hold), NotHeld)
        assert nats.keys["k"] == (held, b"another's")
    with closing(connect(nats, NatsNoRevision)) as control:
        assert isinstance(control.release(hold), Released)
        assert nats.keys.get("k") == (held + 1, None)


def test_a_renewal_writes_a_revision_that_the_release_expects(nats: FakeNats) -> None:
    with closing(connect(nats)) as lock:
        grant = granted(lock)
        again = lock.extend(grant.hold, 90)
        assert isinstance(again, Granted)
        assert again.fence == grant.fence
        assert again.valid_until_ns == again.sent_ns + 90_000_000_000
        assert nats.asked[-1].headers == {EXPECTED: "1", TTL: "90s"}
        assert isinstance(lock.release(grant.hold), Released)
        assert nats.asked[-1].headers[EXPECTED] == "2"


def test_a_renewal_that_was_stored_and_not_answered_is_found_by_the_release(
    nats: FakeNats,
) -> None:
    with closing(connect(nats)) as lock:
        hold = granted(lock).hold
        nats.on("renew", "lost", "lost")
        assert isinstance(lock.extend(hold, 60), Unknown)
        assert isinstance(lock.extend(hold, 60), Unknown)
        assert isinstance(lock.extend(hold, 60), Granted)
        assert isinstance(lock.release(hold), Released)


def test_a_renewal_that_is_acknowledged_too_late_promises_nothing(nats: FakeNats) -> None:
    """The server may have decided to remove the key before it had stored the renewal."""
    with closing(connect(nats)) as lock:
        hold = granted(lock, ttl_s=1).hold
        nats.on("renew", "late")
        assert isinstance(lock.extend(hold, 60), Unknown)
        assert isinstance(lock.extend(hold, 60), Unknown)
        assert isinstance(lock.release(hold), Released)


def test_what_is_read_may_be_older_than_the_renewal(nats: FakeNats) -> None:
    """Then nobody knows whose the newest message is."""
    with closing(connect(nats)) as lock:
        hold = granted(lock).hold
        nats.on("renew", "lost")
        assert isinstance(lock.extend(hold, 60), Unknown)
        nats.on("look", "nothing")
        assert isinstance(lock.release(hold), Unknown)
        nats.store("k", b"another's")
        assert isinstance(lock.release(hold), NotHeld)


def test_the_next_server_is_asked_where_one_does_not_answer(nats: FakeNats) -> None:
    nodes = [closed_port(), nats.address]
    lock = NatsKv(nodes, timeout_s=PATIENT_S, ttl_s=60, observer=NoObserver())
    lock._nodes = nodes
    with closing(lock):
        assert said(take(lock)) == "Denied: no-effect"
        assert isinstance(take(lock), Granted)


def test_a_connection_that_ended_while_unused_is_made_anew(nats: FakeNats) -> None:
    with closing(connect(nats)) as lock:
        hold = granted(lock).hold
        for connection in nats._connections:
            connection.shutdown(2)
        lock._used_s = 0.0
        assert isinstance(lock.release(hold), Released)


@pytest.mark.parametrize(
    ("key", "name"),
    [("k0", "k0"), ("a/b-c_D", "a/b-c_D"), ("a.b", "a=2eb"), ("ä *", "=c3=a4=20=2a"), ("=", "=3d")],
)
def test_a_key_is_one_that_nats_allows(key: str, name: str) -> None:
    assert name_of(key) == name
