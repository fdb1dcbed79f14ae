"""Of which faults a lock's declaration says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lockbench.bench.plan import fits
from lockbench.locks.base import System
from lockbench.nemesis.registry import faults


def undeclared(locks: Iterable[System]) -> Mapping[str, tuple[str, ...]]:
    """Lock → the faults that some topology of its can have and that its declaration does not
    mention. Locks that declare all of theirs are left out."""
    found = {system.name: _silent(system) for system in locks}
    return {name: silent for name, silent in found.items() if silent}


def _silent(system: System) -> tuple[str, ...]:
    return tuple(
        fault
        for fault in faults()
        if fault not in system.expectations
        and any(fits(fault, topology) for topology in system.topologies)
    )
