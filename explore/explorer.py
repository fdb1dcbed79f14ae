"""Explores a lock: finds the events of its scenarios, strikes each with each fault that fits.

Guarantees: what counts as tried has met its events, as the links saw it, and was decided. A play
that did not, or was not, is played again; after ``PLAYS_MAX``, or ``STRUCK_MAX`` that a shared
strike did not strike, it counts as not reached or as what could not run. So is a play that struck a
message of another size than the planned one; the last one counts as it is. A lost wake-up is told
only where ``PLAYS_MAX`` plays show it. What was found is played ten times more, what is declared
or on record four times.

What is known is told to ``saved`` piece by piece, and gone on with where an exploration of the same
lock was interrupted: what was not reached or could not run is tried again.

Does not guarantee that an event is the same message in every play: events are counted.
"""

from __future__ import annotations

import itertools
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
from msgspec.structs import replace as evolved

from lockbench.bench import plan
from lockbench.clusters.base import ClusterError
from lockbench.clusters.engine.client_containers import HEAP, IDLE_CONNECTIONS, WARM_CYCLES
from lockbench.explore.actors import Actors
from lockbench.explore.asked import Asked
from lockbench.explore.findings import alike, as_line, classes, finding_of, is_at, usual
from lockbench.explore.judge import (
    LATE_GRANT,
    LOST_WAKEUP,
    Shown,
    Undecided,
    judged,
    waits_too_long,
)
from lockbench.explore.plays import OTHERS_GROUP, PLAYS, ClusterLost, Plays, last_number, room_of
from lockbench.explore.pool import Pool
from lockbench.explore.repeats import Repeats
from lockbench.explore.scenarios import Scenario
from lockbench.explore.servers import APART, ELSEWHERE
from lockbench.explore.several import memory_bytes
from lockbench.explore.stage import VICTIM
from lockbench.explore.trial import Key, Place, Played, Trial, event_of, key_of, struck
from lockbench.explore.trials import act_of, named, pairs_of, singles
from lockbench.history.op import F, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER
from lockbench.history.recording import read_recording
from lockbench.locks.base import System
from lockbench.locks.shared.library import Library, library_of
from lockbench.locks.shared.template import TEMPLATE
from lockbench.results.documents.exploration import (
    EventPlace,
    Exploration,
    ExploredScenario,
    Finding,
    Tried,
)
from lockbench.results.wording import times
from lockbench.workloads.fork_server import RUN_ENVIRONMENT, ForkServer, run_mark

DRY_PLAYS: Final = 5  # an event that depends on what comes first is not in all of them
PLAYS_MAX: Final = 3
STRUCK_MAX: Final = 10  # of a play that a shared strike at servers did not strike
MORE_PLAYS: Final = 4  # where something broke without a fault, to see what else does
TELLS_S: Final = 20.0
AT_ONCE: Final = 2  # clusters of one lock
SPARE_BYTES: Final = 8 << 30  # of memory, for more than one
CLIENTS_SHARE: Final = 0.8  # of the memory, at most
# Of a JVM, whose client has little to do. A pool that opens connections in advance has messages on
# each that no call waits for, and each would be struck: 25 connections of Redisson's to a server.
# Nothing is measured that would need a compiled client: a few cycles load its classes.
CLIENTS: Final = {HEAP: "64m", IDLE_CONNECTIONS: "1", WARM_CYCLES: "10"}
ATTEMPTS: Final = 3  # with other clusters, where one is lost

Told = Callable[[str], None]


@dataclass(slots=True)
class _Counts:
    """Of each trial: how often it was played, how many plays came to nothing by themselves, how
    many struck another message, and in how many somebody waited too long."""

    plays: Counter[Trial] = field(default_factory=Counter)
    failed: Counter[Trial] = field(default_factory=Counter)
    strays: Counter[Trial] = field(default_factory=Counter)
    waits: Counter[Trial] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a play shows: all of it, and without what a busy machine may show, too. ``waited``: a
    lost wake-up is among it."""

    timed: Shown | Undecided | None = None
    untimed: Shown | Undecided | None = None
    waited: bool = False


class _Progress:
    """Tells once in a while how far it is."""

    def __init__(self, count: int, told: Told) -> None:
        self._count = count
        self._told = told
        self._began = self._last = time.monotonic()

    def tell(self, done: int, findings: int) -> None:
        now = time.monotonic()
        if now < self._last + TELLS_S or not 0 < done < self._count:
            return
        self._last = now
        minutes = math.ceil((now - self._began) / done * (self._count - done) / 60)
        found = times(findings, "finding")
        self._told(f"{done} of {self._count} tried, {found}, about {minutes} minutes left")


def explore(
    what: Asked,
    known: Exploration,
    folder: Path,
    *,
    run_id: str,
    told: Told,
    saved: Callable[[Exploration], None],
    until_s: float = math.inf,
) -> Exploration:
    """All single faults of a lock, and the pairs where they are asked for. ``known``: what an
    interrupted exploration of the same has found, or one that has just begun. ``told`` hears a line
    for each thing that is known, ``saved`` all that is known. ``until_s``: no plays are begun
    that would not have ended by then, in monotonic seconds. Raises ClusterError."""
    lost: set[Key] = set()

    def noted(now: Exploration) -> None:
        nonlocal known
        known = now
        saved(now)

    _clear(folder, known)
    for left in reversed(range(ATTEMPTS)):
        before = len(lost)
        try:
            with _plays(what, folder, run_id, told) as plays:
                explorer = _Explorer(what, plays, told, until_s, lost)
                known = explorer.explore(known, noted)
                asked_for = {one.name for one in what.scenarios}
                if known.ended and not all(
                    one.worked for one in known.scenarios if one.name in asked_for
                ):
                    told("once more what did not work: the machine may have been busy at first")
                    known = explorer.explore(known, noted)
                return known
        except ClusterError as error:
            if left == 0 or len(lost) == before:
                raise
            told(f"{error}; going on with a new cluster")
        finally:
            _clear(folder, known)
    raise AssertionError


def _clear(folder: Path, known: Exploration) -> None:
    """Removes what plays left that were broken off."""
    kept = {finding.recording for finding in known.findings}
    for play in folder.glob(PLAYS):
        if play.name not in kept:
            shutil.rmtree(play, ignore_errors=True)


@contextmanager
def _plays(what: Asked, folder: Path, run_id: str, told: Told) -> Iterator[Pool]:
    """On clusters of their own, as many as there is memory for."""
    case, numbers = what.case, itertools.count(last_number(folder) + 1)
    own_bytes = memory_bytes()
    clusters = AT_ONCE if own_bytes > SPARE_BYTES else 1
    each, room = list[Plays](), room_of(what, int(CLIENTS_SHARE * own_bytes / clusters))
    with ExitStack() as stack:
        fork_server = stack.enter_context(ForkServer(run_id, ["lockbench.explore.actor"]))
        environment = {**CLIENTS, **stack.enter_context(_sidecars_of(case, run_id))}
        for n in range(clusters):
            logs = folder / "logs" / f"cluster-{n + 1}"
            logs.mkdir(exist_ok=True)
            wanted = replace(plan.cluster_plan_of(case, run_id, logs), groups=OTHERS_GROUP)
            try:
                cluster = stack.enter_context(plan.topology_of(case).make(wanted))
            except ClusterError as error:
                if not each:
                    raise
                told(f"{error}; going on with one cluster")
                break
            victims = stack.enter_context(Actors(fork_server, logs, environment))
            others = stack.enter_context(Actors(fork_server, logs, environment))
            each.append(Plays(what, cluster, victims, others, folder, room=room, numbers=numbers))
        yield Pool(each)


@contextmanager
def _sidecars_of(case: plan.Case, run_id: str) -> Iterator[Mapping[str, str]]:
    """What the environment of actors says of where sidecars of the lock's library come from."""
    library = library_of(case.system)
    if not isinstance(library, Library):
        yield {}
        return
    with library.template({RUN_ENVIRONMENT: run_mark(run_id)}) as template:
        yield {} if template.path is None else {TEMPLATE: template.path}


class _Explorer:
    def __init__(
        self, what: Asked, plays: Pool, told: Told, until_s: float, lost: set[Key]
    ) -> None:
        """``lost``: what no cluster came back from; it is not tried again."""
        self._what = what
        self._lost = lost
        self._until_s = until_s
        self._plays = plays
        self._setting = plays.setting
        self._told = told
        self._repeats = Repeats(plays.setting, lost, {one.name for one in what.scenarios})

    def explore(self, known: Exploration, saved: Callable[[Exploration], None]) -> Exploration:
        """Goes on from what is known."""
        began = time.monotonic() - known.took_s

        def save(now: Exploration) -> Exploration:
            now = evolved(now, took_s=time.monotonic() - began)
            saved(now)
            return now

        asked_for = {one.name for one in self._what.scenarios}
        # What did not work is looked at again where it is asked for.
        there = tuple(s for s in known.scenarios if s.worked or s.name not in asked_for)
        known = evolved(known, scenarios=there, ended=False)
        names = {scenario.name for scenario in there}
        if missing := [one for one in self._what.scenarios if one.name not in names]:
            known = save(self._with_events(missing, known))
        chosen = [scenario for scenario in known.scenarios if scenario.name in asked_for]
        if self._what.strikes:
            trials = [named(scenario, self._what.strikes) for scenario in chosen]
            known, whole = self._all_tried(trials, known, save, "plays")
            return save(evolved(known, ended=whole))
        cluster, independent = self._plays.cluster, self._setting.independent
        every = [t for one in known.scenarios for t in singles(one, cluster, independent)]
        trials = [trial for trial in every if trial.scenario in asked_for]
        # What was interrupted may have had more scenarios, and pairs.
        others = [trial for trial in every if trial.scenario not in asked_for]
        ends = self._what.depth >= known.depth and self._were_tried(others, known)
        with_pairs = known.planned if known.depth > 1 else 0
        known = evolved(known, planned=max(len(every), with_pairs))
        known, whole = self._all_tried(trials, known, save, "single faults")
        if self._what.depth > 1 and whole:
            pairs, count = pairs_of(known, cluster, pruned=self._what.pruned)
            self._told(f"{count} pairs, {count - len(pairs)} of them like others")
            known = evolved(known, depth=2, pairs=count, planned=len(every) + len(pairs))
            ends &= self._were_tried([p for p in pairs if p.scenario not in asked_for], known)
            pairs = [pair for pair in pairs if pair.scenario in asked_for]
            known, whole = self._all_tried(pairs, known, save, "pairs")
        return save(evolved(known, ended=whole and ends))

    def _were_tried(self, trials: Sequence[Trial], known: Exploration) -> bool:
        """Whether each was, and what was found in its scenario was played again."""
        names = {trial.scenario for trial in trials}
        again = Repeats(self._setting, self._lost, names).left(known.findings)
        return not again and {key_of(one) for one in known.tried}.issuperset(map(key_of, trials))

    def _all_tried(
        self,
        trials: Sequence[Trial],
        known: Exploration,
        save: Callable[[Exploration], Exploration],
        what: str,
    ) -> tuple[Exploration, bool]:
        """Tries those that were not tried yet, or came to nothing, and plays again what was found;
        whether all that was done."""
        done = self._lost | {
            key_of(tried) for tried in known.tried if tried.outcome in {"kept", "broke"}
        }
        left = [trial for trial in trials if key_of(trial) not in done]
        anew = set(map(key_of, left))
        before = [one for one in known.tried if key_of(one) not in anew]
        known = evolved(known, tried=tuple(before))
        self._told(f"{len(left)} {what} to try")
        counts, pending = _Counts(), self._plays.pending(left)
        pending.add(*self._repeats.wanted(known.findings))
        progress = _Progress(len(left), self._told)
        try:
            with closing(self._plays.played(pending, self._until_s)) as parts:
                for plays in parts:
                    known, doubtful = self._tried(plays, counts, known)
                    known = save(self._repeated(plays, known))
                    pending.add(doubtful)
                    pending.add(*self._repeats.wanted(known.findings))
                    progress.tell(len(known.tried) - len(before), len(known.findings))
        except ClusterLost as error:
            self._lost.update(map(key_of, error.trials))
            first = [trial for trial in left if key_of(trial) in self._lost]
            save(_with_lost(first, str(error), known))
            raise
        missing = len(left) - (len(known.tried) - len(before))
        if missing:
            self._told(f"no time is left for {missing} of them")
        again = self._repeats.left(known.findings)
        if again:
            self._told(f"no time is left to play {times(again, 'finding')} again")
        return known, not missing and not again

    def _repeated(self, plays: Sequence[Played], known: Exploration) -> Exploration:
        """With what came of playing findings again."""
        findings = list(known.findings)
        again = [play for play in plays if play.trial.again]
        for play in again:
            if not play.unable and not play.missed:
                self._news_of(play, findings)
        kept = {finding.recording for finding in findings}
        for place in self._repeats.count(again, findings, kept):
            self._told(as_line(findings[place]))
        return evolved(known, findings=tuple(findings))

    def _news_of(self, play: Played, findings: list[Finding]) -> None:
        """Adds what a play shows that was to show a finding again, and that no finding at this
        message has."""
        met = _as_met(play)
        shown = judged(met, self._setting.system, timed=False)
        if isinstance(shown, Shown) and not shown.declared:
            there = [one for one in findings if is_at(one, met.trial)]
            verdicts = {verdict for one in there for verdict in one.verdicts}
            errors = {name for one in there for name in classes(one)}
            if not (verdicts >= {*shown.verdicts} and errors >= classes(shown)):
                self._place(met, shown, findings)

    def _with_events(self, scenarios: Sequence[Scenario], known: Exploration) -> Exploration:
        """What passes in each scenario, and what goes wrong in it without any fault."""
        dry, system = self._dry(scenarios), self._setting.system
        found: list[ExploredScenario] = []
        for scenario in scenarios:
            plays = [play for play in dry if play.trial.scenario == scenario.name]
            broken = self._broken(plays)
            if broken:
                more = self._plays.play_all([Trial(scenario.name)] * MORE_PLAYS)
                # The first ones were played beside those of all other scenarios, so that clients
                # may have waited for their turn and not for a lock.
                waiting = [one for one in more if not one.unable and waits_too_long(one, system)]
                plays += more
                broken = self._broken(plays, timed=len(waiting) >= PLAYS_MAX)
                if not any(LATE_GRANT in shown.verdicts for _, shown in self._broken(more)):
                    broken = [one for one in broken if set(one[1].verdicts) != {LATE_GRANT}]
            if broken:
                finding = usual(broken, len(plays), self._setting.lock)
                known = evolved(known, findings=_with_usual(finding, known.findings))
                self._told(as_line(finding))
            news = any(not shown.declared for _, shown in broken)
            worked = [play for play in plays if _worked(play, scenario)]
            events_of = worked if len(worked) >= DRY_PLAYS else plays
            found.append(_common_events(scenario, events_of, broken=news))
            self._told(f"{scenario.name}: {found[-1].why or f'{len(found[-1].events)} events'}")
            self._forget(plays, known)
        return evolved(known, scenarios=(*known.scenarios, *found))

    def _dry(self, scenarios: Sequence[Scenario]) -> list[Played]:
        """So many plays of each without a fault; those that did not work out are played again, and
        kept if they show something that is not declared."""
        named = {one.name: one for one in scenarios}
        left = [Trial(one.name) for one in scenarios for _ in range(DRY_PLAYS)]
        found: list[Played] = []
        for attempt in range(1, PLAYS_MAX + 1):
            plays = self._plays.play_all(left)
            failed = [play for play in plays if not _worked(play, named[play.trial.scenario])]
            if attempt == PLAYS_MAX:
                failed = []
            news = self._broken(failed, timed=False)
            kept = [play for play, shown in news if not shown.declared]
            found += [play for play in plays if play not in failed or play in kept]
            for play in failed:
                if play not in kept:
                    shutil.rmtree(play.folder, ignore_errors=True)
            left = [play.trial for play in failed]
        return found

    def _broken(self, plays: Sequence[Played], *, timed: bool = True) -> list[tuple[Played, Shown]]:
        system = self._setting.system
        judgements = [(p, judged(p, system, timed=timed)) for p in plays if not p.unable]
        return [(play, shown) for play, shown in judgements if isinstance(shown, Shown)]

    def _forget(self, plays: Sequence[Played], known: Exploration) -> None:
        """Removes the recordings that show nothing."""
        kept = {finding.recording for finding in known.findings}
        for play in plays:
            if play.folder.name not in kept:
                shutil.rmtree(play.folder, ignore_errors=True)

    def _tried(
        self, played: Sequence[Played], counts: _Counts, known: Exploration
    ) -> tuple[Exploration, list[Trial]]:
        """With what came of these. Also returns the trials to play again."""
        again: list[Trial] = []
        tried, findings = list(known.tried), list(known.findings)
        plays = [play for play in played if not play.trial.again]
        for play in plays:
            trial, met = play.trial, _as_met(play)
            seen = _seen(play, met, self._setting.system)
            if self._is_doubtful(play, seen, counts):
                again.append(trial)
                if play.strayed:  # what it shows is news of another message
                    self._news(met, seen.untimed, findings)
                continue
            one = Tried(trial.scenario, struck(trial), "kept", trial.pair, counts.plays[trial])
            if len(trial.strikes) == 1 and not play.unable:
                # An exploration of pairs may be gone on with by one that is not.
                depth = max(self._what.depth, known.depth)
                then = _then(play) if depth > 1 else ()
                one = evolved(one, state=_state(play), then=then)
            shown = seen.timed if counts.waits[trial] == PLAYS_MAX else seen.untimed
            if play.unable:
                one = evolved(one, outcome="could not run", why=play.unable)
            elif play.missed:
                one = evolved(one, outcome="not reached")
            elif isinstance(shown, Undecided):
                one = evolved(one, outcome="could not run", why=shown.why)
            if isinstance(shown, Shown) and not (play.missed and shown.declared):
                outcome = one.outcome if play.missed else "broke"
                one = evolved(one, outcome=outcome, finding=self._place(met, shown, findings))
            tried.append(one)
        known = evolved(known, tried=tuple(tried), findings=tuple(findings))
        self._forget(plays, known)
        return known, again

    def _news(self, play: Played, shown: Shown | Undecided | None, findings: list[Finding]) -> None:
        """Adds what a play shows that is not declared, and not only that somebody waited."""
        if isinstance(shown, Shown) and not shown.declared:
            self._place(play, shown, findings)

    def _place(self, play: Played, shown: Shown, findings: list[Finding]) -> int:
        """Of what was shown; adds it where it is new."""
        place = alike(findings, play.trial, shown)
        if place is None:
            place = len(findings)
            findings.append(finding_of(play, shown, self._setting.lock))
        return place

    def _is_doubtful(self, play: Played, seen: _Seen, counts: _Counts) -> bool:
        """Whether it is to be played again, and counts it. What shows something that is not
        declared, and not only that somebody waited, is kept."""
        trial = play.trial
        counts.plays[trial] += 1
        if _came_to_nothing(play):
            if play.unable in {"", APART, ELSEWHERE}:
                return counts.plays[trial] < STRUCK_MAX
            counts.failed[trial] += 1
            return counts.failed[trial] < PLAYS_MAX
        if play.strayed:
            counts.strays[trial] += 1
            if counts.strays[trial] < PLAYS_MAX:
                return True
        if isinstance(seen.untimed, Shown) and not seen.untimed.declared:
            return False
        if seen.waited and not play.missed:
            counts.waits[trial] += 1
            return counts.waits[trial] < PLAYS_MAX
        if play.missed or isinstance(seen.untimed, Undecided):
            counts.failed[trial] += 1
            return counts.failed[trial] < PLAYS_MAX
        return False


def _worked(play: Played, scenario: Scenario) -> bool:
    """Whether everybody was granted what the script has for them."""
    return not play.unable and play.grants == scenario.grants


def _with_usual(finding: Finding, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """With what breaks without a fault, in the place of what an earlier try of the scenario found;
    others refer to findings by their places."""
    for place, known in enumerate(findings):
        if known.scenario == finding.scenario and not known.strikes:
            return (*findings[:place], finding, *findings[place + 1 :])
    return (*findings, finding)


def _seen(play: Played, met: Played, system: System) -> _Seen:
    """``met``: the play as one of the strikes that met their events."""
    if _came_to_nothing(play):
        return _Seen()
    timed = judged(met, system)
    waited = isinstance(timed, Shown) and LOST_WAKEUP in timed.verdicts
    return _Seen(timed, judged(met, system, timed=False) if waited else timed, waited)


def _with_lost(trials: Sequence[Trial], why: str, known: Exploration) -> Exploration:
    """With those that no cluster came back from; what came of others stays."""
    there = set(map(key_of, known.tried))
    why = f"the cluster did not come back: {why}"
    lost = [trial for trial in trials if key_of(trial) not in there]
    came = [Tried(t.scenario, struck(t), "could not run", t.pair, why=why) for t in lost]
    return evolved(known, tried=(*known.tried, *came))


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
    each = [{place: place for place in play.places} for play in plays]
    common = [place for place in plays[0].places if all(place in places for places in each)]
    same = [[places[place] for places in each] for place in common]
    events = sorted(map(_as_usual, same), key=lambda place: place.at_s)
    if not events:
        return evolved(about, why="nothing passes in it")
    states = {_state(play) for play in plays if not play.unable}
    state = states.pop() if len(states) == 1 else None
    return evolved(about, events=tuple(map(event_of, events)), state=state)


def _as_usual(same: Sequence[Place]) -> Place:
    """An event, with the size that it has in most plays. One other may be a heartbeat in between;
    more say that it varies. When it comes is told by the play that other plays held up least."""
    alike = [sum(place.is_alike(other) for other in same) for place in same]
    size = same[alike.index(max(alike))].size
    at_s = min(place.at_s for place in same)
    return replace(same[0], at_s=at_s, size=size, varies=max(alike) < len(same) - 1)


def _came_to_nothing(play: Played) -> bool:
    """Whether it could not be played, or met with a strike at servers that was for other plays."""
    return bool(play.unable or (play.missed and act_of(play.trial)))


def _as_met(play: Played) -> Played:
    """The play as one of the strikes that met their events, at the messages that they struck."""
    if not play.missed and not play.strayed:
        return play
    strikes = tuple(
        replace(strike, place=play.met[strike]) if play.strayed else strike
        for strike in play.trial.strikes
        if strike not in play.missed
    )
    pair = play.trial.pair and len(strikes) > 1
    return replace(play, trial=replace(play.trial, strikes=strikes, pair=pair))


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
    place = play.met.get(strike, strike.place)
    at = next((n for n, p in enumerate(play.places, 1) if p == place), len(play.places))
    return tuple(map(event_of, play.places[at:]))
