"""The victim's wall clock, which a fault can move.

Moves what ``time.time`` and ``time.time_ns`` tell to whoever looks them up when it calls them, as
the client libraries do; the monotonic clock and the machine's own clock stay as they are. Sidecars
are told by the environment where the offset stands (``docs/sidecar.md``).
"""

from __future__ import annotations

import os
import time

from lockbench.locks.shared.sidecar import CLOCK_ENVIRONMENT
from lockbench.workloads.control import CLOCK_OFFSET_AT, Control


def install(control: Control) -> None:
    """From now on this process reads the wall clock plus ``control.clock_offset_ns``."""
    os.environ[CLOCK_ENVIRONMENT] = f"{control.path}@{CLOCK_OFFSET_AT}"
    true_ns = time.time_ns

    def moved_ns() -> int:
        return true_ns() + control.clock_offset_ns

    def moved() -> float:
        return moved_ns() / 1e9

    time.time_ns = moved_ns
    time.time = moved


def read_off_ns() -> int:
    """How far ``time.time`` is ahead of the machine's wall clock."""
    return int(1e9 * time.time()) - time.clock_gettime_ns(time.CLOCK_REALTIME)
