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
    class_of,
    is_declared,
    judged,
)
from lockbench.explore.trial import Played, Setting, Strike, Trial, place_of, struck
from lockbench.locks.base import System
from lockbench.report.messages import sentence
from lockbench.results.documents.exploration import Finding, StrikeAt

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
        if not classes(known) >= classes(shown):
            continue
        if known.verdicts == shown.verdicts == (RAISES,):
            return place
        numbered = not (known.declared and shown.declared)
        asked = _places(trial.strikes, numbered=numbered)
        before = _places(known.strikes, numbered=numbered)
        same = before == asked and known.verdicts == shown.verdicts
        if same and not (numbered and _differ_in_size(known, trial)):
            return place
        alone = trial.pair and len(before) == 1 and before[0] in asked
        if alone and numbered:  # after a first fault the same number may be another message
            at = place_of(known.strikes[0].place)
            struck_ = zip(asked, trial.strikes, strict=True)
            alone = any(one == before[0] and at.is_as_large_as(s.place) for one, s in struck_)
        usual = known.declared and not before
        if (alone or usual) and set(shown.verdicts) <= set(known.verdicts):
            return place
    return None


def is_at(known: Finding, trial: Trial) -> bool:
    """Whether a finding is of just these strikes at these messages."""
    same = _places(known.strikes, numbered=True) == _places(trial.strikes, numbered=True)
    return known.scenario == trial.scenario and same and not _differ_in_size(known, trial)


def classes(of: Finding | Shown) -> frozenset[str]:
    """Of the errors that were raised; those of older versions are in the sentence."""
    return frozenset(map(class_of, of.errors or [of.why])) if RAISES in of.verdicts else frozenset()


def _differ_in_size(known: Finding, trial: Trial) -> bool:
    """Whether other messages were struck at the same events."""
    return not all(
        place_of(before.place).is_as_large_as(strike.place)
        for before, strike in zip(known.strikes, trial.strikes, strict=True)
    )


def _places(
    strikes: Sequence[Strike] | Sequence[StrikeAt], *, numbered: bool
) -> list[tuple[str, str, int]]:
    return [(s.fault, s.place.kind, s.place.number if numbered else 0) for s in strikes]


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
        shown.errors,
    )


def usual(broken: Sequence[tuple[Played, Shown]], plays: int, lock: str) -> Finding:
    """What breaks without a fault: every verdict of those that were shown."""
    play, first = next((one for one in broken if not one[1].declared), broken[0])
    verdicts = tuple(dict.fromkeys(v for _, shown in broken for v in shown.verdicts))
    declared = all(shown.declared for _, shown in broken)
    errors = {class_of(error): error for _, shown in broken for error in shown.errors}
    finding = finding_of(play, Shown(verdicts, first.why, declared, (*errors.values(),)), lock)
    return evolved(finding, broke=len(broken), plays=plays)


def as_known_now(finding: Finding, system: System) -> Finding:
    """With what has been declared and put on record since it was found."""
    faults = [strike.fault for strike in finding.strikes]
    shown = Shown(finding.verdicts, finding.why, finding.declared, finding.errors)
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
    verdicts in this scenario (of errors: each of them), or that under a fault that does the same
    break one or are about a lock that nobody gets any more."""
    like = {name for fault in faults for name in FAULTS[fault].like}
    names = {*shown.verdicts, *([track.LIVENESS] if LIVENESS.intersection(shown.verdicts) else [])}
    errors = [{*re.findall(r"\w+", error)} for error in shown.errors or [shown.why]]
    own = [page for page in track.pages() if lock in page.locks]
    if not all(any(_tells(page, scenario, {RAISES}, words) for page in own) for words in errors):
        names.discard(RAISES)
    words = set[str]().union(*errors)
    return tuple(
        page.id
        for page in track.pages()
        if (page in own and _tells(page, scenario, names, words))
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
            counts[shown is not None and _shows(finding, shown)] += 1
    return evolved(
        finding, broke=finding.broke + counts[True], plays=finding.plays + counts.total()
    )


def _shows(finding: Finding, shown: Shown) -> bool:
    """Whether it is what was found; of errors, one of the same class."""
    mine = classes(finding)
    alike_ = not mine or not mine.isdisjoint(classes(shown))
    return alike_ and set(finding.verdicts) <= set(shown.verdicts)


def as_line(finding: Finding) -> str:
    """A line for who watches."""
    declared = ", as declared" if finding.declared else ""
    return f"{sentence(finding)}{declared}: {finding.why[:160]}"
