"""For each finding of an exploration that was not declared, a folder for whoever keeps the lock.

    findings/<n>-<scenario>-<verdict>/
      report.md       what was struck, what broke, the calls in order, versions, how to repeat it
      history.jsonl   the play, for ``lockbench check``
      <source>        of a library's lock: the code that calls it, and pins.txt

A play has one fault, or two of which neither alone shows it, and the few calls of its script:
there is nothing to be cut away.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from lockbench.checker.catalogue import CATALOGUE
from lockbench.checker.check import check
from lockbench.evidence import bugreport_library as libraries
from lockbench.evidence import track
from lockbench.evidence.check import explained
from lockbench.evidence.templates import rendered
from lockbench.evidence.timeline import Timeline
from lockbench.explore.faults import FAULTS
from lockbench.explore.judge import MEANS
from lockbench.explore.mapped import map_of
from lockbench.explore.scenarios import SCENARIOS
from lockbench.history.jsonl import write_jsonl
from lockbench.history.recording import read_recording
from lockbench.locks.base import System
from lockbench.report import messages
from lockbench.report.grid import markdown_table
from lockbench.results.documents import Versions
from lockbench.results.documents.exploration import Exploration, Finding
from lockbench.results.store import slug, write_atomically

FOLDER: Final = "findings"


def write(folder: Path, document: Exploration, system: System) -> list[Path]:
    """The reports, in the folder of an exploration. Raises OSError, UnreadableHistory."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    return [
        _write(folder, number, finding, document, system)
        for number, finding in enumerate(document.findings, 1)
        if not finding.declared
    ]


def _write(
    folder: Path, number: int, finding: Finding, document: Exploration, system: System
) -> Path:
    target = folder / FOLDER / slug(f"{number}-{finding.scenario}-{finding.verdicts[0]}")
    target.mkdir(parents=True)
    history = read_recording(folder / finding.recording)
    write_jsonl(history, target / "history.jsonl")
    library = libraries.beside(document.lock, document.versions or Versions())
    if library is not None:
        library.copy(target)
    mapped, verdicts = map_of(document), check(history).verdicts
    text = rendered(
        "finding.md.j2",
        title=f"{document.lock}, {messages.struck(finding)}: {', '.join(finding.verdicts)}",
        finding=finding,
        document=document,
        system=system,
        library=library,
        broken=[(name, _means(name)) for name in finding.verdicts],
        pages=[page for page in track.pages() if page.id in finding.known],
        scenario=SCENARIOS[finding.scenario],
        strikes=[(strike, FAULTS[strike.fault].summary) for strike in finding.strikes],
        timeline=Timeline(history, history),
        checked="\n".join(
            explained(name, verdicts[name]) for name in finding.verdicts if name in verdicts
        ),
        versions=sorted(mapped.versions.items()),
        commands=f"{messages.again(mapped, finding)}\nlockbench check history.jsonl",
        table=markdown_table,
    )
    write_atomically(target / "report.md", text)
    return target


def _means(verdict: str) -> str:
    return f"broken when {CATALOGUE[verdict].means}" if verdict in CATALOGUE else MEANS[verdict]
