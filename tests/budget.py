"""How much the random tests try. ``LOCKBENCH_BUDGET`` is the one setting: a factor that holds for
random histories, for hypothesis and for the time that `make fuzz` spends on changed inputs.

`make check` leaves it at 1, `make test` sets 4 and `make fuzz` 200. A larger budget tries what a
smaller one tries and goes on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

BUDGET: Final = float(os.environ.get("LOCKBENCH_BUDGET", "1"))


def some(whole: Sequence[T], quick: int) -> Sequence[T]:
    """So many of a whole in `make check`, evenly spread; more with a larger budget."""
    wanted = min(len(whole), tries(quick))
    return [whole[n * len(whole) // wanted] for n in range(wanted)]


def tries(quick: float) -> int:
    """How many, where `make check` has this many; one at least."""
    return max(1, round(quick * BUDGET))
