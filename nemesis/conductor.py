"""Plays one injection: waits for its time, aims, injects, proves, waits, heals, proves again.

The fault is recorded as an interval at both ends because toxics, signals and container calls are
not atomic. Healing happens in ``finally``: on an exception and on Ctrl-C as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from history import op
from nemesis.base import Arena, Fault, NemesisError

AIM_S: Final = 6.0  # within which the victim must have got a grant
# A hold is only fit to be aimed at while this share of the lease is still promised.
FRESH: Final = 0.8
PROOF_S: Final = 1.0
RECOVERY_S: Final = 20.0
POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Played:
    """What came of an injection. ``failure`` is not None when it could not be injected or healed,
    which voids the case; the fault itself says whether it was proven."""

    fault: op.Fault | None
    failure: str | None


def play(
    fault: Fault,
    arena: Arena,
    *,
    start_ns: int,
    on_change: Callable[[str], None],
    stop: threading.Event,
) -> Played:
    """``start_ns`` is the start of the contended phase. Once ``stop`` is set it heals."""
    if _sleep_until(start_ns + int(arena.injection.begin_s * 1e9), stop):
        return Played(None, "stopped before the fault began")
    first_ns = begun_ns = None
    failure = None
    try:
        fault.aim(arena)
        _aim_at_a_fresh_hold(arena)
        on_change(fault.name)
        first_ns = time.monotonic_ns()
        try:
            fault.begin(arena)
        finally:
            begun_ns = time.monotonic_ns()
        arena.facts["took_effect"] = _poll(lambda: fault.took_effect(arena), PROOF_S, stop)
        _sleep_until(begun_ns + int(arena.injection.duration_s * 1e9), stop)
    except Exception as error:  # noqa: BLE001 - whatever went wrong, heal and say so
        failure = f"{fault.name} could not be injected: {error}"
    finally:
        heal_ns, healed, trouble = _heal(fault, arena)
        if fault.outlived:
            _poll(lambda: arena.clients.promise_left_s() <= 0, arena.lease_ttl_s, stop)
        arena.clients.let_go()
        on_change("")
    arena.facts["healed"] = healed
    arena.facts["proven"] = bool(arena.facts.get("took_effect")) and healed
    if not healed:
        failure = failure or f"{fault.name} did not heal: {trouble}"
    if first_ns is None or begun_ns is None:
        return Played(None, failure)
    arena.facts["declared_s"] = arena.injection.duration_s
    arena.facts["measured_s"] = (heal_ns[0] - begun_ns) / 1e9
    happened = op.Fault(
        name=fault.name,
        targets=arena.names(),
        begin_ns=(first_ns, begun_ns),
        heal_ns=heal_ns,
        rules=fault.rules,
        facts=dict(arena.facts),
    )
    return Played(happened, failure)


def _aim_at_a_fresh_hold(arena: Arena) -> None:
    """Waits until the victim holds with most of its lease before it."""
    end = time.monotonic() + AIM_S
    while time.monotonic() < end:
        held = arena.clients.hold(end - time.monotonic())
        if held is None:
            break
        if arena.clients.promise_left_s() >= FRESH * arena.lease_ttl_s:
            arena.facts["hold"] = f"{held:x}"
            return
        arena.clients.let_go()
        time.sleep(POLL_S)
    raise NemesisError(f"the victim was not granted the lock within {AIM_S:.0f} s")


def _heal(fault: Fault, arena: Arena) -> tuple[tuple[int, int], bool, str]:
    first_ns = time.monotonic_ns()
    healed_ns = None
    try:
        fault.heal(arena)
        healed_ns = time.monotonic_ns()
        # Not cut short by a stop: whether it healed must be known.
        healed = _poll(lambda: fault.recovered(arena), RECOVERY_S, threading.Event())
    except Exception as error:  # noqa: BLE001 - a heal that fails voids the case, it says why
        return (first_ns, healed_ns or time.monotonic_ns()), False, str(error)
    return (first_ns, healed_ns), healed, "what was broken does not serve again"


def _poll(condition: Callable[[], bool], limit_s: float, stop: threading.Event) -> bool:
    end = time.monotonic() + limit_s
    while True:
        if condition():
            return True
        if time.monotonic() > end or stop.is_set():
            return False
        time.sleep(POLL_S)


def _sleep_until(at_ns: int, stop: threading.Event) -> bool:
    """True when it was cut short."""
    return stop.wait(max(0.0, (at_ns - time.monotonic_ns()) / 1e9))
