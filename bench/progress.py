"""Looks on while a case runs: counts grants and errors from the records as they are written."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lockbench.history.op import F, Type
from lockbench.history.recording import records_of
from lockbench.report.live import LiveView

LOOK_S = 0.25
RATE_WINDOW_S = 2.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What is to be seen of a case right now."""

    phase: str = "starting"
    cycles_per_s: float = 0.0
    errors: int = 0
    left_s: float | None = None


def shown_in(live: LiveView, *, rest_s: float = 0.0) -> Callable[[Progress], None]:
    """Shows what is seen of a case; ``rest_s``: what comes after it."""

    def show(progress: Progress) -> None:
        seen = progress.seen
        live.update(
            phase=seen.phase,
            faults_on=progress.faults,
            cycles_per_s=seen.cycles_per_s,
            errors=seen.errors,
            seconds_left=None if seen.left_s is None else seen.left_s + rest_s,
        )

    return show


class Progress:
    """Calls ``on_change`` with what is seen, a few times a second at most."""

    def __init__(self, folder: Path, on_change: Callable[[Progress], None]) -> None:
        self._folder = folder
        self._on_change = on_change
        self._began = self._looked = time.monotonic()
        self._read: dict[Path, int] = {}
        self._cycles: deque[tuple[float, int]] = deque()
        self._total = 0
        self.seen = Seen()
        self.faults: tuple[str, ...] = ()  # replaced by the nemesis' threads

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def phase(self, name: str, left_s: float | None = None) -> None:
        changed = name != self.seen.phase
        self.seen = replace(self.seen, phase=name, left_s=left_s)
        if changed or time.monotonic() - self._looked > LOOK_S:
            self._look()
            self._on_change(self)

    def fault(self, fault: str, name: str) -> None:
        """Called when a fault begins (with its name) and when it is over (with nothing)."""
        on = [*self.faults, fault] if name else [f for f in self.faults if f != fault]
        self.faults = tuple(on)

    def _look(self) -> None:
        """Reads only the records that were begun since the last look."""
        now = self._looked = time.monotonic()
        errors = self.seen.errors
        for segment in self._folder.glob("*.ops"):
            first = self._read.get(segment, 0)
            rows = records_of(segment, first)
            # The last ones may still be open; the count is for the eye.
            self._read[segment] = first + len(rows)
            self._total += int(np.count_nonzero(rows["f"] == F.RELEASE))
            errors += int(np.count_nonzero(rows["type"] == Type.INFO))
        self._cycles.append((now, self._total))
        while now - self._cycles[0][0] > RATE_WINDOW_S:
            self._cycles.popleft()
        (then, before) = self._cycles[0]
        rate = (self._total - before) / (now - then) if now > then else 0.0
        self.seen = replace(self.seen, cycles_per_s=rate, errors=errors)
