"""Makes an input, runs a command on it and judges what came of it.

<kept>/  work/ out/ outside/ tmp/ home/ evil …   as the command left them
         tried.json                             the command and the changes, for the corpus
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from tests.fuzz.inputs import INPUTS, WRITES, Input
from tests.fuzz.mutations import Change, apply
from tests.fuzz.server import RSS_BYTES, STOPPED, Ended, Warm

KEPT_BYTES_MAX: Final = 1 << 20
CANARY: Final = "a canary: whoever shows this line followed a link\n"
# docs/commands.md and docs/checker.md. 255 says that the bench failed: never because of what it was
# given.
CODES: Final = frozenset({0, 1, 2, 3, 254})
# ESC and the other control characters, and what turns the direction of text.
RAW: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

ERROR: Final = re.compile(r"^(?:\w+\.)*([A-Z]\w+)(?::|$)", re.MULTILINE)


@dataclass(frozen=True)
class Tried:
    """What was run, and what is wrong with it; nothing is an empty tuple."""

    kind: str
    command: tuple[str, ...]
    changes: tuple[Change, ...]
    ended: Ended
    wrong: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"input": self.kind, "command": list(self.command), "changes": list(self.changes)}

    def told(self) -> str:
        ended = self.ended
        return (
            f"lockbench {' '.join(repr(word)[:80] for word in self.command)}\n"
            f"  {self.kind}: {json.dumps(list(self.changes))[:600]}\n"
            f"  {'; '.join(self.wrong)} (code {ended.code}, {ended.wall_s:.1f} s, "
            f"{ended.cpu_s:.1f} s of it computing, {ended.rss_bytes >> 20} MB)"
        )


def bases(folder: Path) -> Path:
    """Makes every input once, to be copied."""
    for name, given in INPUTS.items():
        folders(folder / name)
        given.make(folder / name / "work")
    return folder


@contextmanager
def made(base: Path, folder: Path, changes: Sequence[Change]) -> Iterator[Path]:
    """A copy of an input with changes, removed afterwards."""
    copy(base, folder)
    (folder / "outside" / "canary").write_text(CANARY)
    try:
        apply(folder / "work", changes)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def attempt(
    warm: Warm, folder: Path, kind: str, command: Sequence[str], changes: Sequence[Change]
) -> Tried:
    """Runs a command in a folder that was ``made``."""
    ended, wrong = judged(warm, folder, INPUTS[kind], command)
    return Tried(kind, tuple(command), tuple(changes), ended, tuple(wrong))


def judged(
    warm: Warm, folder: Path, given: Input, command: Sequence[str], **limits: Any
) -> tuple[Ended, list[str]]:
    """Runs a command, and says what is wrong with what it did."""
    before = _tree(folder)
    ended = warm.run(folder, command, given.entry, **limits)
    after = _tree(folder)
    touched = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    asked = {command[n + 1] for n, word in enumerate(command[:-1]) if word in WRITES}
    return ended, judge(ended, [name for name in touched if name[5:] not in asked], given)


def judge(ended: Ended, touched: Sequence[str], given: Input) -> list[str]:
    """A sentence for each thing that no input may make a command do."""
    wrong = []
    if "Traceback (most recent call last)" in ended.err:
        wrong.append(f"traceback: {_where(ended.err)}")
    if ended.blocked:
        wrong.append("hang: it waited for nothing")
    elif ended.code in (-24, -9):
        wrong.append("hang: it computed for more than 10 s")
    elif ended.code not in CODES and ended.code != STOPPED and not wrong:
        wrong.append(f"code {ended.code}")
    if ended.rss_bytes > RSS_BYTES:
        wrong.append(f"memory: {ended.rss_bytes >> 20} MB")
    wrong += ended.noted
    if ended.code == 254 and not ended.err.strip():
        wrong.append("254 without a sentence")
    allowed = [f"work/{name}" for name in given.written]
    allowed += [f"{name}/*" for name in allowed] + ["out/*", "tmp/*", "home/*"]
    wrong += [f"wrote {name}" for name in touched if not any(fnmatch(name, one) for one in allowed)]
    if "a canary:" in ended.out + ended.err:
        wrong.append("showed what a link outside leads to")
    for name, text in (("output", ended.out), ("errors", ended.err)):
        if found := RAW.search(text):
            wrong.append(f"raw {found[0]!r} in the {name}")
    return wrong


def keep(folder: Path, tried: Tried, into: Path) -> Path:
    """Copies what made a command fail; links and pipes as what they are."""
    target = into / f"{tried.kind}-{len(list(into.iterdir())):03d}"
    copy(folder, target, most=KEPT_BYTES_MAX)
    (target / "tried.json").write_text(json.dumps(tried.to_json(), indent=1) + "\n")
    return target


def copy(folder: Path, target: Path, most: int | None = None) -> None:
    """A folder with links and pipes as what they are; files of more than ``most`` bytes left out.
    ``shutil.copytree`` stops at a pipe."""
    target.mkdir()
    for path in sorted(folder.rglob("*")):
        at = target / path.relative_to(folder)
        told = path.lstat()
        if stat.S_ISDIR(told.st_mode):
            at.mkdir()
        elif stat.S_ISLNK(told.st_mode):
            at.symlink_to(path.readlink())
        elif stat.S_ISFIFO(told.st_mode):
            os.mkfifo(at)
        elif stat.S_ISREG(told.st_mode) and (most is None or told.st_size <= most):
            shutil.copyfile(path, at)


def folders(folder: Path) -> None:
    """Makes what a command is run in."""
    for name in ("work", "out", "outside", "tmp", "home"):
        (folder / name).mkdir(parents=True)


def _tree(folder: Path) -> dict[str, tuple[int, ...]]:
    """What stands below a folder: name → kind, length and time of change."""
    found = {}
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(at, name)
            told = path.lstat()
            # A folder changes its time with what is in it, which is told by itself.
            rest = () if stat.S_ISDIR(told.st_mode) else (told.st_size, told.st_mtime_ns)
            found[path.relative_to(folder).as_posix()] = (stat.S_IFMT(told.st_mode), *rest)
    return {name: told for name, told in found.items() if name not in ("stdout", "stderr", "noted")}


def _where(text: str) -> str:
    """The last line of ours in a traceback, and its exception."""
    places = re.findall(r'File "([^"]*)", line (\d+), in (\S+)', text)
    ours = [
        place for place in places if "/site-packages/" not in place[0] and "/lib/" not in place[0]
    ]
    path, line, name = (ours or places or [("?", "0", "?")])[-1]
    errors = ERROR.findall(text)
    short = "/".join(Path(path).parts[-2:])
    return f"{short}:{line} {name} | {errors[-1] if errors else '?'}"
