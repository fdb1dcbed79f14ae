"""Sorting and sweeping intervals of many keys at once."""

from __future__ import annotations

import numpy as np

from checker.promises import FOREVER, Bools, Rows
from history.columns import Ids, Ints


def same_key_as_before(key: Ids) -> Bools:
    """For a column sorted by key: whether the entry before has the same key."""
    same = np.zeros(len(key), np.bool_)
    same[1:] = key[1:] == key[:-1]
    return same


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
