"""Plays on several clusters at once: none is lost or played twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from lockbench.explore.plays import ClusterLost, Plays
from lockbench.explore.pool import Pool
from lockbench.explore.trial import Place, Played, Strike, Trial
from tests.eventually import eventually

LIMIT_S = 20.0
LASTS_S = 0.4
TRIES = 50  # one may have been told before the other has ended
ALONE = Trial("free", (Strike(Place("request", 1), "late"),))


def frozen(number: int) -> Trial:
    """With a strike at the first server."""
    return Trial("free", (Strike(Place("request", number, node=1), "server-frozen"),))


class Setting:
    interchangeable: Sequence[int] = ()
    of_one_quorum: bool = False


@dataclass
class Told:
    """Plays on a cluster that note what they are told. ``meets``: where those of both clusters
    wait for each other."""

    sharing: int = 2
    most: int = 2
    usual: int = 1
    meets: threading.Barrier | None = None
    lost: bool = False
    setting: Any = field(default_factory=Setting)
    cluster: Any = None
    played: list[Sequence[Trial]] = field(default_factory=list)
    killed: threading.Event = field(default_factory=threading.Event)

    def play_all(self, trials: Sequence[Trial]) -> list[Played]:
        self.played.append(trials)
        if self.lost:
            raise ClusterLost(trials, "nobody answers")
        if self.meets is not None:
            self.meets.wait(LIMIT_S)
        return [Played(trial, Path(), "k") for trial in trials]

    def kill(self) -> None:
        self.killed.set()


@dataclass
class Waits(Told):
    """Plays when it may."""

    goes_on: threading.Event = field(default_factory=threading.Event)

    def play_all(self, trials: Sequence[Trial]) -> list[Played]:
        self.goes_on.wait(LIMIT_S)
        return super().play_all(trials)


def pool_of(*each: Told) -> Pool:
    return Pool(cast("Sequence[Plays]", each))


def test_clusters_are_struck_at_the_same_time() -> None:
    meets = threading.Barrier(2)
    first, second = Told(meets=meets), Told(meets=meets)
    pool = pool_of(first, second)
    plays = pool.play_all([frozen(n) for n in range(8)])
    assert sorted(play.trial.strikes[0].place.number for play in plays) == [*range(8)]
    assert [len(chunk) for one in (first, second) for chunk in one.played] == [2] * 4


def test_each_cluster_has_as_many_at_once_as_it_may() -> None:
    few, many = Told(sharing=1), Told(sharing=3)
    assert len(pool_of(few, many).play_all([frozen(n) for n in range(8)])) == 8
    assert {len(chunk) for chunk in few.played} == {1}
    assert len(many.played[0]) == 3


def test_lists_share_no_strike() -> None:
    one = Told(sharing=10)
    pool = pool_of(one)
    for _ in pool.played(pool.pending([frozen(1), ALONE, frozen(2)], [frozen(1)])):
        pass
    assert sorted(len(chunk) for chunk in one.played) == [1, 1, 2]


def numbers(plays: Sequence[Sequence[Trial]]) -> list[list[int]]:
    return [[trial.strikes[0].place.number for trial in chunk] for chunk in plays]


def test_what_is_to_be_played_again_shares_a_strike_with_what_is_left() -> None:
    one = Told(sharing=2)
    pool = pool_of(one)
    pending = pool.pending([frozen(n) for n in range(5)])
    parts = pool.played(pending)
    next(parts)
    pending.add([frozen(9)])
    assert len([*parts]) == 2
    assert numbers(one.played) == [[0, 1], [2, 3], [4, 9]]


def test_what_changes_the_leader_waits_for_what_may_have_to_be_played_again() -> None:
    changed = Trial("free", (Strike(Place("request", 7), "leader-changed"),))
    waits, other = Waits(), Told()
    pool = pool_of(waits, other)
    pending = pool.pending([frozen(1), changed])
    parts = pool.played(pending)
    threading.Timer(0.2, waits.goes_on.set).start()
    assert next(parts)[0].trial == frozen(1)
    assert not other.played
    pending.add([frozen(1)])
    assert [part[0].trial for part in parts] == [frozen(1), changed]


def test_nothing_is_begun_that_would_not_have_ended_in_time() -> None:
    class Lasts(Told):
        def play_all(self, trials: Sequence[Trial]) -> list[Played]:
            time.sleep(LASTS_S)
            return super().play_all(trials)

    one = Lasts()
    pool = pool_of(one)
    assert not [*pool.played(pool.pending([ALONE]), time.monotonic() - 1)]
    assert not one.played
    until_s = time.monotonic() + 1.5 * LASTS_S
    assert len([*pool.played(pool.pending([ALONE] * 9), until_s)]) == 1, "two last twice as long"
    assert not [*pool.played(pool.pending([ALONE]), time.monotonic() + 0.5 * LASTS_S)]


def test_two_clusters_that_are_lost_at_once_are_told_together() -> None:
    meets = threading.Barrier(2)

    class Meets(Told):
        def play_all(self, trials: Sequence[Trial]) -> list[Played]:
            meets.wait(LIMIT_S)
            raise ClusterLost(trials, "nobody answers")

    told = ClusterLost([], "")
    for _ in range(TRIES):
        with pytest.raises(ClusterLost) as raised:
            pool_of(Meets(), Meets()).play_all([frozen(n) for n in range(4)])
        told = raised.value
        if len(told.trials) == 4:
            break
    assert sorted(*numbers([told.trials])) == [0, 1, 2, 3], "whichever ended first"


def test_a_lost_cluster_ends_the_plays_of_the_others() -> None:
    lost, other = Told(lost=True), Told(sharing=100)
    pool = pool_of(lost, other)
    with pytest.raises(ClusterLost) as told:
        pool.play_all([frozen(n) for n in range(6)])
    assert [*told.value.trials] == [*lost.played[0]]
    assert other.killed.is_set()
    assert len(lost.played) == 1


def test_what_had_been_played_is_told_before_a_cluster_is_lost() -> None:
    whole, lost = Told(), Waits(lost=True)
    pool = pool_of(whole, lost)
    parts = pool.played(pool.pending([frozen(n) for n in range(6)]))
    assert len(next(parts)) == 2
    eventually(lambda: len(whole.played) == 2)
    lost.goes_on.set()
    assert len(next(parts)) == 2
    with pytest.raises(ClusterLost):
        next(parts)
