"""What declarations of several families say in the same words.

A family's own expectations are in the ``expectations.py`` of its folder. A fault that a declaration
does not mention is undeclared: nobody has said what the lock does under it
(``lockbench.bench.judge``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lockbench.locks.base import ANY, Expectation, Kind

Verdicts = Mapping[str, Expectation]
Faults = Mapping[str, Verdicts]


def holds(source: str, *verdicts: str) -> Verdicts:
    """These verdicts hold, on the word of ``source``; without any: ``double-grant``."""
    return dict.fromkeys(verdicts or ("double-grant",), Expectation("holds", source))


def may_break(source: str, *verdicts: str, kind: Kind = "documented-limit") -> Verdicts:
    """These may break, or not."""
    return dict.fromkeys(verdicts, Expectation("may-break", source, kind))


def breaks(source: str, *verdicts: str, kind: Kind = "documented-limit") -> Verdicts:
    """These must be seen to break within three runs."""
    return dict.fromkeys(verdicts, Expectation("breaks", source, kind, tries=3))


# What follows where two hold at once.
LOST_UPDATE: Final = may_break(
    "two holders at once may or may not interleave their read-modify-writes", "lost-update"
)


def may_grant_twice(source: str, kind: Kind = "documented-limit") -> Verdicts:
    """The servers may forget a hold: two hold at once, and so an update may be lost, or the holder
    is told within its promise that it holds nothing."""
    return {**may_break(source, "double-grant", "linearizable", kind=kind), **LOST_UPDATE}


def grants_twice(source: str) -> Verdicts:
    """The same, and two must be seen to hold at once."""
    return {**breaks(source, "double-grant"), **may_break(source, "linearizable"), **LOST_UPDATE}


# Links that are cut, in three ways.
CUT: Final = ("partition-drop", "partition-stall", "partition-reject")
SERVER_CLOCKS: Final = ("clock-jump", "clock-drift", "clock-strobe")
# Faults that make messages late or let them wait, for much less time than a lease.
SLOW_LINKS: Final = ("bandwidth", "jitter", "latency", "partition-47ms", "slicer")
# With these, and with none, a lock is as good as its contention: what breaks by that alone breaks.
UNMINDED: Final = ("none", "client-clock-jump", *SLOW_LINKS)
# The client stands still.
PAUSED: Final = ("client-pause", "client-gc")
# An answer may get lost after its effect, and the data stays.
ANSWERS_LOST: Final = ("pause", *CUT, "reset", "reply-lost")
RESTARTED: Final = ("kill", "restart", "rolling-restart", "power-loss")
# Under these an answer may be held back for longer than a lease.
MAY_BE_LATE: Final = (
    *(*PAUSED, *ANSWERS_LOST, *RESTARTED),
    *("wipe", "failover"),
)
_MONOTONIC = "promises are counted by the monotonic clock, which nobody sets (lockbench.locks.base)"
BY_MONOTONIC_CLOCK: Faults = {"client-clock-jump": holds(_MONOTONIC)}
_NOT_PYTHON = "the fault moves what a program in Python is told; this library is none"
UNMOVED: Faults = {"client-clock-jump": {ANY: Expectation("n/a", _NOT_PYTHON)}}


def with_changes(usual: Faults, *changes: Faults) -> Faults:
    """``usual`` with the verdicts of ``changes`` in place of or beside its own, fault by fault."""
    changed = dict(usual)
    for change in changes:
        for fault, verdicts in change.items():
            changed[fault] = {**changed.get(fault, {}), **verdicts}
    return changed


def with_verdicts(usual: Faults, verdicts: Verdicts, *others: str) -> Faults:
    """``usual`` with these verdicts under each of its faults and under ``others``. Slow links end
    no lease: under them they are added only where ``others`` names them."""
    added = [fault for fault in usual if fault not in SLOW_LINKS]
    return with_changes(usual, dict.fromkeys((*added, *others), verdicts))


def silent_release(usual: Faults, source: str) -> Faults:
    """``usual`` of a library whose release returns whether there was a hold or not: its user takes
    that for released."""
    return with_changes(
        with_verdicts(usual, may_break(source, "false-release", kind="defect")),
        confirmed_between(usual, source, kind="defect"),
        {"client-pause": breaks(source, "false-release", kind="defect")},
    )


def confirmed_between(usual: Faults, source: str, *, kind: Kind = "documented-limit") -> Faults:
    """Of such a library: where servers give a key away twice, a release that was confirmed between
    looks as if it had ended the first of the two grants."""
    twice = [
        fault
        for fault, verdicts in usual.items()
        if (double := verdicts.get("double-grant")) and double.expected != "holds"
    ]
    return dict.fromkeys(twice, may_break(source, "wrong-release", kind=kind))


def may_be_late(usual: Faults, source: str) -> Faults:
    """``usual`` for a library that hands a grant out however old its request is: the answer may
    have been held back for longer than the lease."""
    return with_changes(usual, dict.fromkeys(MAY_BE_LATE, may_break(source, "late-grant")))
