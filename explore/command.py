"""``lockbench explore``: explores locks into a folder for each, and goes on where one was stopped.

FOLDER/<lock>/
  exploration.json   what was tried, and what came of it
                     (``lockbench.results.documents.exploration``)
  map.html           the same to be looked at
  map.json           what is kept of it (``ExplorationMap``)
  findings/          for each that was not declared, what its maintainers need
                     (``lockbench.explore.reports``)
  000123/            the recording of a play that shows a finding
  logs/              what the servers and the actors said
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from lockbench.bench import interruption, plan
from lockbench.bench.suite import versions_of
from lockbench.bench.usable import why_unusable
from lockbench.clusters import images
from lockbench.clusters.base import ClusterError
from lockbench.clusters.engine.docker import Engine, EngineError
from lockbench.clusters.engine.reaper import reap
from lockbench.evidence import explored
from lockbench.evidence.sides import Instead
from lockbench.explore import page, reports
from lockbench.explore.asked import Asked, begun
from lockbench.explore.explorer import explore
from lockbench.explore.mapped import map_of
from lockbench.explore.trial import at_event
from lockbench.history.files import BadFile, MissingFile
from lockbench.locks.registry import systems
from lockbench.results.documents import read, text_of
from lockbench.results.documents.exploration import Exploration
from lockbench.results.errors import BadInput, Ending, Failed, Unfit
from lockbench.results.store import SLUG_CHARS_MAX, slug, write_atomically
from lockbench.results.wording import times

DOCUMENT: Final = "exploration.json"
USUAL_S: Final = 300.0


def folder_name(name: str) -> str:
    """Names that are cut, as of a long module with its version, have a digest at their end."""
    if len(name) <= SLUG_CHARS_MAX:
        return slug(name)
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{slug(name)[: SLUG_CHARS_MAX - 9]}-{digest}"


def explore_into(
    what: Asked,
    output: Path,
    installed: Instead,
    told: Callable[[str], None],
    *,
    anew: bool = False,
) -> tuple[Exploration, Path]:
    """Returns what is known in the end, and its page. Raises BadInput, Unfit, Failed."""
    case = what.case
    ref = [installed.ref] if installed.ref else []
    name = "-".join([case.lock, case.topology, *ref, *map(str, map(at_event, what.strikes))])
    folder = output / folder_name(name)
    before = None if anew else _known(folder, what)
    try:
        images.ensure(plan.built_for(case), say=told)
        reap()
        versions = installed.recorded(versions_of([case], Engine()))
    except EngineError as error:
        raise BadInput(str(error)) from error
    if why := why_unusable(case.system):
        raise Unfit(why)
    if before is not None and before.versions != versions:
        raise BadInput(f"{folder} was begun with other versions; begin again with --anew")
    if anew:
        shutil.rmtree(folder, ignore_errors=True)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    interruption.arm()
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    document = before or begun(what, at=now, versions=versions)

    def saved(known: Exploration) -> None:
        nonlocal document
        document = known
        write_atomically(folder / DOCUMENT, text_of(known))

    told(" with ".join([case.lock, *ref]) + f" on {case.topology}, into {folder}")
    try:
        document = explore(
            what,
            document,
            folder,
            run_id=uuid.uuid4().hex[:12],
            told=told,
            saved=saved,
        )
    except (ClusterError, EngineError) as error:
        raise Failed(str(error)) from error
    finally:
        write_atomically(folder / explored.MAP, text_of(map_of(document)))
        page.write(folder, document)
        reports.write(folder, document, case.system)
    return document, folder / page.PAGE


def every_lock() -> list[str]:
    """The names of all that are declared and can be explored."""
    return [name for name, system in systems().items() if system.kind != "none"]


def beforehand(all_asked: Sequence[Asked]) -> str:
    """How long it will take: what each took when its map was kept, or as long as is usual."""
    kept = {
        (one.lock, one.topology): one.took_s
        for maps in explored.load().values()
        for one in maps
        if one.depth == 1
    }
    known = [kept.get((what.case.lock, what.case.topology)) for what in all_asked]
    left_s = sum(USUAL_S if took_s is None else took_s for took_s in known)
    locks = times(len(all_asked), "lock")
    return (
        f"{locks}, about {left_s / 3600:.1f} hours with single faults: {USUAL_S / 60:.0f} minutes "
        f"for each, or what it took before ({len(known) - known.count(None)} of them)"
    )


def ending(document: Exploration) -> Ending:
    """What was not tried leaves it open whether a lock keeps its promises everywhere."""
    if any(not finding.declared for finding in document.findings):
        return Ending.SAFETY
    missed = [one for one in document.tried if one.outcome in {"not reached", "could not run"}]
    broken_off = [one for one in document.scenarios if not one.worked]
    if missed or broken_off or not document.ended or not document.tried:
        return Ending.INCONCLUSIVE
    return Ending.OK


def _known(folder: Path, what: Asked) -> Exploration | None:
    """What an exploration of the same has found so far. Raises BadInput where it was of another."""
    case = what.case
    try:
        known = read(folder / DOCUMENT, Exploration, inside=folder)
    except MissingFile:
        return None
    except BadFile as error:
        raise BadInput(f"{error}; begin again with --anew") from error
    wanted = (case.lock, case.topology, case.seed, case.pace.lease_ttl_s)
    if (known.lock, known.topology, known.seed, known.lease_s) != wanted:
        raise BadInput(f"{folder} has another exploration; begin again with --anew")
    return known
