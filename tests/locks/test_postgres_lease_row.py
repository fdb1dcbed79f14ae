"""The lock row of PostgreSQL against a scripted server: every error, and what it must mean.

What the server itself does (one row for a key, its clock) is held to by the conformance tests.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from lockbench.locks.base import Address, Denied, Granted, NoObserver, System
from lockbench.locks.postgres import lease_row, lease_row_client_clock
from lockbench.locks.postgres.lease_row import PostgresLeaseRow
from tests.locks.asking import PATIENT_S, granted, said, take
from tests.locks.fakes import closed_port
from tests.locks.test_postgres import ACTIONS, FULL, SHORT_S, Action, FakePostgres

ROWS = lease_row.SYSTEM.outcomes
TAKES, FREES, EXTENDS = "INSERT", "infinity", "SET expires_at = now"


class Rows(FakePostgres):
    """It has a row for every key, which nobody holds."""

    def _rows(self, sql: str) -> bytes:
        return super()._rows("nextval" if "lockbench_leases " in sql else sql)


@pytest.fixture
def server() -> Iterator[Rows]:
    fake = Rows()
    yield fake
    fake.stop()


def connect(
    at: Address, *, system: System = lease_row.SYSTEM, timeout_s: float = PATIENT_S
) -> PostgresLeaseRow:
    lock = system.connect([at], timeout_s=timeout_s, ttl_s=3.0, observer=NoObserver())
    assert isinstance(lock, PostgresLeaseRow)
    return lock


def planned(error: str) -> Action:
    return "nothing" if error in {"held", "no such row"} else ACTIONS[error]


@pytest.mark.parametrize("row", ROWS)
def test_every_error_means_what_the_table_says(server: Rows, row: str) -> None:
    call, _, error = row.partition(": ")
    at = closed_port() if error == "no server" else server.address
    with closing(connect(at)) as lock:
        assert said(_ask(server, lock, call, error)) == ROWS[row]


def _ask(server: Rows, lock: PostgresLeaseRow, call: str, error: str) -> object:
    if call == "acquire":
        if error == "granted too late":
            return take(lock, ttl_s=0.0)
        if error == "nobody takes writes":
            server.replays = True
        elif error == "session refused":
            server.on("startup", FULL)
        elif error != "no server":
            if error == "silent":
                lock.release(granted(lock).hold)
                _hurry(lock)
            server.on(TAKES, planned(error))
        return take(lock)
    hold = granted(lock).hold
    if error == "silent":
        _hurry(lock)
    server.on(FREES if call == "release" else EXTENDS, planned(error))
    return lock.release(hold) if call == "release" else lock.extend(hold, 3.0)


def _hurry(lock: PostgresLeaseRow) -> None:
    """What is asked from now on has little time."""
    assert lock._kept._open is not None
    lock._kept._open._timeout_s = SHORT_S


def test_who_waits_polls_until_the_row_is_free(server: Rows) -> None:
    with closing(connect(server.address)) as lock:
        for _ in range(3):
            server.on(TAKES, "nothing")
        assert isinstance(take(lock, PATIENT_S), Granted)
        for _ in range(1000):
            server.on(TAKES, "nothing")
        assert take(lock, 0.05) == Denied("gave-up: held")


def test_a_hold_is_released_and_extended_as_its_own(server: Rows) -> None:
    with closing(connect(server.address)) as lock:
        hold = granted(lock).hold
        lock.extend(hold, 3.0)
        lock.release(hold)
    took, lengthened, freed = server.queries[-3:]
    (owner,) = re.findall(r"'([0-9a-f]{16})'", took)
    assert f"owner = '{owner}'" in lengthened
    assert f"owner = '{owner}'" in freed


@pytest.mark.parametrize("ttl_s", [2.01, 4.06, 1.0005])
def test_a_promise_is_no_longer_than_what_the_row_says(server: Rows, ttl_s: float) -> None:
    with closing(connect(server.address)) as lock:
        grant = lock.acquire("k", hold_id=1, ttl_s=ttl_s, wait_s=0)
    assert isinstance(grant, Granted)
    assert grant.valid_until_ns is not None
    (wrote_ms,) = re.findall(r"interval '(\d+) milliseconds'", server.queries[-1])
    assert grant.valid_until_ns - grant.sent_ns == int(wrote_ms) * 1_000_000


def test_whose_clock_it_is(server: Rows) -> None:
    with closing(connect(server.address)) as lock:
        granted(lock)
    assert server.queries[-1].count("now()") == 2
    with closing(connect(server.address, system=lease_row_client_clock.SYSTEM)) as lock:
        granted(lock)
    assert "now()" not in server.queries[-1]
    told = [float(second) for second in re.findall(r"to_timestamp\(([\d.]+)\)", server.queries[-1])]
    assert len(told) == 2
    assert all(abs(second - time.time()) < PATIENT_S for second in told)
