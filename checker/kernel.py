"""The search of ``checker.registers``, for numba to compile. Importing this module imports numba.

Everything is plain arrays. ``ops`` has one row per field (see F_, VALUE, …) and one column per
operation. States are numbered, in the order of their values. An operation under way has a *slot*, a
bit of a mask; a configuration is a state and the mask of the slots whose operations took effect.
Which operations may come next is then one look at a few masks per state (``reads``, ``swaps``).
Each function also runs uncompiled (``explore.py_func``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numba import njit

from history.columns import Ints
from history.op import NULL, F

F_, VALUE, OLD, BEGIN, END = range(5)
STATE, MASK, NEXT = range(3)  # rows of a set of configurations; NEXT: another of the same state

CONFIGURATIONS_MAX: Final = 4096
SLOTS: Final = 62
UNSEEN: Final = 1 << 62  # marks a configuration whose last step was an unknown operation
WRITE: Final = int(F.WRITE)
CAS: Final = int(F.CAS)

VALID: Final = -1  # results at or above 0 name the operation that nothing explains
GAVE_UP: Final = -2


class Way(NamedTuple):
    """What is under way.

    ``op``      per slot: the operation, -1 where it is free
    ``before``  per slot of an unknown operation: the bit of the one called before it that does the
                same, 0 without one; unknown operations that do the same are used in that order
    ``turn``    per slot of an unknown operation: how many before it do the same
    ``masks``   the slots of: writes, reads of nothing, unknown operations
    ``reads``   per state: the slots of its reads
    ``swaps``   per state: the slots of compare-and-sets from it
    """

    op: Ints
    before: Ints
    turn: Ints
    masks: Ints
    reads: Ints
    swaps: Ints


WRITES, READS_OF_NOTHING, UNKNOWN = range(3)


@njit(cache=True)
def explore(ops: Ints, initial: int) -> int:
    """VALID, GAVE_UP or the number of the operation at whose return no configuration is left."""
    n = ops.shape[1]
    value, old, first, states = _numbered(ops, initial)
    way = Way(
        np.full(SLOTS, -1),
        np.zeros(SLOTS, np.int64),
        np.zeros(SLOTS, np.int64),
        np.zeros(3, np.int64),
        np.zeros(states, np.int64),
        np.zeros(states, np.int64),
    )
    frontier = np.empty((3, CONFIGURATIONS_MAX), np.int64)
    queue, done = np.empty_like(frontier), np.empty_like(frontier)
    heads = np.full((2, states), -1)
    slot_of = np.full(n, -1)
    by_begin, by_end = np.argsort(ops[BEGIN]), np.argsort(ops[END])
    frontier[STATE, 0], frontier[MASK, 0], size = first, 0, 1
    called = 0
    for i in by_end:
        if ops[END, i] == NULL:
            continue
        # Times are closed intervals: whatever is called by now comes before this return.
        while called < n and ops[BEGIN, by_begin[called]] <= ops[END, i]:
            op = by_begin[called]
            called += 1
            slot_of[op] = _call(ops, way, op, (value[op], old[op]))
            if slot_of[op] < 0:
                return GAVE_UP
        size = _return(ops, way, (value, heads), (i, slot_of[i], size), (frontier, queue, done))
        if size == GAVE_UP:
            return GAVE_UP
        if size == 0:
            return int(i)
        _forget(way, slot_of[i], (value[i], old[i]))
        frontier, done = done, frontier
    return VALID


@njit(cache=True)
def _numbered(ops: Ints, initial: int) -> tuple[Ints, Ints, int, int]:
    """The values written, read and compared with, and the initial one, as numbers of states."""
    n = ops.shape[1]
    found = np.empty(2 * n + 1, np.int64)
    found[:n], found[n : 2 * n], found[2 * n] = ops[VALUE], ops[OLD], initial
    order = np.argsort(found)
    number = np.zeros(2 * n + 1, np.int64)
    states = 0
    for at in range(1, len(order)):
        if found[order[at]] != found[order[at - 1]]:
            states += 1
        number[order[at]] = states
    return number[:n], number[n : 2 * n], number[2 * n], states + 1


@njit(cache=True)
def _call(ops: Ints, way: Way, op: int, states: tuple[int, int]) -> int:
    """Gives an operation a slot; -1 where there is none left."""
    value, old = states
    slot = 0
    while slot < SLOTS and way.op[slot] >= 0:
        slot += 1
    if slot == SLOTS:
        return -1
    bit = 1 << slot
    way.op[slot] = op
    way.before[slot] = way.turn[slot] = 0
    if ops[END, op] == NULL:
        latest = -1
        for other in range(SLOTS):
            alike = (way.masks[UNKNOWN] >> other) & 1 and _same(ops, way.op[other], op)
            if alike and (latest < 0 or way.turn[other] > way.turn[latest]):
                latest = other
        if latest >= 0:
            way.before[slot] = 1 << latest
            way.turn[slot] = way.turn[latest] + 1
        way.masks[UNKNOWN] |= bit
    if ops[F_, op] == CAS:
        way.swaps[old] |= bit
    elif ops[F_, op] == WRITE:
        way.masks[WRITES] |= bit
    elif ops[VALUE, op] == NULL:
        way.masks[READS_OF_NOTHING] |= bit
    else:
        way.reads[value] |= bit
    return slot


@njit(cache=True)
def _same(ops: Ints, a: int, b: int) -> bool:
    """Whether two operations do the same."""
    alike = ops[F_, a] == ops[F_, b] and ops[VALUE, a] == ops[VALUE, b]
    return bool(alike and (ops[F_, a] == WRITE or ops[OLD, a] == ops[OLD, b]))


@njit(cache=True)
def _forget(way: Way, slot: int, states: tuple[int, int]) -> None:
    """Frees the slot of an operation that returned."""
    value, old = states
    others = ~(1 << slot)
    way.op[slot] = -1
    way.masks[WRITES] &= others
    way.masks[READS_OF_NOTHING] &= others
    way.reads[value] &= others
    way.swaps[old] &= others


@njit(cache=True)
def _return(
    ops: Ints,
    way: Way,
    states: tuple[Ints, Ints],
    returned: tuple[int, int, int],
    sets: tuple[Ints, Ints, Ints],
) -> int:
    """Extends the frontier by what is under way until an operation that returns has taken effect;
    how many configurations there are then, or GAVE_UP."""
    value, heads = states
    i, slot, size = returned
    frontier, queue, done = sets
    bit = 1 << slot
    queued = finished = head = 0
    for c in range(size):
        if frontier[MASK, c] & bit:
            # Two that differ in nothing else would have been one before.
            finished = _add(
                done, heads[1], finished, (frontier[STATE, c], frontier[MASK, c] & ~bit)
            )
        else:
            queued = _add(queue, heads[0], queued, (frontier[STATE, c], frontier[MASK, c]))
    gave_up = False
    while head < queued:
        state, before = queue[STATE, head], queue[MASK, head]
        head += 1
        mask = before & ~UNSEEN
        # Matching reads take effect at once: nothing is lost by it.
        mask |= way.reads[state] | way.masks[READS_OF_NOTHING]
        unseen = before & UNSEEN != 0 and mask == before & ~UNSEEN
        gave_up = max(queued, finished) > CONFIGURATIONS_MAX - SLOTS - 1
        if gave_up:
            break
        if mask & bit:
            finished = _put(done, heads[1], finished, (state, mask & ~bit), way)
            continue
        # A write that follows an unknown operation at once leaves no trace of it.
        next_ones = way.swaps[state] if unseen else way.swaps[state] | way.masks[WRITES]
        next_ones &= ~mask
        if next_ones & bit:
            finished = _put(done, heads[1], finished, (value[i], mask), way)
            next_ones &= ~bit
        at = 0
        while next_ones >> at != 0:
            if (next_ones >> at) & 1:
                after, more = value[way.op[at]], mask | (1 << at)
                if not (way.masks[UNKNOWN] >> at) & 1:
                    queued = _put(queue, heads[0], queued, (after, more), way)
                elif after != state and way.before[at] & ~mask == 0:
                    queued = _put(queue, heads[0], queued, (after, more | UNSEEN), way)
            at += 1
    heads[0][queue[STATE, :queued]] = -1
    heads[1][done[STATE, :finished]] = -1
    return GAVE_UP if gave_up else finished


@njit(cache=True)
def _add(configurations: Ints, heads: Ints, size: int, new: tuple[int, int]) -> int:
    """Adds a configuration, to the chain of its state too."""
    state, mask = new
    configurations[STATE, size], configurations[MASK, size] = state, mask
    configurations[NEXT, size] = heads[state]
    heads[state] = size
    return size + 1


@njit(cache=True)
def _put(configurations: Ints, heads: Ints, size: int, new: tuple[int, int], way: Way) -> int:
    """Adds a configuration unless one is there that can do whatever it can: the same known
    operations have taken effect, and no unknown one that is still to be had in the other."""
    state, mask = new
    # One whose last step was an unknown operation may go fewer ways, too.
    spare = way.masks[UNKNOWN] | UNSEEN
    c = heads[state]
    while c >= 0:
        other = configurations[MASK, c]
        if other & ~spare == mask & ~spare and (other & spare) & ~mask == 0:
            return size
        c = configurations[NEXT, c]
    return _add(configurations, heads, size, new)
