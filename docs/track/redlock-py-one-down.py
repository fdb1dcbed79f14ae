# /// script
# requires-python = ">=3.11"
# dependencies = ["redlock-py==1.0.8", "redis==8.1.0"]
# ///
"""redlock-py: with one of five nodes down, acquire raises and leaves its keys on the other four.

    uv run docs/track/redlock-py-one-down.py HOST:PORT HOST:PORT HOST:PORT HOST:PORT

Four nodes are up, the fifth is an address where nobody listens. The lock is set on all four, a
majority within its validity, and then the error of the fifth is raised without releasing them.
"""

from __future__ import annotations

import logging
import socket
import time

from redis import Redis
from redlock import MultipleRedlockException, Redlock

from plain import Recorder, end, servers

KEY = "lockbench-one-down"
TTL_S = 30.0  # redis-py's default retries take some 8 s to give up a node


def nobody() -> tuple[str, int]:
    """An address of this machine where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()


logging.disable()
addresses, history = servers(__doc__, 4, "four independent Redis; the fifth is down")
direct = [Redis(host=host, port=port) for host, port in addresses]
for node in direct:
    node.delete(KEY)
recorder = Recorder(KEY, strict_try=True)
nodes = [{"host": host, "port": port} for host, port in [*addresses, nobody()]]

began_ns = time.monotonic_ns()
acquire = recorder.begin("A", "acquire", "a1")
raised = None
try:
    lock = Redlock(nodes).lock(KEY, int(TTL_S * 1000))
    if lock:
        acquire.ok(f"valid for {lock.validity} ms")
    else:
        acquire.fail("held", "False")
except MultipleRedlockException as error:
    raised = error
    acquire.fail("gave-up: MultipleRedlockException", f"MultipleRedlockException: {error}")
left = [node.pttl(KEY) for node in direct]

other = recorder.begin("B", "acquire", "b1")
got = Redlock(nodes[:4], retry_count=1).lock(KEY, int(TTL_S * 1000))
if got:
    other.ok(f"valid for {got.validity} ms")
else:
    other.fail("held", "False")
recorder.fault("node-down", began_ns, time.monotonic_ns())

end(
    recorder,
    history,
    raised is not None and sum(ms > 0 for ms in left) == 4 and not got,
    [f"A's keys are left on four nodes for {left} ms, though its lock() raised; B was told {got}"],
)
