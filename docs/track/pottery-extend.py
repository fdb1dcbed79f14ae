# /// script
# requires-python = ">=3.11"
# dependencies = ["pottery==3.0.1", "redis==8.1.0"]
# ///
"""pottery: extend returns normally when no key is alive any more.

    uv run docs/track/pottery-extend.py HOST:PORT HOST:PORT HOST:PORT HOST:PORT HOST:PORT

The replies of all nodes take longer than the lease. extend counts nodes that said yes and does
not look at the time, so it returns after the keys have run out, and somebody else is granted
the lock.
"""

from __future__ import annotations

import time

from pottery import Redlock
from redis import Redis

from plain import Proxy, Recorder, end, servers

KEY = "lockbench-extend"
TTL_S = 1.0
DELAY_S = 1.6

addresses, history = servers(__doc__, 5, "five independent Redis")
direct = [Redis(host=host, port=port) for host, port in addresses]
for node in direct:
    node.delete(f"redlock:{KEY}")
proxies = [Proxy(address) for address in addresses]
recorder = Recorder(KEY)

mine = Redlock(
    key=KEY,
    masters={Redis(host=p.host, port=p.port) for p in proxies},
    auto_release_time=TTL_S,
)
sent_ns = time.monotonic_ns()
acquire = recorder.begin("A", "acquire", "a1")
assert mine.acquire(blocking=False)
mine.extend()  # so that the servers know the script; it changes nothing else
acquire.ok("True", sent_ns=sent_ns, valid_until_ns=sent_ns + int(0.9 * TTL_S * 1e9))

for proxy in proxies:
    proxy.reply_delay_s = DELAY_S
slow_ns = time.monotonic_ns()
extend = recorder.begin("A", "extend", "a1")
mine.extend()  # raises when the lock could not be extended
answered_ns = time.monotonic_ns()
alive = sum(node.exists(f"redlock:{KEY}") for node in direct)
# The documentation: right after extend() a lease of 10 s has between 9 and 10 s left.
extend.ok("returned normally", valid_until_ns=answered_ns + int(0.9 * TTL_S * 1e9))
recorder.fault("replies-delayed", slow_ns, answered_ns)

theirs = Redlock(key=KEY, masters=set(direct), auto_release_time=TTL_S)
other = recorder.begin("B", "acquire", "b1")
sent_ns = time.monotonic_ns()
got = theirs.acquire(blocking=False)
if got:
    other.ok("True", sent_ns=sent_ns, valid_until_ns=sent_ns + int(0.9 * TTL_S * 1e9))
else:
    other.fail("held", "False")

end(
    recorder,
    history,
    alive == 0 and got,
    [f"A's extend returned normally with {alive} of 5 keys alive; B was told {got}"],
)
