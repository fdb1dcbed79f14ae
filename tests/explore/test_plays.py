"""Which plays of a cluster come first: those that load a lock's scripts into servers that have
forgotten them. And how much memory an exploration may take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lockbench.explore.plays import Plays
from lockbench.explore.trial import Place, Played, Strike, Trial


class Noted(Plays):
    """Notes what is played, and plays nothing."""

    def __init__(self, *, forgets: bool) -> None:
        self.most = 1
        self.done: list[list[tuple[str, int]]] = []
        self._warmed = set()
        self._forgets = forgets

    def _play_at_once(self, pool: Any, play: Any, trials: Sequence[Trial], *_: Any) -> list[Played]:
        if trials:
            self.done.append(sorted((one.scenario, len(one.strikes)) for one in trials))
        return [Played(trial, Path("nowhere"), "k") for trial in trials]

    def _play_blow(self, pool: Any, trials: Sequence[Trial]) -> list[Played]:
        return self._play_at_once(pool, None, trials)

    def _record(self, played: Sequence[Played]) -> None:
        pass


def struck(scenario: str, fault: str) -> Trial:
    return Trial(scenario, (Strike(Place("request", 1), fault),))


@pytest.mark.parametrize(
    ("fault", "forgets", "again"),
    [
        ("server-killed", True, True),
        ("server-wiped", True, True),
        ("server-killed", False, False),
        ("server-frozen", True, False),
        ("late", True, False),
    ],
)
def test_scripts_are_loaded_before_what_is_struck(
    fault: str, *, forgets: bool, again: bool
) -> None:
    plays = Noted(forgets=forgets)
    for scenario in ("free", "free", "twice"):
        plays.play_all([struck(scenario, fault)])
    free, twice = [("free", 0)], [("twice", 0)]
    hit = [("free", 1)]
    expected = [free, hit, *([free] if again else []), hit, twice, [("twice", 1)]]
    assert plays.done == expected
