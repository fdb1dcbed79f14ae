# /// script
# requires-python = ">=3.11"
# dependencies = ["redis==8.1.0"]
# ///
"""SETNX and then EXPIRE: a client that dies between the two has locked the key for ever.

    uv run docs/track/redis-setnx-expire-crash.py 127.0.0.1:6379

A child process sends SETNX, gets its answer, and is killed before it sends PEXPIRE. Then another
client tries for three times the time to live.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

from redis import Redis

from plain import Recorder, end, servers

KEY = "lockbench:crash"
TTL_MS = 1000

[(host, port)], history = servers(__doc__, 1, "one Redis")


def holder() -> None:
    """Takes the lock as old articles do, and dies between the two commands."""
    client = Redis(host=host, port=port)
    if client.setnx(KEY, "token-of-A"):
        os.kill(os.getpid(), signal.SIGKILL)
        client.pexpire(KEY, TTL_MS)


direct = Redis(host=host, port=port)
direct.delete(KEY)
recorder = Recorder(KEY, strict_try=True)
child = multiprocessing.get_context("fork").Process(target=holder)
child.start()
child.join()
assert child.exitcode == -signal.SIGKILL, "the holder was not killed where it should be"

until = time.monotonic() + 3 * TTL_MS / 1000
got = False
while not got and time.monotonic() < until:
    tried = recorder.begin("B", "acquire", "b1")
    got = bool(direct.setnx(KEY, "token-of-B"))
    time.sleep(0 if got else 0.05)
if got:
    tried.ok("True")
else:
    tried.fail("held", "False")
left = direct.pttl(KEY)

end(
    recorder,
    history,
    not got and left == -1,
    [f"three times to live after A's death, B was told {got}; PTTL is {left}: no end"],
)
