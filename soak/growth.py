"""Whether the memory of a process grows while it works, as a slope with its spread.

The slope is the Theil-Sen estimate with its 95 % interval (Sen 1968,
``scipy.stats.theilslopes``), over the means of twelve equal stretches of time: neighbouring samples
depend on each other, means of stretches hardly do. The first fifth is left out, in which everything
is used for the first time.
Guarantees: only an interval that lies within the limit is called flat, only one that lies above it
is said to grow. Does not guarantee: that what grows by less than the limit is seen.
"""

from __future__ import annotations

import ctypes
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from rich.table import Table

from soak.parts import BENCH, FORK_SERVER, anonymous_bytes, parts

MIB: Final = 2**20
LIMIT_MIB_PER_HOUR: Final = 8.0
STRETCHES: Final = 12
WARM_UP: Final = 0.2
MINUTES_MIN: Final = 5.0

_libc: Final = ctypes.CDLL(None)

FLAT, GROWS, NOT_KNOWN = "flat", "grows", "not known"


@dataclass(frozen=True, slots=True)
class Growth:
    """Of one process. ``low`` and ``high`` bound the slope (MiB per hour); all three are None where
    there are too few samples."""

    samples: int
    minutes: float
    first_mib: float
    last_mib: float
    slope: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def word(self) -> str:
        if self.low is None or self.high is None or self.minutes < MINUTES_MIN:
            return NOT_KNOWN
        if self.low > LIMIT_MIB_PER_HOUR:
            return GROWS
        return FLAT if self.high <= LIMIT_MIB_PER_HOUR else NOT_KNOWN


def growth(samples: Sequence[tuple[float, int]]) -> Growth:
    """``samples`` are (seconds, bytes), one at least, in the order of time."""
    from scipy import stats

    seconds = np.array([when for when, _ in samples])
    mib = np.array([used for _, used in samples]) / MIB
    lasted = seconds[-1] - seconds[0]
    plain = Growth(len(samples), float(lasted / 60), float(mib[0]), float(mib[-1]))
    warm = seconds >= seconds[0] + WARM_UP * lasted
    seconds, mib = seconds[warm], mib[warm]
    edges = np.linspace(seconds[0], seconds[-1], STRETCHES + 1)
    stretch = np.clip(np.searchsorted(edges, seconds, side="right") - 1, 0, STRETCHES - 1)
    counts = np.bincount(stretch, minlength=STRETCHES)
    if lasted <= 0 or not counts.all():
        return plain
    hours = np.bincount(stretch, weights=seconds) / counts / 3600
    means = np.bincount(stretch, weights=mib) / counts
    found = stats.theilslopes(means, hours, 0.95)
    return Growth(
        plain.samples,
        plain.minutes,
        plain.first_mib,
        plain.last_mib,
        float(found.slope),
        float(found.low_slope),
        float(found.high_slope),
    )


class Memory:
    """Samples of memory by process. Those of the load end with their cluster."""

    def __init__(self) -> None:
        self._samples: dict[str, list[tuple[float, int]]] = defaultdict(list)

    def read(self, bench: int, topology: str) -> None:
        """One sample of each process of a bench that is there. What this process has freed and the
        C library keeps is given back first: how much that is depends on what was last read whole,
        such as the files of a server that lost power."""
        _libc.malloc_trim(0)
        for name, process in parts(bench).items():
            used = anonymous_bytes(process)
            lasts = name in (BENCH, FORK_SERVER)
            if used is not None:
                row = name if lasts else f"{name} on {topology}"
                self._samples[row].append((time.monotonic(), used))

    def found(self) -> dict[str, Growth]:
        """By process."""
        return {name: growth(samples) for name, samples in self._samples.items()}


def memory_table(found: Mapping[str, Growth]) -> Table:
    """One line per process."""
    shown = Table(
        "process", "samples", "minutes", "first MiB", "last MiB", "MiB per hour [95 %]", ""
    )
    for name, seen in found.items():
        slope = (
            "-" if seen.slope is None else f"{seen.slope:+.2f} [{seen.low:+.2f}, {seen.high:+.2f}]"
        )
        shown.add_row(
            name,
            str(seen.samples),
            f"{seen.minutes:.0f}",
            f"{seen.first_mib:.1f}",
            f"{seen.last_mib:.1f}",
            slope,
            seen.word,
        )
    return shown
