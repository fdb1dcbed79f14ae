"""What is kept of an exploration: its map, without what only going on with it needs."""

from __future__ import annotations

from lockbench.explore.faults import FAULTS, fitting
from lockbench.explore.scenarios import SCENARIOS
from lockbench.explore.trial import place_of
from lockbench.explore.trials import polls
from lockbench.locks.registry import systems
from lockbench.results.documents import Versions
from lockbench.results.documents.exploration import (
    CLIENTS,
    KEPT,
    MISSED,
    Exploration,
    ExplorationMap,
    ExploredScenario,
    MappedScenario,
)
from lockbench.results.machine import PACKAGE


def map_of(document: Exploration) -> ExplorationMap:
    """Of one that has ended, or as far as it is."""
    pairs = sum(tried.pair for tried in document.tried)
    return ExplorationMap(
        lock=document.lock,
        topology=document.topology,
        seed=document.seed,
        clients=document.clients,
        depth=document.depth,
        lease_s=document.lease_s,
        at=document.at,
        versions=_packages(document.versions or Versions()),
        ref=document.ref,
        faults={fault.name: fault.summary for fault in FAULTS.values()},
        scenarios=tuple(_mapped(scenario, document) for scenario in document.scenarios),
        polls=sum(
            len(polls([place_of(event) for event in scenario.events]))
            for scenario in document.scenarios
        ),
        singles=len(document.tried) - pairs,
        missed=sum(tried.outcome in {"not reached", "could not run"} for tried in document.tried),
        pairs=document.pairs,
        pairs_tried=pairs,
        findings=document.findings,
        took_s=document.took_s,
        ended=document.ended,
        whole=_is_whole(document),
        unjudged=document.unjudged,
    )


def _is_whole(document: Exploration) -> bool:
    """Whether it has every scenario that fits the lock, with as many clients as any. What was asked
    for by name has one."""
    system = systems().get(document.lock)
    there = {scenario.name for scenario in document.scenarios}
    return (
        document.clients == CLIENTS
        and system is not None
        and all(one.name in there for one in SCENARIOS.values() if one.fits(system))
    )


def _mapped(scenario: ExploredScenario, document: Exploration) -> MappedScenario:
    places = {(event.kind, event.number): n for n, event in enumerate(scenario.events)}
    fit = {fault.name for event in scenario.events for fault in fitting(event.kind)}
    found: dict[str, list[int | None]] = {
        name: [None] * len(places) for name in FAULTS if name in fit
    }
    for tried in document.tried:
        if tried.scenario == scenario.name and len(tried.strikes) == 1:
            (strike,) = tried.strikes
            # A scenario that did not work has no events; a strike that was asked for may have none.
            if (strike.place.kind, strike.place.number) not in places:
                continue
            outcome = KEPT if tried.outcome == "kept" else MISSED
            if tried.finding is not None and tried.outcome == "broke":
                outcome = tried.finding + 1
            found[strike.fault][places[strike.place.kind, strike.place.number]] = outcome
    return MappedScenario(
        scenario.name,
        scenario.summary,
        scenario.events,
        {name: tuple(row) for name, row in found.items() if row != [None] * len(row)},
        scenario.why,
        scenario.worked,
    )


def _packages(versions: Versions) -> dict[str, str]:
    ours = (versions.libraries or {}).get(PACKAGE)
    return versions.packages() | ({PACKAGE: ours} if ours else {})
