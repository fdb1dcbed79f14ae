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
import math
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
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
from lockbench.explore.asked import LEASE_S, Asked, begun
from lockbench.explore.explorer import explore
from lockbench.explore.mapped import map_of
from lockbench.explore.repeats import REPEATS
from lockbench.explore.several import at_once, explore_several
from lockbench.explore.trial import at_event
from lockbench.history.files import BadFile, MissingFile
from lockbench.locks.registry import systems
from lockbench.report.messages import summary
from lockbench.results.documents import line_of, read, text_of
from lockbench.results.documents.exploration import Exploration
from lockbench.results.errors import BadInput, Ending, Failed, Unfit
from lockbench.results.store import SLUG_CHARS_MAX, slug, write_atomically
from lockbench.results.wording import times
from lockbench.workloads.machines.version import digest

DOCUMENT: Final = "exploration.json"
USUAL_S: Final = 300.0  # of a lock with a lease of 2 s
DECIDE: Final = (
    *("bench", "checker", "clusters", "evidence", "explore", "history", "locks", "nemesis"),
    *("results", "stores", "workloads"),
)
"""The folders of the modules that decide what is found."""


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
    until_s: float = math.inf,
) -> tuple[Exploration, Path]:
    """Returns what is known in the end, and its page. ``until_s``: as of ``explore``. Raises
    BadInput, Unfit, Failed."""
    case = what.case
    ref = [installed.ref] if installed.ref else []
    folder = folder_of(what, output, installed.ref)
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
    tree = digest(DECIDE)
    if before is not None and before.tree != tree:
        raise BadInput(f"{folder} was begun with another Lockbench; begin again with --anew")
    if before is not None and is_complete(before, what):
        told(f"nothing is left to try of {case.lock} on {case.topology}, in {folder}")
        told("--anew removes it, and begins again")
        return before, folder / page.PAGE
    if anew:
        shutil.rmtree(folder, ignore_errors=True)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    interruption.arm()
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    document = before or begun(what, at=now, versions=versions, tree=tree)

    def saved(known: Exploration) -> None:
        nonlocal document
        document = known
        # On one line: laying it out takes a hundred times as long, and plays wait meanwhile.
        write_atomically(folder / DOCUMENT, line_of(known))

    told(" with ".join([case.lock, *ref]) + f" on {case.topology}, into {folder}")
    try:
        document = explore(
            what,
            document,
            folder,
            run_id=uuid.uuid4().hex[:12],
            told=told,
            saved=saved,
            until_s=until_s,
        )
    except (ClusterError, EngineError) as error:
        raise Failed(str(error)) from error
    finally:
        write_atomically(folder / explored.MAP, text_of(map_of(document)))
        page.write(folder, document)
        reports.write(folder, document, case.system)
    return document, folder / page.PAGE


def explore_one(
    what: Asked,
    output: Path,
    installed: Instead,
    told: Callable[[str], None],
    *,
    anew: bool = False,
    until_s: float = math.inf,
) -> Exploration:
    """As ``explore_into``; tells what was found."""
    document, at = explore_into(what, output, installed, told, anew=anew, until_s=until_s)
    told("")
    for line in summary(map_of(document)):
        told(line)
    told(f"{at}\n")
    return document


def explore_each(
    all_asked: Mapping[str, Asked],
    output: Path,
    arguments: Sequence[str],
    told: Callable[[str], None],
    *,
    ref: str | None = None,
    until_s: float = math.inf,
) -> tuple[list[Exploration], list[Ending]]:
    """Several locks by name, each by ``lockbench explore`` with these ``arguments``
    (``lockbench.explore.several``); what takes longest begins first, so that it does not go on
    alone at the end. What is known of each, and how each ended."""

    def of(lock: str, what: Asked) -> Callable[[], Sequence[str] | None]:
        def command() -> Sequence[str] | None:
            rest_s = until_s - time.monotonic()
            if rest_s <= 0 and left_s(what, output, ref):
                return None
            limit = [] if rest_s == math.inf else ["--minutes", f"{max(rest_s, 1) / 60:.3f}"]
            return ["explore", "--lock", lock, "--output", str(output), *arguments, *limit]

        return command

    try:
        reap()
    except EngineError as error:
        raise BadInput(str(error)) from error
    interruption.arm()
    longest_first = sorted(all_asked, key=lambda lock: -left_s(all_asked[lock], output, ref))
    ended = explore_several({lock: of(lock, all_asked[lock]) for lock in longest_first}, told)
    found = [known for what in all_asked.values() if (known := _known_of(what, output, ref))]
    codes = {one.code: one for one in (Ending.OK, Ending.SAFETY, Ending.INCONCLUSIVE)}
    endings = [
        codes.get(ended[lock], Ending.BENCH) if lock in ended else Ending.INCONCLUSIVE
        for lock in all_asked
    ]
    return found, endings


def folder_of(what: Asked, output: Path, ref: str | None) -> Path:
    """Where its results are."""
    case = what.case
    words = [case.lock, case.topology, *([ref] if ref else [])]
    if what.strikes:  # the events are those of one scenario
        words += [what.scenarios[0].name, *map(str, map(at_event, what.strikes))]
    return output / folder_name("-".join(words))


def is_complete(document: Exploration, what: Asked) -> bool:
    """Whether nothing is left to be tried of what is asked for."""
    there = {scenario.name for scenario in document.scenarios if scenario.worked}
    came = {tried.outcome for tried in document.tried}
    return (
        document.ended
        and document.depth >= what.depth
        and all(scenario.name in there for scenario in what.scenarios)
        and came <= {"kept", "broke"}
    )


def every_lock() -> list[str]:
    """The names of all that are declared and can be explored."""
    return [name for name, system in systems().items() if system.kind != "none"]


def beforehand(all_asked: Sequence[Asked], output: Path, ref: str | None = None) -> str:
    """How long it will take, with single faults."""
    left = [left_s(what, output, ref) for what in all_asked]
    locks = times(len(all_asked), "lock")
    done = f", {left.count(0.0)} of them done" if 0.0 in left else ""
    hours = max([*left, sum(left) / at_once()]) / 3600
    return f"{locks}{done}, {at_once()} at once, about {hours:.1f} hours with single faults"


def left_s(what: Asked, output: Path, ref: str | None = None) -> float:
    """How long a lock will take: by the part of it that is done, by what it took when its map was
    kept, or by what is usual."""
    case, known = what.case, _known_of(what, output, ref)
    if known is not None and is_complete(known, what):
        return 0.0
    if known is not None and known.tried and known.planned:
        again = sum(REPEATS) * sum(finding.plays == 1 for finding in known.findings)
        left = max(0, known.planned - len(known.tried)) + again
        return known.took_s / len(known.tried) * left
    kept = [
        one.took_s
        for one in explored.load().get(case.lock, ())
        if one.topology == case.topology and one.depth == 1
    ]
    return kept[0] if kept else USUAL_S * case.pace.lease_ttl_s / LEASE_S


def ending(document: Exploration) -> Ending:
    """What was not tried leaves it open whether a lock keeps its promises everywhere."""
    if any(not finding.declared for finding in document.findings):
        return Ending.SAFETY
    missed = [one for one in document.tried if one.outcome in {"not reached", "could not run"}]
    broken_off = [one for one in document.scenarios if not one.worked]
    if missed or broken_off or not document.ended or not document.tried:
        return Ending.INCONCLUSIVE
    return Ending.OK


def _known_of(what: Asked, output: Path, ref: str | None) -> Exploration | None:
    """What can be gone on with."""
    try:
        return _known(folder_of(what, output, ref), what)
    except BadInput:
        return None


def _known(folder: Path, what: Asked) -> Exploration | None:
    """What an exploration of the same has found so far. Raises BadInput where it was of another."""
    case = what.case
    try:
        known = read(folder / DOCUMENT, Exploration, inside=folder)
    except MissingFile:
        return None
    except BadFile as error:
        raise BadInput(f"{error}; begin again with --anew") from error
    wanted = (case.lock, case.topology, case.seed, case.pace.lease_ttl_s, what.clients)
    if (known.lock, known.topology, known.seed, known.lease_s, known.clients) != wanted:
        raise BadInput(f"{folder} has another exploration; begin again with --anew")
    if known.depth < what.depth:  # what comes after each fault was not kept
        raise BadInput(f"{folder} is of depth {known.depth}; begin again with --anew")
    return known
