"""Who ends whose hold in ShedLock's row, as its declaration says, and who waits for whose table: on
a real server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from lockbench.clusters import images
from lockbench.locks.base import Denied, Granted, Released
from lockbench.locks.postgres.session import Session
from lockbench.locks.shared.client_programs import JVM_IMAGE
from tests.locks.asking import LONG_S, PATIENT_S, Room

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


@pytest.mark.parametrize("name", ["shedlock-postgres", "spring-jdbc-postgres"])
def test_who_makes_the_table_and_is_cut_off_keeps_nobody_else_waiting(
    room: Callable[[str], Room], name: str
) -> None:
    here = room("postgres")
    first = here.client(name)
    here.granted(first)
    first.close()  # the last one of its process, which forgets that there is a table
    with closing(Session(here.running.nodes, timeout_s=PATIENT_S)) as maker:
        maker.ask("BEGIN")
        maker.ask("SELECT pg_advisory_xact_lock(hashtext('lockbench: create'))")
        here.key += "-next"
        here.granted(here.client(name))
