"""``postgres-advisory`` behind PgBouncer in transaction mode, where it is no lock.

The lock belongs to a connection of the server, and PgBouncer gives that to the next client when the
statement is over. Whoever gets it is granted the lock again, because the server sees one session
asking twice. A release that comes over another connection finds nothing, and the lock stays until
PgBouncer closes the connection that has it.

Migrations of Rails take this lock, and are told to do without it behind such a pooler
(https://help.heroku.com/UYH8N2WW). ``postgres-advisory-xact`` and ``postgres-lease-row`` are what
can be used there.

Does not guarantee: anything. What errors mean stands in ``lockbench.locks.postgres.recipe``.
"""

from __future__ import annotations

from lockbench.locks.base import ANY, Expectation
from lockbench.locks.postgres import advisory
from lockbench.locks.postgres.expectations import POSTGRES
from lockbench.locks.shared.expectations import UNMINDED, breaks, may_break

POOLED = (
    "https://www.pgbouncer.org/features.html: of session-level advisory locks the SQL feature map "
    "says 'Never' for transaction pooling"
)
_NO_HOLDER = {
    ANY: Expectation(
        "n/a",
        "it lets two in without a fault, and what nobody can release stays locked, so that a fault "
        "finds no holder",
    )
}

SYSTEM = advisory.SYSTEM.derived(
    name="postgres-advisory-pooled",
    topologies=("pgbouncer-transaction",),
    source=POOLED,
    variant=True,
    expectations={
        **dict.fromkeys((*POSTGRES, *UNMINDED), _NO_HOLDER),
        "none": {**may_break(POOLED, ANY), **breaks(POOLED, "double-grant")},
    },
)
