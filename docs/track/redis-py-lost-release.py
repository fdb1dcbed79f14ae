# /// script
# requires-python = ">=3.11"
# dependencies = ["redis==8.1.0"]
# ///
"""redis-py: release raises LockNotOwnedError for the lock that it has just released.

    uv run docs/track/redis-py-lost-release.py 127.0.0.1:6379

The server executes the script of release and its reply is lost. redis-py's default retries send it
again. The key is gone by then, or somebody else's, and the answer is that the lock was not owned.
"""

from __future__ import annotations

from redis import Redis
from redis.exceptions import LockNotOwnedError

from plain import Proxy, Recorder, end, servers

KEY = "lockbench:lost-release"
TTL_S = 60

[(host, port)], history = servers(__doc__, 1, "one Redis")
direct = Redis(host=host, port=port)
direct.delete(KEY)
proxy = Proxy((host, port))
through = Redis(host=proxy.host, port=proxy.port)  # every default
recorder = Recorder(KEY)

with direct.lock(KEY, timeout=TTL_S):
    pass  # the server knows the script now, as it does after the first release of all
lock = through.lock(KEY, timeout=TTL_S)
acquire = recorder.begin("A", "acquire", "a1")
assert lock.acquire(blocking=False)
acquire.ok("True")
left_ms = direct.pttl(KEY)

proxy.lose = lambda request: b"\r\nEVALSHA\r\n" in request
release = recorder.begin("A", "release", "a1")
said = "None"
try:
    lock.release()
    release.ok(said)
except LockNotOwnedError as error:
    said = f"LockNotOwnedError: {error}"
    release.fail("not-held", said)

assert proxy.lost_ns is not None, "no script was sent"
recorder.fault("reply-lost", proxy.lost_ns, proxy.lost_ns)
end(
    recorder,
    history,
    said != "None" and left_ms > 0 and not direct.exists(KEY),
    [f"the key had {left_ms} ms left, release answered {said}, and the key is gone"],
)
