"""How fast a lock is at a stated rate, and what it carries: figures of the phase ``rates``.

Every client has a key of its own, so nothing is in a lock's way but its own cost. In a *saturated*
step each client asks again as soon as it has released; what is granted in it is what lock, client
and machine carry together. At a stated rate, acquires arrive by chance (Poisson) whether or not a
client is free. Their *response* runs from the intended start to the grant, so that waiting for a
client counts. An acquire that failed, timed out or was never begun is right-censored: it took
longer than until it was given up (``Quantiles.above``).

Guarantees: every acquire that was due while a step was measured is in its figures, and none from
the warm-up. Blocks are the same step in several rounds or cases: the figure is that of all their
acquires together, and its range is where that of a repeated run is expected. Blocks in which the
machine or the load generator was in the way make no figure where three others do; where they do
not, it is made of all, and is void. A block in which the lock fell short is always in its figure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from lockbench.history.columns import History, Ints
from lockbench.history.op import NULL, F, Type
from lockbench.results.documents import (
    Bounds,
    LockRates,
    PooledRate,
    Quantiles,
    RatesOf,
    RateStep,
    Spread,
)
from lockbench.results.knee import knee, not_granted
from lockbench.results.quantiles import P50, P99, quantiles, rank, spread

ROLE: Final = "rate"
NS_PER_MS: Final = 1e6
BLOCKS_MIN: Final = 3
# How far runs on one machine differ: the standard deviation of a figure's logarithm, over eight
# locks (docs/rates.md). Twice that holds the figure of another run nine times in ten. The rounds of
# one run differ less, because they share its clusters and its minute.
CARRIED_SD: Final = 0.17
# Up to a share of what is carried.
P50_SD: Final = ((0.2, 0.19), (0.6, 0.30), (math.inf, 0.55))
P99_SD: Final = ((0.6, 0.50), (math.inf, 0.59))
# Percent of all processors that were busy: from here on a lock that is asked for as often as can be
# is held up by the machine, and here nothing is left of it, so that no figure is the lock's.
BUSY: Final = 85.0
FULL: Final = 98.0
# The share of what the clients can ask for at most, from which on they are the limit.
ASKED_FOR: Final = 0.8


@dataclass(frozen=True)
class Samples:
    """The acquires of one step: how long each took from its intended start (of a saturated step:
    from its invocation) in nanoseconds, which were given up after that time, and how long the
    granted ones took from when they were sent."""

    took_ns: Ints
    given_up: NDArray[np.bool_]
    service_ns: Ints

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
    done = history.complete_ns
    served = rows[granted]
    samples = Samples(ended - at[rows], ~granted, done[served] - history.invoke_ns[served])
    in_time = (done >= begin_ns) & (done < end_ns) & (history.type == Type.OK)
    releases = ours & (history.f == F.RELEASE) & in_time
    step = RateStep(
        begin_ns=begin_ns,
        end_ns=end_ns,
        due=len(rows),
        granted=int(np.count_nonzero(granted)),
        granted_per_s=int(np.count_nonzero(acquires & in_time)) * 1e9 / (end_ns - begin_ns),
        response_ms=samples.quantiles(),
        service_ms=quantiles(samples.service_ns, NS_PER_MS),
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
    lowest = at_rates[min(at_rates)] if at_rates else ()
    limits = (_by_machine(saturated), _by_clients(of, lowest, carried_per_s.median))
    return LockRates(
        of=of,
        carried_per_s=carried_per_s,
        carried_range_per_s=_range(carried_per_s.median, carried, CARRIED_SD),
        why=(*_reasons(saturated), *filter(None, limits)),
        carried_processors=_used(saturated),
        rates=tuple(
            _pooled(at_rates[name], carried_per_s.median or 0.0) for name in sorted(at_rates)
        ),
        knee=knee((block.step, block.samples.took_ns) for block in blocks),
    )


def _pooled(blocks: Sequence[Block], carried_per_s: float) -> PooledRate:
    valid = [block for block in blocks if not _disturbed(block.step)]
    few = len(valid) < BLOCKS_MIN
    chosen = list(blocks) if few else valid
    took = np.concatenate([block.samples.took_ns for block in chosen])
    given_up = np.concatenate([block.samples.given_up for block in chosen])
    why = _reasons(blocks) if few else ()
    if few and len(blocks) < BLOCKS_MIN:
        why = (*why, f"{len(blocks)} rounds, and a figure needs {BLOCKS_MIN}")
    due, granted = (sum(getattr(b.step, name) for b in chosen) for name in ("due", "granted"))
    if not few and (short := not_granted(replace(chosen[0].step, due=due, granted=granted))):
        why = (short,)
    response_ms = quantiles(took, NS_PER_MS, given_up)
    offered_per_s = spread(block.step.offered_per_s or 0.0 for block in chosen)
    share = (offered_per_s.median or 0.0) / carried_per_s if carried_per_s else 1.0
    return PooledRate(
        share=chosen[0].step.share,
        offered_per_s=offered_per_s,
        granted_per_s=spread(block.step.granted_per_s for block in chosen),
        due=due,
        granted=granted,
        response_ms=response_ms,
        service_p50_ms=_service(chosen),
        p50_ms_range=_range(response_ms.p50, _of_blocks(chosen, P50), _sd(P50_SD, share)),
        p99_ms_range=_range(response_ms.p99, _of_blocks(chosen, P99), _sd(P99_SD, share)),
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


def _sd(of: Sequence[tuple[float, float]], share: float) -> float:
    """Of a quantile at a share of what is carried: the nearer to it, the longer the queues."""
    return next(sd for most, sd in of if share <= most)


def _service(blocks: Sequence[Block]) -> Spread:
    """The median of all acquires together; the lowest and highest of the blocks' own medians."""
    together = quantiles(np.concatenate([b.samples.service_ns for b in blocks]), NS_PER_MS)
    of_blocks = spread(p50 for b in blocks if (p50 := b.step.service_ms.p50) is not None)
    return replace(of_blocks, median=together.p50)


def _reasons(blocks: Iterable[Block]) -> tuple[str, ...]:
    """Each reason once, but for the lock's own."""
    found = (why for block in blocks for why in (*block.step.why, *_disturbed(block.step)))
    return tuple(dict.fromkeys(found))


def _disturbed(step: RateStep) -> list[str]:
    """Why a step says nothing of the lock: not that the lock fell short of what was due."""
    found = [why for why in step.why if why != not_granted(step)]
    busy = _busy(step)
    if step.offered_per_s is not None and busy is not None and busy >= FULL:
        found.append(f"{busy:.0f} % of the processors were busy")
    return found


def _busy(step: RateStep) -> float | None:
    """Percent of all processors, whoever used them."""
    it = step.processors
    if it is None or it.ours_percent is None or it.others_percent is None:
        return None
    return it.ours_percent + it.others_percent


def _by_machine(saturated: Sequence[Block]) -> str | None:
    """Whether the machine was the limit of what was carried."""
    busy = spread(found for block in saturated if (found := _busy(block.step)) is not None).median
    if busy is None or busy < BUSY:
        return None
    return f"the machine was the limit, with {BUSY:.0f} % of its processors busy or more"


def _used(saturated: Sequence[Block]) -> dict[str, float] | None:
    """Percent of all processors by part of ours and of others, median of the rounds."""
    found: dict[str, list[float]] = {}
    for it in filter(None, (block.step.processors for block in saturated)):
        used = {part: of.used_percent for part, of in (it.parts or {}).items()}
        for part, percent in {**used, "others": it.others_percent}.items():
            found.setdefault(part, []).append(percent)
    return {part: statistics.median(of) for part, of in found.items()} or None


def _by_clients(of: RatesOf, lowest: Sequence[Block], carried_per_s: float | None) -> str | None:
    """Whether more clients would have been granted more: where nobody is in their way, a cycle
    takes so long that these cannot ask for much more."""
    steps = [block.step for block in lowest]
    cycle_ms = spread(
        acquire + release + 1e3 * of.hold_s
        for step in steps
        if (acquire := step.service_ms.p50) is not None
        if (release := step.release_ms.p50) is not None
    ).median
    if of.keys or not cycle_ms or carried_per_s is None:
        return None
    most = of.clients * 1e3 / cycle_ms
    if carried_per_s < ASKED_FOR * most:
        return None
    return (
        f"its {of.clients} clients were the limit: alone they come to some {most:,.0f} per second"
    )
