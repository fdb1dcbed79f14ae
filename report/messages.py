"""The map of an exploration in HTML and in sentences
(``lockbench.results.documents.exploration``)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from lockbench.report.page import asset, rendered
from lockbench.results.documents.exploration import (
    CLIENTS,
    KEPT,
    MISSED,
    ExplorationMap,
    Finding,
    Tried,
)
from lockbench.results.wording import times


def style() -> str:
    """What the tables need beside the style of a report."""
    return asset("messages.css")


def tables(document: ExplorationMap, *, drawn: Sequence[str] = (), defects: str = "") -> str:
    """Every scenario, then the findings. ``drawn``: HTML for each finding. ``defects``: where the
    pages of the track record are, if they are to be linked."""
    return rendered(
        "messages.html.j2",
        doc=document,
        cell_of=lambda outcome: _cell(document, outcome),
        struck=struck,
        again=lambda finding: again(document, finding),
        drawn=drawn,
        defects=defects,
    )


def summary(document: ExplorationMap) -> list[str]:
    """What came of it, a sentence a line."""
    events = sum(len(scenario.events) for scenario in document.scenarios)
    reached = f"{document.missed} of them not tried" if document.missed else "all tried"
    if not document.ended:
        reached = "not ended"
    pairs = ""
    if document.pairs:
        rest = document.pairs - document.pairs_tried
        others = f"{rest} like others" if document.ended else f"{rest} like others or to come"
        pairs = f", {document.pairs} pairs ({document.pairs_tried} tried, {others})"
    polls = f" ({document.polls} of them of polls like others)" if document.polls else ""
    first = (
        f"{named(document)}: {times(events, 'event')}{polls}, "
        f"{times(document.singles, 'fault')}{pairs}, "
        f"{reached}, {times(len(document.findings), 'finding')}; "
        f"{times(round(document.took_s / 60), 'minute')}"
    )
    news = [finding for finding in document.findings if not finding.declared]
    said = [first, *(f"not declared: {sentence(finding)}" for finding in news)]
    if declared := len(document.findings) - len(news):
        said.append(f"{times(declared, 'finding')} as the lock's declaration says")
    if document.unjudged:
        what = ", ".join(document.unjudged)
        said.append(
            f"not judged: {what}, as the errors that the library documents are not declared"
        )
    return said


def named(document: ExplorationMap) -> str:
    """The lock, and what it was explored with."""
    return f"{document.lock} with {document.ref}" if document.ref else document.lock


def sentence(finding: Finding) -> str:
    """One finding on one line."""
    what = ", ".join(finding.verdicts)
    return f"{struck(finding)}: {what} in {finding.broke} of {finding.plays} plays"


def struck(found: Finding | Tried) -> str:
    """What was struck, and by what."""
    where = [f"{s.fault} at {s.place.kind} {s.place.number}" for s in found.strikes]
    return f"{found.scenario}, {' and '.join(where) or 'without a fault'}"


def again(document: ExplorationMap, finding: Finding) -> str:
    """The command that plays it again."""
    words = ["lockbench", "explore", "--lock", document.lock, "--topology", document.topology]
    words += ["--with", document.ref] if document.ref else []
    words += ["--scenario", finding.scenario]
    if finding.strikes:
        words += ["--strike", ",".join(map(str, finding.strikes))]
    words += ["--clients", str(document.clients)] if document.clients != CLIENTS else []
    words += ["--seed", str(document.seed)] if document.seed else []
    return shlex.join(words)


@dataclass(frozen=True)
class _Cell:
    sign: str = ""
    kind: str = ""
    title: str = ""
    finding: int | None = None


def _cell(document: ExplorationMap, outcome: int | None) -> _Cell:
    if outcome is None:
        return _Cell()
    if outcome == KEPT:
        return _Cell("✓", "kept")
    if outcome == MISSED:
        return _Cell("?", "open", "not tried: the event did not come again, or the play failed")
    finding = document.findings[outcome - 1]
    sign, kind = ("(✗)", "open") if finding.declared else ("✗", "worse")
    return _Cell(sign, kind, ", ".join(finding.verdicts), outcome - 1)
