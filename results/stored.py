"""Stored runs as evidence: complete, unchanged, and still judged the same.

Guarantees for every run it returns: it is finished; each history is the one whose digest stands in
the results; each case in ``results.json`` is the one that was written when the case ended; and
today's checker and today's arithmetic reach the stored verdicts, latencies and rates from the
stored history. The same holds for each earlier try of a case, and the case says of it what it says
itself. So a verdict or a number edited by hand shows. Does not guarantee that the settings and what
else cannot be computed again were left alone by somebody who edits both files alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from lockbench.checker.check import check
from lockbench.checker.clocks import on_one_clock
from lockbench.history.columns import History
from lockbench.history.lines import UnreadableHistory
from lockbench.history.recording import read_recording
from lockbench.results.cases import (
    BASES,
    came_to_nothing,
    is_published,
    lock_of,
    results_of,
    unknown_after_s,
)
from lockbench.results.documents import CaseResult, Machine, Plan, Results, Try, Versions
from lockbench.results.numbers import GIVEN_UP, KINDS, Numbers, Phases, before, measure
from lockbench.results.rates import Block, again
from lockbench.results.store import CaseFolder, NotARun, RunFolder, open_run

NS_PER_S: Final = 1e9
# Of which kinds what was given up counts: today, and in older versions.
MEASURED_AS: Final = (GIVEN_UP, ("acquire", "acquire_beside"), ())
AGAIN: Final = "take the folder as it was, or run it again"


class Edited(Exception):
    """What is stored does not fit together; the message says what was changed or is missing."""


@dataclass(frozen=True)
class Stored:
    """A finished run. ``cases`` are the objects of ``results.json``."""

    run: RunFolder
    results: Results
    machine: Machine
    versions: Versions
    plan: Plan = field(default_factory=Plan)

    @property
    def path(self) -> Path:
        return self.run.path

    @property
    def cases(self) -> Sequence[CaseResult]:
        return self.results.cases


def stored(path: Path) -> Stored:
    """A run that can be argued with. Raises NotARun or Edited."""
    run = open_run(path)
    results = run.evidence()
    found = Stored(run, results, run.machine(), run.versions(), run.plan())
    if not found.cases:
        raise NotARun(f"{path} holds no case: it ended before one was done; run it again")
    for case in found.cases:
        verify(run, case)
    return found


def countable(runs: Sequence[Stored]) -> None:
    """Raises NotARun for a run of which nothing can be counted: one that holds both sides of a
    change or was made with other versions than this tree's, and one that was kept because it
    broke."""
    for run in runs:
        if of := run.results.shrunk_from:
            raise NotARun(
                f"{run.path} is what `--shrink` kept of {of} because it broke: it shows that it "
                "does, and not how often; count its replays (`lockbench run --replay … --times N`)"
            )
        if any(case.side is not None for case in run.cases):
            raise NotARun(
                f"{run.path} holds both sides of a change (`lockbench regress`, judged in its "
                "comparison.md); give runs of `lockbench run` or `suite`"
            )
        if ref := run.versions.instead:
            raise NotARun(
                f"{run.path} was made with {ref}; `lockbench regress` compares that with what "
                "is pinned here"
            )


def stored_set(path: Path) -> list[Stored]:
    """A run, or every finished run in a folder of runs, by date, without those of ``--shrink``
    (``left_out``). Raises NotARun or Edited."""
    if (path / "ending").exists() or not path.is_dir():
        return [stored(path)]
    inside = [p for p in _inside(path) if not _of_a_search(p)]
    if not inside:
        raise NotARun(f"{path} is neither a run folder nor a folder of runs that can be counted")
    return [stored(p) for p in inside]


def left_out(paths: Sequence[Path]) -> str | None:
    """A sentence about the runs in these folders that ``stored_set`` leaves out."""
    folders = [path for path in paths if path.is_dir() and not (path / "ending").exists()]
    names = [p.name for path in folders for p in _inside(path) if _of_a_search(p)]
    if not names:
        return None
    return f"left out, because `--shrink` made and chose them: {', '.join(names)}"


def _inside(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if (p / "ending").exists() and not p.is_symlink())


def _of_a_search(path: Path) -> bool:
    try:
        plan = open_run(path).plan()
    except NotARun:
        return False
    return plan.try_of is not None or plan.shrunk_from is not None


def history_of(run: RunFolder, case: CaseResult) -> History:
    """The recording of a case. Raises Edited."""
    folder = _folder(run, case)
    try:
        return read_recording(folder.history)
    except (OSError, UnreadableHistory) as error:
        raise Edited(f"{folder.history} cannot be read: {error}") from error


def samples_ns(run: RunFolder, case: CaseResult) -> dict[str, NDArray[np.int64]]:
    """Kind → latencies before any fault, in nanoseconds and in the order of the recording; empty
    where the case has no load."""
    spans = _spans(case)
    if spans is None:
        return {}
    return before(history_of(run, case), spans, unknown_after_s=unknown_after_s(case))


def blocks_of(run: RunFolder, case: CaseResult) -> list[Block]:
    """The steps of a case with their acquires; none where its load did not last as long as its
    phases. Raises Edited."""
    if not case.rates or _was_cut(case):
        return []
    history = on_one_clock(history_of(run, case))
    return [again(history, step, unknown_after_s(case)) for step in case.rates]


def _was_cut(case: CaseResult) -> bool:
    """Whether its load did not last as long as its phases, or something happened from outside. A
    violation is told before that, so its judgement may not say so: then its numbers are void, and
    not for the load generator."""
    healthy = case.generator is not None and case.generator.ok is True
    return came_to_nothing(case) or bool(case.outside) or (case.numbers == "void" and healthy)


def _spans(case: CaseResult) -> Phases | None:
    """When the load of a case did what, from what its document says."""
    phases, series = case.phases_s, case.series
    if phases is None or series is None:
        return None
    # Summed and cut to whole nanoseconds as the run did it: one more or less is another rate.
    until_s = phases.floor_s + phases.own_s
    contended = series.start_ns
    start = contended - int(until_s * NS_PER_S)
    own = start + int(phases.floor_s * NS_PER_S)
    end = start + int((until_s + phases.contended_s) * NS_PER_S)
    return Phases(floor=(start, own), own=(own, contended), contended=(contended, end))


def verify(run: RunFolder, case: CaseResult) -> None:
    """One case as it stands in the results, and its earlier tries. Raises Edited."""
    folder = _folder(run, case)
    _verify(folder, case, _written(folder))
    folders = [case.folder, *(earlier.folder for earlier in case.earlier_tries)]
    if len(set(folders)) < len(folders):
        raise Edited(f"{_name(folder)}: two of its tries are one: the results were edited")
    for earlier in case.earlier_tries:
        _verify_try(_folder(run, replace(case, folder=earlier.folder)), case, earlier)


def _verify_try(folder: CaseFolder, case: CaseResult, told: Try) -> None:
    """An earlier try counts in every k of n: it is what its own document says, and that is what its
    history gives."""
    written = _written(folder)
    itself = (written.lock, written.fault, results_of(written), written.exposed is not False)
    if itself != (case.lock, case.fault, told.observed, told.exposed is not False):
        raise Edited(
            f"{_name(folder)}: {case.folder} says something else of this try than its case.json: "
            "one of them was edited"
        )
    _verify(folder, written, written)


def _written(folder: CaseFolder) -> CaseResult:
    try:
        written = folder.read_case()
    except NotARun as error:
        raise Edited(str(error)) from error
    if written is None:
        raise Edited(f"{_name(folder)}: its case.json is missing; {AGAIN}")
    return written


def _name(folder: CaseFolder) -> str:
    return f"{folder.run}, case {folder.path.name}"


def _verify(folder: CaseFolder, case: CaseResult, written: CaseResult) -> None:
    name = _name(folder)
    recorded = case.history_sha256
    never_ran = recorded == {} and not results_of(case)
    if recorded is None or not (recorded or never_ran):
        raise Edited(f"{name}: no digest of its history was recorded; run it again")
    differs = folder.history_differs(recorded)
    if differs:
        raise Edited(f"{name}: the history is not the one that was judged: {differs[0]}")
    if written != case:
        fields = [
            f for f in CaseResult.__struct_fields__ if getattr(written, f) != getattr(case, f)
        ]
        raise Edited(
            f"{name}: results.json and case.json disagree on {', '.join(sorted(fields))}: one of "
            "them was edited"
        )
    if not results_of(case):
        return
    try:
        history = read_recording(folder.history)
        today = {v: r.result for v, r in check(history).verdicts.items()}
    except (OSError, UnreadableHistory) as error:
        raise Edited(f"{name}: the history cannot be read: {error}") from error
    again = f"the results were edited, or another version wrote them: {AGAIN}"
    told = results_of(case)
    # A check that did not exist then says nothing about the file, unless it finds a break.
    # What was undecided then may be decided now: it stays undecided, which is never green.
    wrong = sorted(
        v
        for v in told
        if (told[v], today.get(v)) != ("unknown", "valid") and today.get(v) != told[v]
    )
    wrong += sorted(v for v in today if v not in told and today[v] == "invalid")
    for verdict in wrong:
        raise Edited(
            f"{name}: {verdict} is stored as {told.get(verdict)}, and the history is judged "
            f"{today.get(verdict)}: {again} (`lockbench check {folder.history}` judges it again)"
        )
    wrong_number = _other_number(case, history)
    if wrong_number is not None:
        raise Edited(f"{name}: {wrong_number} is not what its history gives: {again}")


def _other_number(case: CaseResult, history: History) -> str | None:
    """The first stored latency or rate that the history does not give, as they are measured today
    or as older versions measured them."""
    spans = _spans(case)
    if spans is None or is_published(case):
        return None
    if any(again(history, step, unknown_after_s(case)).step != step for step in case.rates):
        return "rates"
    wrong: str | None = None
    for given_up in MEASURED_AS:
        today = measure(history, spans, unknown_after_s=unknown_after_s(case), given_up=given_up)
        differs = _differs(case, today)
        if differs is None:
            return None
        wrong = wrong or differs
    return wrong


def _differs(case: CaseResult, today: Numbers) -> str | None:
    if case.cycles_per_second != today.cycles_per_second:
        return "cycles_per_second"
    for basis in BASES.values():
        told, again = getattr(case, basis) or {}, getattr(today, basis)
        # A kind that was not measured yet when the case ran is missing from it.
        for kind in (kind for kind in again if kind in told or kind in KINDS):
            name = f"{basis}.{kind}"
            if told.get(kind, {}).keys() != again[kind].keys():
                return name
            for phase, cell in again[kind].items():
                was = told[kind][phase]
                for statistic in cell.__struct_fields__:
                    if getattr(was, statistic) != getattr(cell, statistic):
                        return f"{name}.{phase}.{statistic}"
        for kind in told:
            if kind not in again:
                return f"{basis}.{kind}"
    return None


def _folder(run: RunFolder, case: CaseResult) -> CaseFolder:
    if case.folder is None:
        raise Edited(f"{run.path}: a case of {lock_of(case)} does not say which folder is its own")
    return CaseFolder(run.path / "cases" / case.folder)
