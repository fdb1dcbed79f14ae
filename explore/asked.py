"""What is to be explored: a lock, in which scenarios, with which faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from lockbench.bench import plan
from lockbench.explore.faults import FAULTS
from lockbench.explore.judge import RAISES
from lockbench.explore.scenarios import SCENARIOS, Scenario
from lockbench.explore.trial import CLIENT_TIMEOUT_S, Place, Strike
from lockbench.locks.shared.library import library_of
from lockbench.results.documents import Versions
from lockbench.results.documents.exploration import CLIENTS, Exploration
from lockbench.results.errors import BadInput, Unfit

LEASE_S: Final = 2.0
LONGER_LEASE_S: Final = 3.0  # of a lock that declares a longer one than usual


@dataclass(frozen=True)
class Asked:
    """What is to be explored: a lock, on a topology, in these scenarios, with so many faults.
    ``strikes``: nothing but these, together. ``pruned``: without the pairs that are like others.
    ``clients``: how many may want the key at once, beside the helper."""

    case: plan.Case
    scenarios: Sequence[Scenario]
    depth: int = 1
    strikes: Sequence[Strike] = ()
    pruned: bool = True
    clients: int = CLIENTS


def asked(
    lock: str,
    *,
    seed: int = 0,
    topology: str | None = None,
    scenarios: Sequence[str] = (),
    depth: int = 1,
    strikes: Sequence[str] = (),
    clients: int = CLIENTS,
) -> Asked:
    """Without scenarios all that fit the lock. ``strikes``: such as ``late@request:2``. Raises
    BadInput for a name that does not exist, Unfit for what cannot be explored."""
    if depth not in {1, 2}:
        raise BadInput(f"--depth {depth}: it is 1 (each fault alone) or 2 (pairs, too)")
    if clients not in {2, 3}:
        raise BadInput(f"--clients {clients}: it is 2 (the victim and a rival) or 3 (two rivals)")
    for name in scenarios:
        if name not in SCENARIOS:
            raise plan.unknown("scenario", name, SCENARIOS)
    if strikes and len(scenarios) != 1:
        raise BadInput("--strike counts the events of one scenario: give it with --scenario")
    struck = [*map(_strike, strikes)]
    if len({one.place for one in struck}) < len(struck):
        raise BadInput("--strike: an event is struck once, by one fault")
    acts = dict.fromkeys(FAULTS[one.fault].act for one in struck if FAULTS[one.fault].of_servers)
    if len(acts) > 1:
        raise BadInput(f"--strike: servers are struck once, and not by {' and '.join(acts)}")
    case = plan.make_case(lock, "none", seed=seed, topology=topology)
    plan.refuse_numbers(case)
    if case.system.kind == "none":
        raise Unfit(f"{lock} is a way to do without a lock; there is nothing to explore")
    declared_s = case.system.pace.get("lease_ttl_s", LEASE_S)
    lease_s = case.system.explored_lease_s or min(max(LEASE_S, declared_s), LONGER_LEASE_S)
    pace = replace(case.pace, lease_ttl_s=lease_s, client_timeout_s=CLIENT_TIMEOUT_S)
    chosen = [SCENARIOS[name] for name in scenarios or SCENARIOS]
    fit = [one for one in chosen if one.fits(case.system)]
    if scenarios and len(fit) < len(chosen):
        raise Unfit(f"{lock} is a {case.system.kind}: it has no {', '.join(scenarios)}")
    return Asked(replace(case, pace=pace), fit, depth, struck, clients=clients)


def begun(
    what: Asked, *, at: str = "", versions: Versions | None = None, tree: str | None = None
) -> Exploration:
    """An exploration of which nothing is known yet."""
    case = what.case
    undeclared = library_of(case.system) is not None and case.system.raises is None
    return Exploration(
        lock=case.lock,
        topology=case.topology,
        seed=case.seed,
        depth=what.depth,
        clients=what.clients,
        lease_s=case.pace.lease_ttl_s,
        at=at,
        versions=versions,
        tree=tree,
        unjudged=(RAISES,) if undeclared else (),
    )


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
