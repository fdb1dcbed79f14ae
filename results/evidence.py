"""Stored runs as evidence: complete, unchanged, and still judged the same.

Guarantees for every run it returns: it is finished; each history is the one whose digest stands in
the results; each case in ``results.json`` is the one that was written when the case ended; and
today's checker reaches the stored verdicts from the stored history. So a verdict edited by hand
shows. Does not guarantee that numbers or settings in both files were left alone by somebody who
edits both in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from checker.check import check
from history.columns import History
from history.recording import UnreadableHistory, read_recording
from results.cases import Case, lock_of, results_of
from results.numbers import Phases, before
from results.store import CaseFolder, NotARun, RunFolder, open_run

NS_PER_S: Final = 1e9


class Edited(Exception):
    """What is stored does not fit together; the message says what was changed or is missing."""


@dataclass(frozen=True)
class Stored:
    """A finished run. ``cases`` are the objects of ``results.json``."""

    run: RunFolder
    results: Mapping[str, Any]
    machine: Mapping[str, Any]
    versions: Mapping[str, Any]

    @property
    def path(self) -> Path:
        return self.run.path

    @property
    def cases(self) -> Sequence[Case]:
        cases = self.results.get("cases")
        return cases if isinstance(cases, list) else []


def stored(path: Path) -> Stored:
    """A run that can be argued with. Raises NotARun or Edited."""
    run = open_run(path)
    results = run.results()
    if parts := results.get("parts"):
        raise NotARun(f"{path} sums up a night; give one of its runs: {', '.join(parts)}")
    found = Stored(run, results, run.machine(), run.versions())
    if not found.cases:
        raise NotARun(f"{path} holds no case: it ended before one was done; run it again")
    for case in found.cases:
        _verify(run, case)
    return found


def of_one_side(runs: Sequence[Stored]) -> None:
    """Raises NotARun for a run that holds both sides of a change, which cannot be taken as one."""
    for run in runs:
        if any("side" in case for case in run.cases):
            raise NotARun(
                f"{run.path} holds both sides of a change (`lockbench regress`, judged in its "
                "report.md); give runs of `lockbench run` or `suite`"
            )


def stored_set(path: Path) -> list[Stored]:
    """A run, or every finished run in a folder of runs, by date. Raises NotARun or Edited."""
    if (path / "ending").exists() or not path.is_dir():
        return [stored(path)]
    inside = sorted(p for p in path.iterdir() if (p / "ending").exists() and not p.is_symlink())
    if not inside:
        raise NotARun(f"{path} is neither a run folder nor a folder of runs")
    return [stored(p) for p in inside]


def history_of(found: Stored, case: Case) -> History:
    """The recording of a case. Raises Edited."""
    folder = _folder(found.run, case)
    try:
        return read_recording(folder.history)
    except (OSError, UnreadableHistory) as error:
        raise Edited(f"{folder.history} cannot be read: {error}") from error


def samples_ns(found: Stored, case: Case) -> dict[str, NDArray[np.int64]]:
    """Kind → latencies before any fault, in nanoseconds and in the order of the recording; empty
    where the case has no load."""
    phases, series = case.get("phases_s"), case.get("series")
    if not isinstance(phases, Mapping) or not isinstance(series, Mapping):
        return {}
    contended = int(series["start_ns"])
    own = contended - int(phases["own_s"] * NS_PER_S)
    spans = Phases(
        floor=(own - int(phases["floor_s"] * NS_PER_S), own),
        own=(own, contended),
        contended=(contended, contended + int(phases["contended_s"] * NS_PER_S)),
    )
    return before(history_of(found, case), spans)


def _verify(run: RunFolder, case: Case) -> None:
    folder = _folder(run, case)
    name = f"{run.path}, case {folder.path.name}"
    try:
        written = folder.read_case()
    except NotARun as error:
        raise Edited(str(error)) from error
    if written is None:
        raise Edited(
            f"{name}: its case.json is missing; take the folder as it was, or run it again"
        )
    recorded = case.get("history_sha256")
    if not isinstance(recorded, Mapping) or not recorded:
        raise Edited(f"{name}: no digest of its history was recorded; run it again")
    differs = folder.history_differs(recorded)
    if differs:
        raise Edited(f"{name}: the history is not the one that was judged: {differs[0]}")
    if written != case:
        fields = [f for f in {*written, *case} if written.get(f) != case.get(f)]
        raise Edited(
            f"{name}: results.json and case.json disagree on {', '.join(sorted(fields))}: one of "
            "them was edited"
        )
    if not results_of(case):
        return
    try:
        today = {v: r.result for v, r in check(read_recording(folder.history)).verdicts.items()}
    except (OSError, UnreadableHistory) as error:
        raise Edited(f"{name}: the history cannot be read: {error}") from error
    stored_ = results_of(case)
    # A check that did not exist then says nothing about the file, unless it finds a break.
    wrong = sorted(v for v in stored_ if today.get(v) != stored_[v])
    wrong += sorted(v for v in today if v not in stored_ and today[v] == "invalid")
    if wrong:
        verdict = wrong[0]
        raise Edited(
            f"{name}: {verdict} is stored as {stored_.get(verdict)}, and the history is judged "
            f"{today.get(verdict)}: the results were edited, or an older checker wrote them "
            f"(`lockbench check {folder.history}` judges anew)"
        )


def _folder(run: RunFolder, case: Case) -> CaseFolder:
    name = case.get("folder")
    if not isinstance(name, str) or "/" in name or not name:
        raise Edited(f"{run.path}: a case of {lock_of(case)} does not say which folder is its own")
    return CaseFolder(run.path / "cases" / name)
