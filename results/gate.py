"""The gate: from pairs of runs to "improved", "worse", "no difference shown" or "too few pairs".

A cell is one number of one lock under one fault. It is *worse* only if all of this holds:

* p < 0.05 after correction for all cells that are judged together;
* the value is worse by at least 10 %;
* and by at least an absolute floor, below which nobody would notice;
* over more than the declared pairs: what the declared pairs make look slower is measured again with
  as many pairs, and all of them together decide (at least one and a half times the declared number,
  should some be void). That costs time only where there is a suspicion, and keeps false alarms rare
  on a noisy machine (``tests/results/test_gate.py`` has the rates at measured noise).

Too few pairs is never a pass: a cell with fewer than the correction needs is "too few pairs".
"No difference shown" is no proof that there is none; the interval says what may still be there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from results.cases import NO_FAULT, has_numbers, quantile_ms
from results.documents import CaseResult, ComparedNumber
from results.statistics import ALPHA, Effect, holm, needed_pairs, paired_effect
from results.wording import NONE

Word = Literal["improved", "worse", "no difference shown", "too few pairs", "not judged"]
CHANGE_MIN: Final = 0.10
# A slowdown has to show over so many times the declared pairs.
CONFIRMED_BY: Final = 1.5


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that is gated. ``floor`` is the smallest change that counts, in ``unit``."""

    name: str
    words: str
    unit: str
    higher_is_worse: bool
    floor: float


METRICS: Final = {
    metric.name: metric
    for metric in (
        Metric("acquire-p50", "uncontended acquire, service time, p50", "ms", True, 0.05),
        Metric("handover-p50", "hand-over, p50", "ms", True, 0.05),
        Metric("throughput", "cycles per second, contended", "/s", False, 1.0),
        Metric("recovery", "heal to first grant", "s", True, 0.5),
    )
}
# Without a fault a case is one long "before". Under a fault that part is a few seconds, too short
# to be gated; how long recovery takes is what such a case is for.
QUIET: Final = ("acquire-p50", "handover-p50", "throughput")
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
        "throughput": lambda: case.cycles_per_second,
        "recovery": lambda: case.recovery_seconds,
    }[metric]()
    return found if found is not None and found > 0 else None


@dataclass(frozen=True, slots=True)
class Cell:
    """What came of one number. ``base`` and ``new`` are medians over the pairs, None without any;
    ``change`` is new ÷ base - 1 with its 95 % interval. ``needed`` is set for "too few pairs"."""

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

    @property
    def words(self) -> str:
        """``word`` with the pairs that would be needed."""
        if self.word != "too few pairs":
            return self.word
        return f"too few pairs, need n ≥ {self.needed}"

    def document(self) -> ComparedNumber:
        """As it stands in ``results.json``."""
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
    samples = {
        (lock, fault, metric): _sample(of, metric)
        for (lock, fault), of in pairs.items()
        for metric in metrics_of(fault)
    }
    needed = needed_pairs(len(samples))
    effects = {key: paired_effect(*sample) for key, sample in samples.items()}
    worse = dict(
        zip(effects, holm([_p(key, e, worse=True) for key, e in effects.items()]), strict=True)
    )
    better = dict(
        zip(effects, holm([_p(key, e, worse=False) for key, e in effects.items()]), strict=True)
    )
    return [
        _cell(
            key,
            samples[key],
            effect,
            p_worse=worse[key],
            p_better=better[key],
            declared=declared,
            needed=needed,
        )
        for key, effect in effects.items()
    ]


def suspects(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """(lock, fault) of every case that has to be measured again before anything is said of it."""
    return list(dict.fromkeys((cell.lock, cell.fault) for cell in cells if cell.suspected))


def _sample(pairs: Sequence[Pair], metric: str) -> tuple[list[float], list[float]]:
    values = [(value_of(base, metric), value_of(new, metric)) for base, new in pairs]
    whole = [(b, n) for b, n in values if b is not None and n is not None]
    return [b for b, _ in whole], [n for _, n in whole]


def _p(key: tuple[str, str, str], effect: Effect | None, *, worse: bool) -> float:
    if effect is None:
        return 1.0
    return effect.p_higher if METRICS[key[2]].higher_is_worse is worse else effect.p_lower


def _cell(
    key: tuple[str, str, str],
    sample: tuple[list[float], list[float]],
    effect: Effect | None,
    *,
    p_worse: float,
    p_better: float,
    declared: int,
    needed: int,
) -> Cell:
    lock, fault, name = key
    metric = METRICS[name]
    pairs = len(sample[0])
    if effect is None:
        return Cell(lock, fault, name, "too few pairs", 0, needed=needed)
    base, new = (median(values) for values in sample)
    big = abs(effect.ratio - 1) >= CHANGE_MIN and abs(new - base) >= metric.floor
    slower = (effect.ratio > 1) is metric.higher_is_worse
    p_alone = _p(key, effect, worse=True)
    # Below the floor nothing can come of a suspicion.
    suspected = slower and (big or (p_alone < ALPHA and abs(new - base) >= metric.floor))
    word: Word = "no difference shown"
    least = needed
    confirmed = max(needed, math.ceil(CONFIRMED_BY * declared))
    if pairs < needed:
        word = "too few pairs"
    elif suspected and pairs < confirmed:
        word, least = "too few pairs", confirmed
    elif big and slower and p_worse < ALPHA:
        word = "worse"
    elif big and not slower and p_better < ALPHA:
        word = "improved"
    return Cell(
        lock=lock,
        fault=fault,
        metric=name,
        word=word,
        pairs=pairs,
        base=base,
        new=new,
        change=effect.ratio - 1,
        low=None if effect.low is None else effect.low - 1,
        high=None if effect.high is None else effect.high - 1,
        p_worse=p_alone,
        p_worse_corrected=p_worse,
        p_better_corrected=p_better,
        needed=least if word == "too few pairs" else None,
        suspected=suspected and word == "too few pairs" and pairs >= needed,
    )


def _percent(change: float | None) -> float | None:
    return None if change is None else 100 * change


def change_words(cell: Cell) -> str:
    """``etcd hand-over, p50 +31 % (+22 to +40 %), n = 20``."""
    metric = METRICS[cell.metric]
    where = "" if cell.fault == "none" else f" under {cell.fault}"
    return f"{cell.lock}{where} {metric.words} {change(cell)}, n = {cell.pairs}"


def change(cell: Cell) -> str:
    """``+31 % (+22 to +40 %)``, a dash where there is none."""
    if cell.change is None or cell.base is None or cell.new is None:
        return NONE
    metric = METRICS[cell.metric]
    if cell.word == "not judged" and abs(cell.new - cell.base) < metric.floor:
        return f"less than {metric.floor:g} {metric.unit}"
    if cell.low is None or cell.high is None:
        return f"{100 * cell.change:+.0f} %"
    return f"{100 * cell.change:+.0f} % ({100 * cell.low:+.0f} to {100 * cell.high:+.0f} %)"
