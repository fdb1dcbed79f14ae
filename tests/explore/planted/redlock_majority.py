"""Redlock where most of the nodes that answer are enough.

Shown where a free key is acquired and the requests to three nodes of five are lost: two grant it,
and the three grant it to another. double-grant.
"""

from __future__ import annotations

from lockbench.locks.base import Acquired, Granted, Hold
from lockbench.locks.redis import redlock
from lockbench.locks.redis.redlock import Redlock, _granted, _valid_until_ns
from lockbench.locks.redis.redlock_nodes import Question


class Wrong(Redlock):
    def _try(self, key: str, hold_id: int, token: str, ttl_s: float) -> Acquired:
        self._ttl_ms = int(ttl_s * 1000)
        return super()._try(key, hold_id, token, ttl_s)

    def _undo(self, hold: Hold, ask: Question) -> Acquired:
        if 2 * len(_granted(ask)) > len(ask.answers):
            return Granted(hold, None, ask.sent_ns, _valid_until_ns(ask.sent_ns, self._ttl_ms))
        return super()._undo(hold, ask)


RIGHT = redlock.SYSTEM.derived(name="right-redlock-majority")
WRONG = RIGHT.derived(name="wrong-redlock-majority", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
