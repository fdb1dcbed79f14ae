# /// script
# requires-python = ">=3.11"
# dependencies = ["python-redis-lock==4.0.1", "redis==8.1.0"]
# ///
"""python-redis-lock: with redis-py 8 at its defaults, a wait of 6 s lasts a minute and raises.

    uv run docs/track/python-redis-lock-limit.py 127.0.0.1:6379

Somebody holds the lock all the time, and nothing is broken. One client asks for it with a timeout
of 3 s, one with a timeout of 6 s, and one with 6 s whose Redis client has no time limit.
"""

from __future__ import annotations

import time

from redis import Redis
from redis_lock import Lock

from plain import Recorder, end, servers

NAME = "lockbench-limit"

[(host, port)], history = servers(__doc__, 1, "a Redis server")
holder = Redis(host, port)
holder.delete(f"lock:{NAME}", f"lock-signal:{NAME}")
recorder = Recorder(NAME)
holding = recorder.begin("A", "acquire", "holder")
assert Lock(holder, NAME, id="holder").acquire(blocking=False), "nobody else has it"
holding.ok("held to the end")


def waited(client: Redis, timeout_s: int) -> tuple[float, str]:
    """How long a wait lasts, and how it ends."""
    began = time.monotonic()
    try:
        outcome = f"returned {Lock(client, NAME).acquire(timeout=timeout_s)!r}"
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        outcome = f"raised {type(error).__name__}"
    return time.monotonic() - began, outcome


short = waited(Redis(host, port), 3)
unlimited = waited(Redis(host, port, socket_timeout=None), 6)
assert short[1] == unlimited[1] == "returned False", f"those end in time: {short}, {unlimited}"
usual = waited(Redis(host, port), 6)
end(
    recorder,
    history,
    usual[0] > 12.0 or usual[1] != "returned False",
    [
        f"a timeout of 3 s: {short[1]} after {short[0]:.1f} s",
        f"a timeout of 6 s, socket_timeout=None: {unlimited[1]} after {unlimited[0]:.1f} s",
        f"a timeout of 6 s, at redis-py's defaults: {usual[1]} after {usual[0]:.1f} s",
    ],
)
