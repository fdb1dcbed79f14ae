"""``slicer``: what crosses a link arrives in small pieces with a pause between them.

Finds clients and servers that take one read for one message, and timeouts that start anew with
every byte.
"""

from __future__ import annotations

from typing import ClassVar

from lockbench.clusters.base import Shape
from lockbench.declarations.parameters import Parameter
from lockbench.nemesis.base import Arena, Asked
from lockbench.nemesis.faults.bandwidth import PROBE_BYTES
from lockbench.nemesis.links import ON
from lockbench.nemesis.slow import Slow


class Slicer(Slow):
    """See the module."""

    name = "slicer"
    summary = "splits what crosses a link into small pieces"
    parameters: ClassVar = {
        "on": ON,
        "bytes": Parameter("size of a piece", 4.0, least=1, most=65_536),
        "pause_ms": Parameter("between two pieces", 10.0, least=0.1, most=10_000),
    }

    def shape(self, arena: Arena) -> Shape:
        return Shape(
            slice_bytes=round(arena.number("bytes")),
            slice_delay_us=round(1000 * arena.number("pause_ms")),
        )

    def cost_s(self, asked: Asked) -> float:
        pieces = PROBE_BYTES // round(float(asked["bytes"]))
        return 0.5 * pieces * float(asked["pause_ms"]) / 1e3


FAULT = Slicer()
