"""``lockbench bugreport RUN``: for every broken verdict what the maintainer of a library needs.

    RUN/bugreports/<case>-<verdict>/
      report.md        what broke, what was promised and where, the timeline, settings, versions
      history.jsonl    the few operations that show it, for ``lockbench check``
      <script>.py      a program that shows it without Lockbench, where the track record has one

Guarantees: the run is complete and unchanged, and today's checker reaches its verdicts
(``results.evidence``). Tries and repetitions of a case are one report, which says k of n. Does not
say whose fault it is: a verdict that was expected to break has the source that says so.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

import locks
from bench import track
from bench.check import explained
from bench.errors import BadInput
from checker.check import check
from clusters.registry import topologies
from history.columns import History
from history.jsonl import write_jsonl
from history.op import NULL, F, Type
from history.recording import read_recording
from locks.base import System
from locks.library import ADAPTERS, Library
from locks.registry import LockNotFoundError, find
from results.cases import Case, broken, counts_as_try
from results.evidence import Edited, Stored, stored
from results.store import CaseFolder, NotARun, slug, write_atomically
from results.tables import markdown_table
from results.wording import escape_markdown

FOLDER: Final = "bugreports"
LINK_IMAGE: Final = "toxiproxy"
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
        folder = CaseFolder(found.path / "cases" / str(earlier["folder"]))
        document = folder.read_case()
        if document is None:
            raise Edited(f"{folder.path}: its case.json is missing")
        if differs := folder.history_differs(document["history_sha256"]):
            raise Edited(f"{folder.path}: the history is not the one that was judged: {differs[0]}")
        yield document
    yield case


def _write(it: Broken) -> Path:
    target = it.found.path / FOLDER / it.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    whole = read_recording(it.found.path / "cases" / it.case["folder"] / "history")
    small: History | None = None
    with contextlib.suppress(BadInput):  # more than a few operations: the whole one stands beside
        small = track.excerpt(whole, it.verdict)
        write_jsonl(small, target / "history.jsonl")
    script = _script(it, target)
    text = "\n\n".join(part for part in _report(it, whole, small, script) if part)
    write_atomically(target / "report.md", text + "\n")
    return target


def _script(it: Broken, target: Path) -> track.Page | None:
    """The page with the program of this lock and verdict, if there is one; copied beside."""
    lock = str(it.case["lock"]).partition(":")[0]
    for page in track.pages():
        shows = page.script and page.script in page.command
        if shows and lock in page.locks and it.verdict in page.verdicts:
            for name in (page.script, track.SHARED):
                shutil.copy(track.FOLDER / name, target / name)
            return page
    return None


def _report(
    it: Broken, whole: History, small: History | None, script: track.Page | None
) -> Iterator[str]:
    case = it.case
    judged = check(whole, only=(it.verdict,)).verdicts[it.verdict]
    yield f"# {escape_markdown(it.title)}"
    yield f"{escape_markdown(judged.reason)}."
    yield (f"It showed in {it.shown} of {it.tried} run{'s' * (it.tried != 1)} of this case.")
    yield "## Without Lockbench"
    if script is None:
        yield NO_SCRIPT
    else:
        yield code(script.command)
        yield (
            f"It needs the library and servers, nothing of ours, and ends with 1 when the defect "
            f"shows: {script.shown} of {script.runs} times with {escape_markdown(script.versions)}."
        )
    yield "## What was promised"
    yield from _promise(it)
    yield "## Timeline"
    if small is None:
        yield "More operations belong to it than fit on a page; the recording of the case has them."
    else:
        since = (_zero(whole, small) - int(whole.invoke_ns[0])) / 1e9
        yield f"Milliseconds since {since:.3f} s of the recording."
        yield _timeline(whole, small)
        judged = check(small, only=(it.verdict,)).verdicts[it.verdict]
    yield "What the checker says:"
    yield code(explained(it.verdict, judged))
    yield "## Settings"
    yield from _settings(case)
    yield "## Versions"
    yield markdown_table(_versions(it))
    yield "## Again"
    yield code("\n".join(_commands(it, small is not None)))


def _promise(it: Broken) -> Iterator[str]:
    """Who says what of this lock, quoted with its address."""
    try:
        system: System = find(str(it.case["lock"]))
    except LockNotFoundError:
        yield (
            "This lock is not declared here any more, so nothing can be quoted: its own "
            "documentation has to be asked."
        )
        return
    fault = str(it.case["fault"]).partition(":")[0]
    expected = system.expectation(fault, it.verdict)
    yield quote(system.source)
    if expected.source == system.source:
        yield (
            f"Nothing else is declared for {escape_markdown(it.verdict)} under "
            f"{escape_markdown(fault)}: it is expected to hold, on the word of this source."
        )
        return
    kind = f", {expected.kind}" if expected.kind else ""
    yield (
        f"Of {escape_markdown(it.verdict)} under {escape_markdown(fault)} it was expected: "
        f"{expected.expected}{kind}. The source of that:"
    )
    yield quote(expected.source)


def _timeline(whole: History, small: History) -> str:
    """Who asked what when and what was answered; ms from the first operation."""
    holds = {small.hold_name(int(h)) for h in small.hold if h != NULL}
    key = small.keys[int(small.key[0])]
    zero = _zero(whole, small)
    end = zero + int(max(small.invoke_ns.max(), small.complete_ns.max()))
    rows = [(int(small.invoke_ns[row]), _line(small, row)) for row in range(len(small))]
    others = (whole.f == F.ACQUIRE) & (whole.type != Type.OK)
    others &= (whole.invoke_ns >= zero) & (whole.invoke_ns <= end)
    others &= whole.key == (whole.keys.index(key) if key in whole.keys else -1)
    beside = [
        row
        for row in np.flatnonzero(others).tolist()
        if whole.hold[row] == NULL or whole.hold_name(int(whole.hold[row])) not in holds
    ]
    rows += [
        (int(whole.invoke_ns[row]) - zero, _line(whole, row, zero))
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
    table = markdown_table(pd.DataFrame([line for _, line in rows], columns=columns))
    left = len(beside) - BYSTANDERS_MAX
    return table + (f"\n\n{left} more requests were refused or unanswered." if left > 0 else "")


def _zero(whole: History, small: History) -> int:
    """When in the recording the small history begins."""
    name = small.hold_name(int(small.hold[0])) if small.hold[0] != NULL else None
    same = whole.process == small.process[0]
    if name is not None:
        same &= whole.hold == small.hold[0]
    same &= whole.f == small.f[0]
    return int(whole.invoke_ns[np.flatnonzero(same)[0]])


def _line(history: History, row: int, zero: int = 0) -> tuple[str, ...]:
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
    who = f"client {history.process_name(int(history.process[row]))}"
    of_resource = "the resource " if f in {F.READ, F.WRITE} else ""
    what = f"{f.word} {of_resource}{history.keys[int(history.key[row])]}"
    hold = "" if history.hold[row] == NULL else history.hold_name(int(history.hold[row]))
    sent = _ms(int(history.invoke_ns[row]) - zero)
    return (sent, "never" if done == NULL else _ms(done - zero), who, what, answer, hold)


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / MS:.3f}"


def _settings(case: Case) -> Iterator[str]:
    """What was set, apart for servers and clients; the rest is as it comes."""
    if said := _declaration(str(case["lock"])):
        yield "How the lock is set, in the words of its own file:"
        yield code(said)
    given: Mapping[str, Any] = case.get("settings") or {}
    if not given:
        yield "The run did not record any."
        return
    topology = topologies().get(str(case.get("topology")))
    of_server = set(topology.settings) if topology is not None else set()
    yield "Set on the servers; everything else is their default:"
    yield markdown_table(_frame({k: v for k, v in given.items() if k in of_server}))
    yield "Set for the clients and the load:"
    yield markdown_table(_frame({k: v for k, v in given.items() if k not in of_server}))


def _declaration(lock: str) -> str:
    """What the file that declares a lock says of it; empty for a lock from elsewhere."""
    name = lock.partition(":")[0]
    for info in pkgutil.iter_modules(locks.__path__):
        module = importlib.import_module(f"{locks.__name__}.{info.name}")
        declared = [getattr(module, "SYSTEM", None), *getattr(module, "SYSTEMS", ())]
        if any(isinstance(system, System) and system.name == name for system in declared):
            return inspect.getdoc(module) or ""
    return ""


def _pins(lock: str) -> Iterator[tuple[str, str]]:
    """The library that a lock is an adapter of, as its environment has it."""
    with contextlib.suppress(LockNotFoundError):
        library = getattr(find(lock).connect, "__self__", None)
        if isinstance(library, Library):
            pins = (ADAPTERS / library.folder / "requirements.txt").read_text(encoding="utf-8")
            for name, version in re.findall(r"^([\w.\-]+)==(\S+)", pins, re.MULTILINE):
                yield f"{lock}: {name}", version


def _frame(values: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame([(k, str(v)) for k, v in values.items()], columns=["setting", "value"])


def _versions(it: Broken) -> pd.DataFrame:
    versions, topology = it.found.versions, str(it.case.get("topology"))
    known = topologies().get(topology)
    rows = []
    for name, image in versions.get("images", {}).items():
        if name == LINK_IMAGE or name in topology or known is None or name == known.image:
            packages = ", ".join(f"{k} {v}" for k, v in (image.get("versions") or {}).items())
            rows.append((f"image {name}", f"{packages} ({image.get('digest') or image.get('id')})"))
    rows += _pins(str(it.case["lock"]))
    rows += versions.get("libraries", {}).items()
    return pd.DataFrame(rows, columns=["what", "version"])


def _commands(it: Broken, small: bool) -> Iterator[str]:
    words = ["lockbench", "run"]
    for option, name in OPTIONS.items():
        if it.case.get(name) is not None:
            words += [option, str(it.case[name])]
    yield shlex.join(words)
    yield shlex.join(["lockbench", "run", "--replay", str(it.found.path), "--times", "5"])
    if small:
        yield "lockbench check history.jsonl"


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
