# /// script
# requires-python = ">=3.11"
# dependencies = ["python-redis-lock==4.0.1", "redis==8.1.0"]
# ///
"""python-redis-lock: one lost renewal ends the renewal for good, and the holder is not told.

    uv run docs/track/python-redis-lock-renewal.py 127.0.0.1:6379

The client makes no retries (redis-py's default of ten hides it). The reply to one renewal is
lost: the thread that renews dies of the exception, the key runs out, and somebody else is
granted the lock.
"""

from __future__ import annotations

import logging
import threading
import time

import redis_lock
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from plain import Proxy, Recorder, end, servers

KEY = "lockbench-renewal"
TTL_S = 3

[(host, port)], history = servers(__doc__, 1, "one Redis")
direct = Redis(host=host, port=port)
direct.delete(f"lock:{KEY}", f"lock-signal:{KEY}")
proxy = Proxy((host, port))
once = Redis(host=proxy.host, port=proxy.port, retry=Retry(NoBackoff(), 0), socket_timeout=None)
direct.script_load(redis_lock.EXTEND_SCRIPT)  # so that the first EVALSHA renews
logging.getLogger("redis_lock").setLevel(logging.ERROR)
recorder = Recorder(KEY)
died: list[str] = []
threading.excepthook = lambda args: died.append(f"{args.exc_type.__name__}: {args.exc_value}")

a = redis_lock.Lock(once, KEY, expire=TTL_S, auto_renewal=True)
acquire = recorder.begin("A", "acquire", "a1")
sent_ns = time.monotonic_ns()
assert a.acquire(blocking=False)
acquire.ok(
    "True, renewed as long as it is held", sent_ns=sent_ns, valid_until_ns=sent_ns + TTL_S * 10**9
)
read = recorder.begin("A", "read", "a1")
version = 0  # the guarded resource: a version that every write makes one higher
read.ok("version 0", value=version, applied_ns=time.monotonic_ns())

began_ns = time.monotonic_ns()
proxy.lose = lambda request: b"EVALSHA" in request
b = redis_lock.Lock(direct, KEY, expire=TTL_S)
other = recorder.begin("B", "acquire", "b1")
got, limit = False, time.monotonic() + 3 * TTL_S
while not got and time.monotonic() < limit:
    sent_ns = time.monotonic_ns()
    got = b.acquire(blocking=False)
    time.sleep(0 if got else 0.05)
if proxy.lost_ns is not None:
    recorder.fault("reply-lost", proxy.lost_ns, proxy.lost_ns)
if got:
    other.ok("True", sent_ns=sent_ns, valid_until_ns=sent_ns + TTL_S * 10**9)
else:
    other.fail("gave-up", "False")

write = recorder.begin("A", "write", "a1")
now_ns = time.monotonic_ns()
write.ok("applied: A goes on as before", version=version, value=version + 1, applied_ns=now_ns)

end(
    recorder,
    history,
    bool(got and died),
    [
        f"the thread that renews died of {died}; nothing raised in the thread that holds the lock",
        f"B was told {got} while A was still holding",
    ],
)
