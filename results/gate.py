"""The gate: from pairs of runs to a word for each number.

A cell is one number of one lock under one fault. It is *worse* only if all of this holds:

* the lower bound of how much worse it is lies above a margin of 6 %, or above the number's floor
  (below which nobody would notice) where that is more. The bound is that of an exact one-sided
  signed-rank test against the margin, at 5 % for all cells that are judged together (Holm);
* the estimate is worse by at least 10 % (Hodges-Lehmann);
* over more than the declared pairs: what looks slower in the declared pairs, or is too noisy to
  tell, is measured again with as many pairs, and all of them together decide (at least one and a
  half times the declared number, should some be void).

*Too noisy* is a number of which the interval still holds a slowdown of 20 % or more (or of twice
its floor), *too few pairs* one with fewer than the correction needs, *missing more often* one that
one side's runs lack more often than the other's (void, or too few samples for it): what is left of
the pairs is not what was measured. They are inconclusive, never a pass. "No difference shown" rules
out a slowdown of that size and no smaller one.

A run in which nobody was granted from the heal to the end is right-censored: its recovery ranks
above every other. Ranks follow the middle of the pairs, so how often it happens is tested as well
(Fisher, each of the two at 1 %). More often on the new side is *worse* where that
is shown, else *too noisy*.

Why the bound and a margin: a test against "no change at all" calls any bias between the sides a
slowdown once there are pairs enough, and an estimate alone passes any threshold by luck once there
is noise enough. Processes differ from each other by their mere layout in memory (Mytkowicz et al.
2009; Curtsinger and Berger 2013), so every run has processes of its own (Kalibera and Jones 2013),
and a bias becomes noise that the test sees. The margin is twice the bias (standard deviation 3 %)
that was assumed to remain. A test against a margin instead of zero: Murphy and Myors 1999.

``tests/results/test_gate.py`` has the rates of false alarms and of slowdowns found, at measured
noise, under drift, with memory, with half of a job three times noisier, and with biases;
``docs/gate.md`` has the table that this rule was chosen from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, Literal

from lockbench.results.cases import NO_FAULT, has_numbers, latencies, quantile_ms
from lockbench.results.documents import CaseResult, ComparedNumber
from lockbench.results.quantiles import P99, needed
from lockbench.results.statistics import (
    ALPHA,
    Effect,
    holm,
    needed_pairs,
    p_beyond,
    p_more_often,
    paired_effect,
)
from lockbench.results.wording import NONE

Word = Literal[
    "improved",
    "worse",
    "no difference shown",
    "too few pairs",
    "too noisy",
    "missing more often",
    "not judged",
]
UNDECIDED: Final = frozenset({"too few pairs", "too noisy", "missing more often"})
CHANGE_MIN: Final = 0.10
MARGIN: Final = 0.06
# A slowdown of so much has to be ruled out.
TOLERATED: Final = 0.20
# A slowdown has to show over so many times the declared pairs.
CONFIRMED_BY: Final = 1.5
# Where runs are censored no margin holds off chance: two tests, each at 1 %.
CENSORED_TIMES: Final = 5


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that is gated. ``floor`` is the smallest change that counts, in ``unit``. What is
    ``optional`` is judged only where at least half of the base's runs carry it."""

    name: str
    words: str
    unit: str
    higher_is_worse: bool
    floor: float
    optional: bool = False

    def margin(self, base: float) -> float:
        """The change as a share of ``base``, their median, that the bound has to pass."""
        return max(MARGIN, self.floor / base)

    def tolerated(self, base: float) -> float:
        """The change as a share of ``base`` that an interval has to rule out."""
        return max(TOLERATED, 2 * self.floor / base)


METRICS: Final = {
    metric.name: metric
    for metric in (
        Metric("acquire-p50", "uncontended acquire, service time, p50", "ms", True, 0.05),
        Metric("handover-p50", "hand-over, p50", "ms", True, 0.05),
        Metric("acquire-p99", "uncontended acquire, service time, p99", "ms", True, 0.5, True),
        Metric("handover-p99", "hand-over, p99", "ms", True, 0.5, True),
        Metric("throughput", "cycles per second, contended", "/s", False, 1.0),
        Metric("recovery", "heal to first grant", "s", True, 0.5),
    )
}
# Without a fault a case is one long "before". Under a fault that part is a few seconds, too short
# to be gated; how long recovery takes is what such a case is for.
QUIET: Final = ("acquire-p50", "handover-p50", "acquire-p99", "handover-p99", "throughput")
FAULTY: Final = ("recovery",)


def metrics_of(fault: str) -> tuple[str, ...]:
    """The names of what is gated under a fault."""
    return QUIET if fault == NO_FAULT else FAULTY


def value_of(case: CaseResult, metric: str) -> float | None:
    """A case's number; None where it is void, not carried by its n, or not above zero."""
    if not has_numbers(case):
        return None
    found = {
        "acquire-p50": lambda: quantile_ms(case, "acquire", "before", "p50"),
        "handover-p50": lambda: quantile_ms(case, "handover", "before", "p50"),
        "acquire-p99": lambda: quantile_ms(case, "acquire", "before", "p99"),
        "handover-p99": lambda: quantile_ms(case, "handover", "before", "p99"),
        "throughput": lambda: case.cycles_per_second,
        "recovery": lambda: case.recovery_seconds,
    }[metric]()
    return found if found is not None and found > 0 else None


@dataclass(frozen=True, slots=True)
class Often:
    """In how many of its ``runs`` something happened on each side. ``runs_of_base``: where they are
    no pairs."""

    base: int = 0
    new: int = 0
    runs: int = 0
    runs_of_base: int | None = None

    @classmethod
    def of(cls, pairs: Iterable[tuple[bool, bool]]) -> Often:
        """Of (base, new), a pair each."""
        both = list(pairs)
        return cls(sum(base for base, _ in both), sum(new for _, new in both), len(both))

    @classmethod
    def unpaired(cls, base: Sequence[bool], new: Sequence[bool]) -> Often:
        """Of any number of runs on each side."""
        return cls(sum(base), sum(new), len(new), len(base))

    @property
    def p_new(self) -> float:
        """That it is no more often on the new side, of pairs."""
        return p_more_often(self.base, self.runs, self.new, self.runs)

    @property
    def is_uneven(self) -> bool:
        """Whether it is shown to be more often on either side."""
        return min(self.p_new, Often(self.new, self.base, self.runs).p_new) < ALPHA

    def __str__(self) -> str:
        of_base = self.runs if self.runs_of_base is None else self.runs_of_base
        return f"{self.new} of {self.runs} runs, base {self.base} of {of_base}"


@dataclass(frozen=True, slots=True)
class Cell:
    """What came of one number. ``base`` and ``new`` are medians over the pairs, None without any;
    ``change`` is new ÷ base - 1 with its 95 % interval, infinite where it has no bound; ``p_worse``
    is that of being worse by more than the margin. ``needed`` is set for "too few pairs".
    ``missing``: runs without the number; ``never``: in which nobody was granted after the heal."""

    lock: str
    fault: str
    metric: str
    word: Word
    pairs: int
    base: float | None = None
    new: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    p_worse: float | None = None
    p_worse_corrected: float | None = None
    p_better_corrected: float | None = None
    needed: int | None = None
    suspected: bool = False
    missing: Often = Often()
    never: Often = Often()

    @property
    def words(self) -> str:
        """``word`` with the pairs that would be needed, and with what is counted."""
        said: str = self.word
        if self.word == "too few pairs":
            said += f", need n ≥ {self.needed}"
        if self.word == "missing more often":
            said += f" ({self.missing})"
        if self.word == "not judged" and (self.missing.base or self.missing.new):
            said += f"; none in {self.missing}"
        if self.never.base or self.never.new:
            said += f"; nobody was granted after the heal in {self.never}"
        return said

    def document(self) -> ComparedNumber:
        return ComparedNumber(
            lock=self.lock,
            fault=self.fault,
            metric=self.metric,
            unit=METRICS[self.metric].unit,
            verdict=self.words,
            pairs=self.pairs,
            base=self.base,
            new=self.new,
            change_percent=_percent(self.change),
            interval_percent=(_percent(self.low), _percent(self.high)),
            p_worse=self.p_worse,
            p_worse_corrected=self.p_worse_corrected,
            p_better_corrected=self.p_better_corrected,
            needed_pairs=self.needed,
            suspected=self.suspected,
        )


Pair = tuple[CaseResult, CaseResult]


def judge_pairs(pairs: Mapping[tuple[str, str], Sequence[Pair]], declared: int) -> list[Cell]:
    """``pairs`` maps (lock, fault) → (base, new) cases in the order of their runs; ``declared`` is
    how many each was to have. All cells are corrected together."""
    samples = [
        sample
        for (lock, fault), of in pairs.items()
        for metric in metrics_of(fault)
        if (sample := _sample(lock, fault, METRICS[metric], of)).is_carried
    ]
    least = needed_pairs(len(samples))
    alone = [sample.p(worse=True) for sample in samples]
    worse = holm(alone)
    better = holm([sample.p(worse=False) for sample in samples])
    return [
        _cell(*sample_and_p, declared=declared, needed=least)
        for sample_and_p in zip(samples, alone, worse, better, strict=True)
    ]


def not_carried(pairs: Mapping[tuple[str, str], Sequence[Pair]]) -> list[str]:
    """What is gated and was not judged, because most of the base's runs have too few samples for
    it, or are void: ``acquire p99 of etcd (n = 320 of 1,000)``, n being their median."""
    found = []
    for (lock, fault), of in pairs.items():
        for name in metrics_of(fault):
            if of and not _sample(lock, fault, METRICS[name], of).is_carried:
                kind, statistic = name.split("-")
                counts = [_count(base, kind) for base, _ in of]
                why = f"n = {median(counts):,.0f} of {needed(P99):,}"
                if void := sum(not has_numbers(base) for base, _ in of):
                    why += f", {void} of {len(of)} runs of the base void"
                found.append(f"{kind} {statistic} of {lock} ({why})")
    return found


def _count(case: CaseResult, kind: str) -> int:
    found = latencies(case).get(kind, {}).get("before")
    return 0 if found is None else found.count


def judged_together(comparisons: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
    """The cells of several comparisons, corrected for all of them (Holm). What was worse in its own
    and is not among all is not decided, and never becomes a pass."""
    corrected = iter(
        holm([1.0 if c.p_worse is None else c.p_worse for cells in comparisons for c in cells])
    )
    return [[_among_all(cell, next(corrected)) for cell in cells] for cells in comparisons]


def _among_all(cell: Cell, p_worse: float) -> Cell:
    word = "too noisy" if cell.word == "worse" and p_worse >= ALPHA else cell.word
    return replace(cell, word=word, p_worse_corrected=p_worse)


def suspects(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """(lock, fault) of every case that has to be measured again before anything is said of it."""
    return list(dict.fromkeys((cell.lock, cell.fault) for cell in cells if cell.suspected))


@dataclass(frozen=True, slots=True)
class _Sample:
    """The pairs in which both runs carry a number; infinite where nobody was granted after the
    heal, unless that is so on both sides."""

    lock: str
    fault: str
    metric: Metric
    base: Sequence[float]
    new: Sequence[float]
    missing: Often
    never: Often

    @property
    def is_carried(self) -> bool:
        """Whether it is judged at all."""
        carried = self.missing.runs - self.missing.base
        return not self.metric.optional or 0 < self.missing.runs <= 2 * carried

    @property
    def lost(self) -> bool:
        """Whether the new side failed more often to recover."""
        return self.never.new > self.never.base

    def p(self, *, worse: bool, margin: bool = True) -> float:
        """That it is not worse (or not better) by more than the margin."""
        if not self.base:
            return 1.0
        share = self.metric.margin(median(self.base)) if margin else 0.0
        above = self.metric.higher_is_worse is worse
        ratio = 1 + share if above else 1 / (1 + share)
        p = p_beyond(self.base, self.new, ratio, above=above)
        if not worse or not (self.never.base or self.never.new):
            return p
        return min(1.0, CENSORED_TIMES * min(p, self.never.p_new))


def _sample(lock: str, fault: str, metric: Metric, pairs: Sequence[Pair]) -> _Sample:
    values = [
        (ranked_value(base, metric.name), ranked_value(new, metric.name)) for base, new in pairs
    ]
    whole = [(b, n) for b, n in values if b is not None and n is not None]
    known = [(b, n) for b, n in whole if b < math.inf or n < math.inf]
    return _Sample(
        lock,
        fault,
        metric,
        base=[b for b, _ in known],
        new=[n for _, n in known],
        missing=Often.of((b is None, n is None) for b, n in values),
        never=Often.of((b == math.inf, n == math.inf) for b, n in values),
    )


def ranked_value(case: CaseResult, metric: str) -> float | None:
    """As ``value_of``, but infinite where nobody was granted after the heal."""
    if metric == "recovery" and has_numbers(case) and case.unrecovered_seconds is not None:
        return math.inf
    return value_of(case, metric)


def _cell(
    sample: _Sample, p_alone: float, p_worse: float, p_better: float, *, declared: int, needed: int
) -> Cell:
    """``p_worse`` and ``p_better`` are corrected, ``p_alone`` is not."""
    metric, pairs = sample.metric, len(sample.base)
    none = Cell(
        sample.lock,
        sample.fault,
        metric.name,
        "too few pairs",
        pairs,
        needed=needed,
        missing=sample.missing,
        never=sample.never,
    )
    effect = paired_effect(sample.base, sample.new)
    if effect is None:
        return none
    base, new = median(sample.base), median(sample.new)
    big = abs(effect.ratio - 1) >= CHANGE_MIN
    slower = (effect.ratio > 1) is metric.higher_is_worse
    noisy = sample.lost or _times_worse(effect, metric) > 1 + metric.tolerated(base)
    suspected = noisy or sample.p(worse=True, margin=False) < ALPHA
    confirmed = max(needed, math.ceil(CONFIRMED_BY * declared))
    word: Word = "no difference shown"
    least = needed
    if pairs < needed:
        word = "too few pairs"
    elif suspected and pairs < confirmed:
        word, least = "too few pairs", confirmed
    elif (sample.lost or (big and slower)) and p_worse < ALPHA:
        word = "worse"
    elif sample.missing.is_uneven:
        word = "missing more often"
    elif noisy:
        word = "too noisy"
    elif big and not slower and p_better < ALPHA:
        word = "improved"
    return replace(
        none,
        word=word,
        base=finite(base),
        new=finite(new),
        change=effect.ratio - 1,
        low=None if effect.low is None else effect.low - 1,
        high=None if effect.high is None else effect.high - 1,
        p_worse=p_alone,
        p_worse_corrected=p_worse,
        p_better_corrected=p_better,
        needed=least if word == "too few pairs" else None,
        suspected=suspected and word == "too few pairs" and pairs >= needed,
    )


def _times_worse(effect: Effect, metric: Metric) -> float:
    """How many times worse the new side may still be, by the end of its interval."""
    if effect.low is None or effect.high is None:
        return math.inf
    return effect.high if metric.higher_is_worse else 1 / effect.low


def _percent(change: float | None) -> float | None:
    return None if change is None else finite(100 * change)


def finite(value: float) -> float | None:
    """None where it is not."""
    return value if math.isfinite(value) else None


def change_words(cell: Cell) -> str:
    """``etcd hand-over, p50 +31 % (+22 to +40 %), n = 20``."""
    metric = METRICS[cell.metric]
    where = "" if cell.fault == "none" else f" under {cell.fault}"
    return f"{cell.lock}{where} {metric.words} {change(cell)}, n = {cell.pairs}"


def change(cell: Cell) -> str:
    """``+31 % (+22 to +40 %)``, a dash where there is none."""
    if cell.change is None:
        return NONE
    metric = METRICS[cell.metric]
    if cell.word == "not judged" and abs((cell.new or 0) - (cell.base or 0)) < metric.floor:
        return f"less than {metric.floor:g} {metric.unit}"
    if cell.low is None or cell.high is None:
        return f"{_signed(cell.change)} %"
    return f"{_signed(cell.change)} % ({_signed(cell.low)} to {_signed(cell.high)} %)"


def _signed(share: float) -> str:
    return f"{100 * share:+.0f}" if share < math.inf else "+∞"
