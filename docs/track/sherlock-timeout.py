# /// script
# requires-python = ">=3.11"
# dependencies = ["sherlock==0.4.1", "redis==4.6.0"]
# ///
"""sherlock: a waiter with ``timeout=0.3`` gives up after 0.2 s, and the lock that is free at 0.28 s
goes to nobody.

    uv run docs/track/sherlock-timeout.py 127.0.0.1:6379

A holds the lock for 0.28 s, B waits for it with ``timeout=0.3``; twenty times. Then the same with
``timeout=0.5``, where B is granted it.
"""

from __future__ import annotations

import threading
import time

from redis import Redis
from sherlock import LockTimeoutException, RedisLock

from plain import Recorder, end, servers

KEY = "lockbench-timeout"
HELD_S, TIMES = 0.28, 20

[(host, port)], history = servers(__doc__, 1, "one Redis")
Redis(host=host, port=port).delete(KEY)
recorder = Recorder(KEY, quiet=True)


def lock(timeout: float = 0) -> RedisLock:
    """One client's."""
    return RedisLock(KEY, client=Redis(host=host, port=port), expire=60, timeout=timeout)


def waited(timeout: float, number: str) -> tuple[bool, float]:
    """Whether B was granted the lock, and after how many seconds it was told."""
    a, b = lock(), lock(timeout)
    holding = recorder.begin("A", "acquire", f"a{number}")
    assert a.acquire(blocking=False)
    holding.ok("True")

    def release() -> None:
        releasing = recorder.begin("A", "release", f"a{number}")
        a.release()
        releasing.ok("None")

    timer = threading.Timer(HELD_S, release)
    asking = recorder.begin("B", "acquire", f"b{number}")
    began = time.monotonic()
    timer.start()
    try:
        got = b.acquire()
    except LockTimeoutException:
        got = False
    took_s = time.monotonic() - began
    timer.join()
    if got:
        asking.ok("True")
        giving = recorder.begin("B", "release", f"b{number}")
        b.release()
        giving.ok("None")
    else:
        asking.fail("gave-up", "LockTimeoutException")
    return got, took_s


long = [waited(0.5, f"-long-{i}") for i in range(3)]
assert all(got for got, _ in long), "a waiter is not granted the lock when it is given back either"
short = [waited(0.3, f"-{i}") for i in range(TIMES)]
early = [took_s for got, took_s in short if not got and took_s < HELD_S]
end(
    recorder,
    history,
    bool(early),
    [
        f"timeout=0.5: granted {sum(got for got, _ in long)} of {len(long)}",
        f"timeout=0.3: gave up {len(early)} of {TIMES} before A gave it back at {HELD_S} s"
        + (f", after {min(early):.3f} to {max(early):.3f} s" if early else ""),
    ],
)
