"""The statistics under every comparison and every k of n.

Guarantees: tests and intervals are exact for small samples (no normal approximation up to 50 pairs)
and correct for all cells that are looked at together. Does not guarantee that two sides were
measured under the same conditions: whoever calls this has interleaved them.

A *pair* is one run of each side, next to each other in time, in an order that a coin decided. If
nothing differs, the two are exchangeable and the difference of a pair is as likely positive as
negative; all tests here rest on that alone. Effects are log ratios, so that + 25 % and - 20 % are
the same distance.

A value that is infinite was not reached in the time there was (right-censored): it ranks above
every other. A pair of two such values says nothing, and is not to be passed.

Sources: Hodges and Lehmann 1963 (estimate and interval of the signed-rank test), Holm 1979
(correction), Clopper and Pearson 1934 (k of n), Fisher 1934 (k of n on two sides).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lockbench.results.wording import tries

ALPHA: Final = 0.05
# A share has bounds where there are so many tries; of fewer the tries themselves are told.
BOUND_TRIES_MIN: Final = 3
Floats = NDArray[np.float64]


def needed_pairs(cells: int) -> int:
    """The fewest pairs with which one of ``cells`` cells can be called different at all: the
    smallest p of n pairs is 2^-n, and it has to stay below ``ALPHA / cells``. 6 for 3 cells, 10 for
    30."""
    return math.ceil(math.log2(max(cells, 1) / ALPHA))


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
    few pairs for one)."""

    ratio: float
    low: float | None
    high: float | None
    pairs: int


def paired_effect(base: Sequence[float] | Floats, new: Sequence[float] | Floats) -> Effect | None:
    """From pairs of positive values; None without any."""
    if len(base) == 0:
        return None
    ratios = _log_ratios(base, new)
    middle, low, high = _hodges_lehmann(ratios)
    return Effect(
        ratio=math.exp(middle),
        low=None if low is None else math.exp(low),
        high=None if high is None else math.exp(high),
        pairs=len(ratios),
    )


def p_beyond(
    base: Sequence[float] | Floats, new: Sequence[float] | Floats, ratio: float, *, above: bool
) -> float:
    """One-sided p of new ÷ base lying above ``ratio``, or below it. Exact, also with ties
    (Wilcoxon's signed-rank test, uncorrected). It is below a level just where the one-sided
    interval of that level lies beyond the ratio. 1 without any pair."""
    ratios = _log_ratios(base, new)
    # Rounded: 3 ÷ 4 and 4 ÷ 3 are as far from 1, but their logarithms differ in the last bit.
    beyond = np.round((ratios - math.log(ratio)) * (1 if above else -1), 12)
    beyond = beyond[beyond != 0]
    # Twice the ranks, because those of ties end in a half.
    _, place, ties = np.unique(np.abs(beyond), return_inverse=True, return_counts=True)
    ranks = (2 * np.cumsum(ties) - ties + 1)[place]
    ways = _rank_sums(tuple(sorted(ranks.tolist())))
    # The sum of all ways may be more than 1 by the last bit.
    return min(1.0, float(ways[ranks[beyond > 0].sum() :].sum()))


def _log_ratios(base: Sequence[float] | Floats, new: Sequence[float] | Floats) -> Floats:
    with np.errstate(divide="ignore"):  # of what base did not reach: log 0
        found: Floats = np.log(np.asarray(new, np.float64) / np.asarray(base, np.float64))
    return found


@functools.cache
def _rank_sums(ranks: tuple[int, ...]) -> Floats:
    """At s the probability that the ranks of those with a plus add up to s, each sign being a toss
    of a coin."""
    ways = np.zeros(sum(ranks) + 1)
    ways[0] = 1.0
    for rank in ranks:
        ways[rank:] += ways[:-rank].copy()
    return ways / 2.0 ** len(ranks)


def _hodges_lehmann(differences: Floats) -> tuple[float, float | None, float | None]:
    """The median of all pairwise means, and the two that a two-sided signed-rank test at 5 % does
    not reject. Exact: the rank sum of n signs is enumerated."""
    n = len(differences)
    i, j = np.triu_indices(n)
    with np.errstate(invalid="ignore"):  # one up and one down without end: neither way
        means = (differences[i] + differences[j]) / 2
    means = np.sort(np.where(np.isnan(means), 0.0, means))
    k = _critical(n)
    if k == 0:
        return float(np.median(means)), None, None
    return float(np.median(means)), float(means[k - 1]), float(means[-k])


def _critical(n: int) -> int:
    """How many pairwise means lie outside the 95 % interval at each end, plus one; 0: none can."""
    tail = np.cumsum(_rank_sums(tuple(range(1, n + 1))))
    return int(np.count_nonzero(tail <= ALPHA / 2))


@dataclass(frozen=True, slots=True)
class Share:
    """k of n, with the 95 % interval of the share (0 to 1)."""

    k: int
    n: int
    low: float
    high: float

    @property
    def at_most_percent(self) -> int:
        """The upper bound in whole percent. A bound is never rounded down."""
        return math.ceil(100 * self.high - 1e-9)


def share(k: int, n: int) -> Share:
    """Exact bounds (Clopper-Pearson). For k = 0 and k = n the bound is one-sided, since there is
    only one side to err on: 0 of n gives 1 - 0.05^(1/n), which is the rule of three (3/n) where n
    is large and stays below 1 where it is small."""
    if n == 0:
        return Share(0, 0, 0.0, 1.0)
    tail = ALPHA / 2 if 0 < k < n else ALPHA
    low = 1 - _where_few_are_rare(n - k, n, tail) if k else 0.0
    return Share(k, n, low, _where_few_are_rare(k, n, tail) if k < n else 1.0)


def _where_few_are_rare(k: int, n: int, tail: float) -> float:
    """The share at which at most k of n have the probability ``tail``."""
    counts = np.arange(k + 1)
    ways = np.cumsum(np.log([1.0, *((n - counts[:-1]) / counts[1:])]))
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        terms = ways + counts * math.log(middle) + (n - counts) * math.log1p(-middle)
        low, high = (middle, high) if np.exp(terms).sum() > tail else (low, middle)
    return high


def p_more_often(k_base: int, n_base: int, k_new: int, n_new: int) -> float:
    """One-sided p of something happening more often on the new side: Fisher's exact test of
    ``k_base`` of ``n_base`` tries against ``k_new`` of ``n_new``. 1 without any try."""
    k = k_base + k_new
    as_many = range(k_new, min(n_new, k) + 1)
    ways = sum(math.comb(n_new, new) * math.comb(n_base, k - new) for new in as_many)
    return ways / math.comb(n_base + n_new, k)


def bounded(n: int) -> str:
    """``one try``, ``4 tries (≤ 53 %)``: in how many it was kept, and from three on the 95 % bound
    of how often it may break all the same."""
    bound = f" (≤ {share(0, n).at_most_percent} %)" if n >= BOUND_TRIES_MIN else ""
    return f"{tries(n)}{bound}"


def change_points(values: Sequence[float] | Floats) -> list[int]:
    """Where a series has changed its level: the indices of the first values after each change. The
    series is cut where Pettitt's statistic is largest, as long as that is significant at 5 %, and
    each part again (binary segmentation). Rests on ranks, so one outlier is no change; fewer than
    eleven values cannot show one.

    Sources: Pettitt 1979 (statistic and its p), Scott and Knott 1974 (binary segmentation).
    """
    n = len(values)
    if n < 2:
        return []
    sample = np.asarray(values, np.float64)
    # At k: how many pairs across the cut before k rise, less those that fall.
    signs = np.sign(sample[None, :] - sample[:, None])
    across = [abs(signs[:k, k:].sum()) for k in range(1, n)]
    most = max(across)
    if 2 * math.exp(-6 * most**2 / (n**3 + n**2)) >= ALPHA:
        return []
    cut = across.index(most) + 1
    return [
        *change_points(sample[:cut]),
        cut,
        *(cut + at for at in change_points(sample[cut:])),
    ]
