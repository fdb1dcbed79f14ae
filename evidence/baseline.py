"""The baseline: what a change is compared with for as long as nobody moves it.

It is pinned in ``evidence/baseline.json``, which stands in git: a commit, which has the recipes
(``locks``, and ``clusters`` for the client images), the digest of that commit's
``requirements.lock``, which has the client libraries, and the server images by their ids. Whoever
measures (``bench``, ``workloads``, ``results``) is the same on both sides: this tree.

    python -m lockbench.evidence.baseline [FILE]    pins what is checked out now; a person runs it

Nothing else writes the file, and nothing makes a baseline that is missing: one that follows hides a
slow drift. The images also keep the tag ``baseline``, so that nothing removes them.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

import lockbench
from lockbench.bench.plan import LINK_IMAGE
from lockbench.clusters import images
from lockbench.clusters.engine.docker import Engine, EngineError
from lockbench.history.files import BadFile, MissingFile
from lockbench.locks.registry import imports
from lockbench.locks.shared import pins
from lockbench.results import documents, machine
from lockbench.results.documents import Document
from lockbench.results.errors import BAD_INPUT, BadInput

ROOT: Final = Path(__file__).resolve().parents[1]
FILE: Final = Path(__file__).with_name("baseline.json")
REQUIREMENTS: Final = "requirements.lock"
# What a side brings besides its libraries and servers.
TREE: Final = ("locks", "clusters")
PARSER: Final = "hiredis"
HOW: Final = "`python -m lockbench.evidence.baseline` pins what is checked out now"


class Pinned(Document, frozen=True, kw_only=True):
    """``images``: name → id, of every server image."""

    commit: Annotated[str, Meta(pattern="^[0-9a-f]{40}$")]
    lock_sha256: documents.Sha256
    images: dict[documents.Name, Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]]


def read(path: Path = FILE) -> Pinned:
    """Raises BadInput: a baseline that is missing is never made here."""
    try:
        return documents.read(path, Pinned, inside=path.parent)
    except MissingFile:
        raise BadInput(f"there is no baseline {path}: {HOW}") from None
    except BadFile as error:
        raise BadInput(f"the baseline {error}") from None


def pin(path: Path = FILE, *, say: Callable[[str], None] = print) -> Pinned:
    """Writes what is checked out now; ``say`` is told of images that are built. Raises BadInput
    where that is not committed, or the images cannot be built."""
    if changed := _git("status", "--porcelain", "--", *TREE, REQUIREMENTS).decode().split():
        raise BadInput(f"{changed[-1]} is not committed: a baseline is a commit")
    names = [name for name in images.server_names() if name != LINK_IMAGE]
    try:
        with Engine() as engine:
            images.ensure(names, engine=engine, say=say)
            found = images.describe(names, engine=engine)
            for one in found.values():
                engine.tag(one.ref, f"{one.ref.rpartition(':')[0]}:{images.KEPT_TAG}")
    except EngineError as error:
        raise BadInput(str(error)) from error
    made = Pinned(
        commit=_git("rev-parse", "HEAD").decode().strip(),
        lock_sha256=hashlib.sha256((ROOT / REQUIREMENTS).read_bytes()).hexdigest(),
        images={name: one.id for name, one in found.items()},
    )
    path.write_text(documents.text_of(made), encoding="utf-8")
    return made


def unpack(pinned: Pinned, folder: Path) -> None:
    """Puts what workers import of the baseline's tree into a folder, and ``requirements.txt`` of
    the client libraries that are of another version here; no such file where none is. Raises
    BadInput."""
    lock = _git("show", f"{pinned.commit}:{REQUIREMENTS}")
    if hashlib.sha256(lock).hexdigest() != pinned.lock_sha256:
        raise BadInput(f"the baseline's {REQUIREMENTS} is not that of its commit: {HOW}")
    with tarfile.open(fileobj=io.BytesIO(_git("archive", pinned.commit, *TREE))) as archive:
        archive.extractall(package(folder), filter="data")
    (folder / REQUIREMENTS).write_bytes(lock)
    now = pins.requirements(ROOT / REQUIREMENTS)
    then = pins.requirements(folder / REQUIREMENTS)
    wanted = clients(package(folder) / "locks") & then.keys()
    if other := sorted(name for name in wanted if then[name] != now.get(name)):
        text = "".join(_requirement(lock.decode(), name) for name in other)
        (folder / "requirements.txt").write_text(text, encoding="utf-8")


def copy_tree(folder: Path) -> None:
    """Puts what workers import of this tree into a folder."""
    for name in TREE:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, package(folder) / name, ignore=ignored)


def package(folder: Path) -> Path:
    """Where a side's ``locks`` and ``clusters`` stand in its folder: in a package of our name,
    which has everything else from this tree."""
    made = folder / machine.PACKAGE
    made.mkdir(parents=True, exist_ok=True)
    (made / "__init__.py").write_text(f"__path__ += {list(lockbench.__path__)!r}\n", "utf-8")
    return made


def clients(locks: Path) -> set[str]:
    """The distributions that recipes import in the workers, and what these need; not those that the
    load itself stands on, which measures and is the same on both sides."""
    found = _imported(locks) - _imported(ROOT / "workloads") - {machine.PACKAGE}
    needed = {line for name in found for line in requires(name) or () if "extra ==" not in line}
    # redis-py parses answers with it where it is installed.
    return found | {PARSER} | {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in needed}


def _imported(folder: Path) -> set[str]:
    of_module = packages_distributions()
    files = [file for file in folder.rglob("*.py") if "libraries" not in file.parts]
    modules = {module for file in files for module in imports(file.read_bytes())}
    return {name for module in modules for name in of_module.get(module, ())}


def check_images(pinned: Pinned, names: Sequence[str]) -> None:
    """Raises BadInput for a server image of the baseline that is not here: another one would be
    made in silence."""
    try:
        with Engine() as engine:
            missing = [
                n for n in names if n in pinned.images and not engine.image(pinned.images[n])
            ]
    except EngineError as error:
        raise BadInput(str(error)) from error
    if missing:
        name = missing[0]
        raise BadInput(
            f"the baseline's image {name} ({pinned.images[name]}) is not here: load it "
            f"(`docker load`), or move the baseline: {HOW}"
        )


def checked_out() -> str | None:
    """The commit of this tree; None where it is none of git."""
    try:
        return _git("rev-parse", "HEAD").decode().strip()
    except BadInput:
        return None


def _requirement(lock: str, name: str) -> str:
    """The lines of one package, with its hashes."""
    found = re.search(rf"^{re.escape(name)}==.*\n(?:[ \t].*\n)*", lock, re.MULTILINE)
    assert found is not None
    return found[0]


def _git(*words: str) -> bytes:
    if not (ROOT / ".git").exists():  # it may be installed inside somebody else's repository
        raise BadInput("a baseline is a commit of Lockbench, and this is no checkout of it")
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip().splitlines()
        raise BadInput(f"git {words[0]}: {why[-1] if why else 'it failed'}")
    return done.stdout


def main(words: Sequence[str]) -> int:
    """Returns the exit code."""
    if len(words) > 1 or any(word.startswith("-") for word in words):
        print("usage: python -m lockbench.evidence.baseline [FILE]", file=sys.stderr)
        return BAD_INPUT
    path = Path(words[0]) if words else FILE
    try:
        made = pin(path)
    except BadInput as error:
        print(f"baseline: {error}", file=sys.stderr)
        return BAD_INPUT
    print(f"{path}: {made.commit}, {', '.join(made.images)}; commit it")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
