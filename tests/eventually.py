"""Waiting for a condition: a bounded poll, in place of a sleep of a guessed length."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_S = 60.0  # a test that yields to others waits for seconds on a busy machine
POLL_S = 0.01


def eventually(
    true: Callable[[], object], what: str = "it did not come to pass", *, limit_s: float = LIMIT_S
) -> None:
    """Returns once it is true. Raises AssertionError when it is not within ``limit_s``."""
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(POLL_S)
