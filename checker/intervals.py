"""Sorting and sweeping intervals of many keys at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockbench.checker.rows import FOREVER, Bools, Rows, by_key_and_time, stable_order
from lockbench.history.columns import Ids, Ints


class ByKey:
    """The places of every key in a column of keys, by one sort however many keys there are; or what
    stands at these places in ``rows``."""

    def __init__(self, key: Ids, rows: Rows | None = None) -> None:
        order = stable_order(key.astype(np.int64))
        self._order = order if rows is None else rows[order]
        self._sorted = key[order]
        keys = int(self._sorted[-1]) + 1 if len(key) else 0
        self._first = np.searchsorted(self._sorted, np.arange(keys + 1, dtype=key.dtype))

    def __getitem__(self, key: int) -> Rows:
        """In the order of the column."""
        if key + 1 >= len(self._first):
            return self._order[:0]
        return self._order[self._first[key] : self._first[key + 1]]

    def present(self) -> list[int]:
        """Those that occur."""
        return [int(key) for key in self._sorted[~same_key_as_before(self._sorted)]]


def same_key_as_before(key: Ids) -> Bools:
    """For a column sorted by key: whether the entry before has the same key."""
    same = np.zeros(len(key), np.bool_)
    same[1:] = key[1:] == key[:-1]
    return same


def open_during(begin: Ints, end: Ints, first: Ints, last: Ints) -> Ints:
    """How many of these intervals, none of which ends before it begins, were open at some time of
    each from ``first`` to ``last``."""
    begun = np.searchsorted(np.sort(begin), last, side="right")
    return begun - np.searchsorted(np.sort(end), first, side="right")


def running_max(key: Ids, values: Ints) -> tuple[Ints, Rows]:
    """For columns sorted by key: the largest value up to and including each entry within its key,
    and where it stands."""
    if len(values) == 0:
        return values.copy(), np.empty(0, np.intp)
    segment = np.cumsum(~same_key_as_before(key)) - 1
    shifted = _compressed(values, int(segment[-1]) + 1)
    shifted += segment * (int(shifted.max()) + 1)
    highest = np.maximum.accumulate(shifted)
    where = np.maximum.accumulate(np.where(shifted == highest, np.arange(len(values)), 0))
    return values[where], where


def _compressed(values: Ints, segments: int) -> Ints:
    """Numbers from 0 in the same order, small enough to be multiplied by the number of segments."""
    finite = values[values < FOREVER]
    low = int(finite.min()) if len(finite) else 0
    high = int(finite.max()) if len(finite) else 0
    if (high - low + 2) * segments < FOREVER:
        return np.where(values < FOREVER, values - low, high - low + 1)
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def writer_overlaps(begin: Ints, end: Ints, reads: Bools, owner: Ints) -> Iterator[tuple[int, int]]:
    """Of the holds of a read-write lock, sorted by their beginning: each writer that began beside
    another owner's hold, and each reader that began beside another owner's write, as (the hold that
    was there, the one that began). Of the readers and of the writers so far, the two that end last
    are enough to look at, if their owners differ."""
    latest: dict[bool, list[int]] = {True: [], False: []}  # reads: places
    for i in range(len(begin)):
        alike = latest[bool(reads[i])]
        rivals = latest[False] if reads[i] else [*latest[False], *latest[True]]
        for j in rivals:
            if end[j] > begin[i] and owner[j] != owner[i]:
                yield j, i
                break
        others = [j for j in alike if owner[j] != owner[i]]
        own = [j for j in alike if owner[j] == owner[i]]
        longest = max([i, *own], key=lambda j: int(end[j]))
        alike[:] = sorted([longest, *others], key=lambda j: -int(end[j]))[:2]


def up_to(keys: Ids, times: Ints, key: Ids, time: Ints) -> Rows:
    """How many of the entries sorted by (keys, times) are at or before each (key, time)."""
    if len(keys) and np.all(keys == keys[0]) and np.all(key == keys[0]):
        return np.searchsorted(times, time, side="right")
    # One stable sort of both: entries come before questions of the same key and time.
    both_key = np.concatenate([keys, key]).astype(np.int64)
    both_time = np.concatenate([times, time])
    order = by_key_and_time(both_key.astype(np.int32), both_time)
    is_entry = order < len(keys)
    before = np.cumsum(is_entry)
    result = np.empty(len(key), np.intp)
    questions = order[~is_entry] - len(keys)
    result[questions] = before[~is_entry]
    return result
