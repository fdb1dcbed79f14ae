# /// script
# requires-python = ">=3.11"
# dependencies = ["aetcd==1.0.0"]
# ///
"""aetcd: ``acquire(timeout=2)`` whose answer never comes never returns.

    uv run docs/track/aetcd-no-time-limit.py 127.0.0.1:2379

No answer of etcd reaches the client any more and its connection stays open, as when the server's
process is frozen. With ``timeout=1`` on the client the same call ends.
"""

from __future__ import annotations

import asyncio

import aetcd

from plain import Proxy, Recorder, end, servers

WAIT_S = 2
LIMIT_S = 30.0

[server], history = servers(__doc__, 1, "one member of etcd 3.6")
recorder = Recorder("lockbench-no-time-limit")


async def came_of(name: str, **limit: int) -> str:
    """Of an acquire by a client that hears nothing any more."""
    proxy = Proxy(server)
    client = aetcd.Client(proxy.host, proxy.port, **limit)
    key = f"{recorder.key}-{name}".encode()
    before = client.lock(key, ttl=10)
    assert await before.acquire(timeout=0), "nobody else has it"
    assert await before.release(), "it has it"
    proxy.mute = True
    acquire = recorder.begin(name, "acquire", name)
    try:
        async with asyncio.timeout(LIMIT_S):
            came = f"returned {await client.lock(key, ttl=10).acquire(timeout=WAIT_S)!r}"
    except TimeoutError:
        came = f"had not ended after {LIMIT_S:g} s"
    except aetcd.ClientError as error:
        came = f"raised {type(error).__name__}"
    acquire.unknown(came)
    return came


limited = asyncio.run(came_of("limited", timeout=1))
usual = asyncio.run(came_of("usual"))
assert "had not ended" not in limited, "a time limit is of no use either"
end(
    recorder,
    history,
    "had not ended" in usual,
    [f"acquire(timeout={WAIT_S}): {usual}", f"with timeout=1 on the client: {limited}"],
)
