# /// script
# requires-python = ">=3.11"
# dependencies = ["etcd3-py==0.1.6"]
# ///
"""etcd3-py: clients that ask at the same time are all granted the lock. Nothing is broken.

    uv run docs/track/etcd3-py-double.py 127.0.0.1:2379

acquire reads the key, finds nobody, and then writes it unless it already holds its *own* name.
It does not look whether somebody else has written meanwhile, so it overwrites them.
"""

from __future__ import annotations

import logging
import threading
import time

from etcd3 import Client

from plain import Recorder, end, servers

NAME = "lockbench-double"
CLIENTS = 4
TTL_S = 10
HOLD_S = 0.2

logging.disable()
[(host, port)], history = servers(__doc__, 1, "one member of etcd")
recorder = Recorder(NAME)
together = threading.Barrier(CLIENTS)
guard = threading.Lock()
holders: set[str] = set()
most: set[str] = set()


def work(name: str) -> None:
    """Acquires once, holds for a while, releases."""
    client = Client(host, port)
    lock = client.Lock(NAME, lock_ttl=TTL_S)
    client.range(NAME)
    together.wait()
    acquire = recorder.begin(name, "acquire", f"hold-of-{name}")
    sent_ns = time.monotonic_ns()
    lock.acquire()
    acquire.ok("returned", sent_ns=sent_ns, valid_until_ns=sent_ns + TTL_S * 10**9)
    with guard:
        holders.add(name)
        if len(holders) > len(most):
            most.clear()
            most.update(holders)
    time.sleep(HOLD_S)
    with guard:
        holders.remove(name)
    release = recorder.begin(name, "release", f"hold-of-{name}")
    lock.release()
    release.ok("returned")


Client(host, port).delete_range(f"_locks/{NAME}")
threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in "ABCD"[:CLIENTS]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(timeout=60)

assert most, "nobody was granted the lock"
end(recorder, history, len(most) > 1, [f"{len(most)} of {CLIENTS} clients held the lock at once"])
