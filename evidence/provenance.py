"""Of which versions a result is, and whether those are today's.

*Today's* are what this tree pins: the packages of the server images, the lock libraries, the bench.
A result is old where one of them differs. It is also marked where a run did not record one: then
nothing says that the result holds today.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Final

from lockbench.bench.plan import images_of
from lockbench.clusters import recipes
from lockbench.clusters.registry import topologies
from lockbench.evidence.cells import Cell
from lockbench.evidence.observations import Counted, Observations, Observed
from lockbench.locks.base import System
from lockbench.locks.shared import pins
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.library import library_of
from lockbench.results.machine import PACKAGE
from lockbench.results.statistics import BOUND_TRIES_MIN

NOT_RECORDED: Final = ": not recorded"


@cache
def of_image(image: str) -> Mapping[str, str]:
    """Package → version, as a server image that is built today says it of itself."""
    recipe = recipes.recipes()[image]
    if packages := recipe.args.get("PACKAGES"):
        locked = dict(line.split()[:2] for line in recipes.locked(image).splitlines())
        return {name: locked[name] for name in packages.split()}
    dockerfile = (recipes.FOLDER / recipe.folder / "Dockerfile").read_text(encoding="utf-8")
    said = re.search(r'echo "([\w-]+)=\$\{VERSION\}([^"]*)" > \S*lockbench-versions', dockerfile)
    if said is None:
        raise ValueError(f"the Dockerfile of {image} does not say its version")
    return {said[1]: recipe.args["VERSION"] + said[2]}


def of_library(system: System) -> Mapping[str, str]:
    """Package → version of the library behind a lock, and of what it stands on as far as that is
    asked for by name, which is what runs record; none for a recipe."""
    library = library_of(system)
    if library is None:
        return {}
    if isinstance(library, ContainerLibrary):
        wanted = recipes.recipes()[library.image].wanted()
        named = (library.program.library, *library.program.stands_on)
        # Debian's packages are asked for without a version.
        locked = pins.of_image(library.image)
        # Runs have no groups of Maven, and no packages of aliases of npm (npm:NAME@VERSION).
        return {
            one.rpartition(":")[2]: (wanted[one] or locked[one]).rpartition("@")[2]
            for one in named
            if one in wanted
        }
    return pins.requirements(library.requirements.with_suffix(".in"))


def today(system: System, topology: str) -> dict[str, str]:
    """Package → version of all that decides a result of a lock on a topology."""
    images = images_of([topologies()[topology]])
    servers = {name: at for image in images for name, at in of_image(image).items()}
    return {**of_library(system), **servers, PACKAGE: version(PACKAGE)}


def runs_of(it: Observed) -> tuple[str, ...]:
    """The runs that are known of a result, the last one last."""
    return tuple(dict.fromkeys((*it.runs, it.last.run)))


def not_of_today(it: Observed, observations: Observations, now: Mapping[str, str]) -> list[str]:
    """A sentence for every version of a result that is not today's, or not known. Its cases may be
    of any run that was added, where it is not recorded of which."""
    known = [observations.runs[name] for name in runs_of(it)]
    found = _differences(known, now)
    if it.cases > len(known):
        others = _differences(observations.runs.values(), now, recorded_only=True)
        more = [sentence for sentence in others if sentence not in found]
        found += [f"perhaps {sentence}, as not all of its runs are recorded" for sentence in more]
    return found


def recent(cells: Iterable[Cell], observations: Observations) -> int:
    """How many of the cells that ``full`` has were run as often as a bound needs, with today's
    versions, as far as it is recorded."""
    now: dict[tuple[str, str], Mapping[str, str]] = {}
    found = 0
    for cell in cells:
        if cell.due and cell.observed is not None:
            where = (cell.key.lock, cell.key.topology)
            if where not in now:
                now[where] = today(cell.system, cell.key.topology)
            found += _runs_of_today(cell.observed, observations, now[where]) >= BOUND_TRIES_MIN
    return found


def _runs_of_today(it: Observed, observations: Observations, now: Mapping[str, str]) -> int:
    return sum(not differences(observations.runs[name].versions, now) for name in runs_of(it))


def age(differences: Iterable[str]) -> str:
    """What to call a result with these."""
    known = [sentence for sentence in differences if NOT_RECORDED not in sentence]
    return "old" if known else "version not recorded"


def _differences(
    runs: Iterable[Counted], now: Mapping[str, str], *, recorded_only: bool = False
) -> list[str]:
    found = [differences(r.versions, now, recorded_only=recorded_only) for r in runs]
    return [*dict.fromkeys(sentence for of in found for sentence in of)]


def differences(
    then: Mapping[str, str], now: Mapping[str, str], *, recorded_only: bool = False
) -> list[str]:
    """A sentence for every version that is not today's, or not known."""
    said: list[str] = []
    for name, at in now.items():
        was = then.get(name)
        if was is None and not recorded_only:
            said.append(f"{name}{NOT_RECORDED}, today {at}")
        elif was not in (None, at):
            said.append(f"{name} {was}, today {at}")
    return said


def changed(runs: Sequence[Counted], everything: Mapping[str, str]) -> dict[str, list[str]]:
    """Run → what of its versions is not today's."""
    return {run.run: _differences([run], everything, recorded_only=True) for run in runs}
