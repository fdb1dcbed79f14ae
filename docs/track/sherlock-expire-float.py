# /// script
# requires-python = ">=3.11"
# dependencies = ["sherlock==0.4.1", "redis==4.6.0"]
# ///
"""sherlock: with ``expire=3.5`` acquire raises, and leaves a key without expiry behind.

    uv run docs/track/sherlock-expire-float.py 127.0.0.1:6379

A acquires with ``expire=3.5`` and is told an error, B asks from then on until twice that time is
over. Then the same with ``expire=3``, where B is granted the lock once it is over.
"""

from __future__ import annotations

import time

from redis import Redis
from redis.exceptions import ResponseError
from sherlock import RedisLock

from plain import Recorder, end, servers

KEY = "lockbench-float"
NO_EXPIRY = -1  # what PTTL answers

[(host, port)], history = servers(__doc__, 1, "one Redis")
redis = Redis(host=host, port=port)


def lock(expire: float) -> RedisLock:
    """One client's."""
    return RedisLock(KEY, client=Redis(host=host, port=port), expire=expire)


def granted(within_s: float) -> bool:
    """Whether somebody else is, who asks again and again."""
    other, limit = lock(3), time.monotonic() + within_s
    while not (got := other.acquire(blocking=False)) and time.monotonic() < limit:
        time.sleep(0.05)
    if got:
        other.release()
    return got


redis.delete(KEY)
whole = lock(3)
assert whole.acquire(blocking=False)
assert granted(7), "a key whose time is over is not free either"

recorder = Recorder(KEY, strict_try=True)
half = lock(3.5)
acquire = recorder.begin("A", "acquire", "a1")
try:
    half.acquire(blocking=False)
    acquire.ok("True")
    raised = "nothing"
except ResponseError as error:
    raised = f"ResponseError: {error}"
    acquire.fail("gave-up: ResponseError", raised)
left_ms = redis.pttl(KEY)
free = granted(7)
other = recorder.begin("B", "acquire", "b1")
if lock(3).acquire(blocking=False):
    other.ok("True")
else:
    other.fail("held", "False, as it was for 7 s")
redis.delete(KEY)

del half, whole  # at the end of Python their __del__ fails
end(
    recorder,
    history,
    not free and left_ms == NO_EXPIRY and raised != "nothing",
    [f"acquire raised {raised}", f"PTTL after it: {left_ms} ({NO_EXPIRY}: no expiry)"],
)
