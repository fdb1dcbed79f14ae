"""``consul-session`` without a lock-delay and without a fence, as many set it to wait less.

Whoever asks is granted the key as soon as the session of its holder has ended, and nothing at the
resource can tell the two apart.

Errors mean what they mean for ``consul-session``.
"""

from __future__ import annotations

from typing import ClassVar

from lockbench.locks.consul import session
from lockbench.locks.consul.expectations import SESSIONS
from lockbench.locks.consul.session import ConsulSession, bare


class ConsulSessionNoDelay(ConsulSession):
    """One client of the lock."""

    lock_delay_ttls: ClassVar = 0.0
    fenced_by: ClassVar[str | None] = None


SYSTEM = session.SYSTEM.derived(
    name="consul-session-no-delay",
    connect=ConsulSessionNoDelay,
    fence=None,
    source=f"{SESSIONS}: 'clients are able to disable this mechanism by providing a zero delay'",
    kept_leases=2.0 + ConsulSessionNoDelay.lock_delay_ttls,
    variant=True,
    untested="only the lock-delay of its session is not that of consul-session",
    bare=bare(ConsulSessionNoDelay.behavior, ConsulSessionNoDelay.lock_delay_ttls),
)
