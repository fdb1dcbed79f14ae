"""Plays on several clusters at once: none is lost or played twice, and each is judged by the record
of the cluster that it was on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from lockbench.explore.plays import ClusterLost, Plays
from lockbench.explore.pool import Pool
from lockbench.explore.trial import Place, Played, Strike, Trial

LIMIT_S = 20.0
ALONE = Trial("free", (Strike(Place("request", 1), "late"),))


def frozen(number: int) -> Trial:
    """With a strike at the first server."""
    return Trial("free", (Strike(Place("request", number, node=1), "server-frozen"),))


class Setting:
    interchangeable: Sequence[int] = ()


@dataclass
class Told:
    """Plays on a cluster that note what they are told. ``meets``: where those of both clusters
    wait for each other."""

    sharing: int = 2
    most: int = 2
    meets: threading.Barrier | None = None
    lost: bool = False
    setting: Any = field(default_factory=Setting)
    cluster: Any = None
    played: list[Sequence[Trial]] = field(default_factory=list)
    recorded: list[Trial] = field(default_factory=list)
    killed: threading.Event = field(default_factory=threading.Event)

    def play_all(self, trials: Sequence[Trial]) -> list[Played]:
        self.played.append(trials)
        if self.lost:
            raise ClusterLost(trials, "nobody answers")
        if self.meets is not None:
            self.meets.wait(LIMIT_S)
        return [Played(trial, Path(), "k") for trial in trials]

    def record(self, plays: Sequence[Played]) -> None:
        self.recorded += [play.trial for play in plays]

    def kill(self) -> None:
        self.killed.set()


def pool_of(*each: Told) -> Pool:
    return Pool(cast("Sequence[Plays]", each))


def test_clusters_are_struck_at_the_same_time() -> None:
    meets = threading.Barrier(2)
    first, second = Told(meets=meets), Told(meets=meets)
    pool = pool_of(first, second)
    trials = [frozen(n) for n in range(8)]
    plays = pool.play_all(trials)
    assert sorted(play.trial.strikes[0].place.number for play in plays) == [*range(8)]
    assert [len(chunk) for one in (first, second) for chunk in one.played] == [2] * 4
    pool.record(plays)
    for one in (first, second):
        assert one.recorded == [trial for chunk in one.played for trial in chunk]


def test_each_cluster_has_as_many_at_once_as_it_may() -> None:
    meets = threading.Barrier(2)
    few, many = Told(sharing=1, meets=meets), Told(sharing=3, meets=meets)
    pool = pool_of(few, many)
    assert pool.sharing == 4
    pool.play_all([frozen(n) for n in range(8)])
    assert [[len(chunk) for chunk in one.played] for one in (few, many)] == [[1, 1], [3, 3]]


def test_lists_share_no_strike() -> None:
    one = Told(sharing=10)
    pool_of(one).play_all([frozen(1), ALONE, frozen(2)], [frozen(1)])
    assert [len(chunk) for chunk in one.played] == [1, 2, 1]


def test_a_lost_cluster_ends_the_plays_of_the_others() -> None:
    lost, other = Told(lost=True), Told(sharing=100)
    pool = pool_of(lost, other)
    with pytest.raises(ClusterLost) as told:
        pool.play_all([frozen(n) for n in range(6)])
    assert [*told.value.trials] == [*lost.played[0]]
    assert other.killed.is_set()
    assert len(lost.played) == 1
