"""The map of an exploration: one page that needs no server and loads nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from checker.check import check
from checker.drawing import SCRIPT, figure
from explore.faults import FAULTS, fitting
from history.recording import read_recording
from report.page import drawings_legend, drawings_style, policy
from results.documents.exploration import Exploration, ExploredScenario, Finding, Tried
from results.store import write_atomically
from results.wording import times

PAGE = "map.html"


def write(folder: Path, document: Exploration) -> Path:
    """``map.html`` in the folder of an exploration. Raises OSError, UnreadableHistory."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    text = (resources.files(__package__) / "page.html.j2").read_text(encoding="utf-8")
    page = environment.from_string(text).render(
        doc=document,
        lines=summary(document),
        cells=dict(_cells(document)),
        columns=_columns,
        faults=FAULTS,
        struck=struck,
        drawn=[_drawn(folder, finding) for finding in document.findings],
        style=Markup(drawings_style()),  # noqa: S704 - our own
        script=SCRIPT,
        hash=policy(SCRIPT),
        legend=drawings_legend(),
    )
    write_atomically(folder / PAGE, page)
    return folder / PAGE


def summary(document: Exploration) -> list[str]:
    """What came of it, a sentence a line."""
    events = sum(len(scenario.events) for scenario in document.scenarios)
    outcomes = Counter(tried.outcome for tried in document.tried)
    missed = outcomes["not reached"] + outcomes["could not run"]
    reached = "all tried" if document.ended and not missed else f"{missed} of them not tried"
    if not document.ended:
        reached = "not ended"
    pairs = sum(tried.pair for tried in document.tried)
    like_others = document.pairs - pairs
    and_pairs = f", {document.pairs} pairs ({like_others} like others)" if document.pairs else ""
    first = (
        f"{document.lock}: {times(events, 'event')}, {times(len(document.tried) - pairs, 'fault')}"
        f"{and_pairs}, {reached}, {times(len(document.findings), 'finding')}; "
        f"{document.took_s / 60:.0f} minutes"
    )
    news = [finding for finding in document.findings if not finding.declared]
    said = [first, *(f"not declared: {sentence(finding)}" for finding in news)]
    if declared := len(document.findings) - len(news):
        said.append(f"{times(declared, 'finding')} as the lock's declaration says")
    return said


def sentence(finding: Finding) -> str:
    """One finding on one line."""
    what = ", ".join(finding.verdicts)
    return f"{struck(finding)}: {what} in {finding.broke} of {finding.plays} plays"


def struck(found: Finding | Tried) -> str:
    """What was struck, and by what."""
    where = [f"{s.fault} at {s.place.kind} {s.place.number}" for s in found.strikes]
    return f"{found.scenario}, {' and '.join(where) or 'without a fault'}"


@dataclass(frozen=True)
class _Cell:
    sign: str
    kind: str
    title: str
    finding: int | None


def _cells(document: Exploration) -> Iterator[tuple[tuple[str, str, int, str], _Cell]]:
    for tried in document.tried:
        if len(tried.strikes) == 1:
            (strike,) = tried.strikes
            place = (tried.scenario, strike.place.kind, strike.place.number, strike.fault)
            yield place, _cell(document, tried)


def _cell(document: Exploration, tried: Tried) -> _Cell:
    if tried.finding is not None:
        finding = document.findings[tried.finding]
        sign, kind = ("(✗)", "open") if finding.declared else ("✗", "worse")
        return _Cell(sign, kind, ", ".join(finding.verdicts), tried.finding)
    if tried.outcome == "kept":
        return _Cell("✓", "kept", "", None)
    return _Cell("?", "open", tried.why or tried.outcome, None)


def _columns(scenario: ExploredScenario) -> list[str]:
    fit = {fault.name for event in scenario.events for fault in fitting(event.kind)}
    return [name for name in FAULTS if name in fit]


def _drawn(folder: Path, finding: Finding) -> str:
    history = read_recording(folder / finding.recording)
    verdicts = check(history).verdicts
    return "".join(
        figure(history, name, verdicts[name]) for name in finding.verdicts if name in verdicts
    )
