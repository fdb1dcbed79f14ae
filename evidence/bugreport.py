"""``lockbench bugreport RUN``: for a broken verdict what the maintainer of a library needs.

    RUN/bugreports/<case>-<verdict>/
      report.md        what broke, what was promised and where, the timeline, settings, versions
      history.jsonl    the few operations that show it, for ``lockbench check``
      <script>.py      a program that shows it without Lockbench, where the track record has one
      <source>         of a lock that is a library's: the code that calls it, and pins.txt, the
                       versions of all that it stands on

Guarantees: the run is complete and unchanged, and today's checker reaches its verdicts
(``lockbench.results.stored``). What a lock's declaration says of a fault is no news, and is left
out unless all are asked for. Tries and repetitions of a case are one report, which says k of n.
Does not say whose fault it is: a verdict that was expected to break has the source that says so.
"""

from __future__ import annotations

import contextlib
import inspect
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lockbench import declarations, locks
from lockbench.bench.judge import MAY, SILENCE, expectation
from lockbench.bench.plan import LINK_IMAGE
from lockbench.checker.catalogue import CATALOGUE
from lockbench.checker.check import check
from lockbench.checker.follows import FOLLOWS
from lockbench.clusters.registry import topologies
from lockbench.evidence import bugreport_library as libraries
from lockbench.evidence import track
from lockbench.evidence.check import explained
from lockbench.evidence.excerpt import excerpt
from lockbench.evidence.templates import rendered
from lockbench.evidence.timeline import Timeline
from lockbench.history.columns import History
from lockbench.history.files import is_folder
from lockbench.history.jsonl import write_jsonl
from lockbench.history.recording import read_recording
from lockbench.locks.base import Expectation, System
from lockbench.locks.registry import NO_LOCKS, LockNotFoundError, declared, is_own
from lockbench.nemesis.registry import NONE
from lockbench.report.grid import markdown_table
from lockbench.results.cases import (
    asked_lock,
    broken,
    command_of,
    expected_of,
    fault_names,
    is_elsewhere,
    is_over_hosts,
    k_of_n,
    proven,
)
from lockbench.results.documents import CaseResult
from lockbench.results.errors import BadInput
from lockbench.results.machine import PACKAGE
from lockbench.results.store import CaseFolder, NotARun, slug, write_atomically
from lockbench.results.stored import Edited, Stored, stored
from lockbench.results.wording import times

FOLDER: Final = "bugreports"
# What makes two cases of a run repetitions of one.
SAME: Final = (
    "lock",
    "fault",
    "topology",
    "size",
    "workload",
    "network",
    "seed",
    "clients",
    "keys",
    "resource",
    "side",
    "ref",
)


@dataclass(frozen=True)
class Broken:
    """A verdict that broke in ``shown`` of ``tried`` runs of a case; ``case`` is the first."""

    found: Stored
    case: CaseResult
    verdict: str
    shown: int
    tried: int

    @property
    def name(self) -> str:
        return slug(f"{self.case.folder}-{self.verdict}")

    @property
    def fault(self) -> str:
        """Without its parameters."""
        return self.case.fault.partition(":")[0]

    @property
    def declared_as(self) -> str:
        """The lock's name among the declarations here; empty for one of its user's own file."""
        lock = self.case.lock
        return "" if self.case.own is not None or is_own(lock) else lock

    @property
    def library(self) -> libraries.Beside | None:
        """None for a lock whose client runs inside the worker."""
        return libraries.beside(self.declared_as, self.found.versions, self.case.side)

    @property
    def as_declared(self) -> bool:
        """Whether the lock's declaration says of this fault that it breaks the verdict, or may."""
        return expected_of(self.case, self.verdict) in MAY

    @property
    def images(self) -> tuple[tuple[str, str], ...]:
        """(name, reference) of the server images that the case replaced."""
        cases = self.found.cases
        replaced = zip(cases, self.found.plan.images_of(len(cases)), strict=True)
        return next((images for case, images in replaced if case.folder == self.case.folder), ())

    @property
    def title(self) -> str:
        return f"{self.case.lock} under {self.case.fault}: {self.verdict}"


@dataclass(frozen=True)
class Made:
    """The folders that were written, and how many broken verdicts were left out as declared."""

    folders: tuple[Path, ...]
    left_out: int = 0


def bugreport(folder: Path, *, declared_too: bool = False) -> Made:
    """Writes a folder for each verdict that broke and was not declared to, or for all. Raises
    BadInput for what is no finished run, or not what it was."""
    try:
        found = stored(folder)
        every = list(_broken(found))
        told = [each for each in every if declared_too or not each.as_declared]
        made = Made(tuple(_write(each) for each in told), len(every) - len(told))
    except (NotARun, Edited) as error:
        raise BadInput(str(error)) from error
    except OSError as error:
        raise BadInput(f"the reports of {folder} cannot be written: {error}") from error
    return made


def sentence(folder: Path, made: Made) -> str:
    """What was written, for people."""
    lines = [str(path / "report.md") for path in made.folders]
    if made.left_out:
        count = times(made.left_out, "verdict")
        lines.append(f"{count} broke as declared; --all writes reports of these, too")
    return "\n".join(lines) or f"no verdict is broken in {folder}: there is nothing to report"


def _broken(found: Stored) -> Iterator[Broken]:
    groups: dict[str, list[CaseResult]] = {}
    for case in found.cases:
        groups.setdefault(repr([getattr(case, name) for name in SAME]), []).append(case)
    for cases in groups.values():
        tried = [document for case in cases for document in _documents(found, case)]
        for verdict in dict.fromkeys(v for document in tried for v in proven(document)):
            first = next(document for document in tried if verdict in proven(document))
            yield Broken(found, first, verdict, *k_of_n(tried, verdict))


def _documents(found: Stored, case: CaseResult) -> Iterator[CaseResult]:
    """The tries of a case, the first one first; those before the last are verified here."""
    for earlier in case.earlier_tries:
        folder = CaseFolder(found.path / "cases" / (earlier.folder or "unknown"))
        document = folder.read_case()
        if document is None:
            raise Edited(f"{folder.path}: its case.json is missing")
        if differs := folder.history_differs(document.history_sha256 or {}):
            raise Edited(f"{folder.path}: the history is not the one that was judged: {differs[0]}")
        yield document
    yield case


def _write(it: Broken) -> Path:
    target = it.found.run.make_folder(FOLDER) / it.name
    if is_folder(target, inside=it.found.path):
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
    target.mkdir()  # an empty one of ours: nothing in it is a link
    whole = read_recording(it.found.path / "cases" / (it.case.folder or "") / "history")
    small: History | None = None
    with contextlib.suppress(BadInput):  # more than a few operations: the whole one stands beside
        small = excerpt(whole, it.verdict)
        write_jsonl(small, target / "history.jsonl")
    record = _on_record(it)
    if record.script is not None:
        for name in (record.script.script, track.SHARED):
            shutil.copy(track.FOLDER / name, target / name)
    if it.library is not None:
        it.library.copy(target)
    write_atomically(target / "report.md", _report(it, whole, small, record))
    return target


@dataclass(frozen=True)
class OnRecord:
    """The pages of the track record on a lock and verdict: those that show what was found here, and
    those that show another thing."""

    same: tuple[track.Page, ...]
    others: tuple[track.Page, ...]

    @property
    def script(self) -> track.Page | None:
        """The page with the program that shows the same, if there is one."""
        with_program = (page for page in self.same if page.script and page.script in page.command)
        return next(with_program, None)


def _on_record(it: Broken) -> OnRecord:
    lock = it.declared_as.partition(":")[0]
    pages = [p for p in track.pages() if lock in p.locks and it.verdict in p.verdicts]
    same = tuple(p for p in pages if p.explains(lock, it.fault) or p.fault == NONE)
    return OnRecord(same, tuple(page for page in pages if page not in same))


@dataclass(frozen=True)
class Claim:
    """What the declaration of a lock expects under the fault of a case. ``verdict`` is the one that
    broke, or a cause of it that broke too, where only of that one something is declared
    (``lockbench.bench.judge``)."""

    system: System
    verdict: str
    expected: Expectation

    @property
    def is_silent(self) -> bool:
        """Whether nothing is declared."""
        return self.expected == SILENCE

    @property
    def is_general(self) -> bool:
        """Whether it is expected on the word of the lock's own source alone."""
        return self.expected.source == self.system.source and self.expected.kind is None


def _claim(it: Broken) -> Claim | None:
    """None for a lock that is not declared here: gone, or one's own. The file of such a one is
    never run, so what the results do not say of it is not said."""
    try:
        system = declared(it.declared_as)
    except LockNotFoundError:
        return None
    verdict = it.verdict
    if verdict not in system.expectations.get(it.fault, {}):
        causes = (cause for cause in FOLLOWS.get(verdict, ()) if cause in broken(it.case))
        verdict = next(causes, verdict)
    # Of several faults, silence about one is silence about all.
    found = [expectation(system, name, verdict) for name in fault_names(it.case.fault)]
    return Claim(system, verdict, SILENCE if SILENCE in found else found[0])


def _report(it: Broken, whole: History, small: History | None, record: OnRecord) -> str:
    both = (whole, small or whole)
    judged, shown = (check(history, only=(it.verdict,)).verdicts[it.verdict] for history in both)
    declaration, script = _declaration(it.declared_as), record.script
    topology = topologies().get(it.case.topology or "")
    of_server = set(topology.settings) if topology is not None else set()
    settings = it.case.settings.items()
    return rendered(
        "bugreport.md.j2",
        it=it,
        library=it.library,
        entry=CATALOGUE.get(it.verdict),
        reason=judged.reason,
        checked=explained(it.verdict, shown),
        claim=_claim(it),
        expected=expected_of(it.case, it.verdict),
        asked=asked_lock(it.case),
        others=[verdict for verdict in broken(it.case) if verdict != it.verdict],
        record=record,
        script=script,
        has_proxy=script and "Proxy(" in (track.FOLDER / script.script).read_text("utf-8"),
        timeline=None if small is None else Timeline(whole, small),
        promise=_paragraph(declaration, "The promise"),
        declaration=declaration,
        on_servers=[(name, value) for name, value in settings if name in of_server],
        on_clients=[(name, value) for name, value in settings if name not in of_server],
        versions=_versions(it),
        commands="\n".join(_commands(it, small is not None)),
        table=markdown_table,
    )


def _paragraph(text: str, beginning: str) -> str:
    """The paragraph that begins so, in one line; empty if there is none."""
    found = (" ".join(each.split()) for each in text.split("\n\n"))
    return next((each for each in found if each.startswith(beginning)), "")


def _declaration(lock: str) -> str:
    """What the file that declares a lock says of it; empty for a lock from elsewhere."""
    name = lock.partition(":")[0]
    for module in declarations.modules(locks, NO_LOCKS):
        if name in declarations.collected([module], "SYSTEM", System):
            return inspect.getdoc(module) or ""
    return ""


def _versions(it: Broken) -> list[tuple[str, str]]:
    versions, library = it.found.versions, it.library
    topology = topologies().get(it.case.topology or "")
    rows = [] if library is None else library.versions()
    for name, image in (versions.images or {}).items():
        started = topology is None or name in topology.images
        if name == LINK_IMAGE or started or name in dict(it.images).values():
            packages = ", ".join(f"{k} {v}" for k, v in (image.versions or {}).items())
            rows.append((f"image {name}", f"{packages} ({image.digest or image.id})"))
    # What the bench itself stands on is no part of a library beside it.
    ours = (versions.libraries or {}).items()
    return rows + [(k, str(v)) for k, v in ours if library is None or k == PACKAGE]


def _commands(it: Broken, small: bool) -> Iterator[str]:
    instead = it.found.versions.instead
    yield command_of(it.case, it.images, instead)
    elsewhere = is_elsewhere(it.case) or is_over_hosts(it.case)
    if len(it.found.cases) == 1 and not elsewhere and instead is None:
        yield shlex.join(["lockbench", "run", "--replay", str(it.found.path), "--times", "5"])
    if small:
        yield "lockbench check history.jsonl"
