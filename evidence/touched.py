"""Which locks a change is about: ``python -m lockbench.evidence.touched FILE [KNOWN]``.

FILE has a path of the change a line; KNOWN the names of the locks that there were before. Prints
names, separated by commas: each lock whose own files are among the paths, and of what locks share
(an image, a cluster, a module) some of those that use it. Nothing: no lock. A lock that is not
among KNOWN has nothing to be compared with: it is left out, and said on standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from lockbench.bench.plan import images_of
from lockbench.bench.suites import alike, sampled
from lockbench.clusters.images import server_names
from lockbench.clusters.recipes import FOLDER, recipes
from lockbench.clusters.registry import topologies
from lockbench.declarations import collected
from lockbench.evidence.baseline import REQUIREMENTS, ROOT, TREE
from lockbench.locks.base import System
from lockbench.locks.registry import systems
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.library import library_of

SHARED: Final = frozenset({*TREE, REQUIREMENTS})
IMAGES: Final = PurePosixPath(FOLDER.relative_to(ROOT).as_posix())
ENOUGH: Final = 2  # locks of something that no suite samples


def touched(paths: Sequence[str]) -> list[str]:
    """See above; ``paths`` are relative to the repository."""
    own = _own()
    found: dict[str, None] = {}
    for path in map(PurePosixPath, paths):
        mine = [name for name, place in own.items() if path.is_relative_to(place)]
        if mine:
            found |= dict.fromkeys(mine)
        elif path.parts[0] in SHARED:
            for users in _groups(path, own):
                found |= dict.fromkeys(_some(users))
    return list(found)


def _groups(path: PurePosixPath, own: dict[str, PurePosixPath]) -> list[list[str]]:
    """The locks that use what is there, by what they use."""
    if path.is_relative_to(IMAGES) and (built := _built_from(path.relative_to(IMAGES).parts[0])):
        return [_running(image) for image in built]
    if path.parts[0] == "clusters" and path.parts[1] in server_names():
        return [_running(path.parts[1])]
    beside = [name for name, place in own.items() if place.is_relative_to(path.parent)]
    return [beside if path.parts[0] == "locks" and beside else list(own)]


def _some(users: Sequence[str]) -> Sequence[str]:
    for suite in (sampled(), alike()):
        if among := [name for name in suite if name in users]:
            return among
    return users[:ENOUGH]


def _built_from(folder: str) -> list[str]:
    """The images that are made of a folder, or of another that is."""
    found: list[str] = []
    for name, recipe in recipes().items():  # parents first
        if recipe.folder == folder or recipe.parent in found:
            found.append(name)
    return found


def _running(image: str) -> list[str]:
    """The locks whose cluster or client runs an image."""
    found = []
    for name, lock in systems().items():
        images = images_of([topologies()[lock.topologies[0]]])
        library = library_of(lock)
        if isinstance(library, ContainerLibrary):
            images.append(library.image)
        if image in images:
            found.append(name)
    return found


def _own() -> dict[str, PurePosixPath]:
    """Lock → the module that declares it, or the folder of its library."""
    systems()  # imports them all
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("lockbench.locks.") and module.__file__:
            file = Path(module.__file__).resolve().relative_to(ROOT)
            place = file.parent if file.match("locks/libraries/*/*") else file
            for lock in collected([module], "SYSTEM", System):
                found[lock] = PurePosixPath(place.as_posix())
    return found


def main(words: Sequence[str]) -> None:
    """Prints; see the module."""
    changed, *known = (Path(word).read_text(encoding="utf-8").split() for word in words)
    found = touched(changed)
    new = [name for name in found if known and name not in known[0]]
    if new:
        sys.stderr.write(f"nothing to compare with: {', '.join(new)}\n")
    sys.stdout.write(",".join(name for name in found if name not in new) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
