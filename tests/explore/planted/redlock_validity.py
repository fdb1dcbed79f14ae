"""Redlock whose promise is a whole lease from when a majority had answered: the time that asking
took is not taken off.

Shown where a key is acquired on connections that are there, the client frozen beyond the lease when
fewer than a majority have answered: the nodes have given the key to another. double-grant.
"""

from __future__ import annotations

import time

from lockbench.locks.base import Acquired, Granted, Hold
from lockbench.locks.redis import redlock
from lockbench.locks.redis.redlock import Redlock, _granted, _valid_until_ns
from lockbench.locks.redis.redlock_nodes import Question


class Wrong(Redlock):
    def _try(self, key: str, hold_id: int, token: str, ttl_s: float) -> Acquired:
        self._ttl_ms = int(ttl_s * 1000)
        answer = super()._try(key, hold_id, token, ttl_s)
        return self._promised(answer.hold) if isinstance(answer, Granted) else answer

    def _undo(self, hold: Hold, ask: Question) -> Acquired:
        if len(_granted(ask)) >= self._quorum:  # undone because asking took too long
            return self._promised(hold)
        return super()._undo(hold, ask)

    def _promised(self, hold: Hold) -> Granted:
        now_ns = time.monotonic_ns()
        return Granted(hold, None, now_ns, _valid_until_ns(now_ns, self._ttl_ms))


RIGHT = redlock.SYSTEM.derived(name="right-redlock-validity")
WRONG = RIGHT.derived(name="wrong-redlock-validity", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
