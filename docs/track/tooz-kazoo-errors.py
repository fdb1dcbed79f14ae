# /// script
# requires-python = ">=3.11"
# dependencies = ["tooz==9.1.0", "kazoo==2.11.0"]
# ///
"""tooz on ZooKeeper: kazoo's errors come out of a lock, and not a ToozError.

    uv run docs/track/tooz-kazoo-errors.py 127.0.0.1:2181

B waits for 0.5 s for a lock that A holds: nothing is broken. Then C gives its lock back, and the
answer is lost. C's heartbeat, whose answer was lost before, raised a ToozError.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import tooz
from tooz.coordination import get_coordinator

from plain import Proxy, Recorder, end, servers

NAME = b"lockbench-errors"
WAIT_S = 0.5
# After the length and the number of a request comes what it is.
DELETE, GET_DATA = (2).to_bytes(4, "big"), (4).to_bytes(4, "big")

logging.disable()
[(host, port)], history = servers(__doc__, 1, "ZooKeeper")
proxy = Proxy((host, port))
recorder = Recorder(NAME.decode())


def started(member: str, at: str, **options: Any) -> Any:
    """A coordinator."""
    made = get_coordinator(f"zookeeper://{at}", member.encode(), **options)
    made.start()
    return made


def outcome(call: Callable[..., object], **how: Any) -> object:
    """What a call returns, or the error that it raises."""
    try:
        return call(**how)
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        return error


def is_kazoos(it: object) -> bool:
    """Whether it is an error of kazoo, and none of tooz."""
    return type(it).__module__.startswith("kazoo.") and not isinstance(it, tooz.ToozError)


a, b = (started(name, f"{host}:{port}") for name in "AB")
c = started("C", f"{proxy.host}:{proxy.port}", command_retry={"max_tries": 1})

held = a.get_lock(NAME)
acquire = recorder.begin("A", "acquire", "a1")
assert held.acquire(blocking=False)
acquire.ok("True")
tried = outcome(b.get_lock(NAME).acquire, blocking=False)
assert tried is False, f"one try is not told False either: {tried!r}"
waited = outcome(b.get_lock(NAME).acquire, blocking=WAIT_S)
release = recorder.begin("A", "release", "a1")
assert held.release()
release.ok("True")

lock = c.get_lock(NAME)
acquire = recorder.begin("C", "acquire", "c1")
assert lock.acquire(blocking=False)
acquire.ok("True")
proxy.lose = lambda request: request[8:12] == GET_DATA
beat = outcome(c.heartbeat)
assert isinstance(beat, tooz.ToozError), f"heartbeat does not raise a ToozError either: {beat!r}"
until = time.monotonic() + 10
while isinstance(outcome(c.heartbeat), Exception):
    assert time.monotonic() < until, "the connection does not come back"
    time.sleep(0.1)
proxy.lose = lambda request: request[8:12] == DELETE
freed = outcome(lock.release)
assert proxy.lose is None, "nothing was deleted"

for coordinator in (a, b, c):
    coordinator.stop()
end(
    recorder,
    history,
    is_kazoos(waited) and is_kazoos(freed),
    [
        f"acquire(blocking=False) returned {tried}, acquire(blocking={WAIT_S}) raised {waited!r}",
        f"without an answer heartbeat() raised {beat!r}, release() {freed!r}",
    ],
)
