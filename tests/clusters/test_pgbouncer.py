"""What a pool mode of PgBouncer makes of a session's lock."""

from __future__ import annotations

import pytest

from lockbench.clusters.postgres.protocol import Session
from tests.clusters.conftest import Start
from tests.clusters.waiting import SURE_S

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.mark.parametrize(
    ("pool_mode", "taken"),
    [("transaction", "t"), pytest.param("session", "f", marks=pytest.mark.long)],
)
def test_whether_a_second_client_gets_the_connection_of_the_first(
    start: Start, pool_mode: str, taken: str
) -> None:
    cluster = start(f"pgbouncer-{pool_mode}", 2)
    at = cluster.address(1, 1)
    with Session(at, SURE_S) as first, Session(at, SURE_S) as second:
        assert first.query("SELECT pg_try_advisory_lock(1)") == [["t"]]
        assert second.query("SELECT pg_try_advisory_lock(1)") == [[taken]]
        first.query("BEGIN; SELECT pg_advisory_xact_lock(2)")
        assert second.query("SELECT pg_try_advisory_xact_lock(2)") == [["f"]]
    cluster.verify()
