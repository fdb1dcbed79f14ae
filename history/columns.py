"""A history as columns: one numpy array per field, one row per operation.

``History`` is what the checker and the results read. It is built from a recording
(``lockbench.history.recording``) or from a foreign file (``history.jsonl``, ``history.edn``), and
is the same thing afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockbench.history.guarded import Guarded
from lockbench.history.op import NULL, Fault, Object
from lockbench.history.recorder import PROCESSES_PER_WORKER
from lockbench.history.service import Service

Ints = NDArray[np.int64]
Small = NDArray[np.uint8]
Ids = NDArray[np.int32]


def null_column(rows: int) -> Ints:
    """A column without a single value: no memory, whatever its length."""
    return np.broadcast_to(np.int64(NULL), (rows,))


@dataclass(frozen=True)
class History:
    """Operations in the order of their invocation.

    Every column has one entry per operation. ``f``, ``type`` and ``mode`` hold the numbers of
    ``lockbench.history.op``; ``type`` is never OPEN. ``key`` and ``error`` are indices into
    ``keys`` and ``errors`` (-1: none). Missing numbers are ``NULL``; ``complete_ns`` is NULL for an
    info. The ``…_names`` translate back where a foreign file used other than numbers.

    ``machine`` is the index into ``machines`` on whose clock an operation was recorded, -1 for the
    clock that ``applied_ns`` is on. None: there is one clock (``lockbench.checker.machines``
    otherwise). ``missing`` are the machines of whose recording a part did not come back.
    """

    process: Ints
    f: Small
    type: Small
    mode: Small
    key: Ids
    error: Ids
    invoke_ns: Ints
    intended_ns: Ints
    complete_ns: Ints
    hold: Ints
    value: Ints
    old: Ints
    version: Ints
    fence: Ints
    sent_ns: Ints
    valid_until_ns: Ints
    applied_ns: Ints
    owner: Ints
    keys: tuple[str, ...]
    errors: tuple[str, ...] = ()
    objects: Mapping[str, Object] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    epsilon_ns: int = 0
    ended: bool | None = None  # False: the load was cut off; None: nobody says
    hold_names: Mapping[int, str] | None = None
    process_names: Mapping[int, str] | None = None
    value_names: Mapping[int, str] | None = None
    owner_names: Mapping[int, str] | None = None
    service: Service | None = None  # what the lock service kept itself
    guarded: Guarded | None = None  # what the store that the lock guards kept itself
    machine: Ids | None = None
    machines: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.invoke_ns)

    def columns(self) -> dict[str, Any]:
        """Every column by its name."""
        found = ((it.name, getattr(self, it.name)) for it in fields(self))
        return {name: value for name, value in found if isinstance(value, np.ndarray)}

    def only(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> History:
        """These operations alone, with everything else that is known of the history."""
        return replace(self, **{name: column[rows] for name, column in self.columns().items()})

    @cached_property
    def rows_found(self) -> dict[tuple[int, ...], NDArray[np.intp]]:
        """Rows by function and types, as far as somebody asked for them: for ``rows_of``."""
        return {}

    @cached_property
    def kinds(self) -> list[str]:
        """The kind of every key."""
        if not self.objects:
            return [MUTEX.kind] * len(self.keys)
        return [self.object_of(key).kind for key in self.keys]

    def object_of(self, key: str) -> Object:
        """What a key names; every key that nothing was said about is an owned mutex."""
        return self.objects.get(key, MUTEX)

    def has_role(self, role: str) -> NDArray[np.bool_]:
        """Which rows are about a key of this role."""
        of_key = [self.object_of(key).role == role for key in self.keys]
        # One more for key -1, none.
        return np.array([*of_key, False], np.bool_)[self.key]

    def hold_name(self, hold: int) -> str:
        """The hold as the interchange format writes it: hexadecimal unless it came with a name."""
        return (self.hold_names or {}).get(hold, f"{hold:x}")

    def process_name(self, process: int) -> str:
        return str(self.process_json(process))

    def client(self, process: int) -> str:
        """The client for people: ``worker 2, client 4``, or by its name or number in a history
        that no recorder of several workers made."""
        if self.process_names is not None or not self._of_workers:
            return f"client {self.process_name(process)}"
        worker, client = divmod(process, PROCESSES_PER_WORKER)
        return f"worker {worker}, client {client}"

    @cached_property
    def _of_workers(self) -> bool:
        return bool(np.any(self.process >= PROCESSES_PER_WORKER))

    def process_json(self, process: int) -> int | str:
        """The process as it stands in a file: a number, or the name it came with."""
        return (self.process_names or {}).get(process, process)

    def machine_of(self, row: int) -> str | None:
        """The machine that a row was recorded on; None on the clock of the resource."""
        at = -1 if self.machine is None else int(self.machine[row])
        return None if at < 0 else self.machines[at]

    def value_json(self, value: int) -> int | str | None:
        """A register's value as it stands in a file."""
        return None if value == NULL else (self.value_names or {}).get(value, value)

    def owner_json(self, owner: int) -> int | str:
        """An owner as it stands in a file."""
        return (self.owner_names or {}).get(owner, owner)


MUTEX = Object()
