"""A file on disk, in generations. A generation is written under a name of its own, synced, and then
linked to the next number; ``link`` does not replace a file that is there, so of two writers that
saw the same generation one is refused and looks again.

What a table format does with its log (a version is a file that must not be there yet). ``rename``
alone would replace whatever a faster one has put there. The newest generation is the one with the
highest number; older ones must stay for longer than any writer may sleep, or one that wakes up
finds its old number free again.

The record is the generations themselves. There is no server that could fail; what happens on a file
system over the network is not looked at.
"""

from __future__ import annotations

import inspect
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lockbench.history.guarded import Rule
from lockbench.stores.base import (
    UNGUARDED,
    UNGUARDED_PROMISES,
    Applied,
    Away,
    Entry,
    Guard,
    Outcome,
    Refused,
    Seen,
    Store,
    Where,
    Write,
    entry,
)

DIGITS: Final = 12


def newest_of(folder: Path, generation: int = 0) -> int:
    """The newest generation, from a known one on."""
    while (folder / f"{generation + 1:0{DIGITS}d}").exists():
        generation += 1
    return generation


def linked(folder: Path, generation: int, text: str) -> bool:
    """Whether this text became the generation: nobody else's had."""
    draft = folder / f".{secrets.token_hex(8)}"
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, folder / f"{generation:0{DIGITS}d}")  # refused where the name is taken
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def write_if_newer(folder: Path, value: str, fence: int, generation: int = 0) -> int | None:
    """The generation made, or None: refused. The first line of a generation is its fence."""
    while True:
        generation = newest_of(folder, generation)
        path = folder / f"{generation:0{DIGITS}d}"
        newest = int(path.read_text(encoding="utf-8").split("\n", 1)[0]) if generation else 0
        if fence <= newest:
            return None
        if linked(folder, generation + 1, f"{fence}\n{value}"):
            return generation + 1


def write_if_unchanged(folder: Path, value: str, generation: int) -> int | None:
    """The generation made, or None: it was not the newest any more."""
    return generation + 1 if linked(folder, generation + 1, f"0\n{value}") else None


def write_next(folder: Path, value: str, generation: int = 0) -> int:
    """The generation made, whoever wrote the one before."""
    while True:
        generation = newest_of(folder, generation)
        if linked(folder, generation + 1, f"0\n{value}"):
            return generation + 1


class File:
    """One client."""

    def __init__(self, where: Where, guard: Guard, recorded: bool) -> None:
        self._folder = where.folder
        self._rule = guard.rule
        self._known: dict[str, int] = {}  # generation of a key, where to go on looking

    def read(self, key: str) -> Seen:
        folder = self._folder / key
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._known[key] = newest_of(folder, self._known.get(key, 0))
        except OSError as error:
            raise Away(str(error)) from error
        return Seen(self._known[key])

    def write(self, write: Write) -> Outcome:
        folder, value, seen = self._folder / write.key, write.value, write.seen.version
        try:
            if self._rule == "newer":
                made = write_if_newer(folder, value, write.fence or 0, seen)
            elif self._rule == "unchanged":
                made = write_if_unchanged(folder, value, seen)
            else:
                made = write_next(folder, value, seen)
        except OSError as error:
            raise Away(str(error)) from error
        return Refused() if made is None else Applied(made)

    def written(self) -> list[Entry]:
        found: list[Entry] = []
        try:
            for folder in sorted(self._folder.iterdir()):
                for path in sorted(folder.glob("[0-9]*")):
                    value = path.read_text(encoding="utf-8").split("\n", 1)[1]
                    found.append(entry(folder.name, int(path.name), int(path.name), value))
        except OSError as error:
            raise Away(str(error)) from error
        return found

    def close(self) -> None:
        """There is nothing to close."""


LINK_DOC = (
    "https://man7.org/linux/man-pages/man2/link.2.html: 'If newpath exists, it will not be "
    "overwritten'"
)
LOG_DOC = (
    f"{LINK_DOC}; https://github.com/delta-io/delta/blob/master/PROTOCOL.md: a commit is a file "
    "that must not be there yet"
)
_HELPERS = "\n\n\n".join(inspect.getsource(one).rstrip() for one in (newest_of, linked))


def _guard(name: str, rule: Rule, function: Callable[..., object], promises: str) -> Guard:
    snippet = f"{_HELPERS}\n\n\n{inspect.getsource(function).rstrip()}"
    return Guard(name, rule, "python", snippet, promises, LOG_DOC, helpers=_HELPERS)


STORE = Store(
    name="file",
    summary="a file on the disk of this machine, in generations",
    topologies=(),
    connect=File,
    record="the generations on disk",
    guards=(
        _guard(
            "fence",
            "newer",
            write_if_newer,
            "A generation is made if its fence is above that of the newest one.",
        ),
        _guard(
            "compare-and-set",
            "unchanged",
            write_if_unchanged,
            "A generation is made if the one that it was made from is still the newest; needs no "
            "fence.",
        ),
        _guard(UNGUARDED, "any", write_next, UNGUARDED_PROMISES),
    ),
)
