"""First come, first served: ``redis-token`` with a queue on the server.

A try takes the key only if the key is free and nobody is before it in the queue; else it joins the
queue, if it means to wait. The queue is a sorted set of tokens by their number of arrival. A second
one says when each was last seen: who has not polled for PATIENCE_MS is dropped, so a client that
died while waiting holds up the others for no longer. As Redisson's fair lock
(https://redisson.pro/docs/data-and-services/locks-and-synchronizers/).

Only the first of a queue can be granted anything, so nobody else makes up for its sleep: pauses
grow with the number of those before, and not with the number of tries.

Does not guarantee: what ``redis-token`` does not; and its order only among clients that keep
polling: whoever is cut off, or frozen, or waits through a jump of the server's clock loses its
place.

Errors mean what ``lockbench.locks.redis.recipe`` says for scripts. Leaving the queue may fail
without harm: the place is dropped like that of the dead.
"""

from __future__ import annotations

import time
from contextlib import suppress

from lockbench.locks.bare import KEY, TOKEN, TTL_MS, Bare
from lockbench.locks.base import ANY, Acquired, Backoff, Denied, QueueObserver, token_of
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.expectations import LEASE
from lockbench.locks.redis.link import BARE_CYCLE, NotSent, Script
from lockbench.locks.redis.recipe import POLL_MAX_S, POLL_MIN_S, SCRIPT_OUTCOMES, Taken
from lockbench.locks.redis.token import RedisToken
from lockbench.locks.shared.expectations import RESTARTED, SERVER_CLOCKS, may_break, with_changes

PATIENCE_MS = 500  # ten of the longest pauses between two polls
# From the send of a poll to the answer to the next: for less than this the place was kept, with
# some room for a server's clock that is slewed.
KEPT_NS = PATIENCE_MS * 900_000

# Keys: the lock, the queue, who was last seen when. Arguments: token, ttl, patience, whether to
# stay. Returns how many are before, the holder among them.
TAKE = Script.of(
    """
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, gone in ipairs(redis.call('zrangebyscore', KEYS[3], '-inf', now - ARGV[3])) do
  redis.call('zrem', KEYS[2], gone)
  redis.call('zrem', KEYS[3], gone)
end
local first = redis.call('zrange', KEYS[2], 0, 0)[1]
if not first or first == ARGV[1] then
  if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
    redis.call('zrem', KEYS[2], ARGV[1])
    redis.call('zrem', KEYS[3], ARGV[1])
    return 0
  end
end
if ARGV[4] == '1' then
  local last = redis.call('zrange', KEYS[2], -1, -1, 'WITHSCORES')[2] or 0
  redis.call('zadd', KEYS[2], 'NX', last + 1, ARGV[1])
  redis.call('zadd', KEYS[3], now, ARGV[1])
end
return 1 + (redis.call('zrank', KEYS[2], ARGV[1]) or 0)
""",
    keys=3,
)
LEAVE = Script.of(
    "redis.call('zrem', KEYS[1], ARGV[1]) return redis.call('zrem', KEYS[2], ARGV[1])", keys=2
)


class RedisFair(RedisToken):
    """One client of the lock."""

    by_script = True
    _waits = False  # the acquire that is under way
    _before = 0  # as the last try was told

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Queues for the key, and leaves the queue when the wait is over."""
        self._waits = wait_s > 0
        self._hold_id = hold_id
        self._polled_ns = 0
        answer = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        if self._waits and isinstance(answer, Denied):
            with suppress(NotSent, exceptions.RedisError):
                self._link.open()
                self._link.run(LEAVE, *_queue(key), token_of(hold_id))
        return answer

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        """Sets the key if it is free and nobody was there before."""
        stays = int(self._waits)
        self._before = 0
        before = self._link.run(TAKE, key, *_queue(key), token, ttl_ms, PATIENCE_MS, stays)
        self._before = int(before)
        now_ns = time.monotonic_ns()
        waited = bool(before) or self._polled_ns > 0
        # The first poll, or one after which the place may be a new one.
        may_be_new = stays and waited and now_ns - self._polled_ns >= KEPT_NS
        if may_be_new and isinstance(self._observer, QueueObserver):
            self._observer.queued(key, self._hold_id, acknowledged_ns=now_ns)
        self._polled_ns = self._link.sent_ns
        return None if before else Taken(self._link.sent_ns)

    def rest(self, backoff: Backoff, limit_s: float) -> None:
        """The nearer its turn, the sooner it asks again. Where nobody said how near, as any recipe
        does."""
        if not self._before:
            backoff.pause(limit_s)
            return
        time.sleep(max(0.0, min(limit_s, POLL_MAX_S, POLL_MIN_S * self._before)))


def _queue(key: str) -> tuple[str, str]:
    return f"{key}:queue", f"{key}:seen"


FAIR_DOC = "https://redisson.pro/docs/data-and-services/locks-and-synchronizers/ (fair lock)"
# A server that forgets, or whose clock is wrong, drops places.
_FORGOTTEN = (*RESTARTED, "wipe", *SERVER_CLOCKS)
_QUEUE_LOST = may_break(
    f"{FAIR_DOC}: places are kept in Redis for as long as its clock says that their owners were "
    "seen",
    "queue-order",
)

_BARE_TAKE = TAKE.called(KEY, *_queue(KEY), TOKEN, TTL_MS, PATIENCE_MS, 1)

SYSTEM = redis_token.SYSTEM.derived(
    name="redis-fair",
    elsewhere=True,
    suites={"capacity": (ANY,)},
    queue=FAIR_DOC,
    expectations=with_changes(LEASE, dict.fromkeys(_FORGOTTEN, _QUEUE_LOST)),
    connect=RedisFair,
    waits_by=(
        f"a queue, and polling, pauses of {POLL_MIN_S * 1e3:g} to {POLL_MAX_S * 1e3:g} ms by place"
    ),
    source=FAIR_DOC,
    outcomes=SCRIPT_OUTCOMES,
    parameters={},
    bare=(Bare("redis", (_BARE_TAKE, *BARE_CYCLE[1:])),),
)
