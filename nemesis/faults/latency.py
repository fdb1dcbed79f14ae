"""``latency``: every link is slower by a fixed time, half of it on the way there, half back."""

from __future__ import annotations

from typing import ClassVar

from lockbench.clusters.base import Shape
from lockbench.declarations.parameters import Parameter
from lockbench.nemesis.base import Arena, Asked
from lockbench.nemesis.links import ON
from lockbench.nemesis.slow import Slow


class Latency(Slow):
    """See the module."""

    name = "latency"
    summary = "delays links by a fixed time"
    suites = frozenset({"nightly"})
    parameters: ClassVar = {
        "on": ON,
        "ms": Parameter("milliseconds added to a round trip", 200.0, least=2, most=60_000),
    }

    def shape(self, arena: Arena) -> Shape:
        half = round(500 * arena.number("ms"))
        return Shape(request_latency_us=half, reply_latency_us=half)

    def cost_s(self, asked: Asked) -> float:
        return 0.9 * float(asked["ms"]) / 1e3


FAULT = Latency()
