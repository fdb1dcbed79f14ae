"""The search of ``checker.registers``, for numba to compile. Importing this module imports numba.

Everything is plain arrays. ``ops`` has one row per field (see F_, VALUE, …) and one column per
operation. A configuration is a state and a mask of the slots whose operations took effect; a set of
them is an array of two rows and a size. Each function also runs uncompiled (``explore.py_func``).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from history.columns import Ints
from history.op import NULL, F

F_, VALUE, OLD, BEGIN, END = range(5)
OP, KNOWN = range(2)  # rows of the slots

CONFIGURATIONS_MAX: Final = 2048
SLOTS: Final = 62
UNSEEN: Final = 1 << 62  # marks a configuration whose last step was an unknown operation
READ: Final = int(F.READ)
WRITE: Final = int(F.WRITE)
CAS: Final = int(F.CAS)

VALID: Final = -1  # results at or above 0 name the operation that nothing explains
GAVE_UP: Final = -2


@njit(cache=True)
def explore(ops: Ints, initial: int) -> int:
    """VALID, GAVE_UP or the number of the operation at whose return no configuration is left."""
    n = ops.shape[1]
    frontier = np.empty((2, CONFIGURATIONS_MAX), np.int64)
    queue, done = np.empty_like(frontier), np.empty_like(frontier)
    slots = np.full((2, SLOTS), -1)
    slot_of = np.full(n, -1)
    by_begin, by_end = np.argsort(ops[BEGIN]), np.argsort(ops[END])
    frontier[0, 0], frontier[1, 0], size = initial, 0, 1
    called = top = unknown = 0
    for i in by_end:
        if ops[END, i] == NULL:
            continue
        # Times are closed intervals: whatever is called by now comes before this return.
        while called < n and ops[BEGIN, by_begin[called]] <= ops[END, i]:
            op = by_begin[called]
            called += 1
            slot = _free(slots)
            if slot == SLOTS:
                return GAVE_UP
            top = max(top, slot + 1)
            slot_of[op], slots[OP, slot] = slot, op
            slots[KNOWN, slot] = ops[END, op] != NULL
            if not slots[KNOWN, slot]:
                unknown |= 1 << slot
        bit = 1 << slot_of[i]
        finished = queued = 0
        for c in range(size):
            if frontier[1, c] & bit:
                done[0, finished], done[1, finished] = frontier[0, c], frontier[1, c] & ~bit
                finished += 1
            else:
                queue[:, queued] = frontier[:, c]
                queued += 1
        finished = _extend(ops, slots[:, :top], i, (unknown, queued, finished), (queue, done))
        if finished == GAVE_UP:
            return GAVE_UP
        if finished == 0:
            return int(i)
        slots[OP, slot_of[i]] = -1
        frontier, done = done, frontier
        size = finished
    return VALID


@njit(cache=True)
def _free(slots: Ints) -> int:
    slot = 0
    while slot < SLOTS and slots[OP, slot] >= 0:
        slot += 1
    return slot


@njit(cache=True)
def _extend(
    ops: Ints, slots: Ints, i: int, sizes: tuple[int, int, int], sets: tuple[Ints, Ints]
) -> int:
    """Extends the queued configurations until operation ``i`` has taken effect; returns how many
    are done then, or GAVE_UP."""
    unknown, queued, finished = sizes
    queue, done = sets
    bit = 0
    for slot in range(slots.shape[1]):
        if slots[OP, slot] == i:
            bit = 1 << slot
    head = 0
    while head < queued:
        state, before = queue[0, head], queue[1, head]
        head += 1
        mask = _see(ops, slots, state, before & ~UNSEEN)
        unseen = before & UNSEEN and mask == before & ~UNSEEN
        if mask & bit:
            finished = _put(done, finished, state, mask & ~bit, unknown)
        else:
            if _applies(ops, i, state, unseen):
                finished = _put(done, finished, ops[VALUE, i], mask, unknown)
            for slot in range(slots.shape[1]):
                op = slots[OP, slot]
                if op < 0 or op == i or (mask >> slot) & 1 or not _applies(ops, op, state, unseen):
                    continue
                more = mask | (1 << slot)
                if not slots[KNOWN, slot]:
                    if ops[VALUE, op] == state:
                        continue
                    more |= UNSEEN
                queued = _put(queue, queued, ops[VALUE, op], more, unknown)
                if queued >= CONFIGURATIONS_MAX:
                    return GAVE_UP
        if finished >= CONFIGURATIONS_MAX:
            return GAVE_UP
    return finished


@njit(cache=True)
def _see(ops: Ints, slots: Ints, state: int, mask: int) -> int:
    """Matching reads take effect at once: nothing is lost by it."""
    for slot in range(slots.shape[1]):
        op = slots[OP, slot]
        if op >= 0 and ops[F_, op] == READ and ops[VALUE, op] in (NULL, state):
            mask |= 1 << slot
    return mask


@njit(cache=True)
def _applies(ops: Ints, op: int, state: int, unseen: bool) -> bool:
    """Whether a write or a compare-and-set may come next."""
    if ops[F_, op] == CAS:
        return bool(ops[OLD, op] == state)
    return ops[F_, op] == WRITE and not unseen


@njit(cache=True)
def _put(configurations: Ints, size: int, state: int, mask: int, unknown: int) -> int:
    """Adds a configuration unless one is there that can do whatever it can: the same known
    operations have taken effect, and no unknown one that is still to be had in the other."""
    for c in range(size):
        if configurations[0, c] == state:
            other = configurations[1, c]
            if other & ~unknown == mask & ~unknown and (other & unknown) & ~mask == 0:
                return size
    configurations[0, size], configurations[1, size] = state, mask
    return size + 1
