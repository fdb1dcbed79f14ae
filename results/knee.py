"""Where latency leaves the flat part: the knee of a lock's rates.

A rate is *below* the knee if what was due at it was granted (``not_granted``) and its
median response is at most ``TIMES`` that of the lowest rate of its round. The knee of a round lies
between the highest rate that is below it, with every lower one, and the next higher rate. Rounds
differ; the knee of all of them lies between the lowest and the highest that any of them says.

Does not guarantee that the lock is what bends: rates that are void because the machine or the load
generator was the limit count as they were measured, and ``LockRates.why`` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from lockbench.history.columns import Ints
from lockbench.results.documents import Knee, RateStep

# Of the acquires that were due, those that have to be granted for a step to say anything.
GRANTED_MIN: Final = 0.95
TIMES: Final = 2.0
Measured = tuple[RateStep, float]  # a step at a stated rate, and its median response


def not_granted(step: RateStep) -> str | None:
    """Why a step at a stated rate is none at that rate."""
    if step.offered_per_s is None or step.granted >= GRANTED_MIN * step.due:
        return None
    return f"{step.granted:,} of {step.due:,} acquires that were due were granted"


def knee(blocks: Iterable[tuple[RateStep, Ints]]) -> Knee | None:
    """From the steps of all rounds in their order, with how long each acquire took; a round begins
    with a saturated step. None where no round has two rates."""
    found = [_of_round(steps) for steps in _rounds(blocks) if len(steps) > 1]
    if not found:
        return None
    beyond = [high for _, high in found]
    return Knee(
        low_per_s=min(low for low, _ in found),
        high_per_s=None if None in beyond else max(high for high in beyond if high is not None),
        rounds=len(found),
    )


def _rounds(
    blocks: Iterable[tuple[RateStep, Ints]],
) -> list[list[Measured]]:
    rounds: list[list[Measured]] = [[]]
    for step, took_ns in blocks:
        if step.offered_per_s is None:
            rounds.append([])
        elif len(took_ns):
            rounds[-1].append((step, float(np.median(took_ns))))
    return rounds


def _of_round(steps: Sequence[Measured]) -> tuple[float, float | None]:
    """The highest rate below the knee (0: none), and the next one; None: there is none higher."""
    ordered = sorted(steps, key=lambda one: one[0].offered_per_s or 0.0)
    flat_ns = ordered[0][1]
    low = 0.0
    for step, median_ns in ordered:
        rate = step.offered_per_s or 0.0
        if not_granted(step) is not None or median_ns > TIMES * flat_ns:
            return low, rate
        low = rate
    return low, None
