"""A control: ``postgres-lease-row`` by the clocks of its clients.

Each client writes the end of its time by its own wall clock, and compares the end of the others'
with it. Who is ahead of the holder takes the row while it is held. ShedLock's JDBC provider does so
unless it is told ``usingDbTime``. The bench must catch this when it moves a client's clock: its
release finds its own time over. If it does not, the bench is broken.

Errors mean what they mean for ``postgres-lease-row``. The database's clock has no say.
"""

from __future__ import annotations

import time

from lockbench.locks.postgres import lease_row
from lockbench.locks.postgres.expectations import LEASE_ROW, WRITTEN
from lockbench.locks.postgres.lease_row import PostgresLeaseRow
from lockbench.locks.shared.expectations import (
    SERVER_CLOCKS,
    breaks,
    holds,
    may_break,
    with_changes,
)

SHEDLOCK = (
    "https://github.com/lukas-krecan/ShedLock#readme: 'the locks are time-based and ShedLock "
    "assumes that clocks on the nodes are synchronized'; the database's time is used only where "
    "usingDbTime() says so"
)


class LeaseRowClientClock(PostgresLeaseRow):
    """One client of the lock."""

    def now(self) -> str:
        """By the client's wall clock. This is the defect."""
        return f"to_timestamp({time.time():.6f})"


SYSTEM = lease_row.SYSTEM.derived(
    name="postgres-lease-row-client-clock",
    topologies=("postgres",),
    connect=LeaseRowClientClock,
    source=SHEDLOCK,
    variant=True,
    expectations=with_changes(
        {fault: said for fault, said in LEASE_ROW.items() if fault not in SERVER_CLOCKS},
        dict.fromkeys(SERVER_CLOCKS, holds(f"{WRITTEN}; no clock of a server is asked")),
        {
            # The victim keeps the hold that it has while its clock is off, so it takes no other's;
            # but its own row looks over to it.
            "client-clock-jump": {
                **breaks(SHEDLOCK, "linearizable", kind="control"),
                **may_break(SHEDLOCK, "double-grant", "lost-update", "leaked-lock", kind="control"),
            },
        },
    ),
)
