"""A control: ``redis-token`` whose release deletes the key without looking whose it is.

A holder that comes too late deletes its successor's key, and a third client is let in beside the
successor. The bench must catch this; a run that does not has lost its teeth.

Errors mean what they mean for ``redis-token``; DEL is a command and not a script, so an error reply
is a refusal, which for a release is Unknown all the same.
"""

from __future__ import annotations

from dataclasses import replace

from redis.exceptions import RedisError

from locks import redis_token
from locks.base import Expectation, Freed, Hold, NotHeld, Released, Unknown
from locks.redis_link import NotSent


class RedisNoOwner(redis_token.RedisToken):
    """One client of the lock."""

    def release(self, hold: Hold) -> Freed:
        """Deletes the key, whoever holds it. This is the defect."""
        try:
            self._link.open()
            deleted = self._link.call("DEL", hold.key)
        except (NotSent, RedisError) as error:
            return Unknown(f"DEL: {type(error).__name__}: {error}")
        return Released() if deleted else NotHeld()


# "…a client may acquire the lock, get blocked performing some operation for longer than the lock
# validity time, and later remove the lock, that was already acquired by some other client."
WARNED = redis_token.LOCK_DOC
_MAY = Expectation("may-break", WARNED, "control")

SYSTEM = replace(
    redis_token.SYSTEM,
    name="redis-no-owner",
    connect=RedisNoOwner,
    outcomes={
        row: outcome
        for row, outcome in redis_token.OUTCOMES.items()
        if row != "release: NoScriptError"
    },
    expectations={
        # Certain as soon as somebody holds the key when the sleeper wakes. Then a third client gets
        # in at once, or the successor is gone before it could: a race.
        "client-pause": {
            **redis_token.PAUSED_HOLDER,
            "wrong-release": Expectation("breaks", WARNED, "control", tries=3),
            "double-grant": _MAY,
        },
        # A DEL that was on its way when the server froze runs when it thaws, after its sender's
        # time to live: before or after the next SET is chance.
        "pause": {"wrong-release": _MAY, "double-grant": _MAY, "lost-update": _MAY},
        "kill": {**redis_token.KILLED, "wrong-release": _MAY},
        "wipe": {**redis_token.WIPED, "wrong-release": _MAY},
    },
)
