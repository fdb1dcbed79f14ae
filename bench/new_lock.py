"""Files for a new lock: a recipe in one file, or the folder of a library with its pins.

What is written is a copy of ``bench/templates`` under the new name. The template of a recipe is a
whole lock on one Redis; that of a library answers Unknown until its user says how the library is
called. Nothing that is there already is overwritten.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from lockbench.locks.shared import pins
from lockbench.locks.shared.library import ADAPTERS
from lockbench.results.errors import BadInput

TEMPLATES: Final = Path(__file__).resolve().parent / "templates"
# What the templates are called; the name of the new lock takes its place.
PLACEHOLDER: Final = "my-lock"
RESOLVE_S: Final = 300.0
NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# A requirement that is not one of these words and signs could be an option of uv.
REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][\w.\-]*(\[[\w,.\-]+\])?\s*([<>=!~]=?[^\s;]*)?")


def write_recipe(name: str, into: Path) -> Path:
    """``NAME.py`` in a folder. Raises BadInput."""
    _check_name(name)
    file = into / f"{name.replace('-', '_')}.py"
    _write(file, _filled(TEMPLATES / "recipe.py", name))
    return file


def write_library(name: str, into: Path) -> Path:
    """``NAME/`` with a declaration, an adapter and pins of the newest distribution of that name.
    Raises BadInput."""
    _check_name(name)
    folder = into / name.replace("-", "_")
    files = {folder / file: _filled(TEMPLATES / file, name) for file in ("lock.py", "adapter.py")}
    if there := [file for file in files if file.exists()]:
        raise BadInput(f"{there[0]} is there already")
    add_library(name, into)
    for file, text in files.items():
        _write(file, text)
    return folder


def add_library(
    name: str, into: Path, *, version: str | None = None, beside: Sequence[str] = ()
) -> Path:
    """The requirements of a library in its folder, made or changed, then resolved and hashed: the
    distribution ``name``, which may have extras, in a ``version``, or in the one that is wanted
    already, or in the newest; and others ``beside`` it (``redis<5``). Raises BadInput; then the
    requirements are what they were."""
    asked = [f"{name}=={version}" if version else name, *beside]
    for requirement in asked:
        if not REQUIREMENT.fullmatch(requirement):
            raise BadInput(f"{requirement!r} is no requirement, as sherlock, redis<5 or a[b]==1.2")
    folder = into / _package(name).replace("-", "_")
    wanted = folder / "requirements.in"
    before = wanted.read_text(encoding="utf-8") if wanted.is_file() else ""
    lines = {_package(line): line for line in before.splitlines() if line.strip()}
    if name in (was := lines.get(_package(name), "")) and version is None:
        asked[0] = was
    lines |= {_package(requirement): requirement for requirement in asked}
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    _write_lines(wanted, lines.values())
    try:
        found = pins.requirements(lock(folder))
    except BadInput:
        _write_lines(wanted, before.splitlines())
        if made:
            shutil.rmtree(folder)
        raise
    if lines[_package(name)] == name:
        lines[_package(name)] = f"{name}=={found[_package(name)]}"
        _write_lines(wanted, lines.values())
    return folder


def lock(folder: Path) -> Path:
    """Resolves and hashes the ``requirements.in`` of a library's folder into its
    ``requirements.txt``, which is returned; versions that are pinned there are kept where they
    still fit. Raises BadInput."""
    wanted = folder / "requirements.in"
    if find_spec("uv") is None:
        raise BadInput(
            "pins need uv, which is not installed here: pip install 'lockbench[library]'"
        )
    if not wanted.is_file():
        raise BadInput(f"{folder} has no requirements.in: it is not the folder of a library")
    # The names of files stand in what uv writes. So the same folder gives the same text.
    here = ADAPTERS.parents[1] if folder.resolve().parent == ADAPTERS else folder.resolve()
    source = wanted.resolve().relative_to(here)
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"),
        *("--python-version", "3.11", "--generate-hashes", "--no-header", "--no-emit-index-url"),
        *(str(source), "-o", str(source.with_suffix(".txt"))),
    ]
    try:
        done = subprocess.run(
            command,
            cwd=here,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=RESOLVE_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"{wanted} cannot be resolved: {error}") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or "uv does not say why"
        raise BadInput(f"{wanted} cannot be resolved: {said}")
    return wanted.with_suffix(".txt")


def _package(requirement: str) -> str:
    """The distribution's name, as indexes write it."""
    name = re.match(r"[A-Za-z0-9][\w.\-]*", requirement.strip())
    return pins.plain(name[0]) if name else requirement.strip()


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise BadInput(f"{name!r} is no name for a lock: small letters, digits and -, as my-lock")


def _filled(template: Path, name: str) -> str:
    """A template under another name."""
    text = template.read_text(encoding="utf-8")
    words = "".join(word.capitalize() for word in name.split("-"))
    for old, new in (
        (PLACEHOLDER, name),
        (PLACEHOLDER.replace("-", "_"), name.replace("-", "_")),
        ("MyLock", words),
    ):
        text = text.replace(old, new)
    return text


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError as error:
        raise BadInput(f"{file} is there already") from error
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}") from error


def _write_lines(file: Path, lines: Iterable[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
