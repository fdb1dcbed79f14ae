# /// script
# requires-python = ">=3.11"
# dependencies = ["sherlock==0.4.1", "redis==4.6.0"]
# ///
"""sherlock: a lock that is to have no expiry is gone before ``acquire`` returns.

    uv run docs/track/sherlock-expire-none.py 127.0.0.1:6379

A acquires with ``expire=None`` and keeps the lock; B, who tries once, is granted it too. Then the
same with ``expire=60``, where B is refused.
"""

from __future__ import annotations

from redis import Redis
from sherlock import RedisLock

from plain import Recorder, end, servers

KEY = "lockbench-none"
NO_KEY, NO_EXPIRY = -2, -1  # what PTTL answers

[(host, port)], history = servers(__doc__, 1, "one Redis")
redis = Redis(host=host, port=port)
redis.delete(KEY, f"{KEY}-60")


def lock(name: str, expire: int | None) -> RedisLock:
    """One client's."""
    return RedisLock(name, client=Redis(host=host, port=port), expire=expire)


a60, b60 = lock(f"{KEY}-60", 60), lock(f"{KEY}-60", 60)
assert a60.acquire(blocking=False)
assert not b60.acquire(blocking=False), "sherlock does not exclude anybody here"
a60.release()

recorder = Recorder(KEY)
a, b = lock(KEY, None), lock(KEY, None)
acquire = recorder.begin("A", "acquire", "a1")
assert a.acquire(blocking=False)
acquire.ok("True, without expiry")
left_ms = redis.pttl(KEY)
other = recorder.begin("B", "acquire", "b1")
granted = b.acquire(blocking=False)
if granted:
    other.ok("True")
else:
    other.fail("held", "False")

del a, b, a60, b60  # at the end of Python their __del__ fails
end(
    recorder,
    history,
    bool(granted and left_ms == NO_KEY),
    [f"PTTL after A was granted it: {left_ms} ({NO_KEY}: no key, {NO_EXPIRY}: no expiry)"],
)
