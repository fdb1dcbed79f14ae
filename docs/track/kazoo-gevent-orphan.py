# /// script
# requires-python = ">=3.11"
# dependencies = ["kazoo==2.11.0", "gevent"]
# ///
"""kazoo: a gevent.Timeout inside acquire leaves a contender behind, which blocks everybody.

    uv run docs/track/kazoo-gevent-orphan.py 127.0.0.1:2181

acquire cleans up after KazooException and after giving up, and gevent.Timeout is neither. The
node that A made stays for as long as A's session; when the holder has released, nobody holds
the lock, and nobody gets it.
"""

from __future__ import annotations

import logging
import time

import gevent
from kazoo.client import KazooClient
from kazoo.handlers.gevent import SequentialGeventHandler

from plain import Recorder, end, servers

PATH = "/lockbench/orphan"
PATIENCE_S = 3.0

logging.disable()
[(host, port)], history = servers(__doc__, 1, "ZooKeeper")
clients = [KazooClient(f"{host}:{port}", handler=SequentialGeventHandler()) for _ in range(3)]
for client in clients:
    client.start()
h, a, c = clients
recorder = Recorder(PATH, strict_try=True)

holder = h.Lock(PATH, "H")
acquire = recorder.begin("H", "acquire", "h1")
assert holder.acquire(timeout=5)
acquire.ok("True")

waiting = recorder.begin("A", "acquire", "a1")
mine = a.Lock(PATH, "A")
try:
    with gevent.Timeout(0.5):
        mine.acquire()
    waiting.ok("True")
except gevent.Timeout:
    waiting.fail("gave-up: gevent.Timeout", "gevent.Timeout")

release = recorder.begin("H", "release", "h1")
holder.release()
release.ok("True")

until, got = time.monotonic() + PATIENCE_S, False
while not got and time.monotonic() < until:
    last = recorder.begin("C", "acquire", "c1")
    got = c.Lock(PATH, "C").acquire(blocking=False)
    gevent.sleep(0 if got else 0.1)
if got:
    last.ok("True")
else:
    last.fail("held", f"False, for {PATIENCE_S:g} s")
left = c.Lock(PATH).contenders()

for client in clients:
    client.stop()
    client.close()
end(
    recorder,
    history,
    not got and left == ["A"],
    [f"nobody holds the lock, A has given up, and the nodes of {left} are left"],
)
