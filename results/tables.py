"""Draws the tables of a run: for the terminal, as Markdown and as CSV.

All three come from one set of data frames. A quantile that its n does not carry is a dash, a
number of a saturated generator stands in brackets, and words say what colour says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from results import wording
from results.cases import (
    PHASES,
    Case,
    Frames,
    attempts,
    broken,
    came_to_nothing,
    failures,
    fault_of,
    frames,
    in_order,
    is_control,
    is_published,
    lock_of,
    phases_of,
    undecided,
)
from results.footnotes import footnotes
from results.jobs import CAPTION as JOBS_CAPTION
from results.jobs import TITLE as JOBS_TITLE
from results.jobs import WORTH_CAPTION, WORTH_TITLE, jobs_grid, worth_grid
from results.published import CAPTION, published_grid
from results.sentence import sentence
from results.store import NotARun, RunFolder
from results.undisturbed import CAPTION as UNDISTURBED_CAPTION
from results.undisturbed import undisturbed_grid
from results.wording import NONE

ABSENT: Final = "·"
KEPT, BROKE, OPEN, FAILED = "✓", "✗", "?", "!"
STYLES: Final = {KEPT: "green", BROKE: "red", OPEN: "yellow", FAILED: "magenta"}
VERDICT_TITLE: Final = "Verdicts"
WHOLE_LINES: Final = frozenset({"phase", "whole case", "figures"})
JOBS_WHOLE: Final = frozenset({"phase", "ms", "done"})
UNDISTURBED_TITLE: Final = "Each lock before any fault"
LATENCY_TITLE: Final = "Every case: latency (ms, p50 / p99) and throughput"
PUBLISHED_TITLE: Final = "The published experiment, repeated (informational)"


@dataclass(frozen=True, eq=False)
class Tables:
    """Everything that is shown of a run, ready to be drawn."""

    sentence: str
    frames: Frames
    verdicts: pd.DataFrame
    latency: pd.DataFrame
    undisturbed: pd.DataFrame | None
    published: pd.DataFrame | None
    jobs: pd.DataFrame | None
    worth: pd.DataFrame | None
    footnotes: list[str]
    cases: Sequence[Case]


def tables(
    cases: Sequence[Case],
    *,
    machine: Mapping[str, Any] | None = None,
    versions: Mapping[str, Any] | None = None,
    undisturbed: Sequence[Mapping[str, Any]] = (),
) -> Tables:
    """``machine`` is from ``results.machine.facts``; ``versions`` may be nested."""
    made = frames(cases)
    return Tables(
        sentence=sentence(cases),
        frames=made,
        verdicts=verdict_matrix(cases),
        latency=latency_table(cases, made),
        undisturbed=undisturbed_grid(undisturbed),
        published=published_grid(cases),
        jobs=jobs_grid(cases),
        worth=worth_grid(cases),
        footnotes=footnotes(cases, made, machine=machine or {}, versions=versions or {}),
        cases=cases,
    )


def print_tables(made: Tables, console: Console) -> None:
    """For a terminal of 100 columns or more; narrower ones get wrapped cells, nothing is cut."""
    console.print()
    console.print(Text(made.sentence, style="bold"))
    console.print()
    if not made.verdicts.empty:
        console.print(_drawn(_with_index(made.verdicts), VERDICT_TITLE))
    if made.undisturbed is not None:
        console.print(_drawn(made.undisturbed, UNDISTURBED_TITLE))
        console.print(Padding(Text(UNDISTURBED_CAPTION, style="dim"), (0, 0, 1, 0)))
    if not made.latency.empty:
        console.print(_drawn(_stacked(made.latency), LATENCY_TITLE, first_of_group="fault"))
    if made.jobs is not None:
        console.print(_drawn(made.jobs, JOBS_TITLE, first_of_group="fault", whole=JOBS_WHOLE))
        console.print(Padding(Text(JOBS_CAPTION, style="dim"), (0, 0, 1, 0)))
    if made.worth is not None:
        console.print(_drawn(made.worth, WORTH_TITLE, first_of_group="fault", whole=JOBS_WHOLE))
        console.print(Padding(Text(WORTH_CAPTION, style="dim"), (0, 0, 1, 0)))
    if made.published is not None:
        console.print(_drawn(made.published, PUBLISHED_TITLE))
        console.print(Padding(Text(CAPTION, style="dim"), (0, 0, 1, 0)))
    for number, note in enumerate(made.footnotes, 1):
        console.print(Text(f"{number}. {note}", style="dim"))


def report_markdown(made: Tables, *, title: str = "Lockbench") -> str:
    """The report of a run: the sentence, the tables, the footnotes."""
    parts = [f"# {wording.escape_markdown(title)}", f"**{wording.escape_markdown(made.sentence)}**"]
    if not made.verdicts.empty:
        parts += [f"## {VERDICT_TITLE}", markdown_table(_with_index(made.verdicts))]
    if made.undisturbed is not None:
        parts += [
            f"## {UNDISTURBED_TITLE}",
            markdown_table(made.undisturbed),
            UNDISTURBED_CAPTION,
        ]
    if not made.latency.empty:
        parts += [f"## {LATENCY_TITLE}", markdown_table(made.latency)]
    if made.jobs is not None:
        parts += [f"## {JOBS_TITLE}", markdown_table(made.jobs), JOBS_CAPTION]
    if made.worth is not None:
        parts += [f"## {WORTH_TITLE}", markdown_table(made.worth), WORTH_CAPTION]
    if made.published is not None:
        parts += [f"## {PUBLISHED_TITLE}", markdown_table(made.published), CAPTION]
    parts.append("## Notes")
    parts.append(
        "\n".join(f"{n}. {wording.escape_markdown(f)}" for n, f in enumerate(made.footnotes, 1))
    )
    return "\n\n".join(parts) + "\n"


def csv_files(made: Tables) -> dict[str, str]:
    """File name → text. Units stand in the column names, an empty cell is a missing value."""
    return {
        "cases.csv": made.frames.cases.to_csv(index=False, lineterminator="\n"),
        "latency.csv": made.frames.latency.to_csv(index=False, lineterminator="\n"),
        "verdicts.csv": made.frames.verdicts.to_csv(index=False, lineterminator="\n"),
    }


def stored(run: RunFolder, results: Mapping[str, Any]) -> Tables:
    """The tables of a run from its folder, also of one that is not finished; ``results`` is the
    object of ``results.json``. Raises NotARun."""
    cases = results.get("cases")
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise NotARun(f"{run.path / 'results.json'} holds no list of cases; run it again")
    return tables(
        cases,
        machine=run.machine(),
        versions=run.versions(),
        undisturbed=results.get("undisturbed", ()),
    )


def files(run: RunFolder, results: Mapping[str, Any]) -> dict[str, str]:
    """File name → text of ``report.md`` and the CSV files. Raises NotARun."""
    made = stored(run, results)
    title = f"Lockbench: {run.path.name}"
    return {"report.md": report_markdown(made, title=title), **csv_files(made)}


def show(run: RunFolder, results: Mapping[str, Any], console: Console) -> None:
    """Prints the tables of a run. Raises NotARun."""
    print_tables(stored(run, results), console)


def verdict_matrix(cases: Sequence[Case]) -> pd.DataFrame:
    """Lock by fault, in words. The published experiment has a table of its own, unless it broke."""
    shown = [case for case in cases if not is_published(case) or broken(case)]
    if not shown:
        return pd.DataFrame()
    labels = row_labels(shown)
    faults = in_order(fault_of(case) for case in shown)
    rows: dict[str, dict[str, list[Case]]] = {}
    for label, case in zip(labels, shown, strict=True):
        rows.setdefault(label, {}).setdefault(fault_of(case), []).append(case)
    return pd.DataFrame(
        [[_cell(by.get(fault, [])) for fault in faults] for by in rows.values()],
        index=pd.Index(list(rows), name="lock"),
        columns=faults,
    )


def latency_table(cases: Sequence[Case], made: Frames) -> pd.DataFrame:
    """One row per case and phase, faults together so that systems can be compared."""
    shown = [(n, case) for n, case in enumerate(cases, 1) if not is_published(case)]
    labels = dict(zip([n for n, _ in shown], row_labels([c for _, c in shown]), strict=True))
    order = in_order(fault_of(case) for _, case in shown)
    shown.sort(key=lambda item: order.index(fault_of(item[1])))
    numbers = {row["case"]: row for row in made.cases.to_dict("records")}
    cells = {
        (row["case"], row["basis"], row["kind"], row["phase"]): (row["p50_ms"], row["p99_ms"])
        for row in made.latency.to_dict("records")
    }
    rows = [
        _latency_row(n, case, label=labels[n], phase=phase, facts=numbers[n], cells=cells)
        for n, case in shown
        for phase in phases_of(case)
    ]
    return pd.DataFrame(rows, columns=list(LATENCY_HEADINGS))


LATENCY_HEADINGS: Final = (
    "fault", "lock", "client floor", "phase", "acquire, own key", "hand-over", "wait", "cycles/s",
    "denied / unknown", "available", "longest gap", "recovery", "dead holder", "verdict",
)  # fmt: skip


def _latency_row(
    n: int,
    case: Case,
    *,
    label: str,
    phase: str,
    facts: Mapping[Any, Any],
    cells: Mapping[tuple[Any, ...], tuple[float, float]],
) -> list[str]:
    def latency(kind: str) -> str:
        # From the intended start where there is one: that hides no outage.
        cell = cells.get((n, "response", kind, phase)) or cells.get((n, "service", kind, phase))
        return bracket(wording.pair(*cell)) if cell else NONE

    def bracket(text: str) -> str:
        return f"({text})" if not facts["numbers_valid"] and text != NONE else text

    cycles = facts[f"cycles_{phase}_per_s"]
    if wording.is_missing(cycles) and len(phases_of(case)) == 1:
        cycles = facts["cycles_per_s"]
    failed = failures(case, phase)
    floor = wording.ms(facts["floor_acquire_p50_ms"]) + " ms"
    return [
        fault_of(case),
        label,
        FLOOR_SEPARATOR.join([floor, wording.micros(facts["floor_cpu_us_per_cycle"])]),
        phase,
        latency("acquire"),
        latency("handover"),
        latency("wait"),
        bracket(wording.rate(cycles)),
        NONE if failed is None else f"{failed[0]} / {failed[1]}",
        wording.percent(facts["availability_percent"]),
        wording.seconds(facts["longest_gap_s"]),
        wording.seconds(facts["recovery_s"]),
        wording.seconds(facts["dead_holder_s"]),
        verdict_words(case),
    ]


def verdict_words(case: Case) -> str:
    """A symbol and what it means: ``✗ stale-holder (as expected)``."""
    judgement = str(case.get("judgement") or "not judged")
    found = broken(case)
    if found:
        return f"{BROKE} {', '.join(found)} ({judgement})"
    if judgement == "as expected":
        return f"{KEPT} {judgement}"
    return f"{FAILED if came_to_nothing(case) else OPEN} {judgement}"


def markdown_table(frame: pd.DataFrame) -> str:
    """GitHub's tables; every cell is text, whatever is in it."""
    heading = [wording.escape_markdown(str(column)) for column in frame.columns]
    rows = [
        [wording.escape_markdown(str(value)) for value in row]
        for row in frame.itertuples(index=False, name=None)
    ]
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(cases: Sequence[Case]) -> str:
    """One line per verdict that broke, with k of n where there were several tries."""
    if not cases:
        return ABSENT
    tries = [attempt for case in cases for attempt in attempts(case)]
    lines = []
    for verdict in in_order(v for attempt in tries for v in broken(attempt)):
        k = sum(verdict in broken(attempt) for attempt in tries)
        lines.append(f"{BROKE} {verdict}" + (f" {k} of {len(tries)}" if len(tries) > 1 else ""))
    worse = [case for case in cases if case.get("judgement") == "worse than expected"]
    undeclared = any(case.get("judgement") == "no expectation declared" for case in cases)
    if lines and (worse or not undeclared):
        lines.append("(NOT expected)" if worse else "(expected)")
    for case in cases:
        judgement = case.get("judgement")
        if judgement == "as expected" and not broken(case):
            lines.append(f"{KEPT} kept")
        elif judgement not in {"as expected", "worse than expected"}:
            sign = FAILED if came_to_nothing(case) else OPEN
            open_ = undecided(case) if judgement == "undecided" else []
            lines += [f"{sign} {judgement or 'not judged'}", *open_]
    return "\n".join(_counted(lines))


def _counted(lines: Sequence[str]) -> list[str]:
    return [
        f"{line} {lines.count(line)}x" if lines.count(line) > 1 else line
        for line in in_order(lines)
    ]


def row_labels(cases: Sequence[Case]) -> list[str]:
    """The lock's name, with whatever else tells two of its cases apart."""

    def distinct(case: Case, field: str) -> bool:
        return len({str(c.get(field)) for c in cases if lock_of(c) == lock_of(case)}) > 1

    labels = []
    for case in cases:
        extras = [
            str(case.get(field)) + (" nodes" if field == "size" else "")
            for field in ("topology", "size", "network", "workload", "clients")
            if distinct(case, field) and not (field == "clients" and distinct(case, "workload"))
        ]
        control = "\n(control)" if is_control(case) else ""
        labels.append(lock_of(case) + "".join(f", {extra}" for extra in extras) + control)
    return labels


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.reset_index()


def _stacked(frame: pd.DataFrame) -> pd.DataFrame:
    """The same table, narrow: what belongs to a whole case is stacked in few columns, and the
    phases of a case share one row."""
    rows = []
    for _, case in frame.groupby(frame["phase"].eq(PHASES[0]).cumsum(), sort=False):
        first = case.iloc[0]
        latency, _, cpu = first["client floor"].partition(FLOOR_SEPARATOR)
        whole = [f"{word} {first[name]}" for name, word in WHOLE.items() if first[name] != NONE]
        narrow = {
            heading: "\n".join(text.replace(" / ", "/") for text in case[name])
            for name, heading in BY_PHASE.items()
        }
        rows.append(
            {
                "fault": first["fault"],
                "lock": "\n".join([first["lock"], f"floor {latency}", f"CPU {cpu}"]),
                **narrow,
                "whole case": "\n".join(whole) or NONE,
                "verdict": _by_line(first["verdict"]),
            }
        )
    return pd.DataFrame(rows)


def _by_line(verdict: str) -> str:
    """``✗ a, b (as expected)`` one below the other."""
    what, _, judgement = verdict.rstrip(")").partition(" (")
    lines = what.replace(", ", f"\n{BROKE} ")
    return f"{lines}\n{judgement}" if judgement else lines


def _drawn(
    frame: pd.DataFrame,
    title: str,
    *,
    first_of_group: str | None = None,
    whole: frozenset[str] = WHOLE_LINES,
) -> RenderableType:
    """``first_of_group`` names a column that becomes a heading of its rows instead; the lines of
    the columns ``whole`` are never broken."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    columns = [column for column in frame.columns if column != first_of_group]
    for column in columns:
        right = column in RIGHT
        table.add_column(
            Text(str(column)),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right or column in whole,
        )
    group: str | None = None
    for row in frame.to_dict("records"):
        if first_of_group is not None and row[first_of_group] != group:
            if group is not None:
                table.add_section()
            group = row[first_of_group]
            table.add_row(Text(str(group), style="bold"))
        table.add_row(*[_styled(str(row[column])) for column in columns])
        if any("\n" in str(value) for value in row.values()):
            table.add_row()
    return Padding(table, (0, 0, 1, 0))


# Columns of the wide table and their headings in the narrow one.
BY_PHASE: Final = {
    "phase": "phase",
    "acquire, own key": "acquire,\nown key",
    "hand-over": "hand-over",
    "wait": "wait",
    "cycles/s": "cycles\n/s",
    "denied / unknown": "den/\nunk",
}
WHOLE: Final = {
    "available": "avail",
    "longest gap": "gap",
    "recovery": "recov",
    "dead holder": "orphan",
}
FLOOR_SEPARATOR: Final = ", CPU "
RIGHT: Final = frozenset({*BY_PHASE.values(), "p50 ms", "p99 ms", "locks/s", "per s"} - {"phase"})


def _styled(cell: str) -> Text:
    """Colour repeats what the symbols say."""
    text = Text()
    for number, line in enumerate(cell.split("\n")):
        text.append("\n" if number else "")
        text.append(line, STYLES.get(line[:1], "bold red" if line == "(NOT expected)" else ""))
    return text
