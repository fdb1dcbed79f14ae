"""How far the figures of repeated runs lie apart: ``python -m perf.repeats RUN RUN …``.

The runs are of one suite on one machine. The first table has every figure at stated rates of every
lock, run by run with its range, and of how many pairs of runs the ranges overlap: where they do
not, the two runs disagree. The second has, for each kind of figure over all locks, how often the
range of one run holds the figure of another, and the standard deviation of the logarithm of a
figure between runs, of which ``lockbench.results.rates`` makes its ranges. Void figures are left
out.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockbench.report.console import err, out
from lockbench.report.grid import drawn, texts
from lockbench.report.rates import at, labels
from lockbench.results import wording
from lockbench.results.documents import Bounds, LockRates
from lockbench.results.errors import BAD_INPUT, BadInput
from lockbench.results.store import NotARun, open_run


@dataclass(frozen=True)
class Repeated:
    """One figure of one run."""

    value: float
    between: Bounds

    def agrees(self, other: Repeated) -> bool:
        """Whether the ranges overlap."""
        return self.between.min <= other.between.max and other.between.min <= self.between.max

    def holds(self, other: Repeated) -> bool:
        """Whether the other's figure lies in the range."""
        return self.between.min <= other.value <= self.between.max

    def __str__(self) -> str:
        low, high = self.between.min, self.between.max
        return f"{wording.ms(self.value)} [{wording.ms(low)}, {wording.ms(high)}]"


def figures(found: Sequence[LockRates]) -> Iterator[tuple[str, str, Repeated]]:
    """(lock, kind, figure) of a run."""
    for label, one in zip(labels(found), found, strict=True):
        carried = one.carried_per_s.median
        if carried is not None and one.carried_range_per_s is not None:
            yield label, "carried, per second", Repeated(carried, one.carried_range_per_s)
        for rate in one.rates:
            for name, bounds in (("p50", rate.p50_ms_range), ("p99", rate.p99_ms_range)):
                value = getattr(rate.response_ms, name)
                if value is not None and bounds is not None and not rate.why:
                    yield label, f"{name} at {at(rate)}, ms", Repeated(value, bounds)


def deviations(of: Mapping[tuple[str, str], Sequence[Repeated]]) -> dict[str, tuple[float, int]]:
    """Kind → standard deviation of the logarithm between runs, pooled over locks, and of how many
    degrees of freedom."""
    squares: dict[str, list[tuple[float, int]]] = {}
    for (_, kind), repeated in of.items():
        logs = [math.log(one.value) for one in repeated]
        if len(logs) > 1:
            free = len(logs) - 1
            squares.setdefault(kind, []).append((statistics.variance(logs) * free, free))
    found = {}
    for kind, parts in squares.items():
        free = sum(n for _, n in parts)
        found[kind] = math.sqrt(sum(square for square, _ in parts) / free), free
    return found


def held(of: Mapping[tuple[str, str], Sequence[Repeated]]) -> dict[str, tuple[int, int]]:
    """Kind → how often (k of n) the range of one run holds the figure of another."""
    found: dict[str, tuple[int, int]] = {}
    for (_, kind), repeated in of.items():
        pairs = list(itertools.permutations(repeated, 2))
        k, n = found.get(kind, (0, 0))
        found[kind] = k + sum(one.holds(two) for one, two in pairs), n + len(pairs)
    return found


def main(paths: Sequence[str]) -> None:
    """Both tables."""
    if len(paths) < 2:
        raise BadInput("name at least two runs")
    of: dict[tuple[str, str], list[Repeated]] = {}
    for path in paths:
        try:
            found = open_run(Path(path)).results().rates
        except NotARun as error:
            raise BadInput(str(error)) from error
        for lock, kind, figure in figures(found):
            of.setdefault((lock, kind), []).append(figure)
    lines, agreeing, all_pairs = [], 0, 0
    for (lock, kind), repeated in of.items():
        pairs = list(itertools.combinations(repeated, 2))
        agree = sum(one.agrees(two) for one, two in pairs)
        agreeing, all_pairs = agreeing + agree, all_pairs + len(pairs)
        lines.append([lock, kind, "\n".join(map(str, repeated)), f"{agree} of {len(pairs)}"])
    headings = ("lock", "figure", "run by run", "pairs that agree")
    out.print(drawn(texts("repeats", "The same figure of each run", headings, lines, "")))
    out.print(f"{agreeing} of {all_pairs} pairs agree")
    holding = held(of)
    sds = [
        [kind, "{} of {}".format(*holding[kind]), f"{sd:.2f}", f"{math.exp(2 * sd):.2f}", str(free)]
        for kind, (sd, free) in sorted(deviations(of).items())
    ]
    words = ("figure", "range holds another run's", "sd of log", "range: times and by", "df")
    out.print(drawn(texts("deviations", "Between runs, over all locks", words, sds, "")))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BadInput as error:
        err.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise SystemExit(BAD_INPUT) from error
