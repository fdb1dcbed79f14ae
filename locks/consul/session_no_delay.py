"""``consul-session`` without a lock-delay and without a fence, as many set it to wait less.

Whoever asks is granted the key as soon as the session of its holder has ended, and nothing at the
resource can tell the two apart.

Errors mean what they mean for ``consul-session``.
"""

from __future__ import annotations

from typing import ClassVar

from lockbench.locks.consul import session
from lockbench.locks.consul.expectations import CONSUL, SESSIONS, SESSIONS_END
from lockbench.locks.consul.session import ConsulSession, bare
from lockbench.locks.shared.expectations import BY_MONOTONIC_CLOCK, breaks, with_changes


class ConsulSessionNoDelay(ConsulSession):
    """One client of the lock."""

    lock_delay_ttls: ClassVar = 0.0
    fenced_by: ClassVar[str | None] = None


SYSTEM = session.SYSTEM.derived(
    name="consul-session-no-delay",
    connect=ConsulSessionNoDelay,
    fence=None,
    source=f"{SESSIONS}: 'clients are able to disable this mechanism by providing a zero delay'",
    expectations=with_changes(
        CONSUL, BY_MONOTONIC_CLOCK, {"client-pause": breaks(SESSIONS_END, "stale-holder")}
    ),
    settles_s=0.0,
    variant=True,
    bare=bare(ConsulSessionNoDelay.behavior, ConsulSessionNoDelay.lock_delay_ttls),
)
