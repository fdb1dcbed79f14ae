"""Schedules as TOML files.

    [[fault]]                  # faults follow each other, unless at_s says when they begin
    name = "partition-drop"
    at_s = 3.0                 # after the start of the contended phase
    for_s = 2.0
    times = 2
    every_s = 5.0
    with = { shape = "leader" }

    [random]                   # and, or instead, as many as this drawn from the seed
    count = 5
    weights = { pause = 2, kill = 1 }

Keys that are not these are errors: a misspelt key must not turn into another schedule. The file
may be anybody's: what is no regular file, or would take the parser long, is refused beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lockbench.history.files import BadFile, read_toml
from lockbench.nemesis.registry import faults
from lockbench.nemesis.schedule import RANDOM, ScheduleError, Steps, Wanted, wanted

FAULT_KEYS: Final = {"name", "at_s", "for_s", "times", "every_s", "with"}
RANDOM_KEYS: Final = {"count", "weights"}
WEIGHT_MAX: Final = 1_000_000
TIMING: Final = {"at_s": "at", "for_s": "for", "times": "times", "every_s": "every"}


def read_file(path: Path) -> Steps:
    """Raises ScheduleError that names the file and what is wrong in it."""
    document = _document(path)
    steps: list[tuple[Wanted, ...]] = []
    together: list[Wanted] = []
    for number, entry in enumerate(document.get("fault", []), 1):
        one = _fault(path, number, entry)
        if one.at_s is None:
            steps.append((one,))
        else:
            together.append(one)
    # What says its own time belongs to the first step, whose faults do not wait for each other.
    if together:
        steps.insert(0, tuple(together))
    if "random" in document:
        said = {k: str(v) for k, v in document["random"].items() if k == "count"}
        steps.append((_wanted(path, RANDOM, said),))
    if not steps:
        raise ScheduleError(f"{path}: there is no [[fault]] and no [random] in it")
    return tuple(steps)


def read_weights(path: Path) -> Mapping[str, float]:
    """How often each fault is drawn, relative to the others; empty: all alike."""
    weights = _document(path).get("random", {}).get("weights", {})
    for name, weight in weights.items():
        if name not in faults():
            raise ScheduleError(f"{path}: [random] weights: no fault is called {name!r}")
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise ScheduleError(f"{path}: [random] weights: {name} is no number")
        if not 0 <= weight <= WEIGHT_MAX:
            raise ScheduleError(f"{path}: [random] weights: {name} is not from 0 to {WEIGHT_MAX}")
    return {name: float(weight) for name, weight in weights.items()}


def _document(path: Path) -> dict[str, Any]:
    try:
        document = read_toml(path)
    except BadFile as error:
        raise ScheduleError(str(error)) from error
    _known(path, "the file", document, {"fault", "random"})
    if not isinstance(document.get("fault", []), list):
        raise ScheduleError(f"{path}: a fault is written as [[fault]]")
    found = document.get("random", {})
    if not isinstance(found, dict):
        raise ScheduleError(f"{path}: random is written as [random]")
    _known(path, "[random]", found, RANDOM_KEYS)
    if not isinstance(found.get("weights", {}), dict):
        raise ScheduleError(f"{path}: [random] weights is written as {{ name = number }}")
    return document


def _fault(path: Path, number: int, entry: object) -> Wanted:
    where = f"fault {number}"
    if not isinstance(entry, dict):
        raise ScheduleError(f"{path}: {where} is written as [[fault]]")
    _known(path, where, entry, FAULT_KEYS)
    if not isinstance(entry.get("name"), str):
        raise ScheduleError(f"{path}: {where} has no name")
    details = entry.get("with", {})
    if not isinstance(details, dict):
        raise ScheduleError(f"{path}: {where}: with is written as {{ parameter = value }}")
    clashing = sorted(details.keys() & set(TIMING.values()))
    if clashing:
        raise ScheduleError(f"{path}: {where}: {clashing[0]} does not belong in with")
    said = {key: str(value) for key, value in details.items()}
    said |= {short: str(entry[key]) for key, short in TIMING.items() if key in entry}
    return _wanted(path, entry["name"], said)


def _wanted(path: Path, name: str, said: Mapping[str, str]) -> Wanted:
    try:
        return wanted(name, said)
    except ScheduleError as error:
        raise ScheduleError(f"{path}: {error}") from error


def _known(path: Path, where: str, found: Mapping[str, Any], known: set[str]) -> None:
    extra = sorted(found.keys() - known)
    if extra:
        raise ScheduleError(
            f"{path}: {where} has the unknown key {extra[0]!r}; "
            f"known are {', '.join(sorted(known))}"
        )
