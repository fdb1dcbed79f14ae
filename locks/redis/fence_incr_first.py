"""A control: the fence is drawn before the lock is taken, as articles show it.

``INCR key:fence`` once, then ``SET key fence NX PX ttl`` until it succeeds. Whoever draws first
need not be granted first: a client that waited comes out with a smaller fence than its predecessor,
and a resource that checks fences refuses the rightful holder. Contention alone shows it.

Errors mean what ``lockbench.locks.redis.recipe`` says. Those of INCR come before anything was
taken: no effect, and within its wait an acquire draws again; a number may be lost.
"""

from __future__ import annotations

from lockbench.locks.bare import KEY, Bare
from lockbench.locks.base import Acquired, Backoff, Deadline, Denied
from lockbench.locks.redis import fence as redis_fence
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.expectations import KLEPPMANN, LEASE
from lockbench.locks.redis.link import BARE_CYCLE, NotSent
from lockbench.locks.redis.recipe import OUTCOMES, POLL_MAX_S, POLL_MIN_S, Taken, named
from lockbench.locks.redis.token import RedisToken
from lockbench.locks.shared.expectations import UNMINDED, breaks, with_verdicts


class RedisFenceIncrFirst(RedisToken):
    """One client of the lock."""

    _drawn = 0  # by the acquire that is under way

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Draws a fence, again if that fails within the wait, then polls until the key is free."""
        deadline = Deadline(wait_s)
        backoff = Backoff(POLL_MIN_S, POLL_MAX_S)
        while True:
            try:
                self._link.open()
                self._drawn = int(self._link.call("INCR", f"{key}:fence"))
                break
            except (NotSent, exceptions.RedisError) as error:
                if deadline.over():
                    return Denied(f"no-effect: INCR: {named(error)}")
            backoff.pause(deadline.left_s())
        left_s = max(0.0, deadline.left_s())
        return super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=left_s)

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        """Sets the key unless it is there; the fence is older than the grant. The defect."""
        taken = super().take(key, token, ttl_ms)
        return taken and taken._replace(fence=self._drawn)


_DEFECT = (
    "https://computingseries.com/s/book3/ch23_distributed_locks/how-it-works ('token = "
    "atomic_increment(…)', then 'set_if_absent'), against "
    f"{KLEPPMANN}: a fencing token increases with every grant; this one with every request"
)

SYSTEM = redis_fence.SYSTEM.derived(
    name="redis-fence-incr-first",
    elsewhere=True,
    connect=RedisFenceIncrFirst,
    fence="INCR before SET",
    source=_DEFECT,
    outcomes={
        **OUTCOMES,
        "drawing: ResponseError": "Denied: no-effect",
        "drawing: TimeoutError": "Denied: no-effect",
        "drawing: ConnectionError": "Denied: no-effect",
    },
    bare=(Bare("redis", (f"INCR {KEY}:fence", *BARE_CYCLE)),),
    expectations=with_verdicts(LEASE, breaks(_DEFECT, "fence-order", kind="control"), *UNMINDED),
)
