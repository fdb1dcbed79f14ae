# /// script
# requires-python = ">=3.11"
# dependencies = ["redlock-ng==2.0.4"]
# ///
"""redlock-ng: extend answers True when no key is alive any more.

    uv run docs/track/redlock-ng-extend.py HOST:PORT HOST:PORT HOST:PORT HOST:PORT HOST:PORT

Every node answers 0.4 s late, one after the other, with a lease of 1 s. extend counts nodes
that said yes and does not look at the time. socket_timeout is 1 s here (0.1 s is the default),
or no node would be heard.
"""

from __future__ import annotations

import time

from redis import Redis
from redlock import Redlock, RedlockConfig

from plain import Proxy, Recorder, end, servers

KEY = "lockbench-extend"
TTL_S = 1.0
DELAY_S = 0.4

addresses, history = servers(__doc__, 5, "five independent Redis")
direct = [Redis(host=host, port=port) for host, port in addresses]
for node in direct:
    node.delete(KEY)
proxies = [Proxy(address) for address in addresses]
recorder = Recorder(KEY)


def locker(nodes: list[tuple[str, int]]) -> Redlock:
    """Set as the documentation of this script says."""
    masters = [f"redis://{host}:{port}" for host, port in nodes]
    return Redlock(RedlockConfig(masters=masters, socket_timeout=1.0))


a, b = locker([(p.host, p.port) for p in proxies]), locker(addresses)
for instance in (*a.client.instances, *b.client.instances):
    instance.ping()
acquire = recorder.begin("A", "acquire", "a1")
sent_ns = time.monotonic_ns()
lock = a.acquire(KEY, int(TTL_S * 1000))
assert lock is not None
acquire.ok(
    f"valid for {lock.validity} ms", sent_ns=sent_ns, valid_until_ns=sent_ns + lock.validity * 10**6
)

for proxy in proxies:
    proxy.reply_delay_s = DELAY_S
slow_ns = time.monotonic_ns()
extend = recorder.begin("A", "extend", "a1")
extended = a.extend(lock, int(TTL_S * 1000))
answered_ns = time.monotonic_ns()
alive = sum(node.exists(KEY) for node in direct)
if extended:
    extend.ok("True", valid_until_ns=answered_ns + int(0.9 * TTL_S * 1e9))
else:
    extend.fail("not-held", "False")
recorder.fault("replies-delayed", slow_ns, answered_ns)

other = recorder.begin("B", "acquire", "b1")
sent_ns = time.monotonic_ns()
theirs = b.acquire(KEY, int(TTL_S * 1000))
if theirs is not None:
    other.ok(
        f"valid for {theirs.validity} ms",
        sent_ns=sent_ns,
        valid_until_ns=sent_ns + theirs.validity * 10**6,
    )
else:
    other.fail("held", "None")

end(
    recorder,
    history,
    extended and alive == 0 and theirs is not None,
    [f"A's extend answered {extended}, {alive} of 5 keys are alive; B: {theirs is not None}"],
)
