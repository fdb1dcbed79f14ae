"""What a client could not record any more, from those who saw it: pure functions of histories.

``with_applied``: an operation on the guarded resource whose reply never came (a lost reply, a
killed client) stays ``info``, because its client knows no more; but where the resource's own log
shows it, it gets the time at which it was applied and the version found or made, and so counts at
the resource. An operation that the log does not show gets nothing.

``with_deaths``: a fault that killed a worker process ends every hold that this worker had, so the
promise of each ends with a ``death``, at the earliest time at which the fault can have hit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockbench.history.columns import History, Ints
from lockbench.history.op import NULL, F, Fault, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER

Rows = NDArray[np.intp]


def unanswered(history: History) -> Rows:
    """The operations on the resource of which nobody knows yet whether they were applied."""
    used = (history.f == F.READ) | (history.f == F.WRITE) | (history.f == F.EFFECT)
    open_ = used & (history.type == Type.INFO) & (history.applied_ns == NULL)
    return np.flatnonzero(open_ & (history.hold != NULL))


def with_applied(history: History, log: History) -> History:
    """The history with what the resource's ``log`` knows of unanswered operations: ``applied_ns``,
    ``value`` (the version) and ``fence``. An entry of the log belongs to the first operation of its
    hold, key, kind and version that had been asked for by then and has no answer of its own."""
    rows = unanswered(history)
    if len(rows) == 0 or len(log) == 0:
        return history
    holds = history.hold[rows]
    answered = (history.type == Type.OK) & (history.applied_ns != NULL)
    taken = {
        (_name(history, row), int(history.applied_ns[row]))
        for row in np.flatnonzero(answered & np.isin(history.hold, holds)).tolist()
    }
    entries: dict[tuple[object, ...], list[int]] = {}
    seen = np.flatnonzero(np.isin(log.hold, holds) & (log.applied_ns != NULL))
    for entry in seen[np.argsort(log.applied_ns[seen], kind="stable")].tolist():
        if (_name(log, entry), int(log.applied_ns[entry])) not in taken:
            entries.setdefault(_name(log, entry), []).append(entry)
    columns: dict[str, Any] = {
        name: np.array(getattr(history, name)) for name in ("applied_ns", "value", "fence")
    }
    for row in rows.tolist():
        for entry in entries.get(_name(history, row), []):
            # The log's clock is not that of another machine.
            elsewhere = history.machine_of(row) is not None
            if elsewhere or log.applied_ns[entry] >= history.invoke_ns[row] - history.epsilon_ns:
                entries[_name(history, row)].remove(entry)
                for name, column in columns.items():
                    column[row] = getattr(log, name)[entry]
                break
    return replace(history, **columns)


def _name(history: History, row: int) -> tuple[object, ...]:
    """By what an operation is recognised: hold, key, kind, and the version a write builds on or the
    thing that an effect does."""
    return (
        int(history.hold[row]),
        history.keys[int(history.key[row])],
        int(history.f[row]),
        int(history.version[row]),
    )


def killed_worker(fault: Fault) -> int | None:
    """The number of the worker process that a fault killed, if it did that."""
    worker = fault.facts.get("worker")
    killed = fault.facts.get("killed") is True or fault.name == "client-kill"
    return worker if killed and isinstance(worker, int) else None


def with_deaths(history: History) -> History:
    """The history with a ``death`` for every hold that a killed worker had not begun to release.
    Not of workers of other machines, whose clocks the fault is not on: their deaths are recorded
    there."""
    dead: dict[int, int] = {}  # row of the acquire → time of death
    here = np.True_ if history.machine is None else history.machine < 0
    granted = np.flatnonzero((history.f == F.ACQUIRE) & (history.type == Type.OK) & here)
    over = history.hold[(history.f == F.RELEASE) | (history.f == F.DEATH)]
    for fault in history.faults:
        worker = killed_worker(fault)
        if worker is None:
            continue
        died_ns = fault.begin_ns[0]
        mine = granted[history.process[granted] // PROCESSES_PER_WORKER == worker]
        mine = mine[history.invoke_ns[mine] <= died_ns]
        mine = mine[(history.hold[mine] != NULL) & ~np.isin(history.hold[mine], over)]
        for row in mine.tolist():
            dead[row] = min(dead.get(row, died_ns), died_ns)
    return _with_deaths(history, dead) if dead else history


def _with_deaths(history: History, dead: dict[int, int]) -> History:
    rows = np.array(list(dead), np.intp)
    times = np.array(list(dead.values()), np.int64)
    given: dict[str, Ints] = {
        "f": np.full(len(rows), F.DEATH, np.uint8),
        "type": np.full(len(rows), Type.OK, np.uint8),
        "error": np.full(len(rows), -1, np.int32),
        "invoke_ns": times,
        "complete_ns": times,
    }
    order = np.argsort(np.concatenate([history.invoke_ns, times]), kind="stable")
    columns: dict[str, Any] = {}
    for name, column in history.columns().items():
        if name in {"process", "key", "hold", "mode", "machine"}:
            more = column[rows]
        else:
            more = given.get(name, np.full(len(rows), NULL))
        columns[name] = np.concatenate([column, more.astype(column.dtype)])[order]
    return replace(history, **columns)
