"""Which faults are tried at which events, which pairs of faults, and which of them together.

Of two faults the second strikes an event that came after the first, in a play with the first alone.
Where the first left the same state as no fault, or as another first, its pairs are those of the
other and are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from clusters.base import Cluster
from explore.faults import FAULTS, Act, fitting
from explore.servers import possible
from explore.trial import Place, Strike, Trial, place_of
from results.documents.exploration import Exploration, ExploredScenario, Tried

# After so many trials a slot, what is known is saved.
CHUNK: Final = 10


def singles(scenario: ExploredScenario, cluster: Cluster) -> Iterator[Trial]:
    """Each event with each fault that fits; where the lock asks several nodes, that of a
    majority too."""
    places = [place_of(event) for event in scenario.events]
    groups = of_majorities(places, len(cluster.nodes))
    for group in [*((place,) for place in places), *groups]:
        for fault in fitting(group[0].kind):
            if possible(fault.act, cluster) and (
                len(group) == 1 or not fault.act.startswith("client")
            ):
                yield Trial(scenario.name, tuple(Strike(p, fault.name) for p in group))


def named(scenario: ExploredScenario, strikes: Sequence[Strike]) -> Trial:
    """What was asked for by name. Where an event is that no play without a fault has, is not
    known: the first node."""
    there = {(place.kind, place.number): place for place in map(place_of, scenario.events)}
    found = [
        replace(strike, place=there.get((strike.place.kind, strike.place.number), strike.place))
        for strike in strikes
    ]
    return Trial(scenario.name, tuple(found))


def pairs_of(known: Exploration, cluster: Cluster, *, pruned: bool) -> tuple[list[Trial], int]:
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
            pairs = list(_after(first, cluster)) if goes_on else []
            count += len(pairs)
            like_others = pruned and first.state is not None and first.state in seen
            if not like_others:
                chosen += pairs
            seen.add(first.state)
    return chosen, count


def _after(first: Tried, cluster: Cluster) -> Iterator[Trial]:
    """A fault and each that can follow it. Servers are struck once at most."""
    (struck,) = first.strikes
    before = Strike(place_of(struck.place), struck.fault)
    for place in map(place_of, first.then):
        for fault in fitting(place.kind):
            both = fault.of_servers and FAULTS[struck.fault].of_servers
            if possible(fault.act, cluster) and not both:
                yield Trial(first.scenario, (before, Strike(place, fault.name)), pair=True)


def chunks(trials: Sequence[Trial], slots: int) -> Iterator[Sequence[Trial]]:
    """Those that strike the same servers, whose events come at about the same time, together;
    after all others."""
    alone = [trial for trial in trials if not act_of(trial)]
    yield from _parts(alone, CHUNK * slots)

    def blow(trial: Trial) -> tuple[str, list[int]]:
        return act_of(trial), nodes_of(trial)

    rest = sorted((t for t in trials if act_of(t)), key=lambda t: (*blow(t), at_s_of(t)))
    for _, of in groupby(rest, blow):
        yield from _parts(list(of), slots)


def of_majorities(places: Sequence[Place], nodes: int) -> list[tuple[Place, ...]]:
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


def act_of(trial: Trial) -> Act:
    """What strikes servers; empty for what strikes none."""
    return next((FAULTS[strike.fault].act for strike in _of_servers(trial)), "")


def _of_servers(trial: Trial) -> list[Strike]:
    return [strike for strike in trial.strikes if FAULTS[strike.fault].of_servers]


def nodes_of(trial: Trial) -> list[int]:
    """The servers that are struck, as far as is known beforehand."""
    return [strike.place.node for strike in _of_servers(trial)]


def at_s_of(trial: Trial) -> float:
    """When the event of the first strike at servers came in a play without it."""
    return _of_servers(trial)[0].place.at_s
