"""SHA-256 of the files of a recording: taken when a case is done, compared whenever it is read.

Raises BadFile for what is neither a file nor a folder, for folders that lie too deep, and for more
bytes than a recording has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from lockbench.history import files
from lockbench.history.files import BadFile, MissingFile

# Of one recording, all its files together; of what lies how deep in it.
BYTES_MAX: Final = 4 << 30
DEPTH_MAX: Final = 4


def of_files(
    folder: Path, *, inside: Path | None = None, most: int | None = None
) -> dict[str, str]:
    """Relative name → SHA-256 of every file below ``folder``, of ``most`` bytes together."""
    found = {}
    for path in _below(folder, inside):
        with files.open_file(path, inside=inside, most=most) as file:
            digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]
            most = None if most is None else most - file.tell()
        found[path.relative_to(folder).as_posix()] = digest.hexdigest()
    return found


def differences(folder: Path, recorded: Mapping[str, str], *, inside: Path) -> list[str]:
    """One sentence per file that is not what it was when its digest was taken."""
    now = of_files(folder, inside=inside, most=BYTES_MAX)
    return [
        f"{folder / name} {_difference(recorded.get(name), now.get(name))}"
        for name in sorted({*recorded, *now})
        if recorded.get(name) != now.get(name)
    ]


def whole_digest(recorded: Mapping[str, str] | None) -> str:
    """One SHA-256 for all files: that of the lines that ``sha256sum`` prints of them, sorted by
    name; empty where no digests were stored."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted((recorded or {}).items()))
    return hashlib.sha256(lines.encode()).hexdigest() if lines else ""


def names(folder: Path, inside: Path | None) -> list[str]:
    """What is in a folder; nothing where it is missing."""
    try:
        return files.names(folder, inside=inside)
    except MissingFile:
        return []


def _difference(before: str | None, now: str | None) -> str:
    if now is None:
        return "is missing"
    return "was added later" if before is None else "was changed"


def _below(folder: Path, inside: Path | None, depth: int = 0) -> Iterator[Path]:
    """Everything below a folder that is no folder, in the order of the names."""
    if depth > DEPTH_MAX:
        raise BadFile(folder, "lies deeper than the folders of a recording do")
    for name in names(folder, inside):
        if files.is_folder(folder / name, inside=inside):
            yield from _below(folder / name, inside, depth + 1)
        else:
            yield folder / name
