"""``redis-token`` whose waiters are woken instead of polling.

A release deletes the key and publishes it, in one script. A waiter subscribes, on a connection of
its own, tries again (the release may have come before the subscription) and then sleeps until the
word comes or the key's time to live must be over: a holder that died publishes nothing, and Redis
delivers a message at most once (https://redis.io/docs/latest/develop/pubsub/). All waiters of a key
wake together and one of them gets it. It stops listening before its grant is told, and looks at the
clock after that.

Does not guarantee: what ``redis-token`` does not; any order among the waiters.

Errors mean what ``lockbench.locks.redis.recipe`` says for scripts. A subscription that fails is a
wake-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockbench.locks.bare import KEY, TOKEN, TTL_MS, Bare
from lockbench.locks.base import (
    Acquired,
    Address,
    Backoff,
    Deadline,
    Denied,
    Granted,
    Hold,
    Observer,
    token_of,
)
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.link import Link, NotSent, Script
from lockbench.locks.redis.recipe import POLL_MAX_S, POLL_MIN_S, SCRIPT_OUTCOMES, Taken
from lockbench.locks.redis.token import RedisToken

# Returns how long the present holder may keep the key at most, if it is held.
TAKE = Script.of(
    "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) or redis.call('pttl', KEYS[1])"
)
FREE = Script.of(
    "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end "
    "redis.call('publish', ARGV[2], '') return redis.call('del', KEYS[1])"
)


class RedisPubsub(RedisToken):
    """One client of the lock."""

    by_script = True

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        super().__init__(nodes, timeout_s=timeout_s, ttl_s=ttl_s, observer=observer)
        self._ear = Link(nodes[0], timeout_s=timeout_s)
        self._held_for_s = 0.0  # at most, as the last try was told

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Tries, and as long as the key is held and the wait lasts, sleeps until it may be free."""
        deadline = Deadline(wait_s)
        answer = self._try(key, hold_id, ttl_s)
        if not isinstance(answer, Denied) or wait_s <= 0:
            return answer
        backoff = Backoff(POLL_MIN_S, POLL_MAX_S)
        listening = False
        while True:
            if not listening:
                listening = self._listen(key)
                if not listening:
                    backoff.pause(deadline.left_s())
            last = deadline.over()
            answer = self._try(key, hold_id, ttl_s)
            if last or not isinstance(answer, Denied):
                break
            if listening:
                listening = self._sleep(deadline)
        if listening:
            self._stop_listening()
        if isinstance(answer, Granted):
            return self._in_time(answer)
        return Denied(f"gave-up: {answer.reason}") if isinstance(answer, Denied) else answer

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        self._held_for_s = 0.0  # a grant that comes too late says nothing of another's hold
        answer: Any = self._link.run(TAKE, key, token, ttl_ms)
        if answer == b"OK":
            return Taken(self._link.sent_ns)
        self._held_for_s = max(0, int(answer)) / 1000
        return None

    def free(self, hold: Hold) -> bool:
        """Deletes the key if it still carries this hold's token, and says so."""
        return bool(self._link.run(FREE, hold.key, token_of(hold.id), _channel(hold.key)))

    def close(self) -> None:
        super().close()
        self._ear.close()

    def _listen(self, key: str) -> bool:
        try:
            self._ear.open()
            self._ear.call("SUBSCRIBE", _channel(key))
        except (NotSent, exceptions.RedisError):
            self._ear.close()
            return False
        return True

    def _sleep(self, deadline: Deadline) -> bool:
        """Until there is something to try for; whether the subscription still stands."""
        try:
            self._ear.heard(min(deadline.left_s(), self._held_for_s + POLL_MIN_S))
        except exceptions.RedisError:
            self._ear.close()
            return False
        return True

    def _stop_listening(self) -> None:
        """What is published until the server has heard of it arrives before its answer."""
        try:
            answer: Any = self._ear.call("UNSUBSCRIBE")
            while answer is not None and answer[0] != b"unsubscribe":
                answer = self._ear.heard(POLL_MAX_S)
            if answer is None:
                self._ear.close()
        except exceptions.RedisError:
            self._ear.close()


def _channel(key: str) -> str:
    return f"{key}:freed"


SYSTEM = redis_token.SYSTEM.derived(
    name="redis-pubsub",
    elsewhere=True,
    connect=RedisPubsub,
    waits_by="PUBLISH of the release, or the end of the time to live",
    source="https://redis.io/docs/latest/develop/pubsub/ ('at-most-once' delivery)",
    outcomes=SCRIPT_OUTCOMES,
    parameters={},
    variant=True,
    bare=(
        Bare("redis", (TAKE.called(KEY, TOKEN, TTL_MS), FREE.called(KEY, TOKEN, _channel(KEY)))),
    ),
)
