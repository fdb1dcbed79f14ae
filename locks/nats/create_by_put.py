"""A control: ``nats-kv`` whose create puts its value in the place of a marker, without a condition.

Two clients that find the key deleted both put their value, and both are told that it was stored. So
it was in the Rust client: https://github.com/nats-io/nats.rs/pull/1301 ('this above scenario
results in potentially more than one writer who believes they have uniquely acquired the distributed
lock'). The bench must catch it; if it does not, the bench is broken.

Errors mean what they mean for ``nats-kv``; a put is never refused for another message.
"""

from __future__ import annotations

from collections.abc import Mapping

from lockbench.clusters.nats.bucket import Entry, put
from lockbench.clusters.nats.protocol import Session
from lockbench.locks.bare import KEY, Bare
from lockbench.locks.nats import kv
from lockbench.locks.nats.expectations import NATS
from lockbench.locks.nats.kv import NOT_THE_LAST, NatsKv
from lockbench.locks.shared.expectations import UNMINDED, breaks, may_break, with_verdicts


class NatsCreateByPut(NatsKv):
    """One client of the lock."""

    def renew_marker(
        self, session: Session, key: str, value: bytes, marker: Entry, ttl: Mapping[str, str]
    ) -> int:
        """Puts the value, whatever is there by now. This is the defect."""
        return put(session, key, value, ttl)


_PUBLISHED = (
    "https://github.com/nats-io/nats.rs/pull/1301: create() after a delete used put(), 'which "
    "ignores the revision of that last entry'"
)

SYSTEM = kv.SYSTEM.derived(
    name="nats-kv-create-by-put",
    connect=NatsCreateByPut,
    source=_PUBLISHED,
    variant=True,
    outcomes={
        row: meaning
        for row, meaning in kv.SYSTEM.outcomes.items()
        if row not in {f"create after a marker: {said}" for said in NOT_THE_LAST}
    },
    expectations=with_verdicts(
        NATS,
        {
            **breaks(_PUBLISHED, "double-grant", kind="control"),
            **may_break(
                _PUBLISHED,
                *("fence-order", "stale-holder", "lost-update", "linearizable"),
                kind="control",
            ),
        },
        *UNMINDED,
    ),
    bare=(Bare("nats", (KEY, "put", "expecting delete")),),
)
