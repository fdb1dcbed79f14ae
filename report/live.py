"""What is to be seen while cases run: a live line in a terminal, plain lines elsewhere.

    with LiveView(21, console) as view:
        view.case_started(1, "etcd", "kill")
        view.update("contended", ["kill"], cycles_per_s=812, errors=0, seconds_left=14)
        view.note("etcd under kill: as expected")

Safe to call from several threads. Nothing is written after the end of the ``with`` block.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lockbench.results.wording import printable

PLAIN_SECONDS_MIN: Final = 5.0
REFRESH_PER_S: Final = 4


class LiveView:
    """Shows which case of how many, its phase, the faults on now, cycles/s, errors, time left.

    ``console`` decides where: give one on standard error when standard output holds JSON. In a
    terminal one line is rewritten; elsewhere a line is written whenever phase or faults change, and
    otherwise every five seconds at most.
    """

    def __init__(self, total_cases: int, console: Console) -> None:
        self._total = total_cases
        self._console = console
        self._guard = threading.Lock()
        self._live: Live | None = None
        self._case = ""
        self._case_began = time.monotonic()
        self._status: tuple[str, tuple[str, ...]] = ("", ())
        self._said = -PLAIN_SECONDS_MIN
        self._open = False

    def __enter__(self) -> LiveView:
        self._open = True
        if self._console.is_terminal:
            self._live = Live(
                Text(""), console=self._console, refresh_per_second=REFRESH_PER_S, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._open = False
            if self._live is not None:
                self._live.stop()
                self._live = None

    def case_started(self, number: int, lock: str, fault: str) -> None:
        """``number`` counts from 1."""
        with self._guard:
            self._case = printable(f"[{number}/{self._total}] {lock} under {fault}", keep="")
            self._case_began = time.monotonic()
            self._status = ("", ())
            self._show(self._case, always=True)

    def update(
        self,
        phase: str,
        faults_on: Sequence[str] = (),
        cycles_per_s: float | None = None,
        errors: int = 0,
        seconds_left: float | None = None,
    ) -> None:
        """What the case does now; may be called as often as one likes."""
        with self._guard:
            status = (phase, tuple(faults_on))
            changed = status != self._status
            self._status = status
            parts = [self._case, phase]
            if faults_on:
                parts.append("FAULT " + " + ".join(faults_on))
            if cycles_per_s is not None:
                parts.append(f"{cycles_per_s:,.0f} cycles/s")
            if errors:
                parts.append(f"{errors:,} {'error' if errors == 1 else 'errors'}")
            if seconds_left is not None:
                parts.append(f"{max(0.0, seconds_left):.0f} s left")
            else:
                parts.append(f"{time.monotonic() - self._case_began:.0f} s")
            self._show(printable(" · ".join(parts), keep=""), always=changed, fault=bool(faults_on))

    def note(self, line: str) -> None:
        """A line that stays: how a case ended, what went wrong."""
        with self._guard:
            if self._open:
                self._console.print(Text(printable(line, keep="")), soft_wrap=True)

    def _show(self, line: str, *, always: bool, fault: bool = False) -> None:
        if not self._open:
            return
        if self._live is not None:
            self._live.update(
                Text(line, style="bold red" if fault else "", no_wrap=True, overflow="ellipsis")
            )
        elif always or time.monotonic() - self._said >= PLAIN_SECONDS_MIN:
            self._said = time.monotonic()
            self._console.print(Text(line), soft_wrap=True)
