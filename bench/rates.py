"""How fast a lock is, and what it carries: the steps of a case, and the cases of a sweep.

A round begins with a saturated step, which finds what is carried, and goes on with the rates in an
order that the seed draws, so that what drifts on a machine does not look like an effect of the
rate. Every figure comes from three rounds at least (``lockbench.results.rates``). The quick suite
has three rounds of three rates in one case. A sweep has each round on a cluster of its own, and all
configurations take turns, so that a minute in which the machine was slow does not meet one of them
alone.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from lockbench.bench.plan import CLIENTS_MAX, TIME_LIMIT_S_MIN, Case, make_case, resolve
from lockbench.nemesis.registry import NONE
from lockbench.results.errors import BadInput
from lockbench.workloads.base import RATE_MAX
from lockbench.workloads.load import Rates, Step

# What is discarded: two seconds before the first measurement on a cluster, and at the beginning of
# each step what the one before may have left of its queue.
FIRST_WARM_S: Final = 2.0
QUICK_WARM_S: Final = 0.4
SWEEP_WARM_S: Final = 1.0
CLIENTS: Final = 32
ROUNDS: Final = 3
QUICK_SHARES: Final = (0.1, 0.5, 0.75)
QUICK_MEASURED_S: Final = 1.4
SWEEP_SHARES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.15)
SWEEP_MEASURED_S: Final = 4.0
REPEATS_MAX: Final = 100
HOLD_MS_MAX: Final = 1_000.0
# Of the quickest lock, clients and links together have sent 3,200 per second and core.
SENT_PER_CORE: Final = 3_500


def quick_rates(seed: int) -> Rates:
    """The short form: three rates, three rounds, one case."""
    steps: list[Step] = []
    for number in range(ROUNDS):
        rates = [Step(QUICK_WARM_S, QUICK_MEASURED_S, share=share) for share in QUICK_SHARES]
        warm_s = QUICK_WARM_S if steps else FIRST_WARM_S
        steps += _round(warm_s, rates, f"{seed} {number}")
    return Rates(clients=CLIENTS, steps=tuple(steps))


def doubtful(rates: Sequence[float], cores: int) -> str | None:
    """What is to be said of rates that this machine may not be able to send; None where it is."""
    most = SENT_PER_CORE * cores
    high = [f"{rate:,g}" for rate in rates if rate > most]
    if not high:
        return None
    return (
        f"{', '.join(high)} per second may be more than {cores} processors can send, which is "
        f"some {most:,}: steps that fall short are void"
    )


def with_rates(case: Case, rates: Rates) -> Case:
    """The case, short but for its rates."""
    return replace(case, time_limit_s=TIME_LIMIT_S_MIN, rates=rates)


def sweep(
    locks: Sequence[str],
    *,
    seed: int = 0,
    topology: str | None = None,
    rates: Sequence[float] = (),
    clients: Sequence[int] = (CLIENTS,),
    keys: Sequence[int] = (0,),
    holds_ms: Sequence[float] = (0.0,),
    networks: Sequence[str] = ("loopback",),
    repeats: int = ROUNDS,
    measured_s: float = SWEEP_MEASURED_S,
) -> list[Case]:
    """Every lock in every configuration, ``repeats`` times each. ``rates`` are per second; without
    any they are shares of what is carried. Raises BadInput, Unfit."""
    values: list[tuple[str, Sequence[float], float, float, str]] = [
        ("--rate", rates, 0.1, RATE_MAX, "per second"),
        ("--clients", clients, 2, CLIENTS_MAX, "clients: two workers have one each"),
        ("--keys", keys, 0, CLIENTS_MAX, "keys; 0: each client has its own"),
        ("--hold", holds_ms, 0.0, HOLD_MS_MAX, "milliseconds"),
        ("--repeats", [repeats], ROUNDS, REPEATS_MAX, "repeats: a figure needs three"),
        ("--seconds", [measured_s], 1.0, 600.0, "seconds"),
    ]
    for option, given, least, most, what in values:
        _refuse_impossible(option, given, f"{least:g} to {most:g} {what}", least, most)
    cases = []
    for number, lock, network, many, shared, hold_ms in itertools.product(
        range(repeats), locks, networks, clients, keys, holds_ms
    ):
        steps = [Step(SWEEP_WARM_S, measured_s, rate=rate) for rate in rates] or [
            Step(SWEEP_WARM_S, measured_s, share=share) for share in SWEEP_SHARES
        ]
        steps = _round(FIRST_WARM_S, steps, f"{seed} {number}")
        planned = Rates(clients=many, keys=shared, hold_s=hold_ms / 1e3, steps=tuple(steps))
        case = make_case(lock, NONE, seed=seed + number, topology=topology)
        cases.append(resolve(with_rates(replace(case, network=network), planned)))
    return cases


def _round(warm_s: float, steps: Sequence[Step], seed: str) -> list[Step]:
    """A saturated step, and the others in an order that the seed draws."""
    return [
        Step(warm_s, steps[0].measured_s),
        *random.Random(seed).sample(steps, len(steps)),
    ]


def _refuse_impossible(
    option: str, values: Sequence[float], said: str, least: float, most: float
) -> None:
    for value in values:
        if not (math.isfinite(value) and least <= value <= most):
            raise BadInput(f"{option} is {value:g}; it has to be {said}")
    if len(set(values)) < len(values):
        raise BadInput(f"{option} names a value twice")
