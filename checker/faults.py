"""What a fault says of itself: when it was on, whom it struck, whether its effect was seen."""

from __future__ import annotations

from lockbench.checker.analysis import Analysis
from lockbench.checker.rows import FOREVER
from lockbench.history.op import Fault

Answer = tuple[bool, str]


def span(fault: Fault) -> tuple[int, int]:
    """From the first moment it may have been on, to the last; nanoseconds."""
    return fault.begin_ns[0], FOREVER if fault.heal_ns is None else fault.heal_ns[1]


def healed_ns(fault: Fault) -> int:
    """When its heal began; FOREVER if it never did."""
    return FOREVER if fault.heal_ns is None else fault.heal_ns[0]


def struck_workers(fault: Fault) -> list[int]:
    """The workers whose clients a fault was aimed at; none where it was not aimed at clients."""
    seen = fault.seen
    if seen.workers is not None:
        return seen.workers
    return [] if seen.worker is None else [seen.worker]


def worker_struck(fault: Fault) -> int:
    """The worker of the one client that a fault was aimed at; -1 without one."""
    worker = fault.seen.worker
    return -1 if worker is None else worker


def proven(_analysis: Analysis, fault: Fault) -> Answer:
    """The nemesis saw the effect of the fault."""
    met = fault.seen.proven is True
    return met, "its effect was proven" if met else "its effect was not proven"
