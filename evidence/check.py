"""``lockbench check``: judges saved histories. No Docker, no cluster, no lock library is touched.

Exit codes by verdict: 0 valid, 1 invalid, 2 unknown; 254 for what cannot be read. A recording whose
load was cut off (its bench was killed) is never valid: it is invalid where something is broken, and
otherwise unknown. ``-`` is standard input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

from lockbench.checker.check import check
from lockbench.checker.clocks import on_one_clock
from lockbench.checker.kinds import with_model
from lockbench.checker.load import find, load, missing
from lockbench.checker.verdict import RANK, Report, Verdict, worst
from lockbench.evidence.memory import available, bounded
from lockbench.history.columns import History
from lockbench.history.edn import plain, write_edn
from lockbench.history.files import BadFile, is_file, read_text
from lockbench.history.jsonl import read_lines, write_jsonl
from lockbench.history.lines import UnreadableHistory
from lockbench.history.machines import BadMerge, merged
from lockbench.history.text import write_named
from lockbench.report.console import say, say_json
from lockbench.results.errors import BadInput

RUNNING = "running"  # the ending of a run that was not ended
STDIN = Path("-")
EXIT: Mapping[str, int] = {"valid": 0, "invalid": 1, "unknown": 2}
Modelled = Callable[[History], History]


def check_files(
    files: Sequence[Path],
    *,
    model: str | None,
    permits: int | None,
    initial: str | None,
    json: bool,
    html: Path | None,
    write: Path | None = None,
    merge: bool = False,
) -> int:
    """Judges every history under ``files``, prints what it found and returns the exit code.
    ``write`` saves the history (there must be one only) as EDN or JSON Lines, by its ending.
    ``merge``: they are one, each file recorded by a machine of its own. Raises BadInput for a file
    that is not a readable history, before anything is printed."""
    if model is None and (permits is not None or initial is not None):
        raise BadInput("--permits and --initial need a --model")

    def modelled(history: History) -> History:
        """By this model, if not by what the history says of its keys."""
        if model is None:
            return history
        try:
            return with_model(history, model, permits=permits, initial=initial)
        except ValueError as error:
            raise BadInput(f"--model {model}: {error}") from error

    try:
        with bounded():
            found = [history for file in files for history in _histories(file)]
            if merge:
                found = [_merged(files, found)]
            return _check_files(found, modelled, json, html, write)
    except MemoryError:
        raise BadInput(
            "too large for the memory of this machine: "
            f"{', '.join(map(str, files))} ({available() >> 20} MB are free)"
        ) from None


def check_one(path: Path) -> Report:
    """The verdicts on the one history under a path. Raises BadInput."""
    found = _histories(path)
    if len(found) != 1:
        raise BadInput(f"{path}: these are {len(found)} histories; name one")
    return _report(found[0], lambda history: history)[1]


@dataclass(frozen=True, slots=True)
class _Found:
    """A history that is to be judged. ``cut``: it is known to be cut off."""

    name: str
    sources: tuple[Path, ...]
    read: Callable[[], History]
    cut: bool


def _check_files(
    found: Sequence[_Found],
    modelled: Modelled,
    json: bool,
    html: Path | None,
    write: Path | None,
) -> int:
    reports: dict[str, Report] = {}
    drawn: list[tuple[str, History, Report]] = []
    written: _Written | None = None
    if write is not None:
        _may_write(write, found)
    if html is not None:
        _refuse_source("--html", html, found)
        if html == write:
            raise BadInput(f"--html {html}: --write would be lost; give it another name")
    for one in found:
        history, report = _report(one, modelled)
        reports[one.name] = report
        if html is not None and report.result != "valid":
            drawn.append((one.name, on_one_clock(history), report))
        if write is not None:
            written = _write(write, history, report)
    if html is not None:
        _draw(html, drawn)
    if json:
        say_json(_document(reports) | ({} if written is None else {"written": asdict(written)}))
    else:
        for name, report in reports.items():
            _say(name, report)
        if written is not None:
            say(written.sentence())
    return EXIT[worst(report.result for report in reports.values())]


def _histories(file: Path) -> list[_Found]:
    """The histories under a path. One is cut off if its run was never ended, or its case has no
    result."""
    try:
        if file == STDIN:
            return [_one(Path("/dev/stdin"), cut=False)]
        running = _is_running(file)
        there = [_one(path, cut=running or _has_no_result(path)) for path in find(file)]
        return there + [_Found(str(case), (), _nothing, cut=True) for case in missing(file)]
    except UnreadableHistory as error:
        raise BadInput(str(error)) from error


def _nothing() -> History:
    return read_lines(iter(()), "nothing")


def _one(path: Path, *, cut: bool) -> _Found:
    return _Found(str(path), (path,), lambda: _read(path), cut)


def _merged(files: Sequence[Path], found: Sequence[_Found]) -> _Found:
    """The histories of several machines as one. A machine is called by its file."""
    if len(files) < 2:
        raise BadInput("--merge needs the histories of two machines or more")
    for file in files:
        several = len(_histories(file))
        if several > 1:
            raise BadInput(f"--merge {file}: these are {several} histories; name one per machine")
        if files.count(file) > 1:
            raise BadInput(f"--merge {file}: named twice")
    names = [file.stem for file in files]
    if len(set(names)) < len(names):
        names = [one.name for one in found]

    def read() -> History:
        try:
            return merged({name: one.read() for name, one in zip(names, found, strict=True)})
        except BadMerge as error:
            raise BadInput(f"--merge: {error}") from None

    return _Found(
        " + ".join(one.name for one in found),
        tuple(path for one in found for path in one.sources),
        read,
        any(one.cut for one in found),
    )


def _is_running(folder: Path) -> bool:
    try:
        return read_text(folder / "ending", inside=folder).strip() == RUNNING
    except BadFile:
        return False


def _has_no_result(recording: Path) -> bool:
    """Of a recording in a run folder."""
    case = recording.absolute().parent
    if recording.absolute().name != "history" or case.parent.name != "cases":
        return False
    return not is_file(case / "case.json", inside=case)


def _report(one: _Found, modelled: Modelled) -> tuple[History, Report]:
    began = perf_counter()
    history = modelled(one.read())
    if one.cut:
        history = replace(history, ended=False)
    if history.machines and find_spec("scipy") is None:
        raise BadInput(
            f"{one.name}: what several machines recorded needs scipy, which is not installed here: "
            "pip install 'lockbench[machines]'"
        )
    read = perf_counter() - began
    report = check(history)
    return history, replace(report, seconds={"read": read, **report.seconds})


@dataclass(frozen=True, slots=True)
class _Written:
    """A history that was saved. ``kept`` and ``lost``: the verdicts that come out the same when it
    is read again here, and the others; ``elsewhere``: those that a tool can reach which knows only
    Jepsen's own fields (None for our own format)."""

    path: str
    kept: tuple[str, ...]
    lost: tuple[str, ...]
    elsewhere: tuple[str, ...] | None

    def sentence(self) -> str:
        kept = "every verdict" if not self.lost else ", ".join(self.kept) or "no verdict"
        lost = f" but not {', '.join(self.lost)}" if self.lost else ""
        said = f"{self.path}: written; read again here it keeps {kept}{lost}"
        if self.elsewhere is None:
            return said
        others = [name for name in self.kept if name not in self.elsewhere]
        return (
            f"{said}. Other tools see Jepsen's own fields only: they can reach "
            f"{', '.join(self.elsewhere) or 'no verdict'}"
            + (f", not {', '.join(others)}" if others else "")
        )


WRITERS: Mapping[str, Callable[[History, Path], None]] = {".edn": write_edn, ".jsonl": write_jsonl}


def _may_write(target: Path, found: Sequence[_Found]) -> None:
    if target.suffix not in WRITERS:
        raise BadInput(f"--write {target}: the name must end in {' or '.join(WRITERS)}")
    if len(found) != 1:
        raise BadInput(f"--write {target}: one history can be written, not {len(found)}")
    _refuse_source("--write", target, found)


def _refuse_source(option: str, target: Path, found: Sequence[_Found]) -> None:
    sources = (source for one in found for source in one.sources)
    if target.exists() and any(target.samefile(source) for source in sources):
        raise BadInput(f"{option} {target}: that is the history itself")


def _write(target: Path, history: History, report: Report) -> _Written:
    """Saves a history and judges what was saved, to say what was kept."""
    try:
        WRITERS[target.suffix](history, target)
    except OSError as error:
        raise BadInput(f"--write {target}: {error.strerror}") from error
    again = check(_read(target), only=tuple(report.verdicts)).verdicts
    kept = tuple(
        name
        for name, verdict in report.verdicts.items()
        if name in again and again[name].result == verdict.result
    )
    elsewhere = None
    if target.suffix == ".edn":
        elsewhere = tuple(name for name in kept if name == "linearizable" and plain(history))
    lost = tuple(name for name in report.verdicts if name not in kept)
    return _Written(str(target), kept, lost, elsewhere)


def _draw(html: Path, drawn: Sequence[tuple[str, History, Report]]) -> None:
    from lockbench.checker.drawing import page

    try:
        write_named(html, page(drawn))
    except OSError as error:
        raise BadInput(f"--html {html}: {error.strerror}") from error


def _read(path: Path) -> History:
    try:
        return load(path)
    except UnreadableHistory as error:
        raise BadInput(str(error)) from error


def _document(reports: Mapping[str, Report]) -> dict[str, object]:
    """The JSON of one history; of several, the worst verdicts with the single reports beside."""
    if len(reports) == 1:
        return _report_json(next(iter(reports.values())))
    verdicts: dict[str, Verdict] = {}
    for path, report in reports.items():
        for name, verdict in report.verdicts.items():
            if name not in verdicts or RANK[verdict.result] > RANK[verdicts[name].result]:
                verdicts[name] = replace(verdict, reason=f"{path}: {verdict.reason}")
    total = Report(
        operations=sum(report.operations for report in reports.values()),
        grants=sum(report.grants for report in reports.values()),
        verdicts=verdicts,
        seconds={
            part: sum(report.seconds.get(part, 0.0) for report in reports.values())
            for part in ("read", "check")
        },
        cut=any(report.cut for report in reports.values()),
    )
    # Worst over the files, too: one that nothing applies to is unknown.
    return total.to_json() | {
        "result": worst(report.result for report in reports.values()),
        "files": {path: _report_json(report) for path, report in reports.items()},
    }


def _report_json(report: Report) -> dict[str, object]:
    return report.to_json() | ({} if report.confirmed else {"confirmed": False})


def _say(path: str, report: Report) -> None:
    seconds = sum(report.seconds.values())
    say(
        f"{path}: {report.result.upper()} "
        f"({report.operations} operations, {report.grants} grants, {seconds:.3f} s)"
    )
    if report.cut:
        say("  cut off: the load was not recorded to its end, so nothing is known to be kept")
    if not report.verdicts:
        say("  no check applies to this history, so nothing is shown")
    elif not report.confirmed:
        say("  nothing was answered ok, so nothing is shown")
    for name, verdict in report.verdicts.items():
        say(explained(name, verdict))


def explained(name: str, verdict: Verdict) -> str:
    """A verdict as it is printed: its sentence and, if it is broken, the evidence."""
    said = [f"  {name:14} {verdict.result:8} {verdict.reason}"]
    if verdict.result == "invalid":
        said += [f"  {'':14} - {item.get('text', item)}" for item in verdict.evidence]
    return "\n".join(said)
