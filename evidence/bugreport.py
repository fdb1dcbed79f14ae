"""``lockbench bugreport RUN``: for every broken verdict what the maintainer of a library needs.

    RUN/bugreports/<case>-<verdict>/
      report.md        what broke, what was promised and where, the timeline, settings, versions
      history.jsonl    the few operations that show it, for ``lockbench check``
      <script>.py      a program that shows it without Lockbench, where the track record has one
      <source>         of a lock that is a library's: the code that calls it, and pins.txt, the
                       versions of all that it stands on

Guarantees: the run is complete and unchanged, and today's checker reaches its verdicts
(``results.stored``). Tries and repetitions of a case are one report, which says k of n. Does not
say whose fault it is: a verdict that was expected to break has the source that says so.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import declarations
import locks
from bench.judge import SILENCE, expectation
from bench.plan import LINK_IMAGE
from checker.catalogue import CATALOGUE
from checker.check import check
from checker.follows import FOLLOWS
from clusters.registry import topologies
from evidence import bugreport_library as libraries
from evidence import track
from evidence.check import explained
from history.columns import History
from history.files import is_folder
from history.jsonl import write_jsonl
from history.op import NULL, F, Fault, Type
from history.recording import read_recording
from locks.base import Expectation, System
from locks.registry import NO_LOCKS, LockNotFoundError, declared, is_own
from nemesis.registry import NONE, faults
from report.grid import markdown_table
from results.cases import Case, asked_lock, broken, counts_as_try, fault_name, mapping
from results.errors import BadInput
from results.machine import PACKAGE
from results.store import CaseFolder, NotARun, slug, write_atomically
from results.stored import Edited, Stored, stored
from results.wording import escape_markdown, words

FOLDER: Final = "bugreports"
SETTINGS: Final = ("setting", "value")
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
)
OPTIONS: Final = {
    "--lock": "lock",
    "--fault": "fault",
    "--workload": "workload",
    "--seed": "seed",
    "--topology": "topology",
    "--nodes": "size",
    "--clients": "clients",
    "--keys": "keys",
    "--network": "network",
}
BYSTANDERS_MAX: Final = 12
MS: Final = 1e6
NO_SCRIPT: Final = (
    "There is no program for this one yet: what it takes is a recording of several clients at "
    "once. The operations beside this file and the timeline below are that recording."
)
NO_COMMANDS: Final = (
    "These are calls of the lock as its user made them and what each was answered; no commands on "
    "the wire were recorded. *The resource* is what the lock guards: a value with a version, kept "
    "by the bench outside of the lock's servers, that applies every write."
)
HOLDER_LATE: Final = (
    "It says that a client acted too late, not that the lock broke its word: no lease prevents "
    "that, a fence that the resource checks does."
)
# What an expectation's kind says of whom it is about.
KINDS: Final = {
    "documented-limit": "It is a limit that the source below states: this report shows it, and "
    "calls no code wrong.",
    "defect": "The source below says why it may be taken for a defect.",
    "control": "This lock is known to be broken. It shows whether the bench detects it.",
}


@dataclass(frozen=True)
class Broken:
    """A verdict that broke in ``shown`` of ``tried`` runs of a case; ``case`` is the first."""

    found: Stored
    case: Case
    verdict: str
    shown: int
    tried: int

    @property
    def name(self) -> str:
        return slug(f"{self.case['folder']}-{self.verdict}")

    @property
    def fault(self) -> str:
        """Without its parameters."""
        return str(self.case["fault"]).partition(":")[0]

    @property
    def declared_as(self) -> str:
        """The lock's name among the declarations here; empty for one of its user's own file."""
        lock = str(self.case["lock"])
        return "" if "own" in self.case or is_own(lock) else lock

    @property
    def library(self) -> libraries.Beside | None:
        """None for a lock whose client runs inside the worker."""
        return libraries.beside(self.declared_as, self.found.versions)

    @property
    def title(self) -> str:
        return f"{self.case['lock']} under {self.case['fault']}: {self.verdict}"


def bugreport(folder: Path) -> list[Path]:
    """Writes a folder per broken verdict and returns them; none where nothing broke. Raises
    BadInput for what is no finished run, or not what it was."""
    try:
        found = stored(folder)
        made = [_write(each) for each in _broken(found)]
    except (NotARun, Edited) as error:
        raise BadInput(str(error)) from error
    except OSError as error:
        raise BadInput(f"the reports of {folder} cannot be written: {error}") from error
    return made


def sentence(folder: Path, made: Sequence[Path]) -> str:
    """What was written, for people."""
    if not made:
        return f"no verdict is broken in {folder}: there is nothing to report"
    return "\n".join(str(path / "report.md") for path in made)


def _broken(found: Stored) -> Iterator[Broken]:
    groups: dict[str, list[Case]] = {}
    for case in found.cases:
        groups.setdefault(repr([case.get(name) for name in SAME]), []).append(case)
    for cases in groups.values():
        tried = [document for case in cases for document in _documents(found, case)]
        for verdict in dict.fromkeys(v for document in tried for v in broken(document)):
            showed = [document for document in tried if verdict in broken(document)]
            counted = [document for document in tried if counts_as_try(document, verdict)]
            yield Broken(found, showed[0], verdict, len(showed), len(counted))


def _documents(found: Stored, case: Case) -> Iterator[Case]:
    """The tries of a case, the first one first; those before the last are verified here."""
    for earlier in case.get("earlier_tries") or ():
        folder = CaseFolder(found.path / "cases" / str(earlier.get("folder", "unknown")))
        document = folder.read_case()
        if document is None:
            raise Edited(f"{folder.path}: its case.json is missing")
        if differs := folder.history_differs(document.get("history_sha256", {})):
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
    whole = read_recording(it.found.path / "cases" / it.case["folder"] / "history")
    small: History | None = None
    with contextlib.suppress(BadInput):  # more than a few operations: the whole one stands beside
        small = track.excerpt(whole, it.verdict)
        write_jsonl(small, target / "history.jsonl")
    record = _on_record(it)
    if record.script is not None:
        for name in (record.script.script, track.SHARED):
            shutil.copy(track.FOLDER / name, target / name)
    if it.library is not None:
        libraries.copy(it.library, target)
    text = "\n\n".join(part for part in _report(it, whole, small, record) if part)
    write_atomically(target / "report.md", text + "\n")
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


def _report(it: Broken, whole: History, small: History | None, record: OnRecord) -> Iterator[str]:
    judged = check(whole, only=(it.verdict,)).verdicts[it.verdict]
    yield f"# {escape_markdown(it.title)}"
    yield from _summary(it, judged.reason)
    yield "## Without Lockbench"
    yield from _without(record)
    yield "## What was promised"
    yield from _promise(it, record)
    yield "## Timeline"
    yield from _shown(it, whole, small, record.script)
    if small is not None:
        judged = check(small, only=(it.verdict,)).verdicts[it.verdict]
    yield "What the checker says:"
    yield code(explained(it.verdict, judged))
    yield "## Settings"
    yield from _settings(it)
    yield "## Versions"
    yield markdown_table(("what", "version"), _versions(it))
    if it.library is not None:
        yield f"`{libraries.PINS}` beside this file lists every dependency of the library."
    yield "## Again"
    yield "In a checkout of Lockbench, after `make setup`:"
    yield code("\n".join(_commands(it, small is not None)))


def _summary(it: Broken, reason: str) -> Iterator[str]:
    """What a reader needs to decide whether to go on."""
    if it.library is not None:
        yield libraries.headline(it.library)
        yield libraries.doubt(it.library)
    yield f"{escape_markdown(reason)}. Times are seconds of the recording."
    runs = f"{it.shown} of {it.tried} run{'s' * (it.tried != 1)}"
    yield f"{_meaning(it.verdict)}It showed in {runs} of this case."
    yield _expected(it)
    others = [verdict for verdict in broken(it.case) if verdict != it.verdict]
    if others:
        yield f"The same recording breaks {escape_markdown(words(others))} too."


def _meaning(verdict: str) -> str:
    """What it takes for a verdict to break, and whom that speaks against where it is not the
    lock."""
    entry = CATALOGUE.get(verdict)
    if entry is None:
        return ""
    what = f"**{verdict}** is broken when {entry.means}. "
    return what + (f"{HOLDER_LATE} " if entry.blames == "holder" else "")


def _without(record: OnRecord) -> Iterator[str]:
    script = record.script
    if script is not None:
        yield code(script.command.replace(f"docs/{track.FOLDER.name}/", ""))
        yield (
            "It needs the library and servers, nothing of Lockbench, and ends with 1 when the "
            f"defect shows: {script.shown} of {script.runs} times with "
            f"{escape_markdown(script.versions)}."
        )
        return
    yield NO_SCRIPT
    for page in record.same:
        yield (
            f"The track record has it, seen {page.shown} of {page.runs} times with "
            f"{escape_markdown(page.versions)} (`docs/track/{page.id}.md`), by"
        )
        yield code(page.command)
    for page in record.others:
        yield (
            f"Another thing breaks this promise of the lock, under {escape_markdown(page.fault)}: "
            f"{escape_markdown(page.title)} (`docs/track/{page.id}.md`)."
        )


def _declared(it: Broken) -> System | None:
    """None for a lock that is not declared here: gone, or one's own. The file of such a one is
    never run, so what the results do not say of it is not said."""
    try:
        return declared(it.declared_as)
    except LockNotFoundError:
        return None


def _counted_with(it: Broken, system: System) -> str:
    """The verdict whose expectation counts: where nothing is declared for this one itself, that of
    one that it follows from and that broke too (``bench.judge``)."""
    if it.verdict in system.expectations.get(it.fault, {}):
        return it.verdict
    causes = [cause for cause in FOLLOWS.get(it.verdict, ()) if cause in broken(it.case)]
    return causes[0] if causes else it.verdict


def _declared_of(it: Broken, system: System, verdict: str) -> Expectation:
    """Of several faults, silence about one is silence about all."""
    names = re.split(r"\+| then ", fault_name(it.case))
    found = [expectation(system, name, verdict) for name in names]
    return SILENCE if SILENCE in found else found[0]


def _expected(it: Broken) -> str:
    """What was expected, and what kind of finding that makes it."""
    system = _declared(it)
    if system is None:
        said = mapping(it.case.get("expected")).get(it.verdict)
        under = escape_markdown(it.fault)
        return f"Under {under} it was expected: {escape_markdown(str(said))}." if said else ""
    verdict = _counted_with(it, system)
    if verdict != it.verdict:
        return f"It was expected to break where {escape_markdown(verdict)} is, which broke too."
    expected = _declared_of(it, system, verdict)
    if expected == SILENCE:
        return f"Nothing is declared of this lock under {escape_markdown(it.fault)}."
    said = f"Under {escape_markdown(it.fault)} it was expected: {expected.expected}."
    return f"{said} {KINDS.get(expected.kind or '', '')}".strip()


def _promise(it: Broken, record: OnRecord) -> Iterator[str]:
    """Who says what of this lock, quoted with its address."""
    system = _declared(it)
    if system is None and not it.declared_as:
        own = mapping(it.case.get("own"))
        digest = escape_markdown(str(own.get("sha256") or "not recorded"))
        yield (
            f"This lock is a file of its user's, {escape_markdown(asked_lock(it.case))} (sha256 "
            f"{digest}). A report never runs such a file, so nothing can be quoted: its author has "
            "to be asked."
        )
        return
    if system is None:
        yield (
            "This lock is not declared here any more, so nothing can be quoted: its own "
            "documentation has to be asked."
        )
        return
    yield quote(system.source)
    for page in record.same:
        yield f"The track record (`docs/track/{page.id}.md`) quotes:"
        yield quote(page.source)
    verdict = _counted_with(it, system)
    of = f"{escape_markdown(verdict)} under {escape_markdown(it.fault)}"
    if verdict != it.verdict:
        yield (
            f"Nothing is declared for {escape_markdown(it.verdict)} itself; "
            f"{escape_markdown(verdict)} broke in the same recording."
        )
    expected = _declared_of(it, system, verdict)
    if expected == SILENCE:
        yield f"Nothing is declared for {of}, so no other source can be quoted."
        return
    if expected.source == system.source and expected.kind is None:
        yield (
            f"Nothing else is declared for {of}: it is expected to hold, on the word of this "
            "source."
        )
        return
    kind = f", {expected.kind}" if expected.kind else ""
    yield f"Of {of} it was expected: {expected.expected}{kind}. The source of that:"
    yield quote(expected.source)


def _shown(
    it: Broken, whole: History, small: History | None, script: track.Page | None
) -> Iterator[str]:
    """The timeline and how to read it."""
    yield NO_COMMANDS
    if script is not None and "Proxy(" in (track.FOLDER / script.script).read_text("utf-8"):
        yield (
            f"`{script.script}` beside this file puts a proxy between library and servers, and "
            "acts there on single commands and replies."
        )
    if small is None:
        yield "More operations belong to it than fit on a page; the recording of the case has them."
        return
    if promise := _paragraph(_declaration(it.declared_as), "The promise"):
        yield f"*valid until* is the end of the promise. {marked(promise)}"
    zero = _zero(whole, small)
    since = (zero - int(whole.invoke_ns[0])) / 1e9
    yield f"Milliseconds since {since:.3f} s of the recording. {_who(it, whole)}".strip()
    for fault in small.faults:
        yield _struck(fault, whole, zero)
    yield _timeline(whole, small)
    system = _declared(it)
    if system is not None and it.library is not None:
        yield "What the library said, and what it was taken for:"
        yield markdown_table(("said", "taken for"), system.outcomes.items())


def _who(it: Broken, whole: History) -> str:
    """Which clients share a process; empty for a history whose clients have names."""
    if whole.process_names is not None:
        return ""
    said = "The clients of one worker share a process."
    if it.library is not None:
        said += " The library runs in a process beside its worker, frozen and killed with it."
    return said


def _struck(fault: Fault, whole: History, zero: int) -> str:
    """What a fault of the timeline is, and whom it struck."""
    known = faults().get(fault.name)
    said = f"**{escape_markdown(fault.name)}**" + (f": {known.summary}" if known else "")
    same = (f for f in whole.faults if f.begin_ns[0] - zero == fault.begin_ns[0])
    workers = [str(w) for f in same if isinstance(w := f.facts.get("worker"), int)]
    if fault.targets:
        return f"{said}. It struck {escape_markdown(words(fault.targets))}."
    return said + (f". It struck worker process {words(workers)}." if workers else ".")


def _paragraph(text: str, beginning: str) -> str:
    """The paragraph that begins so, in one line; empty if there is none."""
    found = (" ".join(each.split()) for each in text.split("\n\n"))
    return next((each for each in found if each.startswith(beginning)), "")


def _timeline(whole: History, small: History) -> str:
    """Who asked what when and what was answered; ms from the first operation."""
    zero = _zero(whole, small)
    rows = [(int(small.invoke_ns[row]), _line(small, row, whole)) for row in range(len(small))]
    beside = _bystanders(whole, small)
    rows += [
        (int(whole.invoke_ns[row]) - zero, _line(whole, row, whole, zero))
        for row in beside[:BYSTANDERS_MAX]
    ]
    for fault in small.faults:
        what = " ".join([fault.name, *fault.targets])
        rows.append((fault.begin_ns[0], (_ms(fault.begin_ns[0]), "", "fault", what, "begins", "")))
        if fault.heal_ns is not None:
            healed = (_ms(fault.heal_ns[0]), _ms(fault.heal_ns[1]), "fault", what, "healed", "")
            rows.append((fault.heal_ns[0], healed))
    rows.sort(key=lambda entry: entry[0])
    columns = ["sent ms", "answered ms", "who", "what", "answer", "hold"]
    table = markdown_table(columns, (line for _, line in rows))
    left = len(beside) - BYSTANDERS_MAX
    return table + (f"\n\n{left} more requests were refused or unanswered." if left > 0 else "")


def _bystanders(whole: History, small: History) -> list[int]:
    """Rows of who asked for the same key in vain meanwhile."""
    holds = {small.hold_name(int(h)) for h in small.hold if h != NULL}
    key = small.keys[int(small.key[0])]
    zero = _zero(whole, small)
    end = zero + int(max(small.invoke_ns.max(), small.complete_ns.max()))
    others = (whole.f == F.ACQUIRE) & (whole.type != Type.OK)
    others &= (whole.invoke_ns >= zero) & (whole.invoke_ns <= end)
    others &= whole.key == (whole.keys.index(key) if key in whole.keys else -1)
    return [
        row
        for row in np.flatnonzero(others).tolist()
        if whole.hold[row] == NULL or whole.hold_name(int(whole.hold[row])) not in holds
    ]


def _zero(whole: History, small: History) -> int:
    """When in the recording the small history begins."""
    name = small.hold_name(int(small.hold[0])) if small.hold[0] != NULL else None
    same = whole.process == small.process[0]
    if name is not None:
        same &= whole.hold == small.hold[0]
    same &= whole.f == small.f[0]
    return int(whole.invoke_ns[np.flatnonzero(same)[0]])


def _line(history: History, row: int, whole: History, zero: int = 0) -> tuple[str, ...]:
    f, outcome = F(int(history.f[row])), Type(int(history.type[row]))
    done = int(history.complete_ns[row])
    answer = outcome.word
    if f is F.ACQUIRE and outcome is Type.OK:
        answer = "granted"
        if history.fence[row] != NULL:
            answer += f", fence {int(history.fence[row])}"
    elif outcome is Type.INFO:
        answer = "no answer"
    if history.valid_until_ns[row] != NULL:
        answer += f", valid until {_ms(int(history.valid_until_ns[row]) - zero)}"
    if f in {F.READ, F.WRITE} and history.value[row] != NULL:
        answer += f", version {int(history.value[row])}"
    if history.error[row] >= 0:
        answer += f": {history.errors[int(history.error[row])]}"
    who = whole.client(int(history.process[row]))
    of_resource = "the resource " if f in {F.READ, F.WRITE} else ""
    what = f"{f.word} {of_resource}{history.keys[int(history.key[row])]}"
    hold = "" if history.hold[row] == NULL else history.hold_name(int(history.hold[row]))
    sent = _ms(int(history.invoke_ns[row]) - zero)
    return (sent, "never" if done == NULL else _ms(done - zero), who, what, answer, hold)


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / MS:.3f}"


def _settings(it: Broken) -> Iterator[str]:
    """What was set, apart for library, servers and load; the rest is as it comes."""
    case, library = it.case, it.library
    if library is not None:
        yield from libraries.settings(library, case.get("settings") or {})
    said = _declaration(it.declared_as)
    if said and library is None:
        yield "How the lock is set, in the words of its own file:"
        yield code(said)
    given: Mapping[str, Any] = case.get("settings") or {}
    if not given:
        yield "The run did not record any."
        return
    topology = topologies().get(str(case.get("topology")))
    of_server = set(topology.settings) if topology is not None else set()
    yield "Set on the servers; everything else is their default:"
    yield markdown_table(SETTINGS, (i for i in given.items() if i[0] in of_server))
    yield (
        "Set for the clients and the load:"
        if library is None
        else "What the load asks of every lock. The lease is `lease_ttl_s`; `client_timeout_s` is "
        "given to the library only where it is said above:"
    )
    yield markdown_table(SETTINGS, (i for i in given.items() if i[0] not in of_server))
    if said and library is not None:
        yield "The file that declares this lock and its variants says of them:"
        yield code(said)


def _declaration(lock: str) -> str:
    """What the file that declares a lock says of it; empty for a lock from elsewhere."""
    name = lock.partition(":")[0]
    for module in declarations.modules(locks, NO_LOCKS):
        if name in declarations.collected([module], "SYSTEM", System):
            return inspect.getdoc(module) or ""
    return ""


def _versions(it: Broken) -> list[tuple[str, str]]:
    versions, topology = it.found.versions, str(it.case.get("topology"))
    known, library = topologies().get(topology), it.library
    rows = [] if library is None else libraries.versions(library)
    for name, image in versions.get("images", {}).items():
        if name == LINK_IMAGE or known is None or name in known.images:
            packages = ", ".join(f"{k} {v}" for k, v in (image.get("versions") or {}).items())
            rows.append((f"image {name}", f"{packages} ({image.get('digest') or image.get('id')})"))
    ours: Mapping[str, str] = versions.get("libraries", {})
    # What the bench itself stands on is no part of a library beside it.
    rows += [(k, v) for k, v in ours.items() if library is None or k == PACKAGE]
    return rows


def _commands(it: Broken, small: bool) -> Iterator[str]:
    command = ["lockbench", "run"]
    for option, name in OPTIONS.items():
        if it.case.get(name) is not None:
            word = asked_lock(it.case) if name == "lock" else str(it.case[name])
            command += [option, word]
    yield shlex.join(command)
    if len(it.found.cases) == 1:
        yield shlex.join(["lockbench", "run", "--replay", str(it.found.path), "--times", "5"])
    if small:
        yield "lockbench check history.jsonl"


def marked(text: str) -> str:
    """A docstring's sentence as Markdown: its code stays code, everything else is text."""
    parts = re.split(r"``([^`]+)``", text)
    return "".join(f"`{p}`" if i % 2 else escape_markdown(p) for i, p in enumerate(parts))


def quote(text: str) -> str:
    """A block quotation; addresses stay addresses, everything else is text."""
    parts = re.split(r"(https?://\S+)", " ".join(text.split()))
    escaped = [p if i % 2 else escape_markdown(p) for i, p in enumerate(parts)]
    return "> " + "".join(escaped)


def code(text: str) -> str:
    """A block of code that nothing in it can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
