"""Columns of a history: which rows, of which keys, in which order, by whom, answered when.

All times are nanoseconds; ``FOREVER`` stands for no limit.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lockbench.history.columns import History, Ids, Ints
from lockbench.history.op import NULL, F, Type

FOREVER: Final = 2**62
AIMED_ROLES: Final = frozenset({"contended", "aimed"})

Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]


def forever(size: int) -> Ints:
    """A column without any limit; read-only and without memory."""
    return np.broadcast_to(np.int64(FOREVER), (size,))


def late_of(history: History, grants: Rows) -> Rows:
    """Of grants those that were returned when their own promise had already passed."""
    limited = grants[history.valid_until_ns[grants] != NULL]
    late: Rows = limited[history.complete_ns[limited] > history.valid_until_ns[limited]]
    return late


def rows_of(history: History, f: F, *types: Type) -> Rows:
    """The rows of one function, of the given types (none given: all). Kept with the history, as
    every verdict asks for the same few: not to be written into."""
    asked = (int(f), *map(int, types))
    known = history.rows_found.get(asked)
    if known is not None:
        return known
    chosen = history.f == f
    if types and np.any(chosen):
        allowed = history.type == types[0]
        for more in types[1:]:
            allowed |= history.type == more
        chosen &= allowed
    rows = np.flatnonzero(chosen)
    rows.flags.writeable = False
    history.rows_found[asked] = rows
    return rows


def keys_with(history: History, roles: frozenset[str]) -> Bools:
    """Which keys have one of the roles; all of them where no key has any."""
    if not history.objects:
        return np.ones(len(history.keys), np.bool_)
    found = [history.object_of(key).role for key in history.keys]
    if not any(found):
        return np.ones(len(history.keys), np.bool_)
    return np.array([role in roles for role in found], np.bool_)


def answered_ns(history: History, rows: Rows) -> Ints:
    """When each of these was answered; FOREVER where the outcome is unknown."""
    done = history.complete_ns[rows]
    return np.where(done == NULL, FOREVER, done)


def has_values(column: Ints) -> bool:
    """False for a column without a single number."""
    if len(column) == 0 or column.strides == (0,):
        return len(column) > 0 and bool(column[0] != NULL)
    return bool(np.any(column != NULL))


def failed_with(history: History, word: str) -> Bools:
    """The failed rows whose error begins with ``word``."""
    result = np.zeros(len(history), np.bool_)
    wanted = [i for i, text in enumerate(history.errors) if text.startswith(word)]
    if wanted:
        result = np.isin(history.error, np.array(wanted)) & (history.type == Type.FAIL)
    return result


def owners(history: History) -> Ints:
    """Who acts: the recorded owner, else the process."""
    if not has_values(history.owner):
        return history.process
    return np.where(history.owner != NULL, history.owner, history.process)


def stable_order(values: Ints) -> Rows:
    """A stable argsort; values of a small range take numpy's radix sort, which is linear."""
    if len(values) == 0:
        return np.empty(0, np.intp)
    low, high = int(values.min()), int(values.max())
    if high - low < 2**16:
        return np.argsort((values - low).astype(np.uint16), kind="stable")
    return np.argsort(values, kind="stable")


def by_key_and_time(key: Ids, time: Ints) -> Rows:
    """The order of increasing key, and of increasing time within a key; stable."""
    order = np.argsort(time, kind="stable")
    if len(key) and key[0] == key[-1] and np.all(key == key[0]):
        return order
    return order[stable_order(key[order].astype(np.int64))]
