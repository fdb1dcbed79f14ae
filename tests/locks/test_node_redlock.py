"""In what the Redlock libraries of Node differ, as their declaration says: on real servers."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lockbench.clusters import images
from lockbench.clusters.base import Pausable
from lockbench.clusters.redis import protocol as resp
from lockbench.locks.base import Extendable, Granted, NotHeld, Released
from lockbench.locks.shared.client_programs import NODE_IMAGE
from tests.eventually import eventually
from tests.locks.asking import LONG_S, Room, Told, meanwhile

STABLE, BETA, SESAMECARE = "node-redlock-safe", "node-redlock-5-safe", "sesamecare-redlock-safe"
USING = ("node-redlock-5-using", "sesamecare-redlock-using")
SOMEBODY_S = 1.3  # longer than a lease, shorter than eleven tries
TTL_S = 1.0
RENEWED_S = 2.5  # in which a lock extends itself

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module", autouse=True)
def _image() -> None:
    images.ensure([NODE_IMAGE])


def ask(room: Room, server: int, *command: str) -> object:
    return resp.ask_once(room.running.nodes[server], LONG_S, *command)


def occupy(room: Room, server: int, seconds: float) -> None:
    """Somebody else has the key there for so long."""
    ask(room, server, "SET", room.key, "somebody", "PX", str(int(1000 * seconds)))


def value(room: Room, server: int) -> object:
    return ask(room, server, "GET", room.key)


@pytest.mark.parametrize("name", [BETA, SESAMECARE])
def test_a_retry_is_refused_by_the_keys_of_the_tries_before_it(
    room: Callable[[str], Room], name: str
) -> None:
    """Three of five refuse the first try, then only one of them, and still nothing is granted."""
    here = room("redlock")
    lock = here.client(name)
    for server, seconds in ((0, 0.2), (1, 0.2), (2, LONG_S)):
        occupy(here, server, seconds)

    def has_four() -> bool:
        found = {value(here, server) for server in (0, 1, 3, 4)}
        return len(found) == 1 and found.isdisjoint({None, "somebody"})

    with meanwhile(lambda: here.granted(lock, LONG_S, ttl_s=LONG_S)) as doing:
        eventually(has_four)
        assert not doing.done(), "its first call has eleven tries"


@pytest.mark.parametrize(("name", "kept"), [(STABLE, False), (BETA, True), (SESAMECARE, True)])
def test_an_extension_that_fails_ends_the_lock(
    room: Callable[[str], Room], name: str, kept: bool
) -> None:
    """In the stable version, where some servers still have it."""
    here = room("redlock")
    lock = here.client(name)
    grant = here.granted(lock, ttl_s=LONG_S)
    for server in (0, 1, 2):
        occupy(here, server, LONG_S)
    assert isinstance(lock, Extendable)
    assert isinstance(lock.extend(grant.hold, LONG_S), NotHeld)
    assert [value(here, server) is not None for server in (3, 4)] == [kept, kept]


@pytest.mark.parametrize(("name", "extended"), [(BETA, False), (SESAMECARE, True)])
def test_a_lock_that_was_waited_for_is_taken_for_expired(
    room: Callable[[str], Room], name: str, extended: bool
) -> None:
    """In the beta, whose expiration counts from before the retries."""
    here = room("redis")
    lock = here.client(name)
    occupy(here, 0, SOMEBODY_S)
    grant = here.granted(lock, LONG_S, ttl_s=TTL_S)
    assert grant.valid_until_ns is not None
    assert grant.valid_until_ns > time.monotonic_ns(), "the promise counts from the last try"
    assert isinstance(lock, Extendable)
    assert isinstance(lock.extend(grant.hold, LONG_S), Granted if extended else NotHeld)
    assert value(here, 0) is not None, "nobody has taken it away"
    assert isinstance(lock.release(grant.hold), Released)


def test_a_silent_server_holds_up_the_stable_version_alone(room: Callable[[str], Room]) -> None:
    here = room("redlock")
    stable, beta, sesamecare = (here.client(name) for name in (STABLE, BETA, SESAMECARE))
    cluster = here.running.cluster
    assert cluster is not None
    assert isinstance(cluster, Pausable)
    cluster.pause(cluster.nodes[:1])
    with meanwhile(lambda: here.granted(stable, ttl_s=LONG_S)) as doing:
        try:
            other = Room(here.running, here.open)
            for lock in (beta, sesamecare):
                other.granted(lock, ttl_s=LONG_S)
                other.key = f"{other.key}-2"
            assert not doing.done()
        finally:
            cluster.unpause(cluster.nodes[:1])


@pytest.mark.parametrize("name", USING)
def test_a_lock_that_extends_itself_tells_of_that_and_of_its_loss(
    room: Callable[[str], Room], name: str
) -> None:
    here = room("redlock")
    told = Told()
    lock = here.client(name, told)
    grant = here.granted(lock, ttl_s=RENEWED_S)
    eventually(lambda: len(told.until_ns) > 1)
    assert grant.valid_until_ns is not None
    assert grant.valid_until_ns < told.until_ns[0] < told.until_ns[1]
    assert told.losses == []
    for server in range(5):
        occupy(here, server, LONG_S)
    eventually(lambda: told.losses == [grant.hold])
    assert isinstance(lock.release(grant.hold), NotHeld)
