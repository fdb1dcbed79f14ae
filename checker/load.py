"""Finds and reads histories: a recording, a case folder, a run folder, JSON Lines, EDN."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from lockbench.history.builder import BadLine
from lockbench.history.columns import History
from lockbench.history.edn import read_edn_lines
from lockbench.history.files import is_folder, names
from lockbench.history.jsonl import read_lines
from lockbench.history.lines import UnreadableHistory, open_history
from lockbench.history.recording import is_recording, read_recording

# Comments, an enclosing bracket, a tag, and a map whose first key is a keyword.
EDN: Final = re.compile(
    rb"(?:[\s,]|;[^\n]*\n)*[\[(]?(?:[\s,]|;[^\n]*\n)*(?:#[\w./-]+\s*)?\{[\s,]*:"
)


SNIFF_BYTES: Final = 4096


def find(path: Path) -> list[Path]:
    """The histories under a path: itself, or those of the cases of a run folder. Raises
    UnreadableHistory when there is none."""
    if not is_folder(path):
        return [path]
    found = list(_recordings(path))
    if not found:
        raise UnreadableHistory(
            f"{path}: neither a recording (meta.json), nor a case (history/) nor a run "
            f"(cases/*/history/)"
        )
    return found


def missing(path: Path) -> list[Path]:
    """The cases of a run folder that have no recording: their clusters did not start, or were being
    started when the run was cut off. Raises UnreadableHistory."""
    if not is_folder(path) or is_recording(path) or is_recording(path / "history"):
        return []
    cases = [case for case in _cases(path) if is_folder(case, inside=path)]
    return [case for case in cases if not _has_recording(case)]


def load(path: Path) -> History:
    """One history: a recording, or a file or pipe that the user named. Raises UnreadableHistory
    with the place of the fault."""
    if is_folder(path):
        return read_recording(path)
    with open_history(path) as lines:
        begin = b""
        head: list[bytes] = []
        try:
            while len(begin) < SNIFF_BYTES and (line := next(lines, None)) is not None:
                head.append(line)
                begin += line
        except BadLine as error:
            raise UnreadableHistory(f"{path}:{len(head) + 1}: {error}") from None
        read = read_edn_lines if _is_edn(path, begin) else read_lines
        return read(chain(head, lines), str(path))


def _is_edn(path: Path, begin: bytes) -> bool:
    """By its name; where that says nothing, by how it begins."""
    if path.suffix in {".edn", ".jsonl", ".json"}:
        return path.suffix == ".edn"
    return EDN.match(begin) is not None


def _recordings(folder: Path) -> Iterator[Path]:
    if is_recording(folder):
        yield folder
    elif is_recording(folder / "history"):
        yield folder / "history"
    else:
        yield from (case / "history" for case in _cases(folder) if _has_recording(case))


def _cases(run: Path) -> list[Path]:
    if not is_folder(run / "cases", inside=run):
        return []
    return [run / "cases" / name for name in names(run / "cases", inside=run)]


def _has_recording(case: Path) -> bool:
    return is_folder(case / "history", inside=case) and is_recording(case / "history")
