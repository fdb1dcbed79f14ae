# /// script
# requires-python = ">=3.11"
# dependencies = ["kazoo==2.11.0"]
# ///
"""kazoo: after its session has expired, is_acquired stays True and release answers True.

    uv run docs/track/kazoo-is-acquired.py 127.0.0.1:2181

The session is ended as an expiry ends it: by a second connection with the same session, which
closes it. The server removes the lock's node, somebody else is granted the lock, and A's object
does not know.
"""

from __future__ import annotations

import logging
import threading

from kazoo.client import KazooClient, KazooState

from plain import Recorder, end, servers

PATH = "/lockbench/is-acquired"

logging.disable()
[(host, port)], history = servers(__doc__, 1, "ZooKeeper")
hosts = f"{host}:{port}"
a, b = KazooClient(hosts, timeout=4.0), KazooClient(hosts, timeout=4.0)
a.start()
b.start()
recorder = Recorder(PATH)

lost, back = threading.Event(), threading.Event()


def watch(state: str) -> None:
    """What kazoo tells its user about A's session."""
    if state == KazooState.LOST:
        lost.set()
    elif state == KazooState.CONNECTED and lost.is_set():
        back.set()


mine, theirs = a.Lock(PATH, "A"), b.Lock(PATH, "B")
acquire = recorder.begin("A", "acquire", "a1")
assert mine.acquire(timeout=5)
acquire.ok("True")

a.add_listener(watch)
twin = KazooClient(hosts, client_id=a.client_id)
twin.start()
twin.stop()
twin.close()
assert lost.wait(30)
recorder.begin("A", "lost", "a1").ok("the listener was told LOST")
assert back.wait(30)

other = recorder.begin("B", "acquire", "b1")
got = theirs.acquire(timeout=10)
other.ok("True")
is_acquired = mine.is_acquired
release = recorder.begin("A", "release", "a1")
released = mine.release()
if released:
    release.ok("True")
else:
    release.fail("not-held", "False")
still = len(b.get_children(PATH))

for client in (a, b):
    client.stop()
    client.close()
end(
    recorder,
    history,
    bool(got and is_acquired and released),
    [f"B holds it: A.is_acquired was {is_acquired}, A.release() {released}; {still} node left"],
)
