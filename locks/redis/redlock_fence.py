"""Redlock with a fence from one of its nodes: ``INCR <key>:fence`` on the first, after the grant.

Redlock has no fence of its own: 'The algorithm does not produce any number that is guaranteed to
increase every time a client acquires a lock' (Kleppmann). A counter on one node makes one, and with
it what five nodes were to avoid: without that node nobody is granted anything, and when it forgets,
fences begin anew while the lock itself may hold.

Errors mean what they mean for ``redlock``. Without a number, or if it comes after the promise has
ended, the hold is given back: Denied when that is confirmed, else Unknown.
"""

from __future__ import annotations

import time
from dataclasses import replace

from lockbench.locks.bare import KEY, Bare
from lockbench.locks.base import Acquired, Denied, Granted, Unknown
from lockbench.locks.redis import redlock
from lockbench.locks.redis.expectations import KLEPPMANN, PERSISTENCE_DOC, REDLOCK
from lockbench.locks.redis.redlock import Redlock
from lockbench.locks.redis.redlock_nodes import Question
from lockbench.locks.shared.expectations import RESTARTED, may_break, with_changes

COUNTER = 0  # the node that counts


class RedlockFence(Redlock):
    """One client of the lock."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Gets the lock from a majority, and its fence from one."""
        answer = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        if not isinstance(answer, Granted):
            return answer
        count = Question("INCR", f"{key}:fence")
        self._nodes.ask(count, {COUNTER}, lambda _: COUNTER in count.answers, self._limit_s)
        fence = count.answers.get(COUNTER)
        in_time = answer.valid_until_ns is None or time.monotonic_ns() < answer.valid_until_ns
        if isinstance(fence, int) and in_time:
            return replace(answer, fence=fence)
        why = "without a fence" if in_time else "too late"
        if isinstance(self.release(answer.hold), Unknown):
            return Unknown(f"granted, but {why}; release: no majority answered")
        return Denied(f"gave-up: granted, but {why}")


_NO_NUMBER = (
    f"{KLEPPMANN}: 'It's not obvious to me how one would change the Redlock algorithm to start "
    "generating fencing tokens'; a counter on one node would be lost with it"
)

SYSTEM = redlock.SYSTEM.derived(
    name="redlock-fence",
    elsewhere=True,
    fence="INCR on the first node",
    source=f"{redlock.SYSTEM.source}; {KLEPPMANN}",
    connect=RedlockFence,
    bare=(
        *redlock.SYSTEM.bare,
        Bare("redlock", (f"INCR {KEY}:fence",), slice(COUNTER, COUNTER + 1)),
    ),
    outcomes={
        **redlock.SYSTEM.outcomes,
        "acquire: counting node closes": "Denied: gave-up",
        "acquire: counting node replies with errors": "Denied: gave-up",
    },
    expectations=with_changes(
        REDLOCK,
        dict.fromkeys(RESTARTED, may_break(PERSISTENCE_DOC, "fence-order")),
        # Only if the node that counts is among those that lose their data.
        {"wipe": may_break(_NO_NUMBER, "fence-order")},
    ),
)
