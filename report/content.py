"""What a report says, laid out once for the page and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

from msgspec.structs import asdict

from lockbench.report import rates
from lockbench.report.charts import HOW_TO_READ, Chart, charts
from lockbench.report.columns import Column, Row, Table
from lockbench.report.comparison_text import CAPTION
from lockbench.report.facts import (
    BASELINE,
    CEILING,
    CYCLES,
    EVERY,
    LATENCY,
    OF_A_CASE,
    PROCESSORS,
    VERDICTS,
)
from lockbench.report.footnotes import Notes
from lockbench.report.grid import Cell, Grid, texts
from lockbench.report.jobs import JOBS, WORTH
from lockbench.report.pictures import side_by_side, through_faults
from lockbench.report.rate_chart import pictures
from lockbench.report.source import Seen, Source
from lockbench.report.tables import Overview, overview, verdict_words
from lockbench.results.alert_replay import Sight
from lockbench.results.baseline import of_cases
from lockbench.results.cases import MUTEX, PHASES, command_of, has_numbers, lock_of
from lockbench.results.digests import whole_digest
from lockbench.results.documents import Compared
from lockbench.results.judgements import VIOLATED

ENDINGS: Final = {
    "ok": ("kept", "everything as expected"),
    "safety": ("broke", "a safety verdict is worse than what the lock is expected to do"),
    "inconclusive": ("open", "something was not exposed or not decided, which is no pass"),
    "regression": ("broke", "something got slower, or breaks more often"),
    "bench": ("failed", "the bench itself failed, or a control was not caught"),
}
ALL: Final = 0  # stands for the number of a case in what is about all of them
# Of a comparison's number: what its other columns say already.
BESIDE: Final = ("p_better_corrected", "needed_pairs", "suspected", "direction")
ALERTS: Final = (
    "Seconds from the violation's first moment to the alert, earliest and latest over the phases "
    "of the scrapes. Recorded: what was recorded happened once. Repeated: the recorded seconds "
    "again and again for half an hour. Anyway: it fires without the violation as well."
)


@dataclass(frozen=True, slots=True)
class Section:
    """One case. ``figures`` maps verdict → drawing in HTML."""

    number: int
    title: str
    kind: str
    words: str
    why: str
    exposed: str
    notes: tuple[str, ...]
    figures: Mapping[str, str]
    charts: tuple[Chart, ...]
    grids: tuple[Grid, ...]
    command: str
    history: str
    folder: str
    locust: str
    open: bool


@dataclass(frozen=True)
class Content:
    """The whole report, in the order in which it is read. ``lines`` are the headline; ``pictures``
    are of all locks. Without sections nothing was judged again: the run is not finished."""

    name: str
    ending: str
    ending_kind: str
    ending_words: str
    lines: tuple[str, ...]
    by_lock: tuple[str, ...]
    matrix: Grid | None
    numbers: tuple[Grid, ...]
    notes: Notes
    pictures: tuple[Chart, ...] = ()
    warnings: tuple[str, ...] = ()
    comparison: tuple[Grid, ...] = ()
    sections: tuple[Section, ...] = ()
    verdicts: Grid | None = None
    how_to_read: str = ""


def preview(made: Overview, name: str, ending: str, *, compared: bool = False) -> Content:
    """What can be said of a run while it goes on. ``compared``: it holds both sides of a change."""
    kind, words = ENDINGS.get(ending, ("open", "not finished"))
    return Content(
        name=name,
        ending=ending,
        ending_kind=kind,
        ending_words=words,
        lines=made.headline.lines,
        by_lock=made.headline.by_lock,
        matrix=made.matrix,
        numbers=_numbers(made, compared=compared),
        notes=made.notes,
    )


def compose(source: Source) -> Content:
    """The report of a finished run."""
    cases, compared = source.cases, source.results.comparison
    made = overview(
        cases,
        machine=source.machine,
        versions=source.versions,
        baseline=source.results.undisturbed,
        at_rates=source.results.rates,
    )
    known = preview(made, source.run.path.name, source.run.ending, compared=compared is not None)
    warnings = tuple(
        f"Case {seen.number}, {lock_of(seen.case)} under {seen.case.fault}: {note}"
        for seen in source.seen
        for note in seen.notes
    )
    tables = [(table, table.rows(cases)) for table in OF_A_CASE]
    return replace(
        known,
        ending_kind="open" if warnings and known.ending_kind == "kept" else known.ending_kind,
        # What both sides of a change came to, or what was seen of all locks.
        lines=made.headline.lines if compared is None else (compared.headline,),
        by_lock=made.headline.by_lock if compared is None else (),
        pictures=tuple(_pictures(source)) if compared is None else (),
        warnings=warnings,
        comparison=() if compared is None else tuple(_comparison(compared)),
        sections=tuple(_section(seen, tables, again) for seen, again in _commands(source)),
        verdicts=VERDICTS.grid(VERDICTS.rows(cases)),
        how_to_read=HOW_TO_READ,
    )


def _pictures(source: Source) -> Iterator[Chart]:
    """Latency at stated rates, or before any fault where there was none; then the faults."""
    at_rates = pictures(source.results.rates)
    yield from at_rates
    found = source.results.undisturbed
    beside = side_by_side(found, [of_cases(source.cases, one.lock) for one in found])
    if beside is not None and not at_rates:
        yield beside
    through = through_faults(source.seen)
    if through is not None:
        yield through


def _numbers(made: Overview, *, compared: bool) -> tuple[Grid, ...]:
    """A comparison says it better than its many runs, each for itself."""
    grids = (
        rates.grid(made.at_rates),
        None if compared else _side_by_side(made),
        EVERY.grid(made.every),
        PROCESSORS.grid(PROCESSORS.rows(made.cases)),
        JOBS.grid(made.jobs),
        WORTH.grid(made.worth),
        made.published,
    )
    return tuple(grid for grid in grids if grid is not None)


def _comparison(compared: Compared) -> Iterator[Grid]:
    """Base and new of ``lockbench regress``: the verdicts that changed, and every number."""
    sides = f"Base: {compared.base}; new: {compared.new}."
    notes = " ".join(f"{note}." for note in compared.notes)
    for name, title, caption, found in (
        ("verdict-changes", "Verdicts that changed", sides, compared.verdict_changes),
        ("cells", "Base and new", f"{sides} {notes} {CAPTION}", compared.cells),
    ):
        rows = [_compared(asdict(row)) for row in found]
        columns = tuple(Column(name, "") for name in (rows[0] if rows else ()))
        table = Table(name, "", columns, lambda row: [row], title, caption)
        made = table.grid(table.rows(rows))
        if made is not None:
            yield made


def _compared(row: Mapping[str, Any]) -> dict[str, Any]:
    """The ends of an interval stand in columns of their own, beside the change."""
    made: dict[str, Any] = {}
    for name, value in row.items():
        if name == "interval_percent":
            made["low_percent"], made["high_percent"] = value
        elif name not in BESIDE:
            made[name] = value
    return made


def _alerts(seen: Seen) -> Grid | None:
    at = Column("at_s", "")
    rows: list[list[Cell | str]] = [
        [
            violation.verdict,
            violation.key,
            at.cell(violation.at_s),
            once.alert,
            once.origin,
            _sight(once),
            _sight(again),
        ]
        for violation in seen.replayed
        for once, again in zip(violation.recorded, violation.repeated, strict=True)
    ]
    headings = ("violation", "resource", at.heading, "alert", "from", "recorded", "repeated")
    name, title = f"case-{seen.number:02d}-alerts", "Alert replay"
    return texts(name, title, headings, rows, ALERTS) if rows else None


def _sight(sight: Sight) -> str:
    """What an alert did, and why where it did not fire."""
    if sight.late_s is None:
        return f"{sight.word}: {sight.why}" if sight.why else sight.word
    first, last = sight.late_s
    return f"after {first:.0f} to {last:.0f} s"


def _side_by_side(made: Overview) -> Grid | None:
    if made.baseline:
        return BASELINE.grid(made.baseline, name="side-by-side")
    # Runs that pooled nothing: each case for itself.
    beside_it = {
        row.number: {name: row.values[name] for name in (CYCLES.name, CEILING.name)}
        for row in made.every
        if row.values["phase"] == PHASES[0]
    }
    before = [
        replace(row, values=row.values | beside_it.get(row.number, {}))
        for row in LATENCY.rows(made.cases)
        if row.values["phase"] == PHASES[0]
        and row.values["kind"] in {"acquire", "handover", "wait"}
    ]
    beside = replace(
        LATENCY, columns=(*LATENCY.columns, CYCLES, CEILING), title=BASELINE.title, caption=""
    )
    return beside.grid(before, name="side-by-side", leave_out=("phase",))


def _charts(seen: Seen) -> Iterator[Chart]:
    """The pictures of a case; what is drawn of a void one says so."""
    assert seen.line is not None
    for chart in charts(seen.line, seen.windows):
        void = "" if has_numbers(seen.case) else " The figures are void."
        yield replace(chart, caption=chart.caption + void)


def _commands(source: Source) -> Iterator[tuple[Seen, str]]:
    """Each case with the command that runs it again."""
    images, instead = source.run.plan().images_of(len(source.seen)), source.versions.instead
    for seen, replaced in zip(source.seen, images, strict=True):
        yield seen, command_of(seen.case, replaced, instead)


def _section(seen: Seen, tables: Sequence[tuple[Table, Sequence[Row]]], again: str) -> Section:
    case = seen.case
    words = verdict_words(case)
    found = [
        table.grid(
            [row for row in rows if row.number == seen.number],
            name=f"case-{seen.number:02d}-{table.name}",
            leave_out=("case", "lock", "fault", "workload"),
        )
        for table, rows in tables
    ]
    grids = [grid for grid in (*found, _alerts(seen)) if grid is not None]
    reasons = () if case.exposure is None else case.exposure.reasons
    exposed = "Exposed" if case.exposed is True else "NOT exposed, so proof of nothing"
    title = f"{lock_of(case)} under {case.fault}"
    return Section(
        number=seen.number,
        title=title if case.workload in {None, MUTEX} else f"{title}, {case.workload}",
        kind=Cell(words).kind,
        words=words,
        why=case.why or "",
        exposed=f"{exposed}: {'; '.join(reasons)}" if reasons else exposed,
        notes=seen.notes,
        figures=seen.figures,
        charts=() if seen.line is None else tuple(_charts(seen)),
        grids=tuple(grids),
        command=again,
        history=whole_digest(case.history_sha256),
        folder=f"cases/{case.folder}",
        locust=quote(f"cases/{case.folder}/locust/locust.html") if seen.has_locust else "",
        open=case.judgement in VIOLATED,
    )
