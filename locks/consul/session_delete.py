"""``consul-session`` with the behavior ``delete``: the key goes with the session that held it.

The fence is the ModifyIndex of the key, which is the index of the grant in Consul's log. The
LockIndex of a key that was deleted begins anew (``lockbench.locks.consul.lock_index_of_deleted``).

Errors mean what they mean for ``consul-session``.
"""

from __future__ import annotations

from typing import ClassVar

from lockbench.locks.consul import session
from lockbench.locks.consul.expectations import SESSIONS
from lockbench.locks.consul.session import ConsulSession, bare


class ConsulSessionDelete(ConsulSession):
    """One client of the lock."""

    behavior: ClassVar = "delete"
    fenced_by: ClassVar[str | None] = "ModifyIndex"


SYSTEM = session.SYSTEM.derived(
    name="consul-session-delete",
    connect=ConsulSessionDelete,
    fence="ModifyIndex of the key",
    source=f"{SESSIONS}: 'the key corresponding to any of the held locks is simply deleted'",
    variant=True,
    untested="its key goes with its session, as with consul-lock-index-of-deleted, which is tested",
    bare=bare(ConsulSessionDelete.behavior, ConsulSessionDelete.lock_delay_ttls),
)
