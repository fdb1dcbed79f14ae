"""What declarations of several families say in the same words.

A family's own expectations are in the ``expectations.py`` of its folder. A fault that a declaration
does not mention is undeclared: nobody has said what the lock does under it (``bench.judge``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from locks.base import ANY, Expectation

Faults = Mapping[str, Mapping[str, Expectation]]

CONSEQUENCE: Final = "two holders at once may or may not interleave their read-modify-writes"
# Faults that make messages late or let them wait, for much less time than a lease.
SLOW_LINKS: Final = ("bandwidth", "jitter", "latency", "partition-47ms", "slicer")
# With these, and with none, a lock is as good as its contention: what breaks by that alone breaks.
UNMINDED: Final = ("none", "client-clock-jump", *SLOW_LINKS)
# An answer may get lost after its effect, and the data stays.
ANSWERS_LOST: Final = (
    "pause",
    "partition-drop",
    "partition-stall",
    "partition-reject",
    "reset",
    "reply-lost",
)
RESTARTED: Final = ("kill", "restart", "rolling-restart", "power-loss")
# Under these an answer may be held back for longer than a lease.
MAY_BE_LATE: Final = (
    *("client-pause", "client-gc", *ANSWERS_LOST, *RESTARTED),
    *("wipe", "failover"),
)
_MONOTONIC = "promises are counted by the monotonic clock, which nobody sets (locks.base)"
BY_MONOTONIC_CLOCK: Faults = {
    "client-clock-jump": {"double-grant": Expectation("holds", _MONOTONIC)}
}
_NOT_PYTHON = "the fault moves what a program in Python is told; this library is none"
UNMOVED: Faults = {"client-clock-jump": {ANY: Expectation("n/a", _NOT_PYTHON)}}


def with_changes(usual: Faults, **changes: Mapping[str, Expectation]) -> Faults:
    """``usual`` with the verdicts of ``changes`` in place of or beside its own, by fault (its name
    with ``_`` for ``-``)."""
    changed = {fault: dict(verdicts) for fault, verdicts in usual.items()}
    for name, verdicts in changes.items():
        changed.setdefault(name.replace("_", "-"), {}).update(verdicts)
    return changed


def with_verdicts(usual: Faults, verdicts: Mapping[str, Expectation], *others: str) -> Faults:
    """``usual`` with these verdicts under each of its faults and under ``others``. Slow links end
    no lease: under them they are added only where ``others`` names them."""
    added = {*usual, *others}.difference(set(SLOW_LINKS).difference(others))
    return {
        fault: {**usual.get(fault, {}), **(verdicts if fault in added else {})}
        for fault in dict.fromkeys([*others, *usual])
    }


def may_be_late(usual: Faults, source: str) -> Faults:
    """``usual`` for a library that hands a grant out however old its request is: the answer may
    have been held back for longer than the lease."""
    late = {"late-grant": Expectation("may-break", source, "documented-limit")}
    return with_changes(usual, **dict.fromkeys(MAY_BE_LATE, late))
