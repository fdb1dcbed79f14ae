"""Plays trials on several clusters of the same kind at once, each with strikes of its own.

Guarantees: each play is on one cluster, whose own record is put beside it. A cluster that is lost
ends the others' plays, too.

Does not guarantee which trial is played where.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

from lockbench.explore.plays import Plays
from lockbench.explore.trial import Played, Trial
from lockbench.explore.trials import chunks


class Pool:
    """``each``: plays on one cluster, at least one, all of the same lock."""

    def __init__(self, each: Sequence[Plays]) -> None:
        self._each = each
        self._idle = SimpleQueue[int]()
        for at in range(len(each)):
            self._idle.put(at)
        self.setting = each[0].setting
        self.cluster = each[0].cluster
        """One of them, to ask what can be done to it."""
        self.most = each[0].most
        """How many plays at once there may be on one."""

    @property
    def sharing(self) -> int:
        """How many plays may share strikes at servers, on all clusters together."""
        return sum(plays.sharing for plays in self._each)

    def play_all(self, *lists: Sequence[Trial]) -> list[Played]:
        """In any order; those of different ``lists`` share no strike. Raises ClusterLost."""
        coming: list[Future[list[Played]]] = []
        with ThreadPoolExecutor(len(self._each)) as pool:
            try:
                for trials in lists:
                    for at, chunk in self._parts(trials):
                        coming.append(pool.submit(self._play, at, chunk))
                        for future in filter(Future.done, coming):
                            future.result()  # what failed is told at once
                return [play for future in coming for play in future.result()]
            except BaseException:  # nobody wants to know any more how the others end
                for plays in self._each:
                    plays.kill()
                raise

    def _parts(self, trials: Sequence[Trial]) -> Iterator[tuple[int, Sequence[Trial]]]:
        """With the cluster that each is for: one that is idle when it is made."""
        at = self._idle.get()
        together = chunks(
            trials,
            len(trials),
            lambda: self._each[at].sharing,
            self.setting.interchangeable,
        )
        for chunk in together:
            yield at, chunk
            at = self._idle.get()
        self._idle.put(at)

    def _play(self, at: int, trials: Sequence[Trial]) -> list[Played]:
        try:
            plays = self._each[at].play_all(trials)
        finally:
            self._idle.put(at)
        for play in plays:
            play.cluster = at
        return plays

    def record(self, plays: Sequence[Played]) -> None:
        """As of ``Plays``, for those of each cluster."""
        for at, one in enumerate(self._each):
            one.record([play for play in plays if play.cluster == at])
