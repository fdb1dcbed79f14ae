"""Plays findings again, and counts how often they show.

Guarantees: a finding is counted once all of its plays are there. What came of them by themselves,
such as that the event never came, counts for nothing: a finding may stay with the one play that
showed it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from lockbench.explore.findings import counted
from lockbench.explore.judge import HANGS
from lockbench.explore.trial import Key, Played, Setting, Strike, Trial, key_of, place_of
from lockbench.results.documents.exploration import Finding

# Of a finding, of one that is declared or on record, and of one on record that takes half a minute
# each time. Those of one number share a strike at servers.
REPEATS: Final = (5, 5)
KNOWN: Final = (4, 0)
KNOWN_TO_HANG: Final = (1, 0)

_Struck = tuple[Trial, tuple[int, ...]]  # and the sizes of the messages, in bytes


@dataclass(slots=True)
class _Asked:
    """Plays of a trial: how many are wanted, of which findings, and those that have come."""

    count: int
    places: list[int]
    plays: list[Played] = field(default_factory=list)


class Repeats:
    """Of one exploration. ``lost``: what no cluster came back from; it is not played again.
    ``scenarios``: of which findings are."""

    def __init__(self, setting: Setting, lost: Set[Key], scenarios: Set[str]) -> None:
        self._setting = setting
        self._lost = lost
        self._scenarios = scenarios
        self._places: set[int] = set()  # of findings that were asked for
        self._asked: dict[_Struck, _Asked] = {}

    def wanted(self, findings: Sequence[Finding]) -> tuple[list[Trial], list[Trial]]:
        """What is to be played of the findings that were played once: under one strike at servers,
        and under another."""
        both: tuple[list[Trial], list[Trial]] = [], []
        for place in self._new(findings):
            trial = _trial_of(findings[place])
            self._places.add(place)
            # Of another finding, which shows in the same plays.
            times = _times(findings[place])
            if (one := self._asked.get(_struck(trial))) is not None:
                one.places.append(place)
                more = max(0, sum(times) - one.count)
                one.count += more
                both[0].extend([trial] * more)
                continue
            self._asked[_struck(trial)] = _Asked(sum(times), [place])
            for trials, n in zip(both, times, strict=True):
                trials.extend([trial] * n)
        return both

    def _new(self, findings: Sequence[Finding]) -> list[int]:
        """The places of those that were played once, and were not asked for."""
        return [
            place
            for place, finding in enumerate(findings)
            if finding.plays == 1
            and place not in self._places
            and finding.scenario in self._scenarios
            and key_of(_trial_of(finding)) not in self._lost
        ]

    def count(self, plays: Sequence[Played], findings: list[Finding], kept: Set[str]) -> list[int]:
        """Puts the findings there of which all plays have come now. Their places. The recordings of
        plays are removed, but for those that are to be ``kept``."""
        for play in plays:
            self._asked[_struck(play.trial)].plays.append(play)
        whole = {at: one for at, one in self._asked.items() if len(one.plays) == one.count}
        for at, one in whole.items():
            del self._asked[at]
            for place in one.places:
                findings[place] = counted(findings[place], one.plays, self._setting)
            for play in one.plays:
                if play.folder.name not in kept:
                    shutil.rmtree(play.folder, ignore_errors=True)
        return [place for one in whole.values() for place in one.places]

    def left(self, findings: Sequence[Finding]) -> int:
        """How many findings were not played again, but of those that no cluster came back from."""
        return len(self._new(findings)) + sum(len(one.places) for one in self._asked.values())


def _times(finding: Finding) -> tuple[int, int]:
    if finding.known and HANGS in finding.verdicts:
        return KNOWN_TO_HANG
    return KNOWN if finding.declared or finding.known else REPEATS


def _struck(trial: Trial) -> _Struck:
    """At one event there may be messages of different sizes."""
    return trial, tuple(strike.place.size for strike in trial.strikes)


def _trial_of(finding: Finding) -> Trial:
    strikes = (Strike(place_of(strike.place), strike.fault) for strike in finding.strikes)
    return Trial(finding.scenario, tuple(strikes), again=True)
