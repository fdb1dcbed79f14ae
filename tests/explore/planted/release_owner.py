"""A release that deletes the key without looking whose it is.

Shown where a holder gives back and the request is delivered when another has the key: it ends the
other's hold. linearizable; double-grant where a third is let in.
"""

from __future__ import annotations

from lockbench.locks.base import Hold
from lockbench.locks.redis import token
from lockbench.locks.redis.token import RedisToken


class Wrong(RedisToken):
    def free(self, hold: Hold) -> bool:
        return bool(self._link.call("DEL", hold.key))


RIGHT = token.SYSTEM.derived(name="right-release-owner")
WRONG = RIGHT.derived(
    name="wrong-release-owner",
    connect=Wrong,
    not_owed={
        "a_frozen_holder_loses_it_after_its_promise_and_not_before": "the fault that shows it"
    },
)
SYSTEMS = (RIGHT, WRONG)
