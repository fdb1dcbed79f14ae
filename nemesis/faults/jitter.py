"""``jitter``: the latency of every link changes ten times a second, as drawn by our seed.

Not by the proxy's own jitter: Toxiproxy ignores its seed. Drawn evenly from a tenth of ``ms`` up.
"""

from __future__ import annotations

from typing import ClassVar

from lockbench.clusters.base import Shape
from lockbench.declarations.parameters import Parameter
from lockbench.nemesis.base import Arena, Asked
from lockbench.nemesis.links import ON, chosen, shapable_of
from lockbench.nemesis.slow import Slow

LEAST_SHARE = 0.1


class Jitter(Slow):
    """See the module."""

    name = "jitter"
    summary = "delays links by a time that changes ten times a second"
    parameters: ClassVar = {
        "on": ON,
        "ms": Parameter(
            "the most milliseconds added to a round trip", 200.0, least=20, most=60_000
        ),
    }
    period_s: ClassVar = 0.1

    def shape(self, arena: Arena) -> Shape:
        half = round(arena.rng.uniform(LEAST_SHARE, 1) * 500 * arena.number("ms"))
        return Shape(request_latency_us=half, reply_latency_us=half)

    def cost_s(self, asked: Asked) -> float:
        return 0.9 * LEAST_SHARE * float(asked["ms"]) / 1e3

    def tick(self, arena: Arena) -> None:
        shapable_of(arena).shape(chosen(arena), self.shape(arena))


FAULT = Jitter()
