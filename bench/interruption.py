"""Ctrl-C and SIGTERM: raised at once, and remembered.

Python drops an exception that a signal's handler raises while a finalizer or a callback of the
collector runs. Loops that wait therefore also ask ``check``.
"""

from __future__ import annotations

import signal
from types import FrameType

_asked = False


def arm() -> None:
    """Makes both signals raise KeyboardInterrupt in the main thread, once: a second Ctrl-C must not
    cut off the clearing away, which is bounded in time."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)


def check() -> None:
    """Raises KeyboardInterrupt if a signal has arrived, whatever became of its own exception."""
    if _asked:
        raise KeyboardInterrupt


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    global _asked  # noqa: PLW0603 - a signal's handler has no other place
    _asked = True
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt
