"""Plays one injection: waits for its time, aims, injects, proves, waits, heals, proves again.

The fault is recorded as an interval at both ends because toxics, signals and container calls are
not atomic. Healing happens in ``finally``: on an exception and on Ctrl-C as well. Injections that
overlap are played by one thread each; they share the victim's hold through one ``TargetClaims``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from lockbench.history import op
from lockbench.nemesis.base import Arena, Clients, Fault, NemesisError

AIM_S: Final = 10.0
PROOF_S: Final = 1.0
RECOVERY_S: Final = 20.0
POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Played:
    """What came of an injection. ``failure`` is not None when it could not be injected or healed,
    which voids the case; the fault itself says whether it was proven."""

    fault: op.Fault | None
    failure: str | None


class TargetClaims:
    """What the faults of one case have taken hold of. A fault waits until nobody else has claimed
    the same target, because the one before may take longer than planned. The victim is let go when
    the last fault is over."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._users = 0
        self._taken: set[str] = set()
        self._changed = threading.Condition()

    @contextmanager
    def on(self, things: frozenset[str], stop: threading.Event) -> Iterator[bool]:
        """Claims these targets as soon as no other fault has claimed any of them. Whether it could
        before ``stop`` was set."""
        with self._changed:
            while self._taken & things and not stop.is_set():
                self._changed.wait(POLL_S)
            claimed = self._taken.isdisjoint(things)
            mine = things if claimed else frozenset()
            self._taken |= mine
            self._users += 1
        try:
            yield claimed
        finally:
            with self._changed:
                self._taken -= mine
                self._users -= 1
                if self._users == 0:
                    self._clients.let_go()
                    self._clients.vacate()
                    self._clients.go_on()
                self._changed.notify_all()


def play(
    fault: Fault,
    arena: Arena,
    *,
    start_ns: int,
    on_change: Callable[[str], None],
    stop: threading.Event,
    claims: TargetClaims,
) -> Played:
    """``start_ns`` is the start of the contended phase. Once ``stop`` is set it heals."""
    if _sleep_until(start_ns + int(arena.injection.begin_s * 1e9), stop):
        return Played(None, "stopped before the fault began")
    with claims.on(fault.claims(arena.injection), stop) as claimed:
        if not claimed:
            return Played(None, "stopped before the fault began: the one before was not over")
        return _play(fault, arena, on_change, stop)


def _play(
    fault: Fault, arena: Arena, on_change: Callable[[str], None], stop: threading.Event
) -> Played:
    first_ns = None
    failure = None
    effect = False
    with ThreadPoolExecutor(1, thread_name_prefix="proof") as prover:
        try:
            _aim(fault, arena)
            fault.stage(arena)
            on_change(fault.name)
            first_ns = time.monotonic_ns()
            try:
                fault.begin(arena)
            finally:
                arena.begun_ns = time.monotonic_ns()
            # Beside the waiting, so that a short fault is not lengthened by its probe.
            # Not asked again when the heal is due: what is slow or silent then has other causes.
            took_effect = partial(fault.took_effect, arena)
            patience_s = max(PROOF_S, fault.shown_in_s(arena))
            end = min(time.monotonic() + patience_s, arena.heal_due_ns / 1e9)
            proof = prover.submit(_asked, took_effect, end, stop)
            _last(fault, arena, stop)
        except Exception as error:  # noqa: BLE001 - whatever went wrong, heal and say so
            failure = f"{fault.name} could not be injected: {error}"
        finally:
            heal_ns, trouble = _heal(fault, arena)
            on_change("")
        if failure is None:
            effect, said = proof.result()
            if said:
                arena.facts.probe = said
    # Not cut short by a stop: whether it healed must be known.
    trouble = trouble or _recover(fault, arena)
    if fault.outlived:
        end = time.monotonic() + arena.lease_ttl_s
        _asked(lambda: arena.clients.promise_left_s() <= 0, end, stop)
    arena.facts.took_effect, arena.facts.healed = effect, trouble is None
    arena.facts.proven = effect and trouble is None
    if trouble is not None:
        failure = failure or f"{fault.name} did not heal: {trouble}"
    if first_ns is None or arena.begun_ns == 0:
        return Played(None, failure)
    return Played(happened(fault, arena, first_ns, heal_ns), failure)


def _aim(fault: Fault, arena: Arena) -> None:
    """Waits for the roles that are aimed at: another fault may just have unseated who had them."""
    end = time.monotonic() + AIM_S
    while True:
        try:
            return fault.aim(arena)
        except NemesisError:
            if time.monotonic() > end:
                raise
        time.sleep(POLL_S)


def happened(fault: Fault, arena: Arena, first_ns: int, heal_ns: tuple[int, int]) -> op.Fault:
    """What a history says of an injection that is over."""
    if fault.ends_servers:
        arena.facts.ends_servers = True
    arena.facts.declared_s = arena.injection.duration_s
    arena.facts.measured_s = (heal_ns[0] - arena.begun_ns) / 1e9
    arena.facts.parameters = dict(arena.injection.parameters) or None
    return op.Fault(
        name=fault.name,
        targets=arena.names(),
        begin_ns=(first_ns, arena.begun_ns),
        heal_ns=heal_ns,
        rules=fault.rules_for(arena),
        facts=msgspec.to_builtins(arena.facts),
    )


def _last(fault: Fault, arena: Arena, stop: threading.Event) -> None:
    """Waits until the heal is due; ticks where the fault wants it."""
    if fault.period_s is not None:
        period_ns = int(fault.period_s * 1e9)
        at_ns = arena.begun_ns + period_ns
        while at_ns < arena.heal_due_ns and not _sleep_until(at_ns, stop):
            fault.tick(arena)
            at_ns = max(at_ns + period_ns, time.monotonic_ns())
    _sleep_until(arena.heal_due_ns, stop)


def _heal(fault: Fault, arena: Arena) -> tuple[tuple[int, int], str | None]:
    first_ns = time.monotonic_ns()
    trouble = None
    try:
        fault.heal(arena)
    except Exception as error:  # noqa: BLE001 - a heal that fails voids the case, it says why
        trouble = str(error) or type(error).__name__
    return (first_ns, time.monotonic_ns()), trouble


def _recover(fault: Fault, arena: Arena) -> str | None:
    end = time.monotonic() + RECOVERY_S
    healed, said = _asked(lambda: fault.recovered(arena), end, threading.Event())
    return None if healed else said or "what was broken does not serve again"


def _asked(condition: Callable[[], bool], end: float, stop: threading.Event) -> tuple[bool, str]:
    """Polls; whether the condition came true, and the last error of asking. It is asked once at
    least, and not again after ``end`` (``time.monotonic``). An error is no answer: another fault
    may be on that keeps the servers from giving one."""
    while True:
        said = ""
        try:
            if condition():
                return True, ""
        except Exception as error:  # noqa: BLE001 - as above
            said = str(error) or type(error).__name__
        time.sleep(POLL_S)
        if time.monotonic() > end or stop.is_set():
            return False, said


def _sleep_until(at_ns: int, stop: threading.Event) -> bool:
    """True when it was cut short."""
    return stop.wait(max(0.0, (at_ns - time.monotonic_ns()) / 1e9))
