"""Explores a lock: finds the events of its scenarios, strikes each with each fault that fits.

Guarantees: what counts as tried has met its events, as the links saw it. A play that did not is
played again, and after ``PLAYS_MAX`` it counts as not reached. A lost wake-up is told only where so
many plays in a row show it. What was found is played ``REPEATS`` times more, once for each kind of
event.

What is known is told to ``saved`` piece by piece, and gone on with where an exploration of the same
lock was interrupted.

Does not guarantee that an event is the same message in every play: events are counted.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
from msgspec.structs import replace as evolved

from lockbench.bench import plan
from lockbench.explore.actors import Actors
from lockbench.explore.asked import Asked
from lockbench.explore.findings import alike, as_line, counted, finding_of, usual
from lockbench.explore.judge import Shown, judged, waits_too_long
from lockbench.explore.plays import OTHERS_GROUP, Plays
from lockbench.explore.scenarios import Scenario
from lockbench.explore.servers import ELSEWHERE
from lockbench.explore.stage import VICTIM
from lockbench.explore.trial import Played, Trial, event_of, struck
from lockbench.explore.trials import chunks, named, pairs_of, singles
from lockbench.history.op import F, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER
from lockbench.history.recording import read_recording
from lockbench.results.documents.exploration import (
    EventPlace,
    Exploration,
    ExploredScenario,
    StrikeAt,
    Tried,
)
from lockbench.workloads.fork_server import ForkServer

DRY_PLAYS: Final = 2
PLAYS_MAX: Final = 3
ELSEWHERE_MAX: Final = 10  # of a play whose event came at another server than was struck
MORE_PLAYS: Final = 4  # where something broke without a fault, to see what else does
REPEATS: Final = 10

Told = Callable[[str], None]


def explore(
    what: Asked,
    known: Exploration,
    folder: Path,
    *,
    run_id: str,
    told: Told,
    saved: Callable[[Exploration], None],
) -> Exploration:
    """All single faults of a lock, and the pairs where they are asked for. ``known``: what an
    interrupted exploration of the same has found, or one that has just begun. ``told`` hears a line
    for each thing that is known, ``saved`` all that is known. Raises ClusterError."""
    case = what.case
    with ExitStack() as stack:
        fork_server = stack.enter_context(ForkServer(run_id, ["lockbench.explore.actor"]))
        wanted = plan.cluster_plan_of(case, run_id, folder / "logs")
        cluster = plan.topology_of(case).make(replace(wanted, groups=OTHERS_GROUP))
        stack.enter_context(cluster)
        victims = stack.enter_context(Actors(fork_server, folder / "logs"))
        others = stack.enter_context(Actors(fork_server, folder / "logs"))
        plays = Plays(what, cluster, victims, others, folder)
        return _Explorer(what, plays, told).explore(known, saved)


class _Explorer:
    def __init__(self, what: Asked, plays: Plays, told: Told) -> None:
        self._what = what
        self._plays = plays
        self._setting = plays.setting
        self._told = told

    def explore(self, known: Exploration, saved: Callable[[Exploration], None]) -> Exploration:
        """Goes on from what is known."""
        began = time.monotonic() - known.took_s

        def save(now: Exploration) -> Exploration:
            now = evolved(now, took_s=time.monotonic() - began)
            saved(now)
            return now

        there = {scenario.name for scenario in known.scenarios}
        if missing := [one for one in self._what.scenarios if one.name not in there]:
            known = save(self._with_events(missing, evolved(known, ended=False)))
        asked_for = {one.name for one in self._what.scenarios}
        chosen = [scenario for scenario in known.scenarios if scenario.name in asked_for]
        if self._what.strikes:
            trials = [named(scenario, self._what.strikes) for scenario in chosen]
            return save(evolved(self._all_tried(trials, known, save, "plays"), ended=True))
        cluster = self._plays.cluster
        trials = [trial for scenario in chosen for trial in singles(scenario, cluster)]
        known = self._all_tried(trials, known, save, "single faults")
        if self._what.depth > 1:
            pairs, count = pairs_of(known, cluster, pruned=self._what.pruned)
            self._told(f"{count} pairs, {count - len(pairs)} of them like others")
            known = evolved(known, depth=2, pairs=count)
            known = self._all_tried(pairs, known, save, "pairs")
        return save(evolved(known, ended=True))

    def _all_tried(
        self,
        trials: Sequence[Trial],
        known: Exploration,
        save: Callable[[Exploration], Exploration],
        what: str,
    ) -> Exploration:
        """Tries those that were not tried yet."""
        done = {(tried.scenario, _orders(tried.strikes)) for tried in known.tried}
        left = [t for t in trials if (t.scenario, _orders(struck(t))) not in done]
        self._told(f"{len(left)} {what} to try")
        began, count = time.monotonic(), 0
        for chunk in chunks(left, self._plays.slots):
            known = save(self._tried(chunk, known))
            count += len(chunk)
            left_s = (time.monotonic() - began) / count * (len(left) - count)
            if count < len(left):
                self._told(f"{count} of {len(left)} tried, about {left_s / 60:.0f} minutes left")
        return known

    def _with_events(self, scenarios: Sequence[Scenario], known: Exploration) -> Exploration:
        """What passes in each scenario, and what goes wrong in it without any fault."""
        dry = self._plays.play_all([Trial(one.name) for one in scenarios for _ in range(DRY_PLAYS)])
        self._plays.record(dry)
        found: list[ExploredScenario] = []
        for scenario in scenarios:
            plays = [play for play in dry if play.trial.scenario == scenario.name]
            broken = self._broken(plays)
            if broken:
                more = self._plays.play_all([Trial(scenario.name)] * MORE_PLAYS)
                self._plays.record(more)
                plays += more
                waiting = sum(waits_too_long(play) for play in plays if not play.unable)
                broken = self._broken(plays, timed=2 * waiting > len(plays))
            if broken:
                finding = usual(broken, len(plays), self._setting.lock)
                known = evolved(known, findings=(*known.findings, finding))
                self._told(as_line(finding))
            news = any(not shown.declared for _, shown in broken)
            found.append(_common_events(scenario, plays, broken=news))
            self._told(f"{scenario.name}: {found[-1].why or f'{len(found[-1].events)} events'}")
            self._forget(plays, known)
        return evolved(known, scenarios=(*known.scenarios, *found))

    def _broken(self, plays: Sequence[Played], *, timed: bool = True) -> list[tuple[Played, Shown]]:
        system = self._setting.system
        judgements = [(p, judged(p, system, timed=timed)) for p in plays if not p.unable]
        return [(play, shown) for play, shown in judgements if shown is not None]

    def _forget(self, plays: Sequence[Played], known: Exploration) -> None:
        """Removes the recordings that show nothing."""
        kept = {finding.recording for finding in known.findings}
        for play in plays:
            if play.folder.name not in kept:
                shutil.rmtree(play.folder, ignore_errors=True)

    def _tried(self, trials: Sequence[Trial], known: Exploration) -> Exploration:
        """Plays each until it has met its events, judges, and repeats what is new."""
        left = dict.fromkeys(trials, 0)
        plays: list[tuple[Played, int]] = []
        while left:
            again: dict[Trial, int] = {}
            for play in self._plays.play_all(list(left)):
                count = left[play.trial] + 1
                limit = ELSEWHERE_MAX if play.unable == ELSEWHERE else PLAYS_MAX
                doubtful = bool(play.missed or play.unable) or waits_too_long(play)
                if doubtful and count < limit:
                    again[play.trial] = count
                    shutil.rmtree(play.folder, ignore_errors=True)
                else:
                    plays.append((play, count))
            left = again
        self._plays.record([play for play, _ in plays])
        tried, findings = list(known.tried), list(known.findings)
        fresh: list[tuple[Trial, int]] = []
        for play, count in plays:
            trial, shown = play.trial, None
            one = Tried(trial.scenario, struck(trial), "kept", trial.pair, count)
            if len(trial.strikes) == 1 and not play.unable:
                one = evolved(one, state=_state(play), then=_then(play))
            if play.unable:
                one = evolved(one, outcome="could not run", why=play.unable)
            elif play.missed:
                one = evolved(one, outcome="not reached")
            elif (shown := judged(play, self._setting.system)) is not None:
                place = alike(findings, trial, shown)
                if place is None:
                    place = len(findings)
                    fresh.append((trial, place))
                    findings.append(finding_of(play, shown, self._setting.lock))
                one = evolved(one, outcome="broke", finding=place)
            tried.append(one)
        for place, again_of in self._repeated(fresh).items():
            findings[place] = counted(findings[place], again_of, self._setting)
            self._told(as_line(findings[place]))
        known = evolved(known, tried=tuple(tried), findings=tuple(findings))
        self._forget([play for play, _ in plays], known)
        return known

    def _repeated(self, fresh: Sequence[tuple[Trial, int]]) -> dict[int, list[Played]]:
        """Place of a finding → plays of its trial again."""
        plays = self._plays.play_all([trial for trial, _ in fresh for _ in range(REPEATS)])
        return {place: [play for play in plays if play.trial == trial] for trial, place in fresh}


def _common_events(
    scenario: Scenario, plays: Sequence[Played], *, broken: bool
) -> ExploredScenario:
    """The events that all plays without a fault have. One in which something is broken already is
    explored no further."""
    about = ExploredScenario(scenario.name, scenario.summary)
    if broken:
        return evolved(about, why="it breaks without a fault")
    for play in plays:
        why = play.unable
        if not why and play.grants != scenario.grants:
            why = f"the victim was granted {play.grants} times of {scenario.grants}"
        if why:
            return evolved(about, worked=False, why=f"does not work without a fault: {why}")
    common = set.intersection(*(set(play.places) for play in plays))
    events = sorted((p for p in plays[0].places if p in common), key=lambda p: p.at_s)
    if not events:
        return evolved(about, why="nothing passes in it")
    states = {_state(play) for play in plays if not play.unable}
    state = states.pop() if len(states) == 1 else None
    return evolved(about, events=tuple(map(event_of, events)), state=state)


def _orders(strikes: Sequence[StrikeAt]) -> tuple[tuple[str, int, str], ...]:
    """What tells trials of a scenario apart."""
    return tuple((s.place.kind, s.place.number, s.fault) for s in strikes)


def _state(play: Played) -> str:
    """What passed in a play, what the victim was answered, and who held the key in which order, as
    a short word."""
    history = read_recording(play.folder)
    answers = []
    for row in np.argsort(history.complete_ns, kind="stable").tolist():
        mine = history.process[row] // PROCESSES_PER_WORKER == VICTIM
        f, ended = int(history.f[row]), int(history.type[row])
        if mine or (ended == Type.OK and f in {F.ACQUIRE, F.RELEASE}):
            answers.append((bool(mine), f, ended))
    passed = [(place.kind, place.size) for place in play.places]
    return sha256(repr((passed, answers)).encode()).hexdigest()[:16]


def _then(play: Played) -> tuple[EventPlace, ...]:
    """The events that came after the one that was struck."""
    (strike,) = play.trial.strikes
    at = next((n for n, p in enumerate(play.places, 1) if p == strike.place), len(play.places))
    return tuple(map(event_of, play.places[at:]))
