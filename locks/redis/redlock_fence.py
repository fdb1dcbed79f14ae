"""Redlock with a fence from one of its nodes: ``INCR <key>:fence`` on the first, after the grant.

Redlock has no fence of its own: 'The algorithm does not produce any number that is guaranteed to
increase every time a client acquires a lock' (Kleppmann). A counter on one node makes one, and with
it what five nodes were to avoid: without that node nobody is granted anything, and when it forgets,
fences begin anew while the lock itself may hold.

Errors mean what they mean for ``redlock``. Without a number the hold is given back: Denied when
that is confirmed, else Unknown.
"""

from __future__ import annotations

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
        if isinstance(fence, int):
            return replace(answer, fence=fence)
        if isinstance(self.release(answer.hold), Unknown):
            return Unknown("granted, but without a fence; release: no majority answered")
        return Denied("gave-up: granted, but the node that counts did not answer")


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
