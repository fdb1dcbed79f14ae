# /// script
# requires-python = ">=3.11"
# dependencies = ["python-redis-lock==4.0.1", "redis==8.1.0"]
# ///
"""python-redis-lock: a waiter that was held up for a second sleeps beside a lock that nobody holds.

    uv run docs/track/python-redis-lock-signal.py 127.0.0.1:6379

One client holds the lock, another asks for it with a timeout of 8 s, and the first releases half a
second after that was refused. Once all replies to the second are on time, and once they are 2 s
late.
"""

from __future__ import annotations

import threading
import time

import redis
from redis_lock import Lock

from plain import Proxy, Recorder, end, servers

NAME = "lockbench-signal"
EXPIRE_S = 30
TIMEOUT_S = 8
LATE_S = 2.0

[server], history = servers(__doc__, 1, "a Redis server")
direct = redis.Redis(*server)
recorder = Recorder(NAME)


def waited_s(late_s: float) -> float:
    """How long the lock was free before the waiter was granted it."""
    proxy = Proxy(server)
    through = redis.Redis(proxy.host, proxy.port, socket_timeout=None)
    through.ping()
    waiter, holder = (Lock(client, NAME, expire=EXPIRE_S) for client in (through, direct))
    proxy.reply_delay_s = late_s
    holding = recorder.begin("A", "acquire", f"first-{late_s:g}")
    assert holder.acquire(blocking=False), "nobody else has it"
    holding.ok("granted")
    granted: list[float] = []

    def wait() -> None:
        acquire = recorder.begin("B", "acquire", f"second-{late_s:g}")
        assert waiter.acquire(timeout=TIMEOUT_S), "the lock is free"
        granted.append(time.monotonic())
        acquire.ok(f"granted, with replies {late_s:g} s late")

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    time.sleep(late_s + 0.5)  # it has looked whose the lock is, and its SET was refused
    releasing = recorder.begin("A", "release", f"first-{late_s:g}")
    holder.release()
    released = time.monotonic()
    releasing.ok("the lock is free")
    thread.join()
    proxy.reply_delay_s = 0.0
    releasing = recorder.begin("B", "release", f"second-{late_s:g}")
    waiter.release()
    releasing.ok("for the next one")
    return granted[0] - released


direct.delete(f"lock:{NAME}", f"lock-signal:{NAME}")
on_time_s, late_s = waited_s(0.0), waited_s(LATE_S)
assert on_time_s < 1.0, f"a waiter whose replies are on time waits, too: {on_time_s:.1f} s"
end(
    recorder,
    history,
    late_s > 2 * LATE_S + 1.0,
    [
        f"with replies on time, it was granted {on_time_s:.2f} s after the release",
        f"with replies {LATE_S:g} s late, {late_s:.2f} s after it",
    ],
)
