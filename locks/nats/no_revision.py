"""A control: ``nats-kv`` whose release is a plain delete, without the revision that it expects.

So it is what most write: delete of the clients asks for no revision unless it is given one
(https://github.com/nats-io/nats-architecture-and-design/issues/271). A holder that comes too late
deletes its successor's key, and a third client is let in beside the successor. The bench must catch
it; if it does not, the bench is broken.

Errors mean what they mean for ``nats-kv``; a delete is never refused for another message.
"""

from __future__ import annotations

from functools import partial

from lockbench.clusters.nats.bucket import DELETE, put
from lockbench.locks.bare import KEY, Bare
from lockbench.locks.base import Hold
from lockbench.locks.nats import kv
from lockbench.locks.nats.expectations import NATS
from lockbench.locks.nats.kv import NOT_THE_LAST, NatsKv, name_of
from lockbench.locks.shared.expectations import breaks, may_break, with_changes


class NatsNoRevision(NatsKv):
    """One client of the lock."""

    def free(self, hold: Hold) -> int | None:
        """Deletes the key, whoever holds it. This is the defect."""
        return put(self.open(), name_of(hold.key), b"", DELETE)


_PLAIN = (
    "https://github.com/nats-io/nats-architecture-and-design/issues/271: delete writes its marker "
    "whatever the key's last revision is, unless it is told which it expects"
)
_MAY = partial(may_break, _PLAIN, kind="control")
# A release may come, or be delivered, after its sender's time to live, or after a loss of the key.
_LATE = ("client-gc", "pause", "partition-stall", "wipe")
_SAYS_NOTHING = "a plain delete is confirmed whether or not there was something to delete"

SYSTEM = kv.SYSTEM.derived(
    name="nats-kv-no-revision",
    connect=NatsNoRevision,
    source=_PLAIN,
    variant=True,
    outcomes={
        row: meaning
        for row, meaning in kv.SYSTEM.outcomes.items()
        if row not in {f"release: {said}" for said in NOT_THE_LAST}
    },
    late_release="Released",
    not_owed=dict.fromkeys(
        (
            "a_released_hold_is_not_held",
            "a_frozen_holder_loses_it_after_its_promise_and_not_before",
        ),
        _SAYS_NOTHING,
    ),
    expectations=with_changes(
        NATS,
        dict.fromkeys(_LATE, _MAY("wrong-release", "false-release", "double-grant", "lost-update")),
        {
            "client-pause": {
                **breaks(_PLAIN, "wrong-release", kind="control"),
                **_MAY("false-release", "double-grant"),
            }
        },
    ),
    bare=(Bare("nats", (KEY, "expecting put", "delete")),),
)
