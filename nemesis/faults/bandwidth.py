"""``bandwidth``: links carry few bytes a second, as a saturated network does."""

from __future__ import annotations

from typing import ClassVar

from lockbench.clusters.base import Shape
from lockbench.declarations.parameters import Parameter
from lockbench.nemesis.base import Arena, Asked
from lockbench.nemesis.links import ON
from lockbench.nemesis.slow import Slow

# The shortest probe writes some forty bytes and is answered with five.
PROBE_BYTES = 40


class Bandwidth(Slow):
    """See the module."""

    name = "bandwidth"
    summary = "limits how many kilobytes a second links carry"
    parameters: ClassVar = {
        "on": ON,
        "kb_s": Parameter("kilobytes per second in each direction", 1.0, least=1, most=100_000),
    }

    def shape(self, arena: Arena) -> Shape:
        return Shape(rate_kb_s=round(arena.number("kb_s")))

    def cost_s(self, asked: Asked) -> float:
        return PROBE_BYTES / (1000 * float(asked["kb_s"]))


FAULT = Bandwidth()
