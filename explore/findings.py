"""What was found: which findings are the same, what is on record already, how often it shows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace as evolved

from lockbench.evidence import track
from lockbench.explore.faults import FAULTS
from lockbench.explore.judge import (
    HANGS,
    LOST_WAKEUP,
    MEANS,
    RAISES,
    Shown,
    Undecided,
    is_declared,
    judged,
)
from lockbench.explore.trial import Place, Played, Setting, Trial, place_of, struck
from lockbench.locks.base import System
from lockbench.locks.shared.sidecar import raised
from lockbench.report.messages import sentence
from lockbench.results.documents.exploration import EventPlace, Finding

# What may be the same as a page on a lock that nobody gets any more.
LIVENESS: Final = frozenset({HANGS, LOST_WAKEUP, "leaked-lock"})


def alike(findings: Sequence[Finding], trial: Trial, shown: Shown) -> int | None:
    """The place of the same: at the same message, and of what is declared also at another event of
    its kind; of an error that is raised wherever it is. What is declared and shows without a fault
    is no news of a fault, nor what one fault of a pair has shown alone of the pair. What is not
    declared is never the same as what is."""
    for place, known in enumerate(findings):
        if known.scenario != trial.scenario or (known.declared and not shown.declared):
            continue
        if known.verdicts == shown.verdicts == (RAISES,) and raised(known.why) == raised(shown.why):
            return place
        numbered = not (known.declared and shown.declared)
        asked = [_at(s.fault, s.place, numbered=numbered) for s in trial.strikes]
        before = [_at(s.fault, s.place, numbered=numbered) for s in known.strikes]
        same = before == asked and known.verdicts == shown.verdicts
        if same and not (numbered and _differ_in_size(known, trial)):
            return place
        alone = trial.pair and len(before) == 1 and before[0] in asked
        usual = known.declared and not before
        if (alone or usual) and set(shown.verdicts) <= set(known.verdicts):
            return place
    return None


def _differ_in_size(known: Finding, trial: Trial) -> bool:
    """Whether other messages were struck at the same events."""
    return not all(
        place_of(before.place).is_as_large_as(strike.place)
        for before, strike in zip(known.strikes, trial.strikes, strict=True)
    )


def _at(fault: str, place: Place | EventPlace, *, numbered: bool) -> tuple[str, str, int]:
    return fault, place.kind, place.number if numbered else 0


def finding_of(play: Played, shown: Shown, lock: str) -> Finding:
    """Of one play."""
    trial = play.trial
    return Finding(
        shown.verdicts,
        shown.why,
        trial.scenario,
        struck(trial),
        shown.declared,
        1,
        1,
        play.folder.name,
        on_record(
            [strike.fault for strike in trial.strikes],
            trial.scenario,
            shown,
            lock.partition(":")[0],
        ),
    )


def usual(broken: Sequence[tuple[Played, Shown]], plays: int, lock: str) -> Finding:
    """What breaks without a fault: every verdict of those that were shown."""
    play, first = next((one for one in broken if not one[1].declared), broken[0])
    verdicts = tuple(dict.fromkeys(v for _, shown in broken for v in shown.verdicts))
    declared = all(shown.declared for _, shown in broken)
    finding = finding_of(play, Shown(verdicts, first.why, declared), lock)
    return evolved(finding, broke=len(broken), plays=plays)


def as_known_now(finding: Finding, system: System) -> Finding:
    """With what has been declared and put on record since it was found."""
    faults = [strike.fault for strike in finding.strikes]
    shown = Shown(finding.verdicts, finding.why, finding.declared)
    declared = MEANS.keys().isdisjoint(finding.verdicts) and is_declared(
        system, faults, finding.scenario, finding.verdicts
    )
    return evolved(
        finding,
        declared=finding.declared or declared,
        known=on_record(faults, finding.scenario, shown, system.name),
    )


def on_record(faults: Iterable[str], scenario: str, shown: Shown, lock: str) -> tuple[str, ...]:
    """The pages of the track record on this lock that say that an exploration shows one of these
    verdicts in this scenario (of an error: this class), or that under a fault that does the same
    break one or are about a lock that nobody gets any more."""
    like = {name for fault in faults for name in FAULTS[fault].like}
    names = {*shown.verdicts, *([track.LIVENESS] if LIVENESS.intersection(shown.verdicts) else [])}
    words = {*re.findall(r"\w+", shown.why)}
    return tuple(
        page.id
        for page in track.pages()
        if (lock in page.locks and _tells(page, scenario, names, words))
        or (
            any(page.explains(lock, fault) for fault in like)
            and not names.isdisjoint({*page.verdicts, page.kind})
        )
    )


def _tells(page: track.Page, scenario: str, names: set[str], words: set[str]) -> bool:
    """Whether an exploration shows in this scenario what a page is about as one of these, said in
    such words."""
    if page.scenarios and scenario not in page.scenarios:
        return False
    told = names.intersection(page.explored)
    return bool(told - {RAISES}) or (RAISES in told and not words.isdisjoint(page.raised))


def counted(finding: Finding, again: Sequence[Played], setting: Setting) -> Finding:
    """With what came of playing it again, at the same message where any play was."""
    valid = [play for play in again if not play.missed and not play.unable]
    counts: Counter[bool] = Counter()
    for play in [play for play in valid if not play.strayed] or valid:
        shown = judged(play, setting.system)
        if not isinstance(shown, Undecided):
            counts[shown is not None and set(finding.verdicts) <= set(shown.verdicts)] += 1
    return evolved(
        finding, broke=finding.broke + counts[True], plays=finding.plays + counts.total()
    )


def as_line(finding: Finding) -> str:
    """A line for who watches."""
    declared = ", as declared" if finding.declared else ""
    return f"{sentence(finding)}{declared}: {finding.why[:160]}"
