"""A control: ``consul-session-delete`` with the LockIndex as its fence.

Consul's pages make the LockIndex a part of the sequencer, beside the key and the session. It counts
the acquisitions of a key for as long as the key is there. A session that ends with the behavior
``delete`` takes the key with it, and the next grant has LockIndex 1: a resource that has seen a
higher one refuses the rightful holder. In Consul v1.8.7, agent/consul/state/kvs.go, kvsLockTxn: an
entry that does not exist yet is given LockIndex 1. The bench must catch it; if it does not, the
bench is broken.

Errors mean what they mean for ``consul-session``.
"""

from __future__ import annotations

from typing import ClassVar

from lockbench.locks.consul import session_delete
from lockbench.locks.consul.expectations import CONSUL
from lockbench.locks.consul.session_delete import ConsulSessionDelete
from lockbench.locks.shared.expectations import (
    BY_MONOTONIC_CLOCK,
    SLOW_LINKS,
    breaks,
    may_break,
    with_changes,
    with_verdicts,
)

_BEGINS_ANEW = (
    "https://github.com/hashicorp/consul/blob/v1.8.7/agent/consul/state/kvs.go (kvsLockTxn): the "
    "LockIndex of a key that was deleted begins at 1 again"
)


class LockIndexOfDeleted(ConsulSessionDelete):
    """One client of the lock."""

    fenced_by: ClassVar[str | None] = "LockIndex"  # this is the defect


SYSTEM = session_delete.SYSTEM.derived(
    name="consul-lock-index-of-deleted",
    connect=LockIndexOfDeleted,
    fence="LockIndex of the key",
    source=_BEGINS_ANEW,
    untested="",
    expectations=with_changes(
        # A request that timed out ends its session, and with it the key.
        with_verdicts(CONSUL, may_break(_BEGINS_ANEW, "fence-order", kind="control"), *SLOW_LINKS),
        BY_MONOTONIC_CLOCK,
        dict.fromkeys(
            ("client-pause", "client-kill"), breaks(_BEGINS_ANEW, "fence-order", kind="control")
        ),
    ),
)
