"""Redlock that does not ask nodes that were silent to delete what they may have granted.

Shown where a key that nobody else asks for is acquired and the answers of three nodes of five are
lost: it is told as denied, and most of the nodes keep it for a lease. opposite-answer.
"""

from __future__ import annotations

from lockbench.locks.base import Acquired, Hold
from lockbench.locks.redis import redlock
from lockbench.locks.redis.redlock import Redlock, _is_grant
from lockbench.locks.redis.redlock_nodes import Question


class Wrong(Redlock):
    def _undo(self, hold: Hold, ask: Question) -> Acquired:
        refused = sum(not _is_grant(answer) for answer in ask.answers.values())
        if refused <= len(self._all) - self._quorum:  # what is missing was not refused
            ask.asked &= ask.answers.keys()
        return super()._undo(hold, ask)


RIGHT = redlock.SYSTEM.derived(name="right-redlock-undo")
WRONG = RIGHT.derived(name="wrong-redlock-undo", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
