"""A promise that is too early, told apart from a machine that is busy.

What a test compares a promise with are moments at which others saw the same message. On a busy
machine they see it later, and the promise looks too early by that. It is so only if it is so each
time. A promise that is too late is told at once: nothing makes one later than it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

TOO_EARLY: Final = "too early"
TRIES: Final = 6


def unless_once(play: Callable[[], str | None]) -> str | None:
    """What is wrong; that a promise is too early only if it was in each of some tries."""
    found = play()
    for _ in range(TRIES - 1):
        if found is None or not found.startswith(TOO_EARLY):
            break
        found = play()
    return found
