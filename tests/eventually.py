"""Waiting for a condition: a bounded poll, in place of a sleep of a guessed length."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_S = 60.0  # a test that yields to others waits for seconds on a busy machine
POLL_S = 0.01

T = TypeVar("T")


def eventually(
    true: Callable[[], object], what: str = "it did not come to pass", *, limit_s: float = LIMIT_S
) -> None:
    """Returns once it is true. Raises AssertionError when it is not within ``limit_s``."""
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(POLL_S)


def one_of(play: Callable[[int], T], good: Callable[[T], object], tries: int = 5) -> T:
    """The first good result of some plays, or the last: where a machine that stands still for
    seconds can spoil a play, and cannot make a wrong one look right. ``play`` is given its number.
    """
    for number in range(tries):
        found = play(number)
        if good(found):
            break
    return found
