# /// script
# requires-python = ">=3.11"
# dependencies = ["redis-lock-py==1.3.0", "redis==8.1.0"]
# ///
"""redis-lock-py: acquire raises ValueError when its time ends while it asks Redis.

    uv run docs/track/redis-lock-py-deadline.py 127.0.0.1:6379

A holds the lock, and B waits for it. Nothing is broken; each answer to B takes 0.1 s, as over a
long way. B first pauses for 0.5 s, then asks again until 0.7 s. With a ``blocking_timeout`` of 0.4
or 1.2 s, which ends in a pause, it is told False; with one of 0.65 s it is not.
"""

from __future__ import annotations

from redis import Redis
from redis_lock import RedisLock

from plain import Proxy, Recorder, end, servers

KEY = "lockbench:deadline"
IN_A_PAUSE_S, WHILE_IT_ASKS_S, TIMES = (0.4, 1.2), 0.65, 3

[(host, port)], history = servers(__doc__, 1, "one Redis")
direct = Redis(host=host, port=port)
direct.delete(KEY)
proxy = Proxy((host, port))
proxy.reply_delay_s = 0.1
through = Redis(host=proxy.host, port=proxy.port)  # every default
recorder = Recorder(KEY)


def waited(blocking_timeout: float, hold: str) -> bool | Exception:
    """What B's acquire returns, or raises."""
    acquire = recorder.begin("B", "acquire", hold)
    try:
        got = RedisLock(through, KEY, blocking_timeout=blocking_timeout).acquire()
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        return error
    if got:
        acquire.ok("True")
    else:
        acquire.fail("gave-up", "False")
    return got


holder = RedisLock(direct, KEY)
acquire = recorder.begin("A", "acquire", "a1")
assert holder.acquire()
acquire.ok("True")
right = [waited(time_s, f"b-pause-{time_s}-{n}") for time_s in IN_A_PAUSE_S for n in range(TIMES)]
assert right == [False] * len(right), f"it is not told False in a pause either: {right}"
asking = [waited(WHILE_IT_ASKS_S, f"b-{n}") for n in range(TIMES)]
release = recorder.begin("A", "release", "a1")
holder.release()
release.ok("True")

errors = [one for one in asking if isinstance(one, ValueError)]
end(
    recorder,
    history,
    bool(errors),
    [
        f"blocking_timeout={' and '.join(map(str, IN_A_PAUSE_S))}: False {len(right)} times",
        f"blocking_timeout={WHILE_IT_ASKS_S}: {len(errors)} of {TIMES} raised {errors[:1]}",
    ],
)
