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
from typing import Final, NamedTuple

from lockbench.explore.pending import Pending
from lockbench.explore.plays import ClusterLost, Plays
from lockbench.explore.servers import LED
from lockbench.explore.trial import Played, Trial
from lockbench.explore.trials import act_of

CHUNK: Final = 3  # of those that strike no server: so many times as many as there are at once


class Pool:
    """``each``: plays on one cluster, at least one, all of the same lock."""

    def __init__(self, each: Sequence[Plays]) -> None:
        self._each = each
        self.setting = each[0].setting
        self.cluster = each[0].cluster
        """One of them, to ask what can be done to it."""
        self._longest_s = 0.0  # that some plays took

    def pending(self, *lists: Sequence[Trial]) -> Pending:
        """To be played here; those of different lists share no strike."""
        return Pending(
            *lists,
            interchangeable=self.setting.interchangeable,
            of_one_quorum=self.setting.of_one_quorum,
        )

    def play_all(self, trials: Sequence[Trial]) -> list[Played]:
        """In any order. Raises ClusterLost."""
        with closing(self.played(self.pending(trials))) as parts:
            return [play for plays in parts for play in plays]

    def played(self, pending: Pending, until_s: float = math.inf) -> Generator[list[Played]]:
        """Some plays after the other, as they end. Whoever hears of them may add to ``pending``.
        None are begun that would not have ended by ``until_s``, in monotonic seconds, if they
        take as long as others did. Close it: plays may be running. Raises ClusterLost."""
        idle, running = [*range(len(self._each))], dict[Future[list[Played]], _Begun]()
        ended, lost = list[list[Played]](), list[Future[list[Played]]]()
        with ThreadPoolExecutor(len(self._each)) as pool:
            try:
                while True:
                    while idle and not lost and time.monotonic() + self._longest_s <= until_s:
                        last = not ended and all(begun.act == LED for begun in running.values())
                        if not (trials := self._taken(pending, idle[0], last=last)):
                            break
                        begun = _Begun(idle.pop(0), time.monotonic(), act_of(trials[0]))
                        running[pool.submit(self._each[begun.at].play_all, trials)] = begun
                    if ended:
                        yield ended.pop(0)
                        continue
                    _raise(lost)
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        begun = running.pop(future)
                        self._longest_s = max(self._longest_s, time.monotonic() - begun.time_s)
                        if future.exception():
                            lost.append(future)
                        else:
                            ended.append(future.result())
                            idle.append(begun.at)
            except BaseException:  # nobody wants to know any more how the others end
                for plays in self._each:
                    plays.kill()
                raise

    def _taken(self, pending: Pending, at: int, *, last: bool) -> Sequence[Trial]:
        one = self._each[at]
        return pending.take(CHUNK * one.most, one.sharing, last=last)


class _Begun(NamedTuple):
    """Plays that run: on which cluster, since when, and what they share."""

    at: int
    time_s: float
    act: str


def _raise(lost: Sequence[Future[list[Played]]]) -> None:
    """Why plays could not be completed, if any; of lost clusters with the trials of all."""
    errors = [future.exception() for future in lost]
    clusters = [error for error in errors if isinstance(error, ClusterLost)]
    if clusters and len(clusters) == len(errors):
        trials = [trial for error in clusters for trial in error.trials]
        raise ClusterLost(trials, str(clusters[0])) from clusters[0]
    for error in errors:
        assert error is not None
        raise error
