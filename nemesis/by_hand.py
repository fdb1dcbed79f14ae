"""Faults by hand: injected when somebody says so, healed when somebody says so.

The same faults as in a schedule, proven and healed the same way, without a load: whoever uses the
cluster is out of our reach, so faults of clients do not apply. ``ByHand`` is used by one thread.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from lockbench.clusters.base import Cluster
from lockbench.nemesis.base import VICTIM, WORKERS, Arena, Clients, Fault, Injection, NemesisError
from lockbench.nemesis.registry import NONE, faults
from lockbench.nemesis.schedule import RANDOM, ScheduleError, Wanted, parse
from lockbench.nemesis.staging import until

RECOVERY_S = 20.0
PROOF_S = 1.0
# Faults that say no end last until they are healed.
DAY_S = 86_400.0


class Nobody(Clients):
    """Stands for the clients of a load where there is none."""


@dataclass
class _On:
    """A fault that is on."""

    text: str
    fault: Fault
    arena: Arena
    over: threading.Event
    thread: threading.Thread
    said: str = ""


class ByHand:
    """See the module."""

    def __init__(self, cluster: Cluster, lease_ttl_s: float) -> None:
        self._cluster = cluster
        self._lease_ttl_s = lease_ttl_s
        self._on: list[_On] = []

    def inject(self, text: str) -> str:
        """Injects ``name:parameter=value:…`` and proves it; with ``for`` it heals by itself.
        Raises NemesisError, ScheduleError or ClusterError."""
        self._forget()
        one = self._wanted(text)
        fault = faults()[one.name]
        injection = Injection(
            one.name,
            0.0,
            DAY_S if one.for_s is None else one.for_s,
            seed=time.monotonic_ns(),
            parameters=one.parameters,
        )
        # Several of its methods do nothing, which mypy takes for not being there.
        nobody = Nobody()  # type: ignore[abstract]
        arena = Arena(self._cluster, nobody, injection, self._lease_ttl_s)
        fault.aim(arena)
        over = threading.Event()
        on = _On(text, fault, arena, over, threading.Thread())
        on.thread = threading.Thread(target=self._last, args=(on,), name=one.name, daemon=True)
        self._on.append(on)
        try:
            fault.begin(arena)
        finally:
            arena.begun_ns = time.monotonic_ns()
            on.thread.start()
        proven = until(lambda: fault.took_effect(arena), PROOF_S)
        where = ", ".join(arena.names()) or "the links"
        return f"{text} is on ({where}): {'proven' if proven else 'NO EFFECT SEEN'}"

    def heal(self, name: str = "") -> str:
        """Heals what is on (all of it, or what has this name), and proves it."""
        self._forget()
        chosen = [on for on in self._on if name in ("", on.fault.name, on.text)]
        if not chosen:
            return f"no {name or 'fault'} is on"
        for on in chosen:
            on.over.set()
        for on in chosen:
            on.thread.join()
        self._forget()
        return "\n".join(on.said for on in chosen)

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

    def _last(self, on: _On) -> None:
        """The thread of a fault that is on: ticks, heals when it is time."""
        trouble = ""
        while not on.over.wait(min(on.fault.period_s or DAY_S, _left_s(on.arena))):
            if _left_s(on.arena) <= 0:
                break
            try:
                on.fault.tick(on.arena)
            except Exception as error:  # noqa: BLE001 - heal and say so
                trouble = f" (it failed: {error})"
                break
        try:
            on.fault.heal(on.arena)
            healed = until(lambda: on.fault.recovered(on.arena), RECOVERY_S)
            on.said = f"{on.text} is {'healed' if healed else 'healed, but what it broke is not'}"
        except Exception as error:  # noqa: BLE001 - whoever is at the prompt has to know
            on.said = f"{on.text} DID NOT HEAL: {error}"
        on.said += trouble

    def _forget(self) -> None:
        self._on = [on for on in self._on if not on.thread.ident or on.thread.is_alive()]


def _left_s(arena: Arena) -> float:
    return max(0.0, (arena.heal_due_ns - time.monotonic_ns()) / 1e9)
