"""What a report says, laid out once for the page and for Markdown."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from results.cases import Case, broken, fault_of, is_published, lock_of, mapping, phases_of
from results.comparison_text import CAPTION
from results.jobs import CAPTION as JOBS_CAPTION
from results.jobs import TITLE as JOBS_TITLE
from results.jobs import WORTH_CAPTION, WORTH_TITLE
from results.noticed import Sight
from results.report.charts import HOW_TO_READ, Chart, charts
from results.report.facts import ID, facts
from results.report.grid import Grid, grid
from results.report.source import Seen, Source, understood
from results.store import NotARun
from results.tables import (
    BROKE,
    FAILED,
    KEPT,
    OPEN,
    PUBLISHED_TITLE,
    row_labels,
    tables,
    verdict_matrix,
    verdict_words,
)
from results.undisturbed import MUTEX

# What a line of a cell begins with, and its class in the style of the page.
KINDS: Final = {KEPT: "kept", BROKE: "broke", OPEN: "open", FAILED: "failed"}
ENDINGS: Final = {
    "ok": ("kept", "everything as expected"),
    "safety": ("broke", "a safety verdict is worse than what the lock is expected to do"),
    "inconclusive": ("open", "something was not exposed or not decided, which is no pass"),
    "regression": ("broke", "slower than the baseline"),
    "bench": ("failed", "the bench itself failed, or a control was not caught"),
}
# Of a comparison's number: what its other columns say already.
BESIDE: Final = ("p_better_corrected", "needed_pairs", "suspected", "direction")
SIDE_BY_SIDE: Final = (
    "Up to the first fault, all cases of a lock together; service time from the invocation. "
    "Acquire: a key that nobody else wants. Hand-over: release invoked to the next grant. Wait: a "
    "contended acquire, mostly the length of the queue. IQR is the distance between the quartiles, "
    "n the number of operations. Cycles per second: clients that contend, median, smallest and "
    "largest of the cases. Floor: what one client alone costs, its share of every number here."
)
EVERY: Final = (
    "From the intended start where there is one, so an outage hides nowhere; before, during and "
    "after a fault are never pooled. A dash is a quantile that its n does not carry, or nothing to "
    "measure. Numbers of a saturated generator are marked void; verdicts are not affected."
)
CAPTIONS: Final = {
    "latency": "Basis response: from the intended start; service: from the invocation.",
    "outcomes": "Unknown (info) is neither success nor failure. Floor and aimed keys left out.",
    "errors": "By class, refusals of a busy lock (held, gave-up) included.",
    "fairness": "Overtaken: share of waits that somebody overtook who asked later; Jain's index "
    "over grants per client, 1 is even.",
    "recovery": "Fault to the first grant asked for under it; heal to the first grant asked for "
    "after it; fault to the next grant of a key whose holder it hit.",
    "fencing": "What a resource that checks like this would have let through.",
    "generator": "Over the seconds that no fault touches; above 80 % of a core or 50 ms lag the "
    "numbers are void.",
    "alerts": "Seconds from the violation's first moment to the alert, earliest and latest over "
    "the phases of the scrapes. Recorded: what was recorded happened once. Repeated: the recorded "
    "seconds again and again for half an hour. Anyway: it fires without the violation as well.",
    "overhead": "A round trip through the link that faults are injected into, the same without it, "
    "and one client alone: no lock is as fast as these allow.",
}
TITLES: Final = {
    "latency": "Latency by phase",
    "throughput": "Throughput by phase",
    "outcomes": "Outcomes by operation",
    "errors": "Error classes",
    "fairness": "Fairness",
    "recovery": "Recovery",
    "fencing": "Fencing at the resource",
    "generator": "Load generator",
    "overhead": "Link overhead and client floor",
}


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """Lines of (class, text), and the numbers of the cases behind them."""

    lines: tuple[tuple[str, str], ...]
    cases: tuple[int, ...]

    @property
    def kind(self) -> str:
        """The class of the cell: kept only where nothing else stands in it."""
        kinds = {kind for kind, _ in self.lines}
        order = ("worse", "broke", "failed", "open", "plain", "kept")
        return next(kind for kind in order if kind in kinds)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Lock by fault; rows are (label, cells)."""

    faults: tuple[str, ...]
    rows: tuple[tuple[str, tuple[MatrixCell, ...]], ...]


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
    open: bool


@dataclass(frozen=True, slots=True)
class Content:
    """The whole report, in the order in which it is read."""

    name: str
    ending: str
    ending_kind: str
    ending_words: str
    sentence: str
    warnings: tuple[str, ...]
    comparison: tuple[Grid, ...]
    matrix: Matrix | None
    side_by_side: Grid | None
    every: Grid | None
    jobs: Grid | None
    worth: Grid | None
    published: Grid | None
    published_title: str
    sections: tuple[Section, ...]
    verdicts: Grid | None
    how_to_read: str
    footnotes: tuple[str, ...]


def compose(source: Source) -> Content:
    """Raises NotARun where the results have another shape than ours."""
    with understood(source.run):
        return _composed(source)


def _composed(source: Source) -> Content:
    cases = source.cases
    undisturbed = source.results.get("undisturbed", ())
    made = tables(cases, machine=source.machine, versions=source.versions, undisturbed=undisturbed)
    compared = mapping(source.results.get("comparison"))
    every = facts(cases, undisturbed)
    ending = source.run.ending
    kind, words = ENDINGS[ending]
    if kind == "kept" and any(seen.notes for seen in source.seen):
        kind = "open"
    return Content(
        name=source.run.path.name,
        ending=ending,
        ending_kind=kind,
        ending_words=words,
        # What both sides of a change came to, or what was seen of all locks.
        sentence=str(compared.get("headline") or made.sentence),
        warnings=tuple(
            f"Case {seen.number}, {lock_of(seen.case)} under {fault_of(seen.case)}: {note}"
            for seen in source.seen
            for note in seen.notes
        ),
        comparison=tuple(_comparison(compared)),
        matrix=_matrix(cases),
        # A comparison says it better than its many runs, each for itself.
        side_by_side=None
        if compared
        else _side_by_side(every["undisturbed"], every["latency"], every["throughput"]),
        every=_every(cases, every),
        jobs=grid(every["jobs"], "jobs", JOBS_TITLE, JOBS_CAPTION),
        worth=grid(every["worth"], "worth", WORTH_TITLE, WORTH_CAPTION),
        published=None
        if made.published is None
        else grid(made.published, "published", PUBLISHED_TITLE),
        published_title=PUBLISHED_TITLE,
        sections=tuple(_section(seen, every, source) for seen in source.seen),
        verdicts=grid(every["verdicts"], "verdicts", "Every verdict"),
        how_to_read=HOW_TO_READ,
        footnotes=tuple(made.footnotes),
    )


def _comparison(compared: Mapping[str, Any]) -> Iterator[Grid]:
    """Base and new of ``lockbench regress``: the verdicts that changed, and every number."""
    sides = f"Base: {compared.get('base')}; new: {compared.get('new')}."
    notes = " ".join(f"{note}." for note in compared.get("notes") or ())
    for name, title, caption in (
        ("verdict_changes", "Verdicts that changed", sides),
        ("cells", "Base and new", f"{sides} {notes} {CAPTION}"),
    ):
        rows = [_compared(mapping(row)) for row in compared.get(name) or ()]
        made = grid(pd.DataFrame(rows), name.replace("_", "-"), title, caption)
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
    rows = [
        {
            "violation": violation.verdict,
            "resource": violation.key,
            "at_s": violation.at_s,
            "alert": once.alert,
            "from": once.origin,
            "recorded": _sight(once),
            "repeated": _sight(again),
        }
        for violation in seen.noticed
        for once, again in zip(violation.recorded, violation.repeated, strict=True)
    ]
    name, title = f"case-{seen.number:02d}-alerts", "Would alerts have noticed?"
    return grid(pd.DataFrame(rows), name, title, CAPTIONS["alerts"])


def _sight(sight: Sight) -> str:
    """What an alert did, and why where it did not fire."""
    if sight.late_s is None:
        return f"{sight.word}: {sight.why}" if sight.why else sight.word
    first, last = sight.late_s
    return f"after {first:.0f} to {last:.0f} s"


def _matrix(cases: Sequence[Case]) -> Matrix | None:
    frame = verdict_matrix(cases)
    if frame.empty:
        return None
    shown = [(n, c) for n, c in enumerate(cases, 1) if not is_published(c) or broken(c)]
    behind: dict[tuple[str, str], list[int]] = {}
    for label, (n, case) in zip(row_labels([c for _, c in shown]), shown, strict=True):
        behind.setdefault((label, fault_of(case)), []).append(n)
    rows = [
        (
            str(label),
            tuple(
                MatrixCell(
                    tuple((_kind(line), line) for line in str(text).split("\n")),
                    tuple(behind.get((str(label), str(fault)), ())),
                )
                for fault, text in zip(frame.columns, row, strict=True)
            ),
        )
        for label, row in zip(frame.index, frame.itertuples(index=False, name=None), strict=True)
    ]
    return Matrix(tuple(map(str, frame.columns)), tuple(rows))


def _kind(line: str) -> str:
    if line == "(NOT expected)":
        return "worse"
    return KINDS.get(line[:1], "plain")


def _side_by_side(
    undisturbed: pd.DataFrame, latency: pd.DataFrame, throughput: pd.DataFrame
) -> Grid | None:
    title = "Side by side, before any fault"
    if not undisturbed.empty:
        return grid(undisturbed, "side-by-side", title, SIDE_BY_SIDE)
    # Runs that pooled nothing: each case for itself.
    before = latency[(latency["phase"] == "before") & (latency["basis"] == "service")]
    before = before[before["kind"].isin(["acquire", "handover", "wait"])]
    rates = throughput[throughput["phase"] == "before"][["case", "cycles_per_s"]]
    joined = before.merge(rates, on="case", how="left")
    return grid(joined, "side-by-side", title, leave_out=("basis", "phase"))


def _every(cases: Sequence[Case], every: Mapping[str, pd.DataFrame]) -> Grid | None:
    latency = every["latency"]
    cells = {
        (row["case"], row["basis"], row["kind"], row["phase"]): row
        for row in latency.to_dict("records")
    }
    rates = {(row["case"], row["phase"]): row for row in every["throughput"].to_dict("records")}
    whole = {row["case"]: row for row in every["cases"].to_dict("records")}
    several = any(case.get("workload", MUTEX) != MUTEX for case in cases)
    rows = []
    for n, case in enumerate(cases, 1):
        for phase in phases_of(case):
            row: dict[str, Any] = {"case": n, "lock": lock_of(case), "fault": fault_of(case)}
            row |= {"workload": case.get("workload") if several else None, "phase": phase}
            for kind in ("acquire", "handover", "wait"):
                found = cells.get((n, "response", kind, phase)) or cells.get(
                    (n, "service", kind, phase), {}
                )
                for q in ("p50_ms", "p99_ms", "iqr_ms"):
                    row[f"{kind}_{q}"] = found.get(q)
                row[f"{kind}_count"] = found.get("count")
            rate = rates.get((n, phase), {})
            row |= {name: rate.get(name) for name in ("cycles_per_s", "refused", "unknown")}
            facts_of_case = whole[n]
            if phase == phases_of(case)[0]:
                row |= {
                    name: facts_of_case[name]
                    for name in (
                        "availability_percent",
                        "longest_gap_s",
                        "recovery_s",
                        "dead_holder_s",
                    )
                }
            row["numbers"] = "valid" if facts_of_case["numbers_valid"] else "void"
            row["verdict"] = verdict_words(case)
            rows.append(row)
    return grid(pd.DataFrame(rows), "every-case", "Every case", EVERY) if rows else None


def _section(seen: Seen, every: Mapping[str, pd.DataFrame], source: Source) -> Section:
    case = seen.case
    words = verdict_words(case)
    grids = []
    for name, title in TITLES.items():
        rows = every[name][every[name]["case"] == seen.number]
        made = grid(
            rows,
            f"case-{seen.number:02d}-{name}",
            title,
            CAPTIONS.get(name, ""),
            leave_out=(*ID, "workload"),
        )
        grids += [] if made is None else [made]
    alerts = _alerts(seen)
    grids += [] if alerts is None else [alerts]
    reasons = mapping(case.get("exposure")).get("reasons") or ()
    exposed = "Exposed" if case.get("exposed") is True else "NOT exposed, so proof of nothing"
    return Section(
        number=seen.number,
        title=f"{lock_of(case)} under {fault_of(case)}"
        + (f", {workload}" if (workload := case.get("workload")) not in {None, MUTEX} else ""),
        kind=_kind(words),
        words=words,
        why=str(case.get("why") or ""),
        exposed=f"{exposed}: {'; '.join(map(str, reasons))}" if reasons else exposed,
        notes=seen.notes,
        figures=seen.figures,
        charts=() if seen.line is None else tuple(charts(seen.line, seen.windows)),
        grids=tuple(grids),
        command=_command(case, source),
        history=digest(case),
        folder=f"cases/{case.get('folder')}",
        open=case.get("judgement") == "worse than expected",
    )


def digest(case: Case) -> str:
    """One SHA-256 for all files of a history: that of the lines that ``sha256sum`` prints of them,
    sorted by name; empty where no digests were stored."""
    files = mapping(case.get("history_sha256"))
    lines = "".join(f"{files[name]}  {name}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest() if files else ""


def _command(case: Case, source: Source) -> str:
    """What repeats the case on another day: the same schedule of faults, not the same network."""
    options = {
        "--lock": case.get("lock"),
        "--fault": case.get("fault"),
        "--workload": case.get("workload"),
        "--topology": case.get("topology"),
        "--nodes": case.get("size"),
        "--network": case.get("network"),
        "--clients": case.get("clients"),
        "--keys": case.get("keys"),
        "--time-limit": _time_limit_s(case, source),
        "--seed": case.get("seed"),
    }
    given = [
        f"{name} {shlex.quote(f'{value:g}' if isinstance(value, float) else str(value))}"
        for name, value in options.items()
        if value is not None
    ]
    return " ".join(["lockbench run", *given])


def _time_limit_s(case: Case, source: Source) -> float | None:
    """Not in the document of a case; the plan has it, case by case."""
    try:
        planned = source.run.plan().get("cases", ())
    except NotARun:
        return None
    found = {
        mapping(p).get("time_limit_s")
        for p in planned
        if (mapping(p).get("lock"), mapping(p).get("fault"))
        == (case.get("lock"), case.get("fault"))
        and mapping(p).get("workload") == case.get("workload")
    }
    return found.pop() if len(found) == 1 else None
