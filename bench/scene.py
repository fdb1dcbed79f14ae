"""What a case is played with, and what is known of it afterwards, however far it got."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lockbench.bench.footprint import Reading
from lockbench.bench.outside import Outside
from lockbench.bench.plan import Case
from lockbench.bench.pressure import Counters
from lockbench.clusters.engine.removal import left_behind
from lockbench.history.columns import Ints
from lockbench.history.op import Fault
from lockbench.results.rates import Block
from lockbench.workloads.fork_server import ForkServer
from lockbench.workloads.load import NOTHING, Load, LocustsOwn

# Phases as they are shown, and as the boundaries at which the servers' counters are read.
FLOOR, OWN, CONTENDED, END = "floor", "own keys", "contended", "end"
RATES, QUIET = "rates", "quiet"


@dataclass
class Timings:
    """Seconds that the parts of a case took, for the case's record."""

    cluster_s: float = 0.0
    clients_s: float = 0.0
    load_s: float = 0.0  # with what it took to read the service's own record, ``record_s``
    record_s: float = 0.0
    check_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """A step as it was played; ``offered_per_s`` is None where it was saturated."""

    share: float | None
    offered_per_s: float | None
    begin_ns: int
    end_ns: int


@dataclass
class Scene:
    """See above. ``before_ns``: see ``lockbench.results.numbers.before``; empty where there are no
    numbers."""

    case: Case
    folder: Path
    run_id: str
    fork_server: ForkServer
    locust: LocustsOwn = NOTHING
    beside: str | None = None
    """What else the bench did meanwhile, which voids the numbers."""
    timings: Timings = field(default_factory=Timings)
    before_ns: Mapping[str, Ints] = field(default_factory=dict)
    start_ns: int | None = None
    load: Load | None = None
    faults: list[Fault] = field(default_factory=list)
    failure: str | None = None
    unable: str | None = None
    no_record: str | None = None  # why the service's own record was not read
    link_us: dict[str, float] = field(default_factory=dict)
    floor_cpu_ns: int = 0
    readings: Mapping[str, Reading] = field(default_factory=dict)
    clearing: threading.Thread | None = None
    left: Sequence[str] = ()  # names of what could not be removed
    outside: list[Outside] = field(default_factory=list)
    pressure: list[Counters] = field(default_factory=list)
    steps: list[PlayedStep] = field(default_factory=list)
    blocks: Sequence[Block] = ()

    def cleared(self) -> str | None:
        """Waits until the cluster is gone; a sentence that names what is left of it."""
        if self.clearing is not None and self.clearing.ident is not None:
            self.clearing.join()
        return left_behind(self.left) if self.left else None
