# /// script
# requires-python = ">=3.11"
# dependencies = ["redlock-ng==2.0.4"]
# ///
"""redlock-ng: a release that reached no majority returns as if it had released the lock.

    uv run docs/track/redlock-silent-release.py HOST:PORT HOST:PORT HOST:PORT HOST:PORT HOST:PORT

The connections to some of five servers end before the release, as where they were idle for longer
than a firewall or the server's ``timeout`` allows. Where it is two, the lock is free afterwards.
"""

from __future__ import annotations

import time

from redlock import Redlock, RedlockConfig

from plain import Proxy, Recorder, end, servers

LEASE_S = 10.0
TRIES_S = 2.0

nodes, history = servers(__doc__, 5, "five independent servers of Redis")
recorder = Recorder("lockbench-silent-release")


def is_free_after(broken: int) -> bool:
    """Whether the lock can be had within two seconds of its release, in which so many connections
    break."""
    proxies = [Proxy(node) for node in nodes]
    masters = [f"redis://{proxy.host}:{proxy.port}/0" for proxy in proxies]
    key = f"{recorder.key}-{broken}-{time.time_ns()}"
    with Redlock(RedlockConfig(masters=masters)).lock(key, int(LEASE_S * 1000)) as lock:
        assert lock.valid, "nobody else has it"
        for proxy in proxies[:broken]:
            proxy.drop = lambda request: b"EVAL" in request
        release = recorder.begin(f"holder {broken}", "release", str(broken))
    release.unknown(f"returned, and {broken} of {len(nodes)} connections had ended before it")
    other = Redlock(RedlockConfig(masters=[f"redis://{host}:{port}/0" for host, port in nodes]))
    until = time.monotonic() + TRIES_S
    while time.monotonic() < until:
        with other.lock(key, int(LEASE_S * 1000)) as lock:
            if lock.valid:
                return True
    return False


free = {broken: is_free_after(broken) for broken in (0, 2, 3)}
assert free[0], "without a fault it is released"
end(
    recorder,
    history,
    free[2] and not free[3],
    [f"{broken} of 5 connections end: free = {was}" for broken, was in free.items()],
)
