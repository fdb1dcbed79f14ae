"""Plays findings again, and counts how often they show.

Guarantees: a finding is counted once all of its plays are there. What came of them by themselves,
such as that the event never came, counts for nothing: a finding may stay with the one play that
showed it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence, Set
from typing import Final

from lockbench.explore.findings import counted
from lockbench.explore.trial import Key, Played, Setting, Strike, Trial, key_of, place_of
from lockbench.results.documents.exploration import Finding

# Of a finding, and of one that is declared. Those of one number share a strike at servers.
REPEATS: Final = (5, 5)
DECLARED: Final = (4, 0)


class Repeats:
    """Of one exploration. ``lost``: what no cluster came back from; it is not played again."""

    def __init__(self, setting: Setting, lost: Set[Key]) -> None:
        self._setting = setting
        self._lost = lost
        self._asked: set[int] = set()  # places of findings
        self._counted: set[int] = set()
        self._wanted: dict[Trial, int] = {}  # how many plays
        self._places: dict[Trial, list[int]] = {}
        self._plays: dict[Trial, list[Played]] = {}

    def wanted(self, findings: Sequence[Finding]) -> tuple[list[Trial], list[Trial]]:
        """What is to be played of the findings that were played once: under one strike at servers,
        and under another."""
        both: tuple[list[Trial], list[Trial]] = [], []
        for place, finding in enumerate(findings):
            if finding.plays > 1 or place in self._asked:
                continue
            trial = _trial_of(finding)
            if key_of(trial) in self._lost:
                continue
            self._asked.add(place)
            if trial in self._wanted:  # of another finding, which shows in the same plays
                self._places[trial].append(place)
                continue
            times = DECLARED if finding.declared else REPEATS
            self._wanted[trial] = sum(times)
            self._places[trial] = [place]
            for trials, n in zip(both, times, strict=True):
                trials.extend([trial] * n)
        return both

    def count(self, plays: Sequence[Played], findings: list[Finding]) -> list[int]:
        """Puts the findings there of which all plays have come now. Their places."""
        for play in plays:
            self._plays.setdefault(play.trial, []).append(play)
        whole = [trial for trial, n in self._wanted.items() if len(self._of(trial)) == n]
        places: list[int] = []
        for trial in whole:
            of = self._of(trial)
            del self._wanted[trial], self._plays[trial]
            for place in self._places.pop(trial):
                findings[place] = counted(findings[place], of, self._setting)
                places.append(place)
            for play in of:
                shutil.rmtree(play.folder, ignore_errors=True)
        self._counted.update(places)
        return places

    def _of(self, trial: Trial) -> Sequence[Played]:
        return self._plays.get(trial, ())

    def left(self, findings: Sequence[Finding]) -> int:
        """How many findings were not played again."""
        return sum(f.plays == 1 and at not in self._counted for at, f in enumerate(findings))


def _trial_of(finding: Finding) -> Trial:
    strikes = (Strike(place_of(strike.place), strike.fault) for strike in finding.strikes)
    return Trial(finding.scenario, tuple(strikes), again=True)
