"""A control: ``redis-token`` whose release deletes the key without looking whose it is.

A holder that comes too late deletes its successor's key, and a third client is let in beside the
successor. The bench must catch this; if it does not, the bench is broken.

Errors mean what they mean for ``redis-token``; DEL is a command and not a script, so there is none
that asks for its text. An error reply is a refusal, which for a release is Unknown all the same.
"""

from __future__ import annotations

from functools import partial

from lockbench.locks.bare import KEY, Bare
from lockbench.locks.base import Hold
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.expectations import LEASE, LOCK_DOC
from lockbench.locks.redis.link import BARE_SET
from lockbench.locks.redis.recipe import COMMAND_OUTCOMES
from lockbench.locks.shared.expectations import (
    PAUSED,
    SERVER_CLOCKS,
    breaks,
    may_break,
    with_changes,
)


class RedisNoOwner(redis_token.RedisToken):
    """One client of the lock."""

    def free(self, hold: Hold) -> bool:
        """Deletes the key, whoever holds it. This is the defect."""
        return bool(self._link.call("DEL", hold.key))


WARNED = (
    f"{LOCK_DOC}: '…a client may acquire the lock, get blocked performing some operation for "
    "longer than the lock validity time …, and later remove the lock, that was already acquired by "
    "some other client'"
)
_MAY = partial(may_break, WARNED, kind="control")
_LATER_THAN_ITS_LEASE = ("kill", "rolling-restart", "power-loss", "wipe", *SERVER_CLOCKS)

SYSTEM = redis_token.SYSTEM.derived(
    name="redis-no-owner",
    elsewhere=True,
    suites={"quick": ("client-pause",)},
    connect=RedisNoOwner,
    outcomes=COMMAND_OUTCOMES,
    bare=(Bare("redis", (BARE_SET, f"DEL {KEY}")),),
    late_release="Released",
    expectations=with_changes(
        LEASE,
        dict.fromkeys(PAUSED, _MAY("wrong-release", "false-release", "double-grant")),
        # Who lost the key to such a DEL is told not-held.
        dict.fromkeys((*PAUSED, "client-kill", "partition-stall", "pause"), _MAY("linearizable")),
        # Certain as soon as somebody holds the key when the sleeper wakes. Then a third client gets
        # in at once, or the successor is gone before it could: a race.
        {"client-pause": breaks(WARNED, "wrong-release", kind="control")},
        # A DEL that is delivered late, after its sender's time to live, comes before or after the
        # next SET.
        dict.fromkeys(
            ("pause", "partition-stall"), _MAY("wrong-release", "double-grant", "lost-update")
        ),
        dict.fromkeys(_LATER_THAN_ITS_LEASE, _MAY("wrong-release")),
    ),
)
