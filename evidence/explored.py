"""The maps of explorations that are kept: ``docs/observed/<lock>/messages-<topology>.json``.

``lockbench.explore.publish`` puts them there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lockbench.evidence import observations
from lockbench.results.documents import read
from lockbench.results.documents.exploration import ExplorationMap

MAP: Final = "map.json"
PATTERN: Final = "*/messages-*.json"


def load(folder: Path = observations.FOLDER) -> Mapping[str, Sequence[ExplorationMap]]:
    """Lock → its maps. Raises BadFile."""
    found: dict[str, list[ExplorationMap]] = {}
    for path in sorted(folder.glob(PATTERN)):
        kept = read(path, ExplorationMap, inside=folder)
        found.setdefault(kept.lock, []).append(kept)
    return found


def target(found: ExplorationMap, folder: Path = observations.FOLDER) -> Path:
    """Where a map is kept."""
    return folder / found.lock / f"messages-{found.topology}.json"
