# /// script
# requires-python = ">=3.11"
# dependencies = ["sherlock==0.4.1", "redis==4.6.0"]
# ///
"""sherlock: a waiter with ``timeout=2`` whose answer never comes never returns.

    uv run docs/track/sherlock-no-time-limit.py 127.0.0.1:6379

A holds the lock. B waits for it, and what Redis answers to B's client is lost for a while, as when
the server's machine loses its power, or a firewall forgets the connection. Then answers pass again:
B does not return all the same. With ``socket_timeout=1`` on its client B returns.
"""

from __future__ import annotations

import time
from typing import Any

from redis import Redis
from sherlock import RedisLock

from plain import Begun, Proxy, Recorder, end, servers

WAIT_S = 2
MUTE_AFTER_S, MUTE_S = 0.5, 5.0
LIMIT_S = 30.0

[(host, port)], history = servers(__doc__, 1, "one Redis")
recorder = Recorder("lockbench-no-time-limit")


def lock(name: str, client: Any) -> RedisLock:
    """One client's, of the key ``name``."""
    return RedisLock(f"{recorder.key}-{name}", client=client, expire=600, timeout=WAIT_S)


def came_of(name: str, **limit: int) -> str:
    """Of B's wait."""
    proxy = Proxy((host, port))
    direct = Redis(host=host, port=port)
    direct.delete(f"{recorder.key}-{name}")
    holding = recorder.begin("A", "acquire", f"a-{name}")
    held = lock(name, direct)  # it gives back what it holds when it is dropped
    assert held.acquire(blocking=False), "nobody else has it"
    holding.ok("True")
    waiter = lock(name, Redis(host=proxy.host, port=proxy.port, **limit))
    waiting = recorder.begin("B", "acquire", f"b-{name}")
    begun = Begun(waiter.acquire)
    time.sleep(MUTE_AFTER_S)
    proxy.mute = True
    time.sleep(MUTE_S)
    proxy.mute = False
    came = begun.came(LIMIT_S) or f"had not ended {LIMIT_S:g} s after answers passed again"
    assert held.locked(), "A has it all the time"
    waiting.unknown(came)
    return came


limited, usual = came_of("limited", socket_timeout=1), came_of("usual")
assert "had not ended" not in limited, "a time limit is of no use either"
end(
    recorder,
    history,
    "had not ended" in usual,
    [f"timeout={WAIT_S}: {usual}", f"timeout={WAIT_S} and socket_timeout=1: {limited}"],
)
