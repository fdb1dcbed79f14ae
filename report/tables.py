"""What is shown of all cases of a run together: in the terminal, in the report, beside the results.

A quantile that its n does not carry is a dash, figures of a load that was limited by its generator
or its machine stand in brackets, and words say what colour says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console
from rich.text import Text

from report import rates
from report.columns import Row
from report.facts import BASELINE, EVERY
from report.footnotes import footnotes
from report.grid import BROKE, FAILED, KEPT, NOT_EXPECTED, OPEN, UNDECLARED, Cell, Grid, drawn
from report.headline import headline
from report.jobs import JOBS, WORTH
from report.published import published_grid
from results.baseline import ceiling_of, of_cases
from results.cases import (
    MUTEX,
    attempts,
    broken,
    came_to_nothing,
    in_order,
    is_control,
    is_published,
    lock_of,
    undecided,
)
from results.documents import CaseResult, LockRates, Machine, Results, UndisturbedLock, Versions
from results.judgements import AS_EXPECTED, BROKE_UNDECLARED, NOTHING_DECLARED, VIOLATED, WORSE
from results.store import RunFolder

ABSENT: Final = "·"
# Title and caption in a terminal, where cells hold other numbers than in the report.
NARROW: Final = {
    "verdicts-by-lock-and-fault": ("Verdicts", ""),
    BASELINE.name: (
        "Each lock before any fault",
        (
            "All cases of a lock together, up to the first fault, ms: p50 [smallest and largest of "
            "the cases], p99. In round brackets: fewer than three cases. Acquire: response time, "
            "from the intended start; service: from the invocation, p50/p99. Hand-over: beside it "
            "the share of the grants that it covers. Cycles per second of the clients that "
            "contend: median over cases and range; at most: what keys, holds and pauses allow, "
            "were the lock to cost nothing. One client alone: its "
            "acquire, p50, and the CPU of its own process per cycle."
        ),
    ),
    EVERY.name: ("Every case: latency (ms, p50 / p99) and throughput", ""),
}


@dataclass(frozen=True)
class Overview:
    """All cases together, before any is looked at by itself. ``every`` has the rows of ``EVERY``
    in the order of the cases."""

    cases: Sequence[CaseResult]
    headline: str
    matrix: Grid | None
    at_rates: Sequence[LockRates]
    baseline: Sequence[Row]
    every: Sequence[Row]
    jobs: Sequence[Row]
    worth: Sequence[Row]
    published: Grid | None
    footnotes: tuple[str, ...]

    def narrow(self) -> list[Grid]:
        """The tables that a terminal shows."""
        ordinary = {n for n, case in enumerate(self.cases, 1) if not is_published(case)}
        faults = in_order(case.fault for case in self.cases if not is_published(case))
        every = [row for row in self.every if row.number in ordinary]
        # Under each fault all locks, so that they can be compared.
        every.sort(key=lambda row: faults.index(row.values["fault"]))
        grids = (
            self.matrix,
            rates.narrow(self.at_rates),
            BASELINE.narrow(self.baseline),
            EVERY.narrow(every),
            JOBS.narrow(self.jobs),
            WORTH.narrow(self.worth),
            self.published,
        )
        named = {grid.name: grid for grid in grids if grid is not None}
        for name in named.keys() & NARROW.keys():
            title, caption = NARROW[name]
            named[name] = replace(named[name], title=title, caption=caption)
        return list(named.values())


def overview(
    cases: Sequence[CaseResult],
    *,
    machine: Machine | None = None,
    versions: Versions | None = None,
    baseline: Sequence[UndisturbedLock] = (),
    at_rates: Sequence[LockRates] = (),
) -> Overview:
    """What is shown of all cases together."""
    several = any((case.workload or MUTEX) != MUTEX for case in cases)
    labels = iter(row_labels([case for case in cases if not is_published(case)]))
    known = [
        {
            "label": lock_of(case) if is_published(case) else next(labels),
            "words": verdict_words(case),
            "several": several,
        }
        for case in cases
    ]
    return Overview(
        cases=cases,
        headline=headline(cases),
        matrix=matrix(cases),
        at_rates=at_rates,
        baseline=BASELINE.rows(
            baseline,
            [
                {"of_cases": of_cases(cases, row.lock), "ceiling": ceiling_of(cases, row.lock)}
                for row in baseline
            ],
        ),
        every=EVERY.rows(cases, known),
        jobs=JOBS.rows(cases),
        worth=WORTH.rows(cases),
        published=published_grid(cases),
        footnotes=(
            *rates.notes(at_rates),
            *footnotes(cases, machine=machine or Machine(), versions=versions or Versions()),
        ),
    )


def print_tables(made: Overview, console: Console) -> None:
    """For a terminal of 100 columns or more; narrower ones get wrapped cells, nothing is cut."""
    console.print()
    console.print(Text(made.headline, style="bold"))
    console.print()
    for grid in made.narrow():
        console.print(drawn(grid))
    for number, note in enumerate(made.footnotes, 1):
        console.print(Text(f"{number}. {note}", style="dim"))


def stored(run: RunFolder, results: Results) -> Overview:
    """The tables of a run from its folder, also of one that is not finished; ``results`` is the
    object of ``results.json``. Raises NotARun."""
    return overview(
        results.cases,
        machine=run.machine(),
        versions=run.versions(),
        baseline=results.undisturbed,
        at_rates=results.rates,
    )


def show(run: RunFolder, results: Results, console: Console) -> None:
    """Prints the tables of a run. Raises NotARun."""
    print_tables(stored(run, results), console)


def matrix(cases: Sequence[CaseResult]) -> Grid | None:
    """Lock by fault, in words. The published experiment has a table of its own, unless it broke."""
    shown = [(n, c) for n, c in enumerate(cases, 1) if not is_published(c) or broken(c)]
    if not shown:
        return None
    faults = in_order(case.fault for _, case in shown)
    rows: dict[str, dict[str, list[tuple[int, CaseResult]]]] = {}
    for label, (n, case) in zip(row_labels([case for _, case in shown]), shown, strict=True):
        rows.setdefault(label, {}).setdefault(case.fault, []).append((n, case))
    return Grid(
        "verdicts-by-lock-and-fault",
        "Verdicts, lock by fault",
        ("lock", *faults),
        tuple(
            (Cell(label), *(_cell(by.get(fault, [])) for fault in faults))
            for label, by in rows.items()
        ),
    )


def verdict_words(case: CaseResult) -> str:
    """A symbol and what it means: ``✗ stale-holder (as expected)``."""
    judgement = case.judgement or "not judged"
    found = broken(case)
    if found:
        return f"{BROKE} {', '.join(found)} ({judgement})"
    if judgement == AS_EXPECTED:
        return f"{KEPT} {judgement}"
    return f"{FAILED if came_to_nothing(case) else OPEN} {judgement}"


def _cell(numbered: Sequence[tuple[int, CaseResult]]) -> Cell:
    """One line per verdict that broke, with k of n where there were several tries."""
    if not numbered:
        return Cell(ABSENT)
    cases = [case for _, case in numbered]
    tries = [attempt for case in cases for attempt in attempts(case)]
    lines = []
    for verdict in in_order(v for attempt in tries for v in broken(attempt)):
        k = sum(verdict in broken(attempt) for attempt in tries)
        lines.append(f"{BROKE} {verdict}" + (f" {k} of {len(tries)}" if len(tries) > 1 else ""))
    found = {case.judgement for case in cases}
    if lines and WORSE in found:
        lines.append(NOT_EXPECTED)
    elif lines and BROKE_UNDECLARED in found:
        lines.append(UNDECLARED)
    elif lines and NOTHING_DECLARED not in found:
        lines.append("(expected)")
    for case in cases:
        judgement = case.judgement
        if judgement == AS_EXPECTED and not broken(case):
            lines.append(f"{KEPT} kept")
        elif judgement not in {AS_EXPECTED, *VIOLATED}:
            mark = FAILED if came_to_nothing(case) else OPEN
            open_ = undecided(case) if judgement == "undecided" else []
            lines += [f"{mark} {judgement or 'not judged'}", *open_]
    return Cell("\n".join(_counted(lines)), cases=tuple(n for n, _ in numbered))


def _counted(lines: Sequence[str]) -> list[str]:
    return [
        f"{line} {lines.count(line)}x" if lines.count(line) > 1 else line
        for line in in_order(lines)
    ]


def row_labels(cases: Sequence[CaseResult]) -> list[str]:
    """The lock's name, with whatever else tells two of its cases apart."""

    def distinct(case: CaseResult, field: str) -> bool:
        return len({getattr(c, field) for c in cases if lock_of(c) == lock_of(case)}) > 1

    labels = []
    for case in cases:
        extras = [
            str(getattr(case, field)) + (" nodes" if field == "size" else "")
            for field in ("topology", "size", "network", "workload", "clients")
            if distinct(case, field) and not (field == "clients" and distinct(case, "workload"))
        ]
        control = "\n(control)" if is_control(case) else ""
        labels.append(lock_of(case) + "".join(f", {extra}" for extra in extras) + control)
    return labels
