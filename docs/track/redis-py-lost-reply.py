# /// script
# requires-python = ">=3.11"
# dependencies = ["redis==8.1.0"]
# ///
"""redis-py: acquire answers False while its own key is in Redis.

    uv run docs/track/redis-py-lost-reply.py 127.0.0.1:6379

The server executes SET NX and its reply is lost. redis-py's default retries send SET NX again,
which now finds the key that the first one set, and takes it for somebody else's.
"""

from __future__ import annotations

from redis import Redis

from plain import Proxy, Recorder, end, servers

KEY = "lockbench:lost-reply"
TTL_S = 3

[(host, port)], history = servers(__doc__, 1, "one Redis")
direct = Redis(host=host, port=port)
direct.delete(KEY)
proxy = Proxy((host, port))
through = Redis(host=proxy.host, port=proxy.port)  # every default
through.ping()
recorder = Recorder(KEY, strict_try=True)

lock = through.lock(KEY, timeout=TTL_S)
proxy.lose = lambda request: b"\r\nSET\r\n" in request and KEY.encode() in request
acquire = recorder.begin("A", "acquire", "a1")
got = lock.acquire(blocking=False, token="token-of-A")  # noqa: S106 - no secret
if got:
    acquire.ok("True")
else:
    acquire.fail("held", "False")
owner = direct.get(KEY)
left_ms = direct.pttl(KEY)

other = recorder.begin("B", "acquire", "b1")
got_b = direct.lock(KEY, timeout=TTL_S).acquire(blocking=False)
if got_b:
    other.ok("True")
else:
    other.fail("held", "False")

if proxy.lost_ns is not None:
    recorder.fault("reply-lost", proxy.lost_ns, proxy.lost_ns)
end(
    recorder,
    history,
    not got and owner == b"token-of-A" and not got_b,
    [f"A was told {got}, and the key holds {owner!r} for {left_ms} ms more"],
)
