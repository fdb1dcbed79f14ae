"""Which faults are tried at which events, and which pairs of faults.

Who polls sends the same messages again and again, and gets the same answers. In between nothing has
changed but the time, so of a long run of such polls the first and the last two are struck.

Of two faults the second strikes an event that came after the first, in a play with the first alone.
Where the first left the same state as no fault, all its pairs are left out: each second was tried
alone. Where it left the same state as another first, those are left out whose second was tried
after that one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from lockbench.clusters.base import Cluster
from lockbench.explore.faults import FAULTS, OF_MAJORITIES, Act, fitting
from lockbench.explore.servers import possible
from lockbench.explore.trial import Place, Strike, Trial, at_event, place_of
from lockbench.results.documents.exploration import Exploration, ExploredScenario, Tried
from lockbench.results.errors import BadInput

OF_POLLS: Final = 2  # of polls that are alike, so many at the begin and at the end are struck
OF_A_POLL: Final = 3  # messages to a node, at most


def singles(
    scenario: ExploredScenario, cluster: Cluster, independent: Sequence[int]
) -> Iterator[Trial]:
    """Each event with each fault that fits. Where the lock asks all of several nodes that are
    ``independent``, their events are alike: those of the first, of the one that makes the majority,
    and of a majority at once."""
    every = [place_of(event) for event in scenario.events]
    left_out = polls(every)
    places = [place for place in every if place not in left_out]
    alike, groups, asked_all = set[Place](), list[tuple[Place, ...]](), set[Place]()
    most = len(independent) // 2 + 1
    for round_ in rounds([place for place in every if place.node in independent]):
        asked = [place for place in round_ if place not in left_out]
        if len(asked) >= most > 1:
            alike |= {*asked} - {asked[0], asked[most - 1]}
            groups.append(tuple(asked[:most]))
            asked_all.update(asked)
    for group in [*((place,) for place in places if place not in alike), *groups]:
        for fault in fitting(group[0].kind):
            if fault.act.startswith("client") and len(group) > 1:
                continue
            if fault.act in OF_MAJORITIES and group[0] in asked_all:
                continue  # the group of a majority shows it
            if possible(fault.act, cluster):
                yield Trial(scenario.name, tuple(Strike(p, fault.name) for p in group))


def named(scenario: ExploredScenario, strikes: Sequence[Strike]) -> Trial:
    """What was asked for by name. Where an event is that no play without a fault has, is not
    known: the first node. Raises BadInput: servers are struck once, several of them together."""
    there = {(place.kind, place.number): place for place in map(place_of, scenario.events)}
    found = [
        replace(strike, place=there.get((strike.place.kind, strike.place.number), strike.place))
        for strike in strikes
    ]
    trial = Trial(scenario.name, tuple(found))
    if len(set(nodes_of(trial))) < len(nodes_of(trial)):
        said = " and ".join(str(at_event(strike)) for strike in strikes)
        raise BadInput(f"--strike: two of {said} are at the same server, which is struck once")
    return trial


def pairs_of(known: Exploration, cluster: Cluster, *, pruned: bool) -> tuple[list[Trial], int]:
    """Those that are to be tried, and how many there are."""
    chosen: list[Trial] = []
    count = 0
    for scenario in known.scenarios:
        after: dict[str, set[tuple[Place, str]]] = {}  # state → the seconds that are tried in it
        for first in known.tried:
            if first.scenario != scenario.name or len(first.strikes) != 1:
                continue
            usual = first.finding is not None and not known.findings[first.finding].strikes
            goes_on = (usual or first.outcome == "kept") and not _of_majority(first)
            pairs = list(_after(first, cluster)) if goes_on else []
            count += len(pairs)
            if pruned and first.state is not None:
                tried = after.setdefault(first.state, set())
                alone = first.state == scenario.state
                pairs = [] if alone else [pair for pair in pairs if _second(pair) not in tried]
                tried.update(map(_second, pairs))
            chosen += pairs
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


def _of_majority(tried: Tried) -> bool:
    return FAULTS[tried.strikes[0].fault].act in OF_MAJORITIES


def _second(pair: Trial) -> tuple[Place, str]:
    return pair.strikes[1].place, pair.strikes[1].fault


def polls(places: Sequence[Place]) -> set[Place]:
    """The events of polls that are like those before and after them: at one node, one message or
    a few, of the same sizes in the same order, more than twice ``OF_POLLS`` times in a row."""
    at_node: dict[tuple[str, int], list[Place]] = {}
    for place in places:
        if place.kind in {"request", "reply"}:
            at_node.setdefault((place.kind, place.node), []).append(place)
    return {
        each[at]
        for each in at_node.values()
        for of_poll in range(1, OF_A_POLL + 1)
        for at in _repeated([place.size for place in each], of_poll)
    }


def _repeated(sizes: Sequence[int], of_poll: int) -> Iterator[int]:
    """Where so many sizes come again and again, without the first and the last ``OF_POLLS``."""
    begin = 0
    while begin < len(sizes):
        end = begin + of_poll
        while end < len(sizes) and sizes[end] == sizes[end - of_poll]:
            end += 1
        yield from range(begin + OF_POLLS * of_poll, end - OF_POLLS * of_poll)
        begin = end - of_poll + 1


def rounds(places: Sequence[Place]) -> list[list[Place]]:
    """The events of a kind that come to one node after the other, or to all at once."""
    found: dict[tuple[str, int], list[Place]] = {}
    counts: Counter[tuple[str, int]] = Counter()
    for place in places:
        if place.kind != "end":
            at = (place.kind, place.node)
            found.setdefault((place.kind, counts[at]), []).append(place)
            counts[at] += 1
    return [*found.values()]


def act_of(trial: Trial) -> Act:
    """What strikes servers; empty for what strikes none."""
    return next((FAULTS[strike.fault].act for strike in _of_servers(trial)), "")


def _of_servers(trial: Trial) -> list[Strike]:
    return [strike for strike in trial.strikes if FAULTS[strike.fault].of_servers]


def nodes_of(trial: Trial) -> list[int]:
    """The nodes that are struck, as the victim counts them, as far as is known beforehand."""
    return [strike.place.node for strike in _of_servers(trial)]


def servers_of(trial: Trial, interchangeable: Sequence[int]) -> list[int]:
    """The servers that stand there for the nodes that are struck."""
    stands = standing(trial, interchangeable)
    return [stands.get(node, node) for node in nodes_of(trial)]


def standing(trial: Trial, interchangeable: Sequence[int]) -> Mapping[int, int]:
    """Node as the victim counts them → the server that stands there. Of those that are
    interchangeable the first ones are struck, so that many trials share a strike."""
    struck = [node for node in dict.fromkeys(nodes_of(trial)) if node in interchangeable]
    others = [node for node in interchangeable if node not in struck]
    return dict(zip([*struck, *others], interchangeable, strict=True))


def at_s_of(trial: Trial) -> float:
    """When the event of the first strike at servers came in a play without it."""
    return _of_servers(trial)[0].place.at_s
