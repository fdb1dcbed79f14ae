# /// script
# requires-python = ">=3.11"
# dependencies = ["kazoo==2.11.0"]
# ///
"""kazoo: an acquire that gives up while the connection breaks leaves a contender that blocks all.

    uv run docs/track/kazoo-cleanup.py 127.0.0.1:2181

Who does not get the lock deletes its own node. Here that request does not arrive and its connection
ends. kazoo passes over the error and answers False; the session goes on over a new connection, and
the node with it.
"""

from __future__ import annotations

import logging
import time

from kazoo.client import KazooClient

from plain import Proxy, Recorder, end, servers

PATH = "/lockbench/cleanup"
PATIENCE_S = 3.0
DELETE = (2).to_bytes(4, "big")  # after the length and the number of a request comes what it is

logging.disable()
[(host, port)], history = servers(__doc__, 1, "ZooKeeper")
proxy = Proxy((host, port))
h, c = KazooClient(f"{host}:{port}"), KazooClient(f"{host}:{port}")
a = KazooClient(f"{proxy.host}:{proxy.port}")  # every default
for client in (h, a, c):
    client.start()
recorder = Recorder(PATH, strict_try=True)


def tried(process: str, client: KazooClient, hold: str) -> bool:
    """``acquire(blocking=False)`` of a new lock object, again until it is granted or patience ends;
    the last answer is recorded."""
    until, got = time.monotonic() + PATIENCE_S, False
    while not got and time.monotonic() < until:
        last = recorder.begin(process, "acquire", hold)
        got = client.Lock(PATH, process).acquire(blocking=False)
        time.sleep(0 if got else 0.1)
    if got:
        last.ok("True")
    else:
        last.fail("held", f"False, for {PATIENCE_S:g} s")
    return got


holder = h.Lock(PATH, "H")
acquire = recorder.begin("H", "acquire", "h1")
assert holder.acquire(timeout=5)
acquire.ok("True")

session = a.client_id
proxy.drop = lambda request: request[8:12] == DELETE
waiting = recorder.begin("A", "acquire", "a1")
assert not a.Lock(PATH, "A").acquire(blocking=False)
waiting.fail("held", "False")
assert proxy.dropped_ns is not None, "nothing was deleted"
recorder.fault("request-lost", proxy.dropped_ns, proxy.dropped_ns)

release = recorder.begin("H", "release", "h1")
holder.release()
release.ok("True")

got = tried("C", c, "c1")
left = c.Lock(PATH).contenders()
assert a.exists("/") is not None
assert a.client_id == session, "the session of A is over"
a.stop()
a.close()
after = tried("C", c, "c2")
for client in (h, c):
    client.stop()
    client.close()
end(
    recorder,
    history,
    not got and left == ["A"] and after,
    [
        f"nobody holds the lock, A was told False, and the nodes of {left} are left",
        f"once the session of A had ended, C was told {after}",
    ],
)
