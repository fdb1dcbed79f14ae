"""Which locks a change is about: ``python -m evidence.touched FILE``, a path of the change a line.

Prints their names, separated by commas: each lock whose own files are among the paths, and the
sampled ones where something changed that locks share, a cluster or an image. Nothing: no lock.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from bench.suites import sampled
from declarations import collected
from evidence.baseline import REQUIREMENTS, ROOT, TREE
from locks.base import System
from locks.registry import systems

SHARED: Final = frozenset({*TREE, REQUIREMENTS})


def touched(paths: Sequence[str]) -> list[str]:
    """See above; ``paths`` are relative to the repository."""
    changed = [PurePosixPath(path) for path in paths]
    own = _own()
    found = [name for name, place in own.items() if any(p.is_relative_to(place) for p in changed)]
    shared = [
        path
        for path in changed
        if path.parts[0] in SHARED and not any(path.is_relative_to(o) for o in own.values())
    ]
    return list(dict.fromkeys([*found, *(sampled() if shared else ())]))


def _own() -> dict[str, PurePosixPath]:
    """Lock → the module that declares it, or the folder of its library."""
    systems()  # imports them all
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("locks.") and module.__file__:
            file = Path(module.__file__).relative_to(ROOT)
            place = file.parent if file.match("locks/libraries/*/*") else file
            for lock in collected([module], "SYSTEM", System):
                found[lock] = PurePosixPath(place.as_posix())
    return found


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").split()
    sys.stdout.write(",".join(touched(lines)) + "\n")
