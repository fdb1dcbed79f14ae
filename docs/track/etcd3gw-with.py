# /// script
# requires-python = ">=3.11"
# dependencies = ["etcd3gw==2.7.0"]
# ///
"""etcd3gw: a `with` block runs although the lock was not acquired. Nothing is broken.

    uv run docs/track/etcd3gw-with.py 127.0.0.1:2379

acquire answers False at once when somebody holds the lock. __enter__ calls it and does not look at
the answer, so the block of the second client runs beside that of the first.
"""

from __future__ import annotations

import time

from etcd3gw.client import Etcd3Client

from plain import Recorder, end, servers

NAME = "lockbench-with"
TTL_S = 10

[(host, port)], history = servers(__doc__, 1, "one member of etcd")
a, b = Etcd3Client(host=host, port=port), Etcd3Client(host=host, port=port)
recorder = Recorder(NAME)
inside = 0

first = recorder.begin("A", "acquire", "hold-of-A")
sent_ns = time.monotonic_ns()
with a.lock(NAME, ttl=TTL_S):
    first.ok("its block runs", sent_ns=sent_ns, valid_until_ns=sent_ns + TTL_S * 10**9)
    second = recorder.begin("B", "acquire", "hold-of-B")
    sent_ns = time.monotonic_ns()
    theirs = b.lock(NAME, ttl=TTL_S)
    with theirs:
        second.ok("its block runs", sent_ns=sent_ns, valid_until_ns=sent_ns + TTL_S * 10**9)
        inside = 2
        acquired = theirs.is_acquired()

end(
    recorder,
    history,
    inside == 2 and not acquired,
    [f"both blocks ran at once; is_acquired() of B's lock was {acquired} in its block"],
)
