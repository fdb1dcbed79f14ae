"""Schedules: what was asked for in words, and what it is once every draw is made.

A fault is written ``name`` or ``name:parameter=value:…``. ``a+b`` are two that begin together,
``a then b`` two that follow each other. Every fault takes five parameters more: ``at`` (seconds
after the start of the contended phase; else drawn, or after the step before), ``for`` (seconds;
else the fault's own), ``times`` and ``every`` (so often, so many seconds from one begin to the
next), ``strikes`` (``resource``: the servers of the store that the lock guards). ``random`` stands
for faults drawn from the seed: ``random:count=5``.

Pure: a schedule knows what a cluster offers, but touches nothing. The same seed makes the same
schedule; it does not make processes interleave the same.
"""

from __future__ import annotations

import difflib
import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from lockbench.clusters.base import Cluster
from lockbench.declarations.parameters import Parameter, ParameterError, Value, decided, split
from lockbench.nemesis.base import OF_LOCK, OF_RESOURCE, OF_SERVERS, Impossible, Injection
from lockbench.nemesis.registry import NONE, faults

# When the first fault begins, drawn from the seed in between.
BEGIN_S: Final = (2.0, 3.0)
# Between the heal of one step and the begin of the next: the cluster recovers, the victim holds.
BETWEEN_S: Final = (2.0, 3.0)
RANDOM: Final = "random"
COUNT: Final = Parameter("how many are drawn", 3.0, least=1, most=1000)
TIMING: Final[Mapping[str, Parameter]] = {
    "at": Parameter("when it begins", 0.0, least=0, unit="s"),
    "for": Parameter("how long it lasts", 0.0, least=0.001, unit="s"),
    "times": Parameter("how often", 1.0, least=1, most=1000),
    "every": Parameter("from one begin to the next", 0.0, least=0.001, unit="s"),
    "strikes": Parameter("whose servers it strikes", OF_LOCK, (OF_LOCK, OF_RESOURCE)),
}


class ScheduleError(Exception):
    """A schedule that cannot be: one sentence that names the fault and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One fault as it was asked for, checked against its declaration. Seconds."""

    name: str
    parameters: tuple[tuple[str, Value], ...] = ()
    at_s: float | None = None
    for_s: float | None = None
    times: int = 1
    every_s: float | None = None
    # Not in the seed of the draws, which are the same whatever is struck.
    strikes: str = field(default=OF_LOCK, repr=False)


@dataclass(frozen=True, slots=True)
class DrawnFrom:
    """What a random schedule is drawn from: the faults that apply to the cluster, by weight."""

    cluster: Cluster
    weights: Mapping[str, float]
    between_s: tuple[float, float]


# Steps follow each other; the faults of one step begin together.
Steps = tuple[tuple[Wanted, ...], ...]


@cache
def parse(text: str) -> Steps:
    """Reads the words of a command line. Raises ScheduleError."""
    if text == NONE:
        return ()
    try:
        return tuple(
            tuple(wanted(*split(part.strip())) for part in step.split("+"))
            for step in text.split(" then ")
        )
    except ParameterError as error:
        raise ScheduleError(str(error)) from error


def wanted(name: str, said: Mapping[str, str]) -> Wanted:
    """Checks a fault's name and parameters. Raises ScheduleError."""
    known = faults()
    if name not in known and name != RANDOM:
        close = difflib.get_close_matches(name, [*known, RANDOM, NONE], n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise ScheduleError(f"no fault is called {name!r}; {hint}")
    own = {"count": COUNT} if name == RANDOM else known[name].parameters
    try:
        values = decided(name, {**own, **TIMING}, said)
    except ParameterError as error:
        raise ScheduleError(str(error)) from error
    timing = {key: float(values[key]) for key in TIMING if key in said and key != "strikes"}
    return Wanted(
        name,
        tuple((key, values[key]) for key in own),
        at_s=timing.get("at"),
        for_s=timing.get("for"),
        times=round(timing.get("times", 1)),
        every_s=timing.get("every"),
        strikes=str(values["strikes"]),
    )


def unfit(steps: Steps, cluster: Cluster, resource: Cluster | None = None) -> str | None:
    """Why a schedule cannot be played on a (never started) cluster, and on that of the resource, or
    None; ``Impossible`` as the fault says."""
    for one in (one for step in steps for one in step):
        if one.strikes == OF_RESOURCE and (why := _not_on_resource(one, resource)) is not None:
            return why
        if one.name == RANDOM:
            continue
        struck = resource if one.strikes == OF_RESOURCE and resource is not None else cluster
        reason = faults()[one.name].unfit(struck, dict(one.parameters))
        if isinstance(reason, Impossible):
            return Impossible(f"{one.name} does not apply to {struck.plan.topology}: {reason}")
        if reason is not None:
            return f"{one.name} cannot be applied to {struck.plan.topology}: {reason}"
    return None


def _not_on_resource(one: Wanted, resource: Cluster | None) -> str | None:
    """Why a fault cannot strike the servers of a resource, whichever they are."""
    if resource is None:
        return f"{one.name}:strikes=resource needs a resource with servers of its own (--resource)"
    if one.name == RANDOM or faults()[one.name].touches.isdisjoint(OF_SERVERS):
        return f"{one.name} does not strike servers; leave strikes=resource out"
    return None


def resolve(
    steps: Steps,
    *,
    seed: int,
    lease_ttl_s: float,
    kept_leases: float = 1.0,
    cluster: Cluster,
    weights: Mapping[str, float] | None = None,
    between_s: tuple[float, float] = BETWEEN_S,
) -> tuple[Injection, ...]:
    """Draws whatever is left open. Raises ScheduleError for faults that contradict each other."""
    # A string seeds the same draws on every machine. Locks and topologies are left out of it, so
    # that all of them meet the same schedule.
    rng = random.Random(f"{seed} {steps!r}")
    found: list[Injection] = []

    def usual_s(fault: str) -> float:
        return faults()[fault].duration_s(lease_ttl_s, kept_leases)

    after_s = 0.0
    for number, step in enumerate(steps):
        low, high = BEGIN_S if number == 0 else between_s
        begin_s = after_s + round(rng.uniform(low, high), 3)
        ends = [after_s]
        for one in step:
            # Drawn for each in turn, whatever the others are.
            own = random.Random(rng.getrandbits(64))
            if one.name == RANDOM:
                drawn_from = DrawnFrom(cluster, weights or {}, between_s)
                made = _random(one, begin_s, own, usual_s, drawn_from)
            else:
                made = _repeated(one, begin_s, own, usual_s)
            found += made
            ends += [injection.end_s for injection in made]
        after_s = max(ends)
    found.sort(key=lambda injection: injection.begin_s)
    check_contradictions(found)
    return tuple(found)


def _repeated(
    one: Wanted, begin_s: float, rng: random.Random, usual_s: Callable[[str], float]
) -> list[Injection]:
    lasts_s = usual_s(one.name) if one.for_s is None else one.for_s
    every_s = lasts_s + BETWEEN_S[1] if one.every_s is None else one.every_s
    if one.times > 1 and every_s <= lasts_s:
        raise ScheduleError(
            f"{one.name} lasts {lasts_s:g} s and is to begin anew every {every_s:g} s"
        )
    first_s = begin_s if one.at_s is None else one.at_s
    return [
        Injection(
            fault=one.name,
            begin_s=round(first_s + turn * every_s, 3),
            duration_s=round(lasts_s, 6),
            seed=rng.getrandbits(32),
            parameters=one.parameters,
            strikes=one.strikes,
        )
        for turn in range(one.times)
    ]


def _random(
    one: Wanted,
    begin_s: float,
    rng: random.Random,
    usual_s: Callable[[str], float],
    drawn_from: DrawnFrom,
) -> list[Injection]:
    """Faults one after the other, drawn from those that apply, with parameters of their own."""
    cluster = drawn_from.cluster
    fitting = candidates(cluster, drawn_from.weights)
    if not fitting:
        raise ScheduleError(f"no fault that could be drawn applies to {cluster.plan.topology}")
    made: list[Injection] = []
    at_s = begin_s if one.at_s is None else one.at_s
    for _ in range(round(float(dict(one.parameters)["count"]))):
        name = rng.choices(list(fitting), list(fitting.values()))[0]
        asked = _drawn_parameters(name, rng, cluster)
        lasts_s = usual_s(name) * rng.uniform(0.3, 1.0) if one.for_s is None else one.for_s
        injection = Injection(
            fault=name,
            begin_s=round(at_s, 3),
            duration_s=round(lasts_s, 3),
            seed=rng.getrandbits(32),
            parameters=tuple(asked.items()),
        )
        made.append(injection)
        at_s = injection.end_s + rng.uniform(*drawn_from.between_s)
    return made


def candidates(cluster: Cluster, weights: Mapping[str, float]) -> dict[str, float]:
    """The faults that apply and come back: name → weight. Those that end the victim for good, or
    need what not every lock has, are asked for by name."""
    found = {}
    for name, fault in faults().items():
        weight = weights.get(name, 0.0 if weights else 1.0)
        asked = fault.defaults()
        if weight > 0 and fault.repeatable and fault.unfit(cluster, asked) is None:
            found[name] = weight
    return found


def _drawn_parameters(name: str, rng: random.Random, cluster: Cluster) -> dict[str, Value]:
    """One of the combinations of words that apply to the cluster and need nothing of the lock.
    Numbers keep their default."""
    fault = faults()[name]
    values = [one.choices or (one.default,) for one in fault.parameters.values()]
    every = [dict(zip(fault.parameters, each, strict=True)) for each in itertools.product(*values)]
    options = [
        asked
        for asked in every
        if fault.unfit(cluster, asked) is None and not fault.needs_extend(asked)
    ]
    return rng.choice(options) if options else fault.defaults()


def check_contradictions(injections: Sequence[Injection]) -> None:
    """Raises ScheduleError where two faults overlap that take hold of the same."""
    for i, first in enumerate(injections):
        for second in injections[i + 1 :]:
            if second.begin_s >= first.end_s:
                continue
            a, b = faults()[first.fault], faults()[second.fault]
            if shared := a.claims(first) & b.claims(second):
                raise ScheduleError(
                    f"{first.fault} and {second.fault} overlap "
                    f"({second.begin_s:g} to {min(first.end_s, second.end_s):g} s) "
                    f"and both take hold of {', '.join(sorted(shared))}"
                )


def end_s(injections: Iterable[Injection]) -> float:
    """When the last of them is healed and has settled."""
    return max((one.end_s + faults()[one.fault].settles_s for one in injections), default=0.0)


def without(injections: Sequence[Injection], index: int) -> tuple[Injection, ...]:
    """The schedule without one of its faults; the others keep their times."""
    return tuple(injection for i, injection in enumerate(injections) if i != index)
