"""Takes over the maps of explorations into ``docs/observed``.

    python -m lockbench.explore.publish runs/explore/*

Guarantees: a map that is kept is of a whole exploration of what is pinned here: it has ended, of
all scenarios that fit. Its findings are told as declarations and the track record have them by now.
An older map of the same lock and topology is replaced.
"""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec.structs import replace as evolved

from lockbench.evidence import explored, observations, provenance
from lockbench.explore.findings import as_known_now
from lockbench.history.files import BadFile
from lockbench.locks.registry import systems
from lockbench.report.console import err, say
from lockbench.results.documents import line_of, read
from lockbench.results.documents.exploration import ExplorationMap
from lockbench.results.errors import BAD_INPUT, BadInput
from lockbench.results.store import write_atomically


def add(exploration: Path, folder: Path = observations.FOLDER) -> Path:
    """Takes over the map of an exploration. Raises BadInput, OSError."""
    try:
        found = read(exploration / explored.MAP, ExplorationMap, inside=exploration)
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
    system = systems()[found.lock]
    now = provenance.today(system, found.topology)
    if old := provenance.differences(found.versions, now, recorded_only=True):
        raise BadInput(f"{exploration} was made with other versions: {', '.join(old)}")
    findings = tuple(as_known_now(finding, system) for finding in found.findings)
    path = explored.target(found, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, line_of(evolved(found, findings=findings)))
    return path


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
