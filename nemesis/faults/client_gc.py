"""``client-gc``: the victim's process is frozen again and again for a short time.

As a garbage collector under pressure does it: pauses of 20 to ``ms`` milliseconds, drawn by the
seed, about two a second. None is longer than a lease; together they delay every step. Verified by
the kernel's own word on the process during each pause.
"""

from __future__ import annotations

import time
from typing import ClassVar, Final

from lockbench.declarations.parameters import Parameter
from lockbench.nemesis.base import VICTIM, Arena, Fault
from lockbench.nemesis.staging import until

LEAST_MS: Final = 20.0


class ClientGc(Fault):
    """See the module."""

    name = "client-gc"
    summary = "freezes the victim's process again and again for a short time"
    rules = ("proven", "grants-around", "attempts-during")
    lasts_leases = 1.5
    touches = frozenset({VICTIM})
    stops_clients = True
    parameters: ClassVar = {
        "ms": Parameter("the longest pause", 300.0, least=LEAST_MS, most=60_000),
    }
    period_s: ClassVar = 0.5

    def aim(self, arena: Arena) -> None:
        super().aim(arena)
        arena.facts.pauses_ms, arena.facts.frozen = [], False

    def begin(self, arena: Arena) -> None:
        # It goes on with its work; what is to be tested is the work.
        arena.clients.let_go()
        self.tick(arena)

    def tick(self, arena: Arena) -> None:
        workers = (arena.clients.victim_worker,)
        pause_ms = arena.rng.uniform(LEAST_MS, arena.number("ms"))
        began = time.monotonic()
        arena.clients.freeze(workers)
        try:
            if until(lambda: arena.clients.frozen(workers[0]), pause_ms / 1e3):
                arena.facts.frozen = True
            time.sleep(max(0.0, began + pause_ms / 1e3 - time.monotonic()))
        finally:
            arena.clients.thaw(workers)
        pauses_ms = [*(arena.facts.pauses_ms or ()), round(1e3 * (time.monotonic() - began), 1)]
        arena.facts.pauses_ms = pauses_ms

    def took_effect(self, arena: Arena) -> bool:
        return arena.facts.frozen is True

    def heal(self, arena: Arena) -> None:
        arena.clients.thaw((arena.clients.victim_worker,))

    def recovered(self, arena: Arena) -> bool:
        return not arena.clients.frozen(arena.clients.victim_worker)


FAULT = ClientGc()
