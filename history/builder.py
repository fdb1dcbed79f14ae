"""Builds a ``History`` row by row, or many rows at once, for readers of foreign files.

Numbers are kept in packed arrays and a column that never gets a number costs nothing, so memory
stays at some hundred bytes a row. Names that are not numbers get numbers far below every number
that a file would use.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lockbench.history.columns import History, Ids, Ints, null_column
from lockbench.history.op import INT_MAX, INT_MIN, NULL, F, Fault, Mode, Object, Type

HOLD_MAX: Final = 2**63 - 1
NAMES_FROM: Final = -(2**60)
HEX_DIGITS_MAX: Final = 16
OPERATIONS_MAX: Final = 1 << 24  # of one history; they take some 5 GB to judge
MESSAGE_MAX: Final = 200

FUNCTIONS: Final[Mapping[str, int]] = {f.word: int(f) for f in F}
TYPES: Final[Mapping[str, int]] = {
    "ok": int(Type.OK),
    "fail": int(Type.FAIL),
    "info": int(Type.INFO),
}
MODES: Final[Mapping[str | None, int]] = {
    None: int(Mode.NONE),
    "none": int(Mode.NONE),
    "read": int(Mode.READ),
    "write": int(Mode.WRITE),
    "exclusive": int(Mode.NONE),
    "shared": int(Mode.READ),
}
NUMBERS: Final = (
    "intended_ns",
    "value",
    "old",
    "version",
    "fence",
    "sent_ns",
    "valid_until_ns",
    "applied_ns",
    "owner",
)
MACHINE: Final = "machine"

Order = slice | NDArray[np.intp]


class BadLine(Exception):
    """Something in a file that is not as the format says."""


def shorten(text: str) -> str:
    """A message of bounded length, whatever stands in the file."""
    return text if len(text) <= MESSAGE_MAX else text[:MESSAGE_MAX] + " …"


class Names:
    """Numbers for names; whole numbers stand for themselves."""

    def __init__(self, number_of: Callable[[str], int | None]) -> None:
        self._number_of = number_of
        self._known: dict[str, int] = {}
        self.by_number: dict[int, str] = {}

    def number(self, name: object) -> int:
        """Raises BadLine for a number that is out of range."""
        if isinstance(name, str):
            known = self._known.get(name)
            if known is None:
                known = self._number_of(name)
            if known is None:
                known = self._known[name] = NAMES_FROM - len(self.by_number)
                self.by_number[known] = name
            return known
        if isinstance(name, bool) or not isinstance(name, int):
            return self.number(repr(name))
        if not INT_MIN < name <= INT_MAX:
            raise BadLine(f"{name} is out of range")
        return name

    def numbers(self, names: Sequence[int | str | None]) -> list[int]:
        """The number of each; NULL for None. Raises BadLine."""
        known: dict[int | str | None, int] = {None: NULL}
        for name in dict.fromkeys(names):
            if name is not None:
                known[name] = self.number(name)
        return [known[name] for name in names]


def hexadecimal(text: str) -> int | None:
    """The number that the interchange format would write as this text, if there is one."""
    if not text or len(text) > HEX_DIGITS_MAX:
        return None
    try:
        number = int(text, 16)
    except ValueError:
        return None
    return number if f"{number:x}" == text and number <= HOLD_MAX else None


class Builder:
    """Collects rows; ``finish`` sorts them by invocation."""

    def __init__(self) -> None:
        self.keys: dict[str, int] = {}
        self.errors: dict[str, int] = {}
        self.holds = Names(hexadecimal)
        self.processes = Names(lambda _: None)
        self.values = Names(lambda _: None)
        # An owner is told from a process that acts for itself by its name.
        self.owners = self.processes
        self.machines: dict[str, int] = {}
        self.objects: dict[str, Object] = {}
        self.faults: list[Fault] = []
        self.epsilon_ns = 0
        self.ended: bool | None = None
        self.missing: tuple[str, ...] = ()
        self._process = array("q")
        self._f = array("B")
        self._type = array("B")
        self._mode = array("B")
        self._key = array("i")
        self._error = array("i")
        self._invoke = array("q")
        self._complete = array("q")
        self._hold = array("q")
        self._rare: dict[str, array[int]] = {}

    def __len__(self) -> int:
        return len(self._invoke)

    def add(
        self,
        *,
        process: object,
        f: int,
        outcome: int,
        key: str,
        invoke_ns: int,
        complete_ns: int,
        mode: int = 0,
        hold: object = None,
        error: str | None = None,
        numbers: Mapping[str, int] | None = None,
        machine: str | None = None,
    ) -> int:
        """Adds one operation and returns its number in the order of adding. Raises BadLine."""
        at = len(self._invoke)
        _bound(at + 1)
        self._process.append(self.processes.number(process))
        self._f.append(f)
        self._type.append(outcome)
        self._mode.append(mode)
        self._key.append(self.keys.setdefault(key, len(self.keys)))
        self._error.append(-1 if error is None else self.errors.setdefault(error, len(self.errors)))
        self._invoke.append(invoke_ns)
        self._complete.append(complete_ns)
        self._hold.append(NULL if hold is None else self.holds.number(hold))
        for name, number in (numbers or {}).items():
            self._rare_column(name, at).append(number)
        if machine is not None:
            number = self.machines.setdefault(machine, len(self.machines))
            self._rare_column(MACHINE, at).append(number)
        return at

    def extend(
        self,
        *,
        process: Iterable[int],
        f: bytes,
        outcome: bytes,
        mode: bytes,
        key: Sequence[str],
        error: Sequence[str | None],
        invoke_ns: Ints,
        complete_ns: Ints,
        hold: Iterable[int],
        numbers: Mapping[str, Iterable[int]],
        machine: Sequence[str | None],
    ) -> None:
        """Adds many operations: ``add`` for each, with names that are numbers already. Raises
        BadLine."""
        at = len(self._invoke)
        _bound(at + len(f))
        self._process.extend(process)
        self._f.frombytes(f)
        self._type.frombytes(outcome)
        self._mode.frombytes(mode)
        self._key.extend(_numbered(self.keys, key))
        self._error.extend(_numbered(self.errors, error))
        self._invoke.frombytes(invoke_ns.tobytes())
        self._complete.frombytes(complete_ns.tobytes())
        self._hold.extend(hold)
        for name, column in numbers.items():
            self._rare_column(name, at).extend(column)
        if machine.count(None) < len(machine):
            self._rare_column(MACHINE, at).extend(_numbered(self.machines, machine))

    def _rare_column(self, name: str, rows: int) -> array[int]:
        """A column that has something for the row to come, filled up to it."""
        column = self._rare.setdefault(name, array("q"))
        if len(column) < rows:
            column.frombytes(np.full(rows - len(column), NULL, np.int64).tobytes())
        return column

    def finish(self) -> History:
        """The history in the order of invocation; equal times keep the order of the file."""
        rows = len(self)
        invoke = _column(self._invoke)
        in_order = bool(np.all(invoke[1:] >= invoke[:-1]))
        order: Order = slice(None) if in_order else np.argsort(invoke, kind="stable")
        rare = {name: self._numbers(name, rows, order) for name in NUMBERS}
        hold = _column(self._hold)
        return History(
            process=_column(self._process)[order],
            f=np.frombuffer(self._f, np.uint8)[order],
            type=np.frombuffer(self._type, np.uint8)[order],
            mode=np.frombuffer(self._mode, np.uint8)[order],
            key=np.frombuffer(self._key, np.int32)[order],
            error=np.frombuffer(self._error, np.int32)[order],
            invoke_ns=invoke[order],
            complete_ns=_column(self._complete)[order],
            hold=hold[order] if np.any(hold != NULL) else null_column(rows),
            keys=tuple(self.keys),
            errors=tuple(self.errors),
            objects=self.objects,
            faults=tuple(self.faults),
            epsilon_ns=self.epsilon_ns,
            ended=self.ended,
            hold_names=self.holds.by_number or None,
            process_names=self.processes.by_number or None,
            value_names=self.values.by_number or None,
            owner_names=self.owners.by_number or None,
            service=None,
            guarded=None,
            machine=self._machines(rows, order),
            machines=tuple(self.machines),
            missing=self.missing,
            **rare,
        )

    def _machines(self, rows: int, order: Order) -> Ids | None:
        if not self.machines:
            return None
        return np.maximum(self._numbers(MACHINE, rows, order), -1).astype(np.int32)

    def _numbers(self, name: str, rows: int, order: Order) -> Ints:
        column = self._rare.get(name)
        if column is None:
            return null_column(rows)
        numbers = np.full(rows, NULL, np.int64)
        numbers[: len(column)] = _column(column)
        return numbers[order]


def _bound(rows: int) -> None:
    if rows > OPERATIONS_MAX:
        raise BadLine(f"more than {OPERATIONS_MAX} operations")


def _numbered(known: dict[str, int], texts: Sequence[str | None]) -> list[int]:
    """The place of each text among the known ones, to which new ones are added; -1 for None."""
    places: dict[str | None, int] = {None: -1}
    for text in dict.fromkeys(texts):
        if text is not None:
            places[text] = known.setdefault(text, len(known))
    return [places[text] for text in texts]


def _column(values: array[int]) -> Ints:
    return np.frombuffer(values, np.int64) if len(values) else np.empty(0, np.int64)
