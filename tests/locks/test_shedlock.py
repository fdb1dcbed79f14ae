"""Who ends whose hold in ShedLock's row, as its declaration says: on a real server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockbench.clusters import images
from lockbench.locks.base import Denied, Granted, Released
from lockbench.locks.shared.client_programs import JVM_IMAGE
from tests.locks.asking import LONG_S, Room

TTL_S = 1.0

pytestmark = [pytest.mark.docker, pytest.mark.long]


@pytest.fixture(scope="module", autouse=True)
def _image() -> None:
    images.ensure([JVM_IMAGE])


@pytest.mark.parametrize(
    ("name", "next_one"),
    [("shedlock-postgres", Denied), ("shedlock-postgres-one-host", Granted)],
)
def test_a_late_unlock_ends_the_next_hold_where_the_owner_is_the_host(
    room: Callable[[str], Room], name: str, next_one: type
) -> None:
    here = room("postgres")
    late, holder, other = (here.client(name) for _ in range(3))
    over = here.granted(late, ttl_s=TTL_S)
    here.granted(holder, LONG_S, ttl_s=LONG_S)
    assert isinstance(late.release(over.hold), Released), "unlock() does not say what it found"
    assert isinstance(here.take(other), next_one)
