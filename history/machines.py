"""Histories of several machines, each on a clock of its own: put together, times as they are.

How the clocks stand to each other is not known here; ``lockbench.checker.bounds`` derives it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from lockbench.history.builder import NAMES_FROM, OPERATIONS_MAX
from lockbench.history.columns import History, Ids, Ints
from lockbench.history.lines import UnreadableHistory
from lockbench.history.op import NULL, Object

TEXT_OF: Final = {"key": "keys", "error": "errors"}  # what is the same on all machines


class BadMerge(Exception):
    """Histories that do not belong together; the message is a sentence for people."""


def on_one_machine(history: History, name: str) -> History:
    """The history itself, where each process, owner and hold is on one machine. ``name`` is that of
    its file. Raises UnreadableHistory."""
    if history.machine is None:
        return history
    for what, column, text in (
        ("process", history.process, history.process_name),
        ("owner", history.owner, lambda number: str(history.owner_json(number))),
        ("hold", history.hold, history.hold_name),
    ):
        used = column != NULL
        pairs = np.unique(np.stack([column[used], history.machine[used]]), axis=1)
        twice = np.flatnonzero(pairs[0, 1:] == pairs[0, :-1])
        if len(twice):
            at = int(twice[0])
            both = " and ".join(
                "the clock of the resource" if m < 0 else history.machines[m]
                for m in pairs[1, at : at + 2].tolist()
            )
            raise UnreadableHistory(
                f"{name}: the {what} {text(int(pairs[0, at]))} is on {both}; it can be on one alone"
            )
    return history


def merged(histories: Mapping[str, History]) -> History:
    """One history of those of several machines, by the name of the machine. Keys of one name are
    one key; processes, owners and holds of one name are different ones on different machines. What
    the service kept itself is left out: the checker compares it with one clock only. Raises
    BadMerge."""
    operations = sum(map(len, histories.values()))
    if operations > OPERATIONS_MAX:
        raise BadMerge(f"more than {OPERATIONS_MAX} operations together")
    for machine, history in histories.items():
        if history.machine is not None:
            raise BadMerge(f"{machine} says itself on which machines it was recorded")
    texts = {
        name: _union([getattr(h, name) for h in histories.values()]) for name in TEXT_OF.values()
    }
    names: dict[str, dict[int, str]] = {"process": {}, "owner": {}, "hold": {}}
    values: dict[str, int] = {}
    parts = []
    for number, (machine, history) in enumerate(histories.items()):
        columns = history.columns() | {"machine": np.full(len(history), number, np.int32)}
        for name, several in TEXT_OF.items():
            known = getattr(history, several)
            columns[name] = _translated(columns[name], known, texts[several])
        parts.append(columns | _values(history, values) | _renamed(history, machine, names))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(columns["invoke_ns"], kind="stable")
    ended = [history.ended for history in histories.values()]
    whole: Any = {name: column[order] for name, column in columns.items()}
    return History(
        **whole,
        keys=tuple(texts["keys"]),
        errors=tuple(texts["errors"]),
        objects=_objects(histories),
        faults=tuple(
            fault if fault.machine else replace(fault, machine=machine)
            for machine, history in histories.items()
            for fault in history.faults
        ),
        epsilon_ns=max(history.epsilon_ns for history in histories.values()),
        ended=False if False in ended else True if True in ended else None,
        process_names=names["process"],
        owner_names=names["owner"],
        hold_names=names["hold"],
        value_names={number: name for name, number in values.items()} or None,
        machines=tuple(histories),
        missing=tuple(machine for machine, history in histories.items() if history.missing),
    )


def _union(texts: Sequence[Sequence[str]]) -> dict[str, int]:
    """The place of each text, each of them once."""
    return {text: at for at, text in enumerate(dict.fromkeys(t for some in texts for t in some))}


def _renamed(
    history: History, machine: str, names: Mapping[str, dict[int, str]]
) -> dict[str, Ints]:
    """Processes, owners and holds in numbers of their own, which are added to ``names``."""
    # Owners and processes share their numbers: who names no owner is his own.
    actors = _known(np.concatenate([history.process, history.owner]))
    columns: dict[str, Ints] = {}
    told: tuple[tuple[str, Ints, Callable[[int], object]], ...] = (
        ("process", actors, history.process_json),
        ("owner", actors, history.owner_json),
        ("hold", _known(history.hold), history.hold_name),
    )
    first = max([-1, *(number for named in names.values() for number in named)]) + 1
    for what, known, text in told:
        column = getattr(history, what)
        columns[what] = np.where(column == NULL, NULL, np.searchsorted(known, column) + first)
        for old in _known(column).tolist():
            number = int(np.searchsorted(known, old)) + first
            names[what][number] = f"{machine}/{text(old)}"
    return columns


def _known(column: Ints) -> Ints:
    return np.unique(column[column != NULL])


def _values(history: History, values: dict[str, int]) -> dict[str, Ints]:
    """The values of registers; those that are no numbers as ``values`` names them."""
    columns = {name: getattr(history, name) for name in ("value", "old")}
    renamed = dict(columns)
    for old, text in (history.value_names or {}).items():
        new = values.setdefault(text, NAMES_FROM - len(values))
        for name, column in columns.items():
            renamed[name] = np.where(column == old, new, renamed[name])
    return renamed


def _translated(ids: Ids, known: Sequence[str], places: Mapping[str, int]) -> Ids:
    return np.array([*(places[text] for text in known), -1], np.int32)[ids]


def _objects(histories: Mapping[str, History]) -> dict[str, Object]:
    """What the keys are. Raises BadMerge where two machines say different things."""
    objects: dict[str, Object] = {}
    said_by: dict[str, str] = {}
    for machine, history in histories.items():
        for key, given in history.objects.items():
            if objects.setdefault(key, given) != given:
                raise BadMerge(f"{said_by[key]} and {machine} say different things of {key!r}")
            said_by.setdefault(key, machine)
    return objects
