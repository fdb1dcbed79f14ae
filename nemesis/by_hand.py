"""Faults by hand: injected when somebody says so, healed when somebody says so.

The same faults as in a schedule, proven and healed the same way, without a load: whoever uses the
cluster is out of our reach, so faults of clients do not apply. ``ByHand`` is used by one thread.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from lockbench.clusters.base import Cluster
from lockbench.history import op
from lockbench.nemesis.base import (
    OF_LOCK,
    VICTIM,
    WORKERS,
    Arena,
    Clients,
    Fault,
    Injection,
    NemesisError,
)
from lockbench.nemesis.conductor import PROOF_S, RECOVERY_S, happened
from lockbench.nemesis.registry import NONE, faults
from lockbench.nemesis.schedule import RANDOM, ScheduleError, Wanted, parse
from lockbench.nemesis.staging import until

# Faults that say no end last until they are healed.
DAY_S = 86_400.0


class Nobody(Clients):
    """Stands for the clients of a load where there is none."""


@dataclass
class On:
    """A fault that is on, or was. ``proven``: an effect of it was seen. Once it is over,
    ``trouble`` says why it is not known to be healed, and ``happened`` what a history says of it.
    """

    text: str
    fault: Fault
    arena: Arena
    first_ns: int
    over: threading.Event
    thread: threading.Thread
    proven: bool = False
    trouble: str | None = None
    happened: op.Fault | None = None

    def where(self) -> str:
        """What it was aimed at."""
        return ", ".join(self.arena.names()) or "the links"


class ByHand:
    """See the module."""

    def __init__(self, cluster: Cluster, lease_ttl_s: float) -> None:
        self._cluster = cluster
        self._lease_ttl_s = lease_ttl_s
        self._on: list[On] = []

    def inject(self, text: str) -> str:
        """``begin``, and a sentence that says what came of it."""
        on = self.begin(text, time.monotonic_ns())
        return f"{text} is on ({on.where()}): {'proven' if on.proven else 'NO EFFECT SEEN'}"

    def begin(self, text: str, seed: int) -> On:
        """Injects ``name:parameter=value:…`` and asks for its proof; with ``for`` it heals by
        itself. ``seed`` is that of its draws. Raises NemesisError, ScheduleError or ClusterError,
        and then it is not on."""
        self._forget()
        one = self._wanted(text)
        fault = faults()[one.name]
        injection = Injection(
            one.name,
            0.0,
            DAY_S if one.for_s is None else one.for_s,
            seed=seed,
            parameters=one.parameters,
        )
        # Several of its methods do nothing, which mypy takes for not being there.
        nobody = Nobody()  # type: ignore[abstract]
        arena = Arena(self._cluster, nobody, injection, self._lease_ttl_s)
        fault.aim(arena)
        on = On(text, fault, arena, time.monotonic_ns(), threading.Event(), threading.Thread())
        on.thread = threading.Thread(target=self._last, args=(on,), name=one.name, daemon=True)
        self._on.append(on)
        try:
            try:
                fault.begin(arena)
            finally:
                arena.begun_ns = time.monotonic_ns()
                on.thread.start()
            patience_s = max(PROOF_S, fault.shown_in_s(arena))
            on.proven = until(lambda: fault.took_effect(arena), patience_s)
        except BaseException:
            self.end(on)
            raise
        return on

    def end(self, on: On) -> None:
        """Heals a fault, proves it, and returns when it is over; no error if it is already."""
        on.over.set()
        on.thread.join()

    def heal(self, name: str = "") -> str:
        """Heals what is on (all of it, or what has this name), and proves it."""
        self._forget()
        chosen = [on for on in self._on if name in ("", on.fault.name, on.text)]
        if not chosen:
            return f"no {name or 'fault'} is on"
        for on in chosen:
            on.over.set()
        for on in chosen:
            self.end(on)
        self._forget()
        return "\n".join(
            f"{on.text} is healed" if on.trouble is None else f"{on.text} {on.trouble}"
            for on in chosen
        )

    def status(self) -> str:
        """What is on, and which nodes serve."""
        self._forget()
        lines = [f"on: {on.text} ({', '.join(on.arena.names())})" for on in self._on]
        lines += [
            f"{self._cluster.node_name(node)}: "
            f"{'serves' if self._cluster.serves(node, 1.0) else 'does not serve'}"
            for node in self._cluster.nodes
        ]
        return "\n".join(lines)

    def _wanted(self, text: str) -> Wanted:
        steps = parse(text)
        if text == NONE or len(steps) != 1 or len(steps[0]) != 1 or steps[0][0].name == RANDOM:
            raise ScheduleError("one fault at a time is injected by hand")
        ((one,),) = steps
        if one.at_s or one.every_s or one.times != 1 or one.strikes != OF_LOCK:
            raise ScheduleError("by hand a fault begins now, once, at the lock's own servers")
        fault, asked = faults()[one.name], dict(one.parameters)
        takes = fault.holds_of(asked)
        if takes & {VICTIM, WORKERS}:
            raise NemesisError(f"{one.name} does not apply: nobody but you uses this cluster")
        reason = fault.unfit(self._cluster, asked)
        if reason is not None:
            raise NemesisError(f"{one.name} does not apply: {reason}")
        for on in self._on:
            if shared := takes & on.fault.holds_of(on.arena.asked):
                raise NemesisError(f"{on.text} is on and takes hold of {', '.join(shared)}, too")
        return one

    def _last(self, on: On) -> None:
        """The thread of a fault that is on: ticks, heals when it is time."""
        failed = ""
        while not on.over.wait(min(on.fault.period_s or DAY_S, _left_s(on.arena))):
            if _left_s(on.arena) <= 0:
                break
            try:
                on.fault.tick(on.arena)
            except Exception as error:  # noqa: BLE001 - heal and say so
                failed = f" (it failed: {error})"
                break
        heal_ns = time.monotonic_ns()
        try:
            on.fault.heal(on.arena)
            healed_ns = time.monotonic_ns()
            if not until(lambda: on.fault.recovered(on.arena), RECOVERY_S):
                on.trouble = "is healed, but what it broke is not"
        except Exception as error:  # noqa: BLE001 - whoever is at the prompt has to know
            healed_ns = time.monotonic_ns()
            on.trouble = f"DID NOT HEAL: {error}"
        if failed:
            on.trouble = (on.trouble or "is healed") + failed
        facts = on.arena.facts
        facts.took_effect, facts.healed = on.proven, on.trouble is None
        facts.proven = on.proven and on.trouble is None
        on.happened = happened(on.fault, on.arena, on.first_ns, (heal_ns, healed_ns))

    def _forget(self) -> None:
        self._on = [on for on in self._on if not on.thread.ident or on.thread.is_alive()]


def _left_s(arena: Arena) -> float:
    return max(0.0, (arena.heal_due_ns - time.monotonic_ns()) / 1e9)
