"""A holder that enters again: what is recorded of it, and a lock that frees everything at once."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from lockbench.bench.plan import make_case
from lockbench.checker.check import check
from lockbench.history.columns import History
from lockbench.history.op import F, Type
from lockbench.results.errors import Unfit
from lockbench.workloads.load import Pace
from tests.checker.scenes import Scene
from tests.workloads import unsafe
from tests.workloads.playing import Played, all_played, play


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    plays = {
        name: partial(
            play,
            workload="reentry",
            lock=f"{unsafe.__file__}:{name}",
            pace=Pace(aimed_hold_s=0.05),
            contended_s=4,
        )
        for name in ("NESTED", "FREES_ALL")
    }
    return all_played(tmp_path_factory.mktemp("reentry"), plays)


def deepest(history: History) -> int:
    """The most levels of one key that one process ever held."""
    deep = 0
    levels: dict[tuple[int, int], int] = {}
    order = np.argsort(history.complete_ns, kind="stable")
    for row in order[history.type[order] == Type.OK].tolist():
        step = {F.ACQUIRE: 1, F.RELEASE: -1}.get(F(int(history.f[row])), 0)
        who = (int(history.process[row]), int(history.key[row]))
        levels[who] = levels.get(who, 0) + step
        deep = max(deep, levels[who])
    return deep


@pytest.mark.slow
def test_every_level_is_recorded_and_a_lock_that_works_is_valid(
    played: dict[str, Played],
) -> None:
    history = played["NESTED"].history
    assert deepest(history) == 3
    report = check(history)
    assert {n for n, v in report.verdicts.items() if v.result != "valid"} == set()
    assert report.verdicts["double-grant"].result == "valid"


@pytest.mark.slow
def test_a_lock_that_frees_everything_at_the_first_release_is_caught(
    played: dict[str, Played],
) -> None:
    found = check(played["FREES_ALL"].history).verdicts
    assert found["double-grant"].result == "invalid"
    assert found["lost-update"].result == "invalid"


def test_other_locks_are_refused_in_a_sentence() -> None:
    with pytest.raises(Unfit, match="reentry is not a workload for a mutex lock"):
        make_case("redis-token", "none", seed=0, workload="reentry")


def test_a_hold_is_given_back_by_its_holder_after_an_unknown_level() -> None:
    """The client goes on under another process number; the successor is innocent."""
    scene = Scene().kind("reentrant")
    scene.acquire(1, 0, 1, until=10, hold="a", owner=1)
    scene.acquire(1, 2, None, "info", error="TimeoutError", hold="b", owner=1)
    scene.release(2, 3, 4, hold="a", owner=1)
    scene.acquire(3, 3.5, 5, until=15, hold="c", owner=3).release(3, 6, 7, hold="c", owner=3)
    assert check(scene.history()).verdicts["double-grant"].result == "valid"
