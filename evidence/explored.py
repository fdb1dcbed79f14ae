"""The maps of explorations that are kept: ``docs/observed/<lock>/messages-<topology>.json``.

    python -m lockbench.evidence.explored runs/explore/*     takes over the maps of these
                                                             explorations

Guarantees: a map that is kept is of a whole exploration of what is pinned here: it has ended, of
all scenarios that fit.
An older one of the same lock and topology is replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lockbench.evidence import observations
from lockbench.history.files import BadFile
from lockbench.locks.registry import systems
from lockbench.report.console import err, say
from lockbench.results.documents import line_of, read
from lockbench.results.documents.exploration import ExplorationMap
from lockbench.results.errors import BAD_INPUT, BadInput
from lockbench.results.store import write_atomically

MAP: Final = "map.json"
PATTERN: Final = "*/messages-*.json"


def load(folder: Path = observations.FOLDER) -> Mapping[str, Sequence[ExplorationMap]]:
    """Lock → its maps. Raises BadFile."""
    found: dict[str, list[ExplorationMap]] = {}
    for path in sorted(folder.glob(PATTERN)):
        kept = read(path, ExplorationMap, inside=folder)
        found.setdefault(kept.lock, []).append(kept)
    return found


def add(exploration: Path, folder: Path = observations.FOLDER) -> Path:
    """Takes over the map of an exploration. Raises BadInput, OSError."""
    try:
        found = read(exploration / MAP, ExplorationMap, inside=exploration)
    except BadFile as error:
        raise BadInput(f"{exploration}: {error}") from error
    if found.lock not in systems():
        raise BadInput(f"{exploration}: {found.lock} is not declared here")
    if found.ref is not None:
        raise BadInput(f"{exploration} was made with {found.ref} and not with what is pinned here")
    if not found.ended:
        raise BadInput(f"{exploration} has not ended; run its command again")
    if not found.whole:
        raise BadInput(f"{exploration} is of some scenarios only")
    target = folder / found.lock / f"messages-{found.topology}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, line_of(found))
    return target


def main() -> None:
    """The command."""
    try:
        for path in sys.argv[1:]:
            say(str(add(Path(path))))
    except BadInput as error:
        err.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise SystemExit(BAD_INPUT) from error


if __name__ == "__main__":
    main()
