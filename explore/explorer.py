"""Explores a lock: finds the events of its scenarios, strikes each with each fault that fits.

Guarantees: what counts as tried has met its events, as the links saw it. A play that did not is
played again, and after ``PLAYS_MAX`` it counts as not reached. What was found is played
``REPEATS`` times more, once for each kind of event.

Of two faults (depth 2) the second strikes an event that came after the first, in a play with the
first alone. Where the first left the same state as no fault, or as another first, its pairs are
those of the other and are left out. The state is what passed between victim and servers (kinds and
sizes, in order), what the victim was answered, and who held the key in which order.

What is known is told to ``saved`` piece by piece, and gone on with where an exploration of the same
lock was interrupted.

Does not guarantee that an event is the same message in every play: events are counted.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import numpy as np
from msgspec.structs import replace as evolved

from bench import interruption, plan
from bench.usable import why_unusable
from clusters.base import Cluster, Recorded
from evidence import track
from explore.actors import Actors
from explore.faults import FAULTS, fitting
from explore.judge import HANGS, LOST_WAKEUP, Shown, judged
from explore.scenarios import SCENARIOS, Scenario
from explore.servers import ELSEWHERE, Blow, possible
from explore.stage import VICTIM, Place, Played, Server, Setting, Stage, Strike, Trial
from history.op import F, Type
from history.recorder import PROCESSES_PER_WORKER
from history.recording import read_recording
from history.service import write_service
from locks.shared.client_container import ContainerLibrary
from locks.shared.library import library_of
from locks.shared.tenures import service_of
from results.documents.exploration import (
    EventPlace,
    Exploration,
    ExploredScenario,
    Finding,
    StrikeAt,
    Tried,
)
from results.errors import BadInput, Unfit
from workloads.fork_server import ForkServer

# So many plays at once: they wait most of the time.
SLOTS: Final = 12
CONTAINER_SLOTS: Final = 4  # their clients are virtual machines
# After so many trials, what is known is saved.
CHUNK: Final = 10
FIRST_HOST: Final = 100  # 127.0.0.100 and up are the victims'
DRY_PLAYS: Final = 2
PLAYS_MAX: Final = 3
ELSEWHERE_MAX: Final = 10  # of a play whose event came at another server than was struck
MORE_PLAYS: Final = 4  # where something broke without a fault, to see what else does
REPEATS: Final = 10
LEASE_S: Final = 2.0
CLIENT_TIMEOUT_S: Final = 0.8
VICTIMS_GROUP: Final = 1
OTHERS_GROUP: Final = 2
RECOVERS_S: Final = 30.0
# What may be the same as a page on a lock that nobody gets any more.
LIVENESS: Final = frozenset({HANGS, LOST_WAKEUP, "leaked-lock"})

Told = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What is to be explored: a lock, on a topology, in these scenarios, with so many faults.
    ``strikes``: nothing but these, together. ``pruned``: without the pairs that are like others."""

    case: plan.Case
    scenarios: Sequence[Scenario]
    depth: int = 1
    strikes: Sequence[Strike] = ()
    pruned: bool = True


def asked(
    lock: str,
    *,
    seed: int = 0,
    topology: str | None = None,
    scenarios: Sequence[str] = (),
    depth: int = 1,
    strikes: Sequence[str] = (),
) -> Asked:
    """Without scenarios all that fit the lock. ``strikes``: such as ``late@request:2``. Raises
    BadInput for a name that does not exist, Unfit for what cannot be explored."""
    if depth not in {1, 2}:
        raise BadInput(f"--depth {depth}: it is 1 (each fault alone) or 2 (pairs, too)")
    for name in scenarios:
        if name not in SCENARIOS:
            raise plan.unknown("scenario", name, SCENARIOS)
    if strikes and len(scenarios) != 1:
        raise BadInput("--strike counts the events of one scenario: give it with --scenario")
    case = plan.make_case(lock, "none", seed=seed, topology=topology)
    if case.system.kind == "none":
        raise Unfit(f"{lock} is a way to do without a lock; there is nothing to explore")
    lease_s = max(LEASE_S, case.system.pace.get("lease_ttl_s", 0.0))
    pace = replace(case.pace, lease_ttl_s=lease_s, client_timeout_s=CLIENT_TIMEOUT_S)
    chosen = [SCENARIOS[name] for name in scenarios or SCENARIOS]
    fit = [one for one in chosen if one.fits(case.system)]
    if scenarios and len(fit) < len(chosen):
        raise Unfit(f"{lock} is a {case.system.kind}: it has no {', '.join(scenarios)}")
    return Asked(replace(case, pace=pace), fit, depth, [*map(_strike, strikes)])


def _strike(words: str) -> Strike:
    fault, _, place = words.partition("@")
    kind, _, number = place.partition(":")
    if fault not in FAULTS:
        raise plan.unknown("fault of an exploration", fault, FAULTS)
    fits = FAULTS[fault].fits
    if kind not in fits or not number.isdecimal() or int(number) < 1:
        raise BadInput(
            f"--strike {words}: give the fault and the event, such as {fault}@{fits[0]}:2; "
            f"it fits {' and '.join(fits)}"
        )
    return Strike(Place(kind, int(number)), fault)


def explore(
    what: Asked,
    folder: Path,
    *,
    run_id: str,
    told: Told,
    saved: Callable[[Exploration], None],
    before: Exploration | None = None,
) -> Exploration:
    """All single faults of a lock, and the pairs where they are asked for. ``told`` hears a line
    for each thing that is known, ``saved`` all that is known. ``before``: what an interrupted
    exploration of the same has found. Raises ClusterError, Unfit."""
    case = what.case
    if why := why_unusable(case.system):
        raise Unfit(why)
    document = before or Exploration(
        lock=case.lock,
        topology=case.topology,
        seed=case.seed,
        depth=what.depth,
        lease_s=case.pace.lease_ttl_s,
    )
    with ExitStack() as stack:
        fork_server = stack.enter_context(ForkServer(run_id, ["explore.actor"]))
        wanted = plan.cluster_plan_of(case, run_id, folder / "logs")
        cluster = plan.topology_of(case).make(replace(wanted, groups=OTHERS_GROUP))
        stack.enter_context(cluster)
        # Whoever was a rival may share what it keeps of the servers' other links.
        victims = stack.enter_context(Actors(fork_server, folder / "logs"))
        others = stack.enter_context(Actors(fork_server, folder / "logs"))
        explorer = _Explorer(what, cluster, (victims, others), folder, told)
        return explorer.explore(document, saved)


class _Explorer:
    def __init__(
        self,
        what: Asked,
        cluster: Cluster,
        actors: tuple[Actors, Actors],
        folder: Path,
        told: Told,
    ) -> None:
        case = what.case
        self._what = what
        self._setting = Setting(
            case.lock,
            case.system,
            case.pace,
            tuple(cluster.addresses(VICTIMS_GROUP)),
            tuple(cluster.addresses(OTHERS_GROUP)),
        )
        self._cluster = cluster
        self._victims, self._others = actors
        self._folder = folder
        self._told = told
        contained = isinstance(library_of(case.system), ContainerLibrary)
        self._slots = CONTAINER_SLOTS if contained else SLOTS
        self._hosts: SimpleQueue[str] = SimpleQueue()
        for slot in range(self._slots):
            self._hosts.put(f"127.0.0.{FIRST_HOST + slot}")
        self._played = len(list(folder.glob("[0-9]*")))
        self._lending = threading.Lock()

    def explore(self, known: Exploration, saved: Callable[[Exploration], None]) -> Exploration:
        """Goes on from what is known."""
        began = time.monotonic() - known.took_s

        def save(now: Exploration) -> Exploration:
            now = evolved(now, took_s=time.monotonic() - began)
            saved(now)
            return now

        self._victims.raise_to(self._slots)
        self._others.raise_to(self._slots * self._setting.rivals_and_helper)
        there = {scenario.name for scenario in known.scenarios}
        if missing := [one for one in self._what.scenarios if one.name not in there]:
            known = save(self._with_events(missing, evolved(known, ended=False)))
        asked_for = {one.name for one in self._what.scenarios}
        chosen = [scenario for scenario in known.scenarios if scenario.name in asked_for]
        if self._what.strikes:
            trials = [self._asked_for(scenario) for scenario in chosen]
            return save(evolved(self._all_tried(trials, known, save, "plays"), ended=True))
        singles = [trial for scenario in chosen for trial in self._trials(scenario)]
        known = self._all_tried(singles, known, save, "single faults")
        if self._what.depth > 1:
            pairs, count = self._pairs(known)
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
        left = [t for t in trials if (t.scenario, _orders(_struck(t))) not in done]
        self._told(f"{len(left)} {what} to try")
        began, count = time.monotonic(), 0
        for chunk in self._chunks(left):
            known = save(self._tried(chunk, known))
            count += len(chunk)
            left_s = (time.monotonic() - began) / count * (len(left) - count)
            if count < len(left):
                self._told(f"{count} of {len(left)} tried, about {left_s / 60:.0f} minutes left")
        return known

    def _pairs(self, known: Exploration) -> tuple[list[Trial], int]:
        """Those that are to be tried, and how many there are."""
        chosen: list[Trial] = []
        count = 0
        for scenario in known.scenarios:
            seen = {scenario.state}
            for first in known.tried:
                if first.scenario != scenario.name or len(first.strikes) != 1:
                    continue
                usual = first.finding is not None and not known.findings[first.finding].strikes
                goes_on = usual or first.outcome == "kept"
                pairs = list(self._after(first)) if goes_on else []
                count += len(pairs)
                like_others = self._what.pruned and first.state is not None and first.state in seen
                if not like_others:
                    chosen += pairs
                seen.add(first.state)
        return chosen, count

    def _after(self, first: Tried) -> Iterator[Trial]:
        """A fault and each that can follow it. Servers are struck once at most."""
        (struck,) = first.strikes
        before = Strike(_place(struck.place), struck.fault)
        for place in map(_place, first.then):
            for fault in fitting(place.kind):
                both = fault.of_servers and FAULTS[struck.fault].of_servers
                if possible(fault.act, self._cluster) and not both:
                    yield Trial(first.scenario, (before, Strike(place, fault.name)), pair=True)

    def _with_events(self, scenarios: Sequence[Scenario], known: Exploration) -> Exploration:
        """What passes in each scenario, and what goes wrong in it without any fault."""
        dry = self._play_all([Trial(one.name) for one in scenarios for _ in range(DRY_PLAYS)])
        self._record(dry)
        found: list[ExploredScenario] = []
        for scenario in scenarios:
            plays = [play for play in dry if play.trial.scenario == scenario.name]
            broken = self._broken(plays)
            if broken:
                more = self._play_all([Trial(scenario.name)] * MORE_PLAYS)
                self._record(more)
                plays += more
                broken += self._broken(more)
                finding = _usual(broken, len(plays), self._setting.lock)
                known = evolved(known, findings=(*known.findings, finding))
                self._told(_sentence(finding))
            news = any(not shown.declared for _, shown in broken)
            found.append(_common_events(scenario, plays, broken=news))
            self._told(f"{scenario.name}: {found[-1].why or f'{len(found[-1].events)} events'}")
            self._forget(plays, known)
        return evolved(known, scenarios=(*known.scenarios, *found))

    def _broken(self, plays: Sequence[Played]) -> list[tuple[Played, Shown]]:
        judgements = [(p, judged(p, self._setting.system)) for p in plays if not p.unable]
        return [(play, shown) for play, shown in judgements if shown is not None]

    def _forget(self, plays: Sequence[Played], known: Exploration) -> None:
        """Removes the recordings that show nothing."""
        kept = {finding.recording for finding in known.findings}
        for play in plays:
            if play.folder.name not in kept:
                shutil.rmtree(play.folder, ignore_errors=True)

    # --- trials ---

    def _trials(self, scenario: ExploredScenario) -> Iterator[Trial]:
        """Each event with each fault that fits; where the lock asks several nodes, that of a
        majority too."""
        places = [_place(event) for event in scenario.events]
        groups = _of_majorities(places, len(self._cluster.nodes))
        for group in [*((place,) for place in places), *groups]:
            for fault in fitting(group[0].kind):
                if possible(fault.act, self._cluster) and (
                    len(group) == 1 or not fault.act.startswith("client")
                ):
                    yield Trial(scenario.name, tuple(Strike(p, fault.name) for p in group))

    def _asked_for(self, scenario: ExploredScenario) -> Trial:
        """What was asked for by name. Where an event is that no play without a fault has, is not
        known: the first node."""
        there = {(place.kind, place.number): place for place in map(_place, scenario.events)}
        strikes = [
            replace(strike, place=there.get((strike.place.kind, strike.place.number), strike.place))
            for strike in self._what.strikes
        ]
        return Trial(scenario.name, tuple(strikes))

    def _chunks(self, trials: Sequence[Trial]) -> Iterator[Sequence[Trial]]:
        """Those that strike the same servers, whose events come at about the same time, together;
        after all others."""
        alone = [trial for trial in trials if not _act(trial)]
        yield from _parts(alone, CHUNK * self._slots)

        def blow(trial: Trial) -> tuple[str, list[int]]:
            return _act(trial), _nodes(trial)

        rest = sorted((t for t in trials if _act(t)), key=lambda t: (*blow(t), _at_s(t)))
        for _, of in groupby(rest, blow):
            yield from _parts(list(of), self._slots)

    def _tried(self, trials: Sequence[Trial], known: Exploration) -> Exploration:
        """Plays each until it has met its events, judges, and repeats what is new."""
        left = dict.fromkeys(trials, 0)
        plays: list[tuple[Played, int]] = []
        while left:
            again: dict[Trial, int] = {}
            for play in self._play_all(list(left)):
                count = left[play.trial] + 1
                limit = ELSEWHERE_MAX if play.unable == ELSEWHERE else PLAYS_MAX
                if (play.missed or play.unable) and count < limit:
                    again[play.trial] = count
                    shutil.rmtree(play.folder, ignore_errors=True)
                else:
                    plays.append((play, count))
            left = again
        self._record([play for play, _ in plays])
        tried, findings = list(known.tried), list(known.findings)
        fresh: list[tuple[Trial, int]] = []
        for play, count in plays:
            trial, shown = play.trial, None
            one = Tried(trial.scenario, _struck(trial), "kept", trial.pair, count)
            if len(trial.strikes) == 1 and not play.unable:
                one = evolved(one, state=_state(play), then=_then(play))
            if play.unable:
                one = evolved(one, outcome="could not run", why=play.unable)
            elif play.missed:
                one = evolved(one, outcome="not reached")
            elif (shown := judged(play, self._setting.system)) is not None:
                place = _alike(findings, trial, shown)
                if place is None:
                    place = len(findings)
                    fresh.append((trial, place))
                    findings.append(_finding(play, shown, self._setting.lock))
                one = evolved(one, outcome="broke", finding=place)
            tried.append(one)
        for place, again_of in self._repeated(fresh).items():
            findings[place] = _counted(findings[place], again_of, self._setting)
            self._told(_sentence(findings[place]))
        known = evolved(known, tried=tuple(tried), findings=tuple(findings))
        self._forget([play for play, _ in plays], known)
        return known

    def _repeated(self, fresh: Sequence[tuple[Trial, int]]) -> dict[int, list[Played]]:
        """Place of a finding → plays of its trial again."""
        plays = self._play_all([trial for trial, _ in fresh for _ in range(REPEATS)])
        return {place: [play for play in plays if play.trial == trial] for trial, place in fresh}

    def _record(self, plays: Sequence[Played]) -> None:
        """Puts what the servers kept themselves beside each history."""
        entry, cluster = self._setting.system.entry, self._cluster
        if entry is None or not isinstance(cluster, Recorded):
            return
        keys = {play.key for play in plays}
        ahead_ns = time.time_ns() - time.monotonic_ns()
        service = service_of(
            cluster.server_logs(), entry, cluster.record_name, keys, (ahead_ns, ahead_ns)
        )
        for play in plays:
            mine = tuple(tenure for tenure in service.tenures if tenure.key == play.key)
            if not play.unable:
                write_service(play.folder, replace(service, tenures=mine))

    # --- plays ---

    def _play_all(self, trials: Sequence[Trial]) -> list[Played]:
        """In any order."""
        found: list[Played] = []
        with ThreadPoolExecutor(self._slots) as pool:
            for chunk in self._chunks(trials):
                interruption.raise_if_asked()
                if _act(chunk[0]):
                    found += self._play_blow(pool, chunk)
                else:
                    found += pool.map(self._play, chunk)
        return found

    def _play_blow(self, pool: ThreadPoolExecutor, trials: Sequence[Trial]) -> list[Played]:
        """One strike at servers for all of these."""
        act, lease_s = FAULTS[trials[0].strikes[0].fault].act, self._setting.lease_s
        blow = Blow(self._cluster, _nodes(trials[0]), act, plays=len(trials), lease_s=lease_s)
        striker = threading.Thread(target=blow.run, daemon=True)
        striker.start()
        latest_s = max(map(_at_s, trials))
        servers = [_Later(blow, latest_s - _at_s(trial)) for trial in trials]
        try:
            played = list(pool.map(self._play, trials, servers))
        finally:
            blow.over()
            striker.join()
        self._recover()
        for play in played:
            play.unable = play.unable or blow.failure
        return played

    def _recover(self) -> None:
        """Waits until the whole cluster serves. Raises ClusterError."""
        end = time.monotonic() + RECOVERS_S
        while not all(self._cluster.serves(node, 1.0) for node in self._cluster.nodes):
            if time.monotonic() > end:
                self._cluster.verify()
            interruption.raise_if_asked()

    def _play(self, trial: Trial, server: Server | None = None) -> Played:
        host = self._hosts.get()
        try:
            with ExitStack() as stack:
                with self._lending:
                    count = self._setting.rivals_and_helper
                    self._victims.raise_to(1)
                    self._others.raise_to(count)
                    lent = [
                        *stack.enter_context(self._victims.lent(1)),
                        *stack.enter_context(self._others.lent(count)),
                    ]
                    self._played += 1
                    number = self._played
                stage = Stage(
                    self._setting,
                    trial,
                    lent,
                    folder=self._folder / f"{number:06}",
                    host=host,
                    key=f"p{number}",
                    server=server,
                )
                return stage.play()
        finally:
            self._hosts.put(host)


class _Later:
    """A play that begins later than the others of its blow, so that all come at once."""

    def __init__(self, blow: Blow, delay_s: float) -> None:
        self._blow = blow
        self._delay_s = delay_s
        self.struck = blow.struck
        self.healed = blow.healed

    def ready(self) -> None:
        self._blow.ready()
        time.sleep(self._delay_s)


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
    return evolved(about, events=tuple(map(_event, events)), state=state)


def _of_majorities(places: Sequence[Place], nodes: int) -> list[tuple[Place, ...]]:
    """The events of a kind that come to one node after the other, or to all at once: of each such
    round, the first of as many nodes as are a majority."""
    most = nodes // 2 + 1
    found: list[tuple[Place, ...]] = []
    for kind in ("connect", "request", "reply"):
        rounds: dict[int, list[Place]] = {}
        counts: Counter[int] = Counter()
        for place in places:
            if place.kind == kind:
                rounds.setdefault(counts[place.node], []).append(place)
                counts[place.node] += 1
        found += [tuple(of[:most]) for of in rounds.values() if len(of) >= most > 1]
    return found


def _parts(trials: Sequence[Trial], size: int) -> list[Sequence[Trial]]:
    return [trials[at : at + size] for at in range(0, len(trials), size)]


def _act(trial: Trial) -> str:
    """What strikes servers; empty for what strikes none."""
    return next((FAULTS[strike.fault].act for strike in _of_servers(trial)), "")


def _of_servers(trial: Trial) -> list[Strike]:
    return [strike for strike in trial.strikes if FAULTS[strike.fault].of_servers]


def _nodes(trial: Trial) -> list[int]:
    return [strike.place.node for strike in _of_servers(trial)]


def _at_s(trial: Trial) -> float:
    return _of_servers(trial)[0].place.at_s


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
    return tuple(map(_event, play.places[at:]))


# --- findings ---


def _alike(findings: Sequence[Finding], trial: Trial, shown: Shown) -> int | None:
    """The place of the same: at another event of the same kind, or another node. What shows without
    a fault is no news of a fault, nor what one fault of a pair has shown alone of the pair."""
    struck = [(s.fault, s.place.kind) for s in trial.strikes]
    for place, known in enumerate(findings):
        if known.scenario != trial.scenario:
            continue
        before = [(s.fault, s.place.kind) for s in known.strikes]
        if before == struck and known.verdicts == shown.verdicts:
            return place
        alone = trial.pair and len(before) == 1 and before[0] in struck
        if (alone or not before) and set(shown.verdicts) <= set(known.verdicts):
            return place
    return None


def _finding(play: Played, shown: Shown, lock: str) -> Finding:
    trial = play.trial
    return Finding(
        shown.verdicts,
        shown.why,
        trial.scenario,
        _struck(trial),
        shown.declared,
        1,
        1,
        play.folder.name,
        _on_record(trial, shown, lock.partition(":")[0]),
    )


def _usual(broken: Sequence[tuple[Played, Shown]], plays: int, lock: str) -> Finding:
    """What breaks without a fault: every verdict of those that were shown."""
    play, first = next((one for one in broken if not one[1].declared), broken[0])
    verdicts = tuple(dict.fromkeys(v for _, shown in broken for v in shown.verdicts))
    declared = all(shown.declared for _, shown in broken)
    finding = _finding(play, Shown(verdicts, first.why, declared), lock)
    return evolved(finding, broke=len(broken), plays=plays)


def _on_record(trial: Trial, shown: Shown, lock: str) -> tuple[str, ...]:
    """The pages of the track record on this lock that say that an exploration shows one of these
    verdicts, or that under a fault that does the same break one or are about a lock that nobody
    gets any more."""
    like = {name for strike in trial.strikes for name in FAULTS[strike.fault].like}
    told = {*shown.verdicts, *([track.LIVENESS] if LIVENESS.intersection(shown.verdicts) else [])}
    return tuple(
        page.id
        for page in track.pages()
        if (lock in page.locks and not told.isdisjoint(page.explored))
        or (
            any(page.explains(lock, fault) for fault in like)
            and not told.isdisjoint({*page.verdicts, page.kind})
        )
    )


def _counted(finding: Finding, again: Sequence[Played], setting: Setting) -> Finding:
    """With what came of playing it again."""
    counts: Counter[bool] = Counter()
    for play in again:
        if not play.missed and not play.unable:
            shown = judged(play, setting.system)
            counts[shown is not None and set(finding.verdicts) <= set(shown.verdicts)] += 1
        shutil.rmtree(play.folder, ignore_errors=True)
    return evolved(
        finding, broke=finding.broke + counts[True], plays=finding.plays + counts.total()
    )


def _sentence(finding: Finding) -> str:
    struck = " and ".join(f"{s.fault} at {s.place.kind} {s.place.number}" for s in finding.strikes)
    struck = struck or "without a fault"
    declared = ", as declared" if finding.declared else ""
    return (
        f"{finding.scenario}, {struck}: {', '.join(finding.verdicts)} in {finding.broke} of "
        f"{finding.plays} plays{declared}: {finding.why[:160]}"
    )


def _place(event: EventPlace) -> Place:
    return Place(event.kind, event.number, event.node, event.at_s)


def _event(place: Place) -> EventPlace:
    return EventPlace(place.kind, place.number, place.node, round(place.at_s, 6))


def at_event(strike: Strike) -> StrikeAt:
    """As documents have it."""
    return StrikeAt(_event(strike.place), strike.fault)


def _struck(trial: Trial) -> tuple[StrikeAt, ...]:
    return tuple(map(at_event, trial.strikes))
