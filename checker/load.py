"""Finds and reads histories: a recording, a case folder, a run folder, JSON Lines, EDN."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from history.columns import History
from history.edn import read_edn
from history.jsonl import read_jsonl
from history.recording import UnreadableHistory, is_recording, read_recording

# Comments, an enclosing bracket, a tag, and a map whose first key is a keyword.
EDN: Final = re.compile(
    rb"(?:[\s,]|;[^\n]*\n)*[\[(]?(?:[\s,]|;[^\n]*\n)*(?:#[\w./-]+\s*)?\{[\s,]*:"
)


def find(path: Path) -> list[Path]:
    """The histories under a path: itself, or those of the cases of a run folder. Raises
    UnreadableHistory when there is none."""
    if not path.exists():
        raise UnreadableHistory(f"{path}: no such file or folder")
    if path.is_file():
        return [path]
    found = list(_recordings(path))
    if not found:
        raise UnreadableHistory(
            f"{path}: neither a recording (meta.json), nor a case (history/) nor a run "
            f"(cases/*/history/)"
        )
    return found


def load(path: Path) -> History:
    """One history. Raises UnreadableHistory with the place of the fault, or OSError."""
    if path.is_dir():
        return read_recording(path)
    return read_edn(path) if _is_edn(path) else read_jsonl(path)


def _is_edn(path: Path) -> bool:
    """By its name; where that says nothing, by how it begins."""
    if path.suffix in {".edn", ".jsonl", ".json"}:
        return path.suffix == ".edn"
    with path.open("rb") as file:
        return EDN.match(file.read(4096)) is not None


def _recordings(folder: Path) -> Iterator[Path]:
    if is_recording(folder):
        yield folder
    elif is_recording(folder / "history"):
        yield folder / "history"
    else:
        yield from (
            case / "history"
            for case in sorted((folder / "cases").glob("*"))
            if is_recording(case / "history")
        )
