"""How fast a lock is at a stated rate, and what it carries: figures of the phase ``rates``.

Every client has a key of its own, so nothing is in a lock's way but its own cost. In a *saturated*
step each client asks again as soon as it has released; what is granted in it is what lock, client
and machine carry together. At a stated rate, acquires arrive by chance (Poisson) whether or not a
client is free. Their *response* runs from the intended start to the grant, so that waiting for a
client counts. An acquire that failed, timed out or was never begun is right-censored: it took
longer than until it was given up (``Quantiles.above``).

Guarantees: every acquire that was due while a step was measured is in its figures, and none from
the warm-up. Blocks are the same step in several rounds or cases: the figure is that of all their
acquires together, and its range is where that of a repeated run is expected. Void blocks make no
figure where three others do; where they do not, it is made of all, and is void.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from history.columns import History, Ints
from history.op import NULL, F, Type
from results.documents import Bounds, LockRates, PooledRate, Quantiles, RatesOf, RateStep
from results.knee import knee
from results.quantiles import P50, P99, quantiles, rank, spread

ROLE: Final = "rate"
NS_PER_MS: Final = 1e6
BLOCKS_MIN: Final = 3
# How far runs on one machine differ: the standard deviation of a figure's logarithm, over eight
# locks (docs/rates.md). Twice that holds the figure of another run nine times in ten. The rounds of
# one run differ less, because they share its clusters and its minute.
CARRIED_SD: Final = 0.17
P50_SD: Final = ((0.2, 0.19), (0.6, 0.30), (math.inf, 0.55))  # up to a share of what is carried
P99_SD: Final = 0.50


@dataclass(frozen=True)
class Samples:
    """The acquires of one step: how long each took from its intended start (of a saturated step:
    from its invocation) in nanoseconds, and which were given up after that time."""

    took_ns: Ints
    given_up: NDArray[np.bool_]

    def quantiles(self) -> Quantiles:
        return quantiles(self.took_ns, NS_PER_MS, self.given_up)


@dataclass(frozen=True)
class Block:
    """A step of one case with its acquires."""

    step: RateStep
    samples: Samples


def step_of(
    history: History,
    begin_ns: int,
    end_ns: int,
    *,
    unknown_after_s: float,
    share: float | None = None,
    offered_per_s: float | None = None,
) -> Block:
    """A step that was measured between two times, at a stated rate or saturated (None). An acquire
    without an answer counts as given up ``unknown_after_s`` after it was sent."""
    ours = history.has_role(ROLE)
    acquires = ours & (history.f == F.ACQUIRE)
    at = history.invoke_ns if offered_per_s is None else history.intended_ns
    rows = np.flatnonzero(acquires & (at >= begin_ns) & (at < end_ns))
    ended = np.where(
        history.complete_ns[rows] == NULL,
        history.invoke_ns[rows] + int(unknown_after_s * 1e9),
        history.complete_ns[rows],
    )
    granted = history.type[rows] == Type.OK
    samples = Samples(ended - at[rows], ~granted)
    done = history.complete_ns
    in_time = (done >= begin_ns) & (done < end_ns) & (history.type == Type.OK)
    releases = ours & (history.f == F.RELEASE) & in_time
    service = rows[granted]
    step = RateStep(
        begin_ns=begin_ns,
        end_ns=end_ns,
        due=len(rows),
        granted=int(np.count_nonzero(granted)),
        granted_per_s=int(np.count_nonzero(acquires & in_time)) * 1e9 / (end_ns - begin_ns),
        response_ms=samples.quantiles(),
        service_ms=quantiles(done[service] - history.invoke_ns[service], NS_PER_MS),
        release_ms=quantiles((done - history.invoke_ns)[releases], NS_PER_MS),
        share=share,
        offered_per_s=offered_per_s,
    )
    return Block(step, samples)


def again(history: History, step: RateStep, unknown_after_s: float) -> Block:
    """A stored step with its acquires; what the history does not tell stays as it is stored."""
    found = step_of(
        history,
        step.begin_ns,
        step.end_ns,
        unknown_after_s=unknown_after_s,
        share=step.share,
        offered_per_s=step.offered_per_s,
    )
    whole = replace(found.step, processors=step.processors, why=step.why)
    return Block(whole, found.samples)


def pooled(of: RatesOf, blocks: Sequence[Block]) -> LockRates:
    """One lock in one configuration, over all its blocks."""
    saturated = [block for block in blocks if block.step.offered_per_s is None]
    carried = [block.step.granted_per_s for block in saturated]
    carried_per_s = spread(carried)
    at_rates: dict[tuple[float, float], list[Block]] = {}
    for block in blocks:
        if block.step.offered_per_s is not None:
            rate = 0.0 if block.step.share else block.step.offered_per_s
            at_rates.setdefault((block.step.share or 0.0, rate), []).append(block)
    return LockRates(
        of=of,
        carried_per_s=carried_per_s,
        carried_range_per_s=_range(carried_per_s.median, carried, CARRIED_SD),
        why=_reasons(saturated),
        rates=tuple(
            _pooled(at_rates[name], carried_per_s.median or 0.0) for name in sorted(at_rates)
        ),
        knee=knee((block.step, block.samples.took_ns) for block in blocks),
    )


def _pooled(blocks: Sequence[Block], carried_per_s: float) -> PooledRate:
    valid = [block for block in blocks if not block.step.why]
    few = len(valid) < BLOCKS_MIN
    chosen = list(blocks) if few else valid
    took = np.concatenate([block.samples.took_ns for block in chosen])
    given_up = np.concatenate([block.samples.given_up for block in chosen])
    why = _reasons(blocks) if few else ()
    if few and len(blocks) < BLOCKS_MIN:
        why = (*why, f"{len(blocks)} rounds, and a figure needs {BLOCKS_MIN}")
    response_ms = quantiles(took, NS_PER_MS, given_up)
    offered_per_s = spread(block.step.offered_per_s or 0.0 for block in chosen)
    sd = _response_sd(offered_per_s.median or 0.0, carried_per_s)
    return PooledRate(
        share=chosen[0].step.share,
        offered_per_s=offered_per_s,
        granted_per_s=spread(block.step.granted_per_s for block in chosen),
        due=sum(block.step.due for block in chosen),
        granted=sum(block.step.granted for block in chosen),
        response_ms=response_ms,
        p50_ms_range=_range(response_ms.p50, _of_blocks(chosen, P50), sd),
        p99_ms_range=_range(response_ms.p99, _of_blocks(chosen, P99), P99_SD),
        blocks=len(chosen),
        void_blocks=len(blocks) - len(valid),
        why=why,
    )


def _of_blocks(blocks: Iterable[Block], permille: int) -> list[float]:
    """The blocks' own quantiles in milliseconds. A block has fewer acquires than all together, so
    its p99 may rest on a few."""
    sorted_ns = [np.sort(block.samples.took_ns) for block in blocks if len(block.samples.took_ns)]
    return [float(took[rank(len(took), permille) - 1]) / NS_PER_MS for took in sorted_ns]


def _range(figure: float | None, of_blocks: Sequence[float], sd: float) -> Bounds | None:
    """Where the same figure of a repeated run is expected: as far away as runs differ, and at least
    where the blocks are."""
    if not of_blocks:
        return None
    away = math.exp(2 * sd)
    ends = () if figure is None else (figure / away, figure * away)
    return Bounds(min([*of_blocks, *ends]), max([*of_blocks, *ends]))


def _response_sd(offered_per_s: float, carried_per_s: float) -> float:
    """Of the median at a rate: the nearer to what is carried, the longer the queues."""
    share = offered_per_s / carried_per_s if carried_per_s else 1.0
    return next(sd for most, sd in P50_SD if share <= most)


def _reasons(blocks: Iterable[Block]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(why for block in blocks for why in block.step.why))
