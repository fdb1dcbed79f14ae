"""A release that looks whose key it is and deletes it in two commands; between them the key may
change hands. The right one deletes in a transaction that a change of the key undoes.

Shown where a holder gives back, frozen at the answer to GET until another has the key: that hold is
deleted. linearizable; double-grant where a third is let in.
"""

from __future__ import annotations

from lockbench.locks.base import Hold, token_of
from lockbench.locks.redis import token
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.token import RedisToken


class Right(RedisToken):
    def free(self, hold: Hold) -> bool:
        self._link.call("WATCH", hold.key)
        if self._link.call("GET", hold.key) != token_of(hold.id).encode():
            self._link.call("UNWATCH")
            return False
        self._link.call("MULTI")
        self._link.call("DEL", hold.key)
        deleted = self._link.call("EXEC")
        if deleted is None:
            raise exceptions.WatchError("the key has changed")
        return bool(deleted[0])


class Wrong(RedisToken):
    def free(self, hold: Hold) -> bool:
        if self._link.call("GET", hold.key) != token_of(hold.id).encode():
            return False
        return bool(self._link.call("DEL", hold.key))


RIGHT = token.SYSTEM.derived(name="right-release-at-once", connect=Right)
WRONG = RIGHT.derived(name="wrong-release-at-once", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
