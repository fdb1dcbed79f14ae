"""Where the victim stands when a fault strikes it: holding, about to ask, or waiting in line."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from lockbench.nemesis.base import Arena, NemesisError

# Within which the victim must stand where it is wanted. A rival that was frozen by another fault
# may hold the key until its session is over.
STAGE_S: Final = 10.0
# A hold is only fit to be aimed at while this share of the lease is still promised. Of a session
# that renews every half lease, more than half of the grants are.
FRESH: Final = 0.7
POLL_S: Final = 0.01
NOT_GRANTED: Final = "the victim was not granted the lock"
# What a request needs to reach the server, with much to spare.
ASKED_S: Final = 0.15


def fresh_hold(arena: Arena) -> None:
    """The victim holds with most of its lease before it."""
    end = time.monotonic() + STAGE_S
    while time.monotonic() < end:
        held = arena.clients.hold(end - time.monotonic())
        if held is None:
            break
        if arena.clients.promise_left_s() >= FRESH * arena.lease_ttl_s:
            arena.facts.hold = f"{held:x}"
            return
        arena.clients.let_go()
        time.sleep(POLL_S)
    raise NemesisError(f"{NOT_GRANTED} within {STAGE_S:.0f} s")


def about_to_ask(arena: Arena) -> None:
    """The victim holds nothing and stands before its next acquire."""
    if not arena.clients.stop_before_acquire(STAGE_S):
        raise NemesisError(f"the victim did not come to its next acquire within {STAGE_S:.0f} s")


def in_line(arena: Arena) -> None:
    """A rival holds the aimed key, and the victim's acquire waits for it."""
    about_to_ask(arena)
    if not arena.clients.occupy(STAGE_S):
        raise NemesisError(f"no rival was granted the lock within {STAGE_S:.0f} s")
    arena.clients.go_on()
    if not until(arena.clients.asking, STAGE_S):
        raise NemesisError("the victim did not ask")
    time.sleep(ASKED_S)


def until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Polls; whether the condition came true in time."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True
