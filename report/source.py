"""Reads a run for its report, and holds what stands in it against what was recorded.

A report is made of a finished run only, whose histories have the digests that the results name and
whose results say what the cases said when they were done; anything else raises NotARun. Every
history is judged again: where that is worse than what is stored, the worse counts and is said.
Histories are read one after the other; what is kept of each is what is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from lockbench.checker.check import check
from lockbench.checker.clocks import on_one_clock
from lockbench.checker.drawing import figure
from lockbench.checker.verdict import RANK, Report
from lockbench.history.columns import History
from lockbench.history.lines import UnreadableHistory
from lockbench.history.recording import is_recording, read_recording
from lockbench.report.timeline import Timeline, timeline
from lockbench.results.alert_replay import ReplayedViolation, replay_judged
from lockbench.results.cases import broken, expected_of, proven, results_of, unknown_after_s
from lockbench.results.documents import CaseResult, Machine, Results, Verdict, Versions, made
from lockbench.results.judgements import BROKE_UNDECLARED, GREEN, VIOLATED, WORSE
from lockbench.results.store import CaseFolder, NotARun, RunFolder

ERRORS_TOLD: Final = 5  # of one case; case.json has them all
Windows = tuple[tuple[float, float, int], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a case's history shows. ``figures`` maps verdict → the checker's drawing in HTML;
    ``windows`` are (begin s, end s, grants) of every second on contended keys; ``replayed`` is what
    the alerts of the field and ours would have made of each violation; ``has_locust``: Locust's own
    report was kept."""

    number: int
    case: CaseResult
    line: Timeline | None
    windows: Windows
    figures: Mapping[str, str]
    replayed: tuple[ReplayedViolation, ...]
    notes: tuple[str, ...]
    has_locust: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """A run as it is reported. ``seen`` is in the order of the cases."""

    run: RunFolder
    results: Results
    seen: tuple[Seen, ...]
    machine: Machine
    versions: Versions

    @property
    def cases(self) -> list[CaseResult]:
        """The cases, with the worse of the stored and the new verdicts."""
        return [seen.case for seen in self.seen]


def read(run: RunFolder) -> Source:
    """Raises NotARun for a run that is not finished or was changed."""
    results = run.evidence()
    folders = {folder.path.name: folder for folder in run.cases()}
    seen = tuple(_seen(n, case, folders, run) for n, case in enumerate(results.cases, 1))
    return Source(run, results, seen, run.machine(), run.versions())


def histories(run: RunFolder) -> Iterator[tuple[int, CaseResult, History]]:
    """(number from 1, case, history) of every case that has one, checked like the report's. Raises
    NotARun."""
    results = run.evidence()
    folders = {folder.path.name: folder for folder in run.cases()}
    for n, case in enumerate(results.cases, 1):
        history = _history(n, case, folders, run)
        if history is not None:
            yield n, case, history


def _seen(n: int, case: CaseResult, folders: Mapping[str, CaseFolder], run: RunFolder) -> Seen:
    notes = []
    history = _history(n, case, folders, run)
    if case.history_sha256 is None:
        notes.append("No digest of the history was stored; that it is unchanged is not known.")
    notes += _of_its_own(case)
    if history is None:
        notes.append("There is no history of this case; nothing of it can be drawn.")
        return Seen(n, case, None, (), {}, (), tuple(notes))
    report = check(history)
    judged, differences = judged_again(case, report)
    placed = on_one_clock(history)
    drawn = {name: figure(placed, name, verdict) for name, verdict in report.verdicts.items()}
    return Seen(
        number=n,
        case=judged,
        line=timeline(placed),
        windows=_windows(case, placed),
        figures={name: svg for name, svg in drawn.items() if svg},
        replayed=replay_judged(placed, report, unknown_after_s=unknown_after_s(case)),
        notes=(*notes, *differences),
        has_locust=folders[str(case.folder)].locust_page.is_file(),
    )


def _of_its_own(case: CaseResult) -> list[str]:
    """What is told of a lock of one's own, and what services said when they failed."""
    notes = []
    if own := case.own:
        libraries = ", ".join(f"{k} {v}" for k, v in (own.libraries or {}).items())
        notes.append(
            f"The lock is {own.spec}, SHA-256 {own.sha256}; it imports {libraries or 'no library'}."
        )
    if case.declare:
        lines = " ".join(map(str.strip, case.declare))
        notes.append(f"No expectation is declared. To declare it: {lines}")
    # Under a fault errors are what was asked for: they are told where somebody has to look.
    if own or case.judgement not in GREEN:
        texts = list(case.error_texts.values())[:ERRORS_TOLD]
        notes += [f"First error of its class: {text}" for text in texts]
    return notes


def judged_again(case: CaseResult, report: Report) -> tuple[CaseResult, list[str]]:
    """The case with the worse of both verdicts, and a sentence where they differ. A case whose load
    never ran has no verdict to compare."""
    stored = results_of(case)
    if not stored and case.judgement in {"failed", "could not run"}:
        return case, []
    worse: dict[str, Verdict] = {}
    notes = []
    for name, verdict in report.verdicts.items():
        was = stored.get(name)
        if was == verdict.result or (was is None and verdict.result == "valid"):
            continue
        notes.append(
            f"{name}: the results say {was or 'nothing'}, the history judged again says "
            f"{verdict.result} ({verdict.reason}). The worse of the two counts here."
        )
        if RANK[verdict.result] > max((RANK[r] for r in RANK if r == was), default=-1):
            worse[name] = made(Verdict, verdict.to_json())
    verdicts = {**case.verdicts, **worse}
    evidence = proven(replace(case, verdicts={**verdicts, **_witnessed(report)}))
    surprising = [
        v for v in broken(case) if v in evidence and expected_of(case, v) in {"holds", "undeclared"}
    ]
    excused = surprising and case.judgement not in VIOLATED
    if excused:
        notes.append(
            f"{', '.join(surprising)} was not expected to break; the stored judgement hides it."
        )
    if not worse and not excused:
        return case, notes
    invalid = [*surprising, *(v for v in worse if v in evidence)]
    broke = excused or any(v in worse for v in invalid)
    claimed = any(expected_of(case, v) not in {None, "undeclared"} for v in invalid)
    word = WORSE if claimed else BROKE_UNDECLARED
    judgement = word if broke else "undecided"
    if case.judgement in VIOLATED:  # what was told is never made less
        judgement = WORSE if broke and word == WORSE else case.judgement
    return replace(case, verdicts=verdicts, judgement=judgement, why="; ".join(notes)), notes


def _witnessed(report: Report) -> dict[str, Verdict]:
    """The broken verdicts with what the service's record says of them."""
    return {
        name: made(Verdict, verdict.to_json())
        for name, verdict in report.verdicts.items()
        if verdict.result == "invalid"
    }


def _verified(
    n: int, case: CaseResult, folders: Mapping[str, CaseFolder], run: RunFolder
) -> CaseFolder | None:
    """The folder of a case that nobody has touched; None where the case never had one."""
    name = str(case.folder)
    folder = folders.get(name)
    if folder is None:
        if case.history_sha256:
            raise NotARun(f"{run.path / 'cases' / name} of case {n} is missing; run it again")
        return None
    if case.history_sha256 is not None:
        changed = folder.history_differs(case.history_sha256)
        if changed:
            raise NotARun(
                f"{changed[0]} since case {n} was judged"
                f"{f' (and {len(changed) - 1} more)' if len(changed) > 1 else ''}; "
                "what the results say cannot be shown: restore the files or run it again"
            )
    said = folder.read_case()
    if said is not None and said != case:
        raise NotARun(
            f"case {n} of {run.path / 'results.json'} is not what {folder.path / 'case.json'} "
            "says; one of them was changed: restore it or run it again"
        )
    return folder


def _history(
    n: int, case: CaseResult, folders: Mapping[str, CaseFolder], run: RunFolder
) -> History | None:
    """The recording of a case that nobody has touched; None where it never had one."""
    folder = _verified(n, case, folders, run)
    if folder is None or not is_recording(folder.history):
        return None
    try:
        return read_recording(folder.history)
    except (UnreadableHistory, OSError) as error:
        raise NotARun(f"{error}; run it again") from error


def _windows(case: CaseResult, history: History) -> Windows:
    if case.series is None or len(history) == 0:
        return ()
    first = (case.series.start_ns - int(history.invoke_ns[0])) / 1e9
    return tuple((first + i, first + i + 1, n) for i, n in enumerate(case.series.grants))
