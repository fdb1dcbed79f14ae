"""Plays trials on several clusters of the same kind at once, each with strikes of its own.

Guarantees: each play is on one cluster, which does nothing else until its own record was put beside
the history. A cluster that is lost ends the others' plays, too; what had been played is told first.

Does not guarantee which trial is played where.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from typing import Final

from lockbench.explore.pending import Pending
from lockbench.explore.plays import Plays
from lockbench.explore.trial import Played, Trial

CHUNK: Final = 3  # of those that strike no server: so many times as many as there may be at once


class Pool:
    """``each``: plays on one cluster, at least one, all of the same lock."""

    def __init__(self, each: Sequence[Plays]) -> None:
        self._each = each
        self.setting = each[0].setting
        self.cluster = each[0].cluster
        """One of them, to ask what can be done to it."""

    def pending(self, *lists: Sequence[Trial]) -> Pending:
        """To be played here; those of different lists share no strike."""
        return Pending(*lists, interchangeable=self.setting.interchangeable)

    def play_all(self, trials: Sequence[Trial]) -> list[Played]:
        """In any order. Raises ClusterLost."""
        with closing(self.played(self.pending(trials))) as parts:
            return [play for plays in parts for play in plays]

    def played(self, pending: Pending, until_s: float = math.inf) -> Generator[list[Played]]:
        """Some plays after the other, as they end. Whoever hears of them may add to ``pending``.
        None are begun that would not have ended by ``until_s``, in monotonic seconds, if they
        take as long as others did. Close it: plays may be running. Raises ClusterLost."""
        idle, longest_s = [*range(len(self._each))], 0.0
        running: dict[Future[list[Played]], tuple[int, float]] = {}
        ended: list[list[Played]] = []
        lost: list[Future[list[Played]]] = []
        with ThreadPoolExecutor(len(self._each)) as pool:
            try:
                while True:
                    while idle and not lost and (now := time.monotonic()) + longest_s <= until_s:
                        if not (trials := self._taken(pending, idle[0])):
                            break
                        at = idle.pop(0)
                        running[pool.submit(self._each[at].play_all, trials)] = at, now
                    if ended:
                        yield ended.pop(0)
                        continue
                    for future in lost:
                        future.result()
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        at, began = running.pop(future)
                        longest_s = max(longest_s, time.monotonic() - began)
                        if future.exception():
                            lost.append(future)
                        else:
                            ended.append(future.result())
                            idle.append(at)
            except BaseException:  # nobody wants to know any more how the others end
                for plays in self._each:
                    plays.kill()
                raise

    def _taken(self, pending: Pending, at: int) -> Sequence[Trial]:
        one = self._each[at]
        return pending.take(CHUNK * one.most, one.sharing)
