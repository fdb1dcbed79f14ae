"""What a bench that something was done to has left behind, and what was said of its run.

Asked from outside: of the engine, the kernel, the temporary folder, and of the commands as a user
would call them. ``wrong_words`` is pure, so each rule of it is tested with what was planted.

Guarantees: whatever is named belongs to that very bench (its label, its mark, its session); what
others own is never looked at. Does not guarantee: that what carries neither is seen, except in the
temporary folder, where everything new counts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from lockbench.clusters.engine import owner
from lockbench.clusters.engine.docker import Engine
from lockbench.clusters.registry import topologies
from lockbench.history.lines import UnreadableHistory
from lockbench.history.recording import read_recording
from lockbench.results.cases import COULD_NOT_RUN
from lockbench.results.errors import Ending
from lockbench.results.judgements import GREEN, VIOLATED
from lockbench.results.store import RUNNING
from lockbench.workloads.fork_server import RUN_ENVIRONMENT
from soak.parts import BENCH
from soak.victims import ENGINE, LINK, SERVER

ROOT: Final = Path(__file__).parent.parent
COMMAND_LIMIT_S: Final = 60.0
REFUSED: Final = 254
TRACEBACK: Final = "Traceback (most recent call last)"
# What a command says of a history that is not whole.
OF_A_CUT: Final = re.compile(r"\bcut\b|half-written|not finished|interrupted|still at work")

CONTAINER, NETWORK, PROCESS, FILE = "container", "network", "process", "file"


@dataclass(frozen=True, slots=True)
class Left:
    """One thing that is there. ``identity`` does not come to mean another one."""

    kind: str
    identity: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def left_of(bench: str, session: int, temporary: Path, engine: Engine) -> frozenset[Left]:
    """What there is of a bench (``lockbench.clusters.engine.owner.me``), which led the session:
    containers, networks, processes; and every file in the temporary folder."""
    mine = {owner.OWNER: bench}
    found = {Left(CONTAINER, c.id, c.name) for c in engine.containers(mine)}
    found |= {Left(NETWORK, n.id, n.name) for n in engine.networks(mine)}
    for process in psutil.process_iter():
        started = owner.start_ticks(process.pid)
        if started is not None and _is_of(process, bench, session):
            words = " ".join(_words(process))[:80]
            found.add(Left(PROCESS, f"{process.pid}:{started}", f"{process.pid} ({words})"))
    return frozenset(found | files_in(temporary))


def files_in(folder: Path) -> set[Left]:
    """Everything that lies there."""
    return {Left(FILE, str(path), path.name) for path in folder.iterdir()}


def _is_of(process: psutil.Process, bench: str, session: int) -> bool:
    with suppress(psutil.Error, OSError):
        if os.getsid(process.pid) == session:
            return True
        return process.environ().get(RUN_ENVIRONMENT, "").endswith(f"@{bench}")
    return False


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline() or [process.name()]
    return ["gone"]


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said. ``code`` is negative where a signal ended it, None where it hung."""

    code: int | None
    out: str
    err: str

    @property
    def all(self) -> str:
        return f"{self.out}\n{self.err}"


def ask(command: Sequence[str], folder: Path, *words: str) -> Said:
    """Calls ``lockbench`` as a user would, in ``folder``."""
    asked = subprocess.Popen(
        [*command, *words],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        out, err = asked.communicate(timeout=COMMAND_LIMIT_S)
    except subprocess.TimeoutExpired:
        asked.kill()
        return Said(None, *asked.communicate())
    return Said(asked.returncode, out, err)


def environment(**more: str) -> dict[str, str]:
    """So that the command is the one of this checkout, wherever it is called."""
    return os.environ | {"PYTHONPATH": str(ROOT)} | more


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What is known when the bench has ended. ``struck``: what was struck really ended (an engine:
    was gone). ``went_on``: a client began an operation afterwards. ``ending`` is the run's word and
    ``report`` what
    ``lockbench report`` says of one that never ended. ``checked`` is what
    ``lockbench check`` says of a history, None where there is none."""

    target: str
    topology: str
    struck: bool
    went_on: bool
    said: Said
    ending: str | None
    documents: Sequence[dict[str, Any]]
    report: Said | None
    checked: Said | None
    left: frozenset[Left]


def documents_of(run: Path) -> list[dict[str, Any]]:
    """What was written of the cases that were done."""
    found = []
    for path in sorted(run.glob("cases/*/case.json")):
        with suppress(OSError, ValueError):
            found.append(json.loads(path.read_text(encoding="utf-8")))
    return found


def went_on_after(run: Path, at_ns: int) -> bool:
    """Whether a client began an operation after this time; no, where the histories are unreadable
    (which is told by ``lockbench check``)."""
    for folder in run.glob("cases/*/history"):
        with suppress(UnreadableHistory, OSError, ValueError):
            if (read_recording(folder).invoke_ns > at_ns).any():
                return True
    return False


def wrong_words(seen: Aftermath) -> list[str]:
    """Every word that should not have been said, one sentence each."""
    return [
        *_of_the_run(seen),
        *_of_the_ending(seen),
        *_of_a_command("report", seen.report, seen.ending == RUNNING),
        *_of_the_history(seen),
    ]


def readable(checked: Said) -> bool:
    """Whether a history was judged, or refused with one sentence."""
    if checked.code == REFUSED:  # the sentence is wrapped where it is long
        return checked.err.startswith("lockbench: ") and TRACEBACK not in checked.all
    return checked.code in (0, 1, 2) and TRACEBACK not in checked.all


def _of_the_run(seen: Aftermath) -> list[str]:
    said, wrong = seen.said, []
    if TRACEBACK in said.all:
        last = said.err.strip().splitlines() or ["(nothing)"]
        wrong.append(f"the run ended in a traceback: {last[-1]}")
    if said.code is None:
        wrong.append("the run did not end")
    elif said.code >= 0 and not _is_json(said.out):
        wrong.append(f"standard output is not one JSON object (exit {said.code})")
    accused = [str(d.get("why")) for d in seen.documents if d.get("judgement") in VIOLATED]
    if said.code == Ending.SAFETY.code or accused:
        wrong.append(f"told as a broken promise: {'; '.join(accused) or 'exit 1'}")
    green = [d for d in seen.documents if d.get("judgement") in GREEN]
    # Clients do not need the engine, and a case that was done before its bench was struck stays.
    touched = seen.struck and seen.went_on and seen.target != ENGINE
    if touched and (said.code == 0 or (green and seen.target != BENCH)):
        wrong.append(f"green, though clients went on after it (exit {said.code})")
    containers = [str(one) for one in seen.left if one.kind in (CONTAINER, NETWORK)]
    if containers and said.code == 0:
        wrong.append(f"green, though it left {len(containers)} of its containers and networks")
    named = any(one.name in said.all for one in seen.left if one.kind == CONTAINER)
    if seen.target == ENGINE and containers and (said.code or 0) >= 0 and not named:
        wrong.append(f"what it left is not named ({', '.join(sorted(containers)[:2])}, …)")
    return wrong


def _of_the_ending(seen: Aftermath) -> list[str]:
    code, ending = seen.said.code, seen.ending
    if ending is None:
        return ["green without a run"] if code == 0 else []
    by_code = {one.code: one.word for one in Ending}
    if code in by_code and ending != by_code[code]:
        return [f"exit {code} and yet `ending` says {ending!r}"]
    if ending == by_code[0] and not seen.documents:
        return ["`ending` says 'ok' of a run without a case"]
    return []


def _of_a_command(name: str, said: Said | None, must_refuse: bool) -> list[str]:
    if said is None:
        return []
    if said.code is None:
        return [f"`{name}` hangs"]
    if TRACEBACK in said.all:
        return [f"`{name}` ends in a traceback: {said.err.strip().splitlines()[-1]}"]
    if must_refuse and said.code != REFUSED:
        return [f"`{name}` takes a run that never ended (exit {said.code})"]
    return []


def _of_the_history(seen: Aftermath) -> list[str]:
    checked = seen.checked
    wrong = _of_a_command("check", checked, must_refuse=False)
    if checked is None or wrong:
        return wrong
    if not readable(checked):
        return [f"`check`: neither read nor refused with one sentence (exit {checked.code})"]
    finished = any(d.get("judgement") != COULD_NOT_RUN for d in seen.documents)
    if checked.code == 0 and not finished and not OF_A_CUT.search(checked.all):
        return ["`check` says VALID of a history that was cut, and does not say so"]
    # Where others take over for a server, promises do break, and it is no defect of the lock.
    fails_over = {topology.name for topology in topologies().values() if topology.fails_over}
    excused = seen.target in (LINK, SERVER) and seen.topology in fails_over
    if checked.code == 1 and not excused:
        return [f"`check` says INVALID: {_first(checked.out, ' invalid ')}"]
    return []


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _first(text: str, mark: str) -> str:
    return next((line.strip() for line in text.splitlines() if mark in line), "(no line)")
