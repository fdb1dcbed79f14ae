"""What is shown of all cases of a run together: in the terminal, in the report, beside the results.

A quantile that its n does not carry is a dash, figures of a load that was limited by its generator
or its machine stand in brackets, and words say what colour says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text

from lockbench.checker.catalogue import CATALOGUE
from lockbench.nemesis.registry import NONE
from lockbench.report import rates
from lockbench.report.columns import Row
from lockbench.report.facts import BASELINE, EVERY
from lockbench.report.footnotes import Notes, notes
from lockbench.report.grid import (
    BROKE,
    FAILED,
    KEPT,
    NOT_EXPECTED,
    OPEN,
    UNDECLARED,
    Cell,
    Grid,
    drawn,
)
from lockbench.report.headline import Headline, headline
from lockbench.report.jobs import JOBS, WORTH
from lockbench.report.labels import flat_labels, row_labels
from lockbench.report.published import published_grid
from lockbench.results.baseline import ceiling_of, of_cases
from lockbench.results.cases import (
    MUTEX,
    attempts,
    broken,
    came_to_nothing,
    in_order,
    is_published,
    k_of_n,
    lock_of,
    undecided,
)
from lockbench.results.documents import (
    CaseResult,
    LockRates,
    Machine,
    Results,
    UndisturbedLock,
    Versions,
)
from lockbench.results.judgements import (
    AS_EXPECTED,
    BROKE_UNDECLARED,
    CONTRADICTED,
    NOTHING_DECLARED,
    VIOLATED,
    WORSE,
)
from lockbench.results.statistics import bounded
from lockbench.results.store import RunFolder

ABSENT: Final = "·"
ONE_TRY: Final = "Each cell is one try."
# What a terminal shows at the end of a run, the few lines of whoever prints it not counted.
LINES_MAX: Final = 34
NOTES_MAX: Final = 4
# Title and caption in a terminal, where cells hold other numbers than in the report.
NARROW: Final = {
    BASELINE.name: (
        "Each lock before any fault",
        (
            "ms: p50 [smallest and largest of the cases], p99; in round brackets: fewer than three "
            "cases, or void. Acquire: response time; service: from the invocation, p50/p99."
        ),
    ),
    EVERY.name: ("Every case: latency (ms, p50 / p99) and throughput", ""),
    JOBS.name: (JOBS.title, ""),
    WORTH.name: (WORTH.title, ""),
}


@dataclass(frozen=True)
class Overview:
    """All cases together, before any is looked at by itself. ``every`` has the rows of ``EVERY``
    in the order of the cases."""

    cases: Sequence[CaseResult]
    headline: Headline
    matrix: Grid | None
    short_matrix: Grid | None
    at_rates: Sequence[LockRates]
    baseline: Sequence[Row]
    every: Sequence[Row]
    jobs: Sequence[Row]
    worth: Sequence[Row]
    published: Grid | None
    notes: Notes

    def narrow(self) -> list[Grid]:
        """The tables that a terminal shows below the verdicts, the most important first."""
        ordinary = {n for n, case in enumerate(self.cases, 1) if not is_published(case)}
        faults = in_order(case.fault for case in self.cases if not is_published(case))
        every = [row for row in self.every if row.number in ordinary]
        # Under each fault all locks, so that they can be compared.
        every.sort(key=lambda row: faults.index(row.values["fault"]))
        grids = (
            rates.compared(self.at_rates),
            rates.narrow(self.at_rates),
            BASELINE.narrow(self.baseline),
            JOBS.narrow(self.jobs),
            WORTH.narrow(self.worth),
            self.published,
            EVERY.narrow(every),
        )
        found = [grid for grid in grids if grid is not None]
        return [
            replace(grid, title=NARROW[grid.name][0], caption=NARROW[grid.name][1])
            if grid.name in NARROW
            else grid
            for grid in found
        ]


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
    about = notes(cases, machine=machine or Machine(), versions=versions or Versions())
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
        short_matrix=matrix(cases, short=True),
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
        published=published_grid(cases, machine.cores_usable if machine else None),
        notes=about._replace(void=(*rates.notes(at_rates), *about.void)),
    )


def print_tables(made: Overview, console: Console) -> None:
    """For a terminal of 100 columns or more; narrower ones get wrapped cells, nothing is cut. What
    does not fit into ``LINES_MAX`` lines is named: the report has it. Verdicts and what is said of
    them come first, unless rates were measured and nothing was done to the locks."""
    left = LINES_MAX
    unseen: list[str] = []
    more = 0

    def fits(part: RenderableType) -> bool:
        nonlocal left
        height = len(console.render_lines(part, pad=False))
        if height > left:
            return False
        left -= height
        console.print(part)
        return True

    def verdicts() -> None:
        shown = (made.matrix, made.short_matrix, _notable(made.short_matrix, left))
        if made.matrix is not None and not any(
            fits(drawn(replace(grid, title="Verdicts")))
            for grid in shown
            if grid is not None and len(grid.rows) <= left // 2
        ):
            unseen.append(made.matrix.title)

    def remarks(about: Sequence[str]) -> None:
        nonlocal more
        seen = sum(fits(Text(note, style="dim")) for note in about[:NOTES_MAX])
        more += len(about) - seen

    def figures() -> None:
        unseen.extend(grid.title for grid in made.narrow() if not fits(drawn(grid)))

    console.print()
    for line in made.headline.lines:
        fits(Text(line, style="bold"))
    console.print()
    of_rates = bool(made.at_rates) and all(case.fault == NONE for case in made.cases)
    if not of_rates:
        verdicts()
    remarks(made.notes.verdicts)
    figures()
    remarks(made.notes.void)
    if of_rates:
        verdicts()
    if more:
        unseen.append(f"{more} more notes")
    if unseen:
        console.print(Text(f"In the report: {'; '.join(unseen)}.", style="dim"))


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


def matrix(cases: Sequence[CaseResult], *, short: bool = False) -> Grid | None:
    """Lock by fault, in words; ``short``: one line a lock, with codes for verdicts that broke. The
    published experiment has a table of its own, unless it broke."""
    shown = [(n, c) for n, c in enumerate(cases, 1) if not is_published(c) or broken(c)]
    if not shown:
        return None
    faults = in_order(case.fault for _, case in shown)
    labels = flat_labels if short else row_labels
    rows: dict[str, dict[str, list[tuple[int, CaseResult]]]] = {}
    for label, (n, case) in zip(labels([case for _, case in shown]), shown, strict=True):
        rows.setdefault(label, {}).setdefault(case.fault, []).append((n, case))
    names = in_order(v for _, case in shown for v in broken(case))
    codes = [f"{_code(v)} {v}" for v in names if _code(v) != v] if short else []
    cells = [numbered for by in rows.values() for numbered in by.values()]
    once = all(sum(len(attempts(case)) for _, case in numbered) == 1 for numbered in cells)
    return Grid(
        "verdicts-by-lock-and-fault",
        "Verdicts, lock by fault",
        ("lock", *faults),
        tuple(
            (
                Cell(label),
                *(_cell(by.get(fault, []), short=short, once=once) for fault in faults),
            )
            for label, by in rows.items()
        ),
        " ".join([*([f"{', '.join(codes)}."] if codes else []), *([ONE_TRY] if once else [])]),
    )


def _notable(made: Grid | None, rows_max: int) -> Grid | None:
    """As many rows as there is room for, first those in which something is not as declared."""
    if made is None:
        return None
    kinds = [{cell.kind for cell in row[1:]} for row in made.rows]
    order = sorted(
        range(len(kinds)),
        key=lambda i: ("worse" not in kinds[i], kinds[i].isdisjoint({"open", "failed"}), i),
    )
    kept = order[: max(1, rows_max // 2 - 6)]
    more = f" {len(order) - len(kept)} more locks in the report."
    return replace(made, rows=tuple(made.rows[i] for i in kept), caption=made.caption + more)


def _code(verdict: str) -> str:
    entry = CATALOGUE.get(verdict)
    return (entry and entry.code) or verdict


def verdict_words(case: CaseResult) -> str:
    """A symbol and what it means: ``✗ stale-holder (as expected)``."""
    judgement = case.judgement or "not judged"
    found = broken(case)
    if found:
        return f"{BROKE} {', '.join(found)} ({judgement})"
    if judgement == AS_EXPECTED:
        return f"{KEPT} {judgement}"
    return f"{FAILED if came_to_nothing(case) else OPEN} {judgement}"


def _cell(numbered: Sequence[tuple[int, CaseResult]], *, short: bool, once: bool) -> Cell:
    """One line per verdict that broke, with k of n; ``short``: one line for all of them. ``once``:
    every cell is one try, which is said once and not here."""
    if not numbered:
        return Cell(ABSENT)
    cases = [case for _, case in numbered]
    tries = [attempt for case in cases for attempt in attempts(case)]
    lines = []
    for verdict in in_order(v for attempt in tries for v in broken(attempt)):
        k, n = k_of_n(tries, verdict)
        name = _code(verdict) if short else f"{BROKE} {verdict}"
        lines.append(name + ("" if once else f" {k} of {n}"))
    if lines and short:
        lines = [f"{BROKE} {', '.join(lines)}"]
    found = {case.judgement for case in cases}
    if lines and WORSE in found:
        lines.append(NOT_EXPECTED)
    elif lines and BROKE_UNDECLARED in found:
        lines.append(UNDECLARED)
    elif lines and found.isdisjoint({NOTHING_DECLARED, CONTRADICTED}) and not short:
        lines.append("(expected)")
    kept = [case for case in cases if case.judgement == AS_EXPECTED and not broken(case)]
    if kept:
        n = sum(one.exposed is not False for case in kept for one in attempts(case))
        in_ = "" if once or lines else f"{'' if short else 'in '}{bounded(n)}"
        lines.append(" ".join(part for part in (KEPT, "" if short else "kept", in_) if part))
    for case in cases:
        judgement = case.judgement
        if judgement not in {AS_EXPECTED, *VIOLATED}:
            mark = FAILED if came_to_nothing(case) else OPEN
            open_ = undecided(case) if judgement == "undecided" and not short else []
            lines += [f"{mark} {judgement or 'not judged'}", *open_]
    return Cell("\n".join(_counted(lines)), cases=tuple(n for n, _ in numbered))


def _counted(lines: Sequence[str]) -> list[str]:
    return [
        f"{line} {lines.count(line)}x" if lines.count(line) > 1 else line
        for line in in_order(lines)
    ]
