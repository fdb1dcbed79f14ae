"""Registers with compare-and-set, searched from columns by a compiled kernel.

The same search as ``checker.search``, which stays the reference and takes over where this one's
bounds are reached, with the register's rules written into it. numba compiles it, so no compiler is
needed on the user's machine; compiling takes seconds once and is kept beside the file, and loading
takes half a second, so it is used only where that pays.

One more reduction than there: an unknown operation that a write follows at once, with nothing that
saw its value in between, might as well not have happened, so no configuration goes that way.

Bounds: 62 operations under way at once, unknown ones included (those never end), and some 4,000
configurations at one return.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from checker.promises import Rows
from checker.search import Found
from history.columns import History, Ints
from history.op import NULL, F, Type

VALID = -1
GAVE_UP = -2

Kernel = Callable[[Ints, int], int]


def compiled() -> Kernel | None:
    """The compiled search, or None where numba is not installed or has nowhere to keep it."""
    try:
        from checker.kernel import explore
    except (ImportError, RuntimeError):
        return None
    kernel: Kernel = explore
    return kernel


def search_register(
    history: History, rows: Rows, initial: int | None, kernel: Kernel
) -> Found | None:
    """Searches the rows of one key; None where the bounds were reached. The numbers in the answer
    are rows."""
    f, known = history.f[rows], history.type[rows] == Type.OK
    writes = (f == F.WRITE) | (f == F.CAS)
    chosen = ((f == F.READ) & known) | (writes & (known | (history.type[rows] == Type.INFO)))
    rows = rows[chosen]
    begin = history.invoke_ns[rows] - history.epsilon_ns
    done = history.complete_ns[rows]
    end = np.where(done == NULL, NULL, done + history.epsilon_ns)
    ops = np.empty((5, len(rows)), np.int64)
    ops[0], ops[1], ops[2] = history.f[rows], history.value[rows], history.old[rows]
    ops[3], ops[4] = begin, end
    failed = kernel(ops, NULL if initial is None else initial)
    if failed == GAVE_UP:
        return None
    if failed == VALID:
        return Found("valid", f"{len(rows)} operations linearized")
    at = end[failed]
    open_then = rows[(begin <= at) & ((end == NULL) | (end >= at))]
    others = tuple(int(row) for row in open_then if row != rows[failed])
    return Found("invalid", "no order of effects explains it", int(rows[failed]), others)
