"""The statistics under every comparison and every k of n.

Guarantees: tests and intervals are exact for small samples (no normal approximation up to 50 pairs)
and correct for all cells that are looked at together. Does not guarantee that two sides were
measured under the same conditions: whoever calls this has interleaved them.

A *pair* is one run of each side, next to each other in time, in an order that a coin decided. If
nothing differs, the two are exchangeable and the difference of a pair is as likely positive as
negative; all tests here rest on that alone. Effects are log ratios, so that + 25 % and - 20 % are
the same distance.

Operations of one run are not independent (a queue remembers), so within a run whole blocks of time
are resampled, never single operations.

Sources: Hodges and Lehmann 1963 (estimate and interval of the signed-rank test), Holm 1979
(correction), Clopper and Pearson 1934 (k of n), Künsch 1989 (block bootstrap).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

ALPHA: Final = 0.05
Floats = NDArray[np.float64]
# A block bootstrap of fewer blocks gives intervals that are far too narrow.
BLOCKS_MIN: Final = 10
BLOCKS: Final = 20
RESAMPLES: Final = 2000


def needed_pairs(cells: int, alpha: float = ALPHA) -> int:
    """The fewest pairs with which one of ``cells`` cells can be called different at all: the
    smallest p of n pairs is 2^-n, and it has to stay below ``alpha / cells``. 6 for 3 cells, 10 for
    30."""
    return math.ceil(math.log2(max(cells, 1) / alpha))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values corrected for being looked at together: below 0.05 for any true null in at most
    5 % of families, however the cells depend on each other."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for step, i in enumerate(order):
        highest = max(highest, min(1.0, p_values[i] * (len(p_values) - step)))
        corrected[i] = highest
    return corrected


@dataclass(frozen=True, slots=True)
class Effect:
    """``ratio`` is new ÷ base (Hodges-Lehmann), ``low`` and ``high`` its 95 % interval (None: too
    few pairs for one). ``p_higher`` and ``p_lower`` are one-sided, that of new being higher and
    lower than base, uncorrected."""

    ratio: float
    low: float | None
    high: float | None
    p_higher: float
    p_lower: float
    pairs: int


def paired_effect(base: Sequence[float] | Floats, new: Sequence[float] | Floats) -> Effect | None:
    """From pairs of positive values; None without any."""
    if len(base) == 0:
        return None
    ratios: Floats = np.log(np.asarray(new, np.float64) / np.asarray(base, np.float64))
    middle, low, high = _hodges_lehmann(ratios)
    higher, lower = _signed_rank(ratios)
    return Effect(
        ratio=math.exp(middle),
        low=None if low is None else math.exp(low),
        high=None if high is None else math.exp(high),
        p_higher=higher,
        p_lower=lower,
        pairs=len(ratios),
    )


def _signed_rank(differences: Floats) -> tuple[float, float]:
    """One-sided p values of the differences being above and below zero."""
    from scipy import stats

    if not np.any(differences):
        return 1.0, 1.0
    # Below zero is above zero of the opposite; one call for both takes half the time.
    both = np.stack([differences, -differences])
    found = stats.wilcoxon(both, alternative="greater", axis=1)
    above, below = np.asarray(found.pvalue, np.float64).tolist()
    return above, below


def _hodges_lehmann(differences: Floats) -> tuple[float, float | None, float | None]:
    """The median of all pairwise means, and the two that a two-sided signed-rank test at 5 % does
    not reject. Exact: the rank sum of n signs is enumerated."""
    n = len(differences)
    i, j = np.triu_indices(n)
    means = np.sort((differences[i] + differences[j]) / 2)
    k = _critical(n)
    if k == 0:
        return float(np.median(means)), None, None
    return float(np.median(means)), float(means[k - 1]), float(means[-k])


def _critical(n: int) -> int:
    """How many pairwise means lie outside the 95 % interval at each end, plus one; 0: none can."""
    # ways[s]: how many of the 2^n choices of signs have a rank sum of s.
    ways = np.zeros(n * (n + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, n + 1):
        ways[rank:] += ways[:-rank].copy()
    tail = np.cumsum(ways) / 2.0**n
    return int(np.count_nonzero(tail <= ALPHA / 2))


@dataclass(frozen=True, slots=True)
class Share:
    """k of n, with the 95 % interval of the share (0 to 1)."""

    k: int
    n: int
    low: float
    high: float


def share(k: int, n: int) -> Share:
    """Exact bounds (Clopper-Pearson). For k = 0 and k = n the bound is one-sided, since there is
    only one side to err on: 0 of n gives 1 - 0.05^(1/n), which is the rule of three (3/n) where n
    is large and stays below 1 where it is small."""
    from scipy import stats

    if n == 0:
        return Share(0, 0, 0.0, 1.0)
    level = 1 - ALPHA if 0 < k < n else 1 - 2 * ALPHA
    found = stats.binomtest(k, n).proportion_ci(level, method="exact")
    return Share(k, n, float(found.low), float(found.high))


def bootstrap_ratio(
    base: Sequence[Floats], new: Sequence[Floats], *, seed: int = 0
) -> tuple[float, float] | None:
    """The 95 % interval of median(new) ÷ median(base), each side given as blocks of time in their
    order. None where there are fewer than ``BLOCKS_MIN`` blocks or an empty side.

    The percentile interval of a bootstrap of whole blocks. It says how far the two *runs* differ;
    the noise between runs is not in it.
    """
    if min(len(base), len(new)) < BLOCKS_MIN or not any(map(len, base)) or not any(map(len, new)):
        return None
    rng = np.random.default_rng(seed)
    ratios = _resampled_medians(new, rng) / _resampled_medians(base, rng)
    low, high = np.quantile(ratios, [ALPHA / 2, 1 - ALPHA / 2])
    return float(low), float(high)


def _resampled_medians(blocks: Sequence[Floats], rng: np.random.Generator) -> Floats:
    """The nearest-rank median of each resample: values stay sorted once, blocks become weights."""
    values = np.concatenate(blocks)
    block_of = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    order = np.argsort(values, kind="stable")
    values, block_of = values[order], block_of[order]
    drawn = rng.multinomial(len(blocks), np.full(len(blocks), 1 / len(blocks)), RESAMPLES)
    medians = np.empty(RESAMPLES)
    for at, weights in enumerate(drawn):
        reached = np.cumsum(weights[block_of])
        medians[at] = values[np.searchsorted(reached, reached[-1] / 2)]
    return medians


def blocks_of(values: Floats, count: int = BLOCKS) -> list[Floats]:
    """Cuts the values of a run, in the order of time, into ``count`` blocks."""
    return list(np.array_split(values, count))
