"""What the site is made of, read once: declarations, observations, saved histories, defects."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from lockbench import declarations, locks
from lockbench.checker.check import check
from lockbench.checker.drawing import figure
from lockbench.checker.verdict import Report
from lockbench.evidence import explored, observations, provenance, track
from lockbench.evidence.cells import CANONICAL, Cell, cells_of
from lockbench.evidence.observations import Key, Observations, history_showing
from lockbench.evidence.track import Page
from lockbench.history.columns import History
from lockbench.history.files import BadFile
from lockbench.history.jsonl import read_jsonl
from lockbench.locks.base import System
from lockbench.locks.registry import NO_LOCKS, everywhere
from lockbench.nemesis.registry import faults
from lockbench.results.documents.exploration import ExplorationMap
from lockbench.results.errors import BadInput


class Picture(NamedTuple):
    """A break, drawn. ``path`` is that of its few operations, from the root of the repository;
    ``svg`` is HTML."""

    verdict: str
    path: str
    svg: str


@dataclass(frozen=True)
class Material:
    """``docs`` maps a lock to what the file says that declares it, ``explored`` to the maps of its
    explorations; ``observed`` and ``track`` are the folders of the histories."""

    systems: Mapping[str, System]
    docs: Mapping[str, str]
    found: Observations
    defects: Sequence[Page]
    explored: Mapping[str, Sequence[ExplorationMap]]
    observed: Path
    track: Path

    @cached_property
    def cells(self) -> Mapping[str, Mapping[Key, Cell]]:
        """Lock → its cells."""
        return {name: cells_of(system, self.found) for name, system in self.systems.items()}

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The canonical faults, then whatever else was observed."""
        return tuple(dict.fromkeys([*CANONICAL, *sorted(key.fault for key in self.found.cases)]))

    def cell(self, system: System, topology: str, fault: str) -> Cell:
        """Of any lock under any fault."""
        key = Key(system.name, topology, fault)
        return Cell(system, key, self.found.cases.get(key))

    def under(self, fault: str) -> list[Cell]:
        """Of every lock under a fault: on its first topology, and wherever it was observed."""
        return [
            cell
            for system in self.systems.values()
            for topology in system.topologies
            if (cell := self.cell(system, topology, fault)).observed
            or (cell.applies and not cell.elsewhere)
        ]

    def explaining(self, lock: str, fault: str) -> list[Page]:
        """The pages of the track record on a lock under a fault."""
        return [page for page in self.defects if page.explains(lock, fault)]

    def old(self, cell: Cell) -> list[str]:
        """What of a result is not of today's versions."""
        if cell.observed is None:
            return []
        now = self.today[cell.key.lock, cell.key.topology]
        return provenance.not_of_today(cell.observed, self.found, now)

    @cached_property
    def today(self) -> Mapping[tuple[str, str], Mapping[str, str]]:
        """Lock and topology → what decides its results, as it is today."""
        return {
            (system.name, topology): provenance.today(system, topology)
            for system in self.systems.values()
            for topology in system.topologies
        }

    @cached_property
    def _judged(self) -> Mapping[str, tuple[History, Report]]:
        """Saved history, as ``docs/observed`` calls it → itself, judged now."""
        paths = sorted(self.observed.glob("*/*.jsonl"))
        histories = {f"{path.parent.name}/{path.name}": read_jsonl(path) for path in paths}
        return {name: (history, check(history)) for name, history in histories.items()}

    @cached_property
    def _breaks(self) -> Mapping[str, set[str]]:
        return {
            name: {v for v, one in report.verdicts.items() if one.result == "invalid"}
            for name, (_, report) in self._judged.items()
        }

    def pictures(self, cell: Cell) -> list[Picture]:
        """Of each break that a saved history shows."""
        lock, fault = cell.key.lock, cell.key.fault
        found = []
        for verdict in cell.broke:
            if name := history_showing(self._breaks, lock, fault, verdict):
                history, report = self._judged[name]
                svg = figure(history, verdict, report.verdicts[verdict])
                found.append(Picture(verdict, f"docs/observed/{name}", svg))
        return found

    def drawn(self, page: Page) -> list[Picture]:
        """Of the histories of a page of the track record."""
        found = []
        for name, verdict in page.histories.items():
            history = read_jsonl(self.track / name)
            svg = figure(history, verdict, check(history).verdicts[verdict])
            found.append(Picture(verdict, f"docs/track/{name}", svg))
        return found


def material(
    package: ModuleType = locks,
    observed: Path = observations.FOLDER,
    track_record: Path = track.FOLDER,
) -> Material:
    """Everything that is stored now, of the locks that a package declares. Raises BadInput."""
    if not observed.is_dir():
        raise BadInput(f"{observed} does not exist: the site is written from the repository itself")
    modules = declarations.modules(package, NO_LOCKS)
    try:
        defects, maps = track.pages(track_record), explored.load(observed)
    except (track.BadPage, BadFile) as error:
        raise BadInput(str(error)) from error
    return Material(
        systems={
            name: everywhere(system)
            for name, system in declarations.collected(modules, "SYSTEM", System).items()
        },
        docs={
            name: inspect.getdoc(module) or ""
            for module in modules
            for name in declarations.collected([module], "SYSTEM", System)
        },
        found=observations.load(observed),
        defects=defects,
        explored=maps,
        observed=observed,
        track=track_record,
    )


def doc_of_fault(name: str) -> str:
    """What the file says that declares a fault; empty for no fault."""
    fault = faults().get(name)
    return "" if fault is None else inspect.getdoc(inspect.getmodule(type(fault))) or ""
