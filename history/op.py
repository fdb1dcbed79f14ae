"""The vocabulary of a history: operations, outcomes, objects, faults.

Times are nanoseconds of ``CLOCK_MONOTONIC`` (``time.monotonic_ns``), which all processes of one
machine share. A missing number is ``NULL``, so that every column stays a plain int64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

NULL: Final = -(2**63)


class F(IntEnum):
    """What was asked. The order is part of the recorded format: append only."""

    ACQUIRE = 0
    RELEASE = 1
    EXTEND = 2
    LOST = 3  # the lock told its holder that the hold is over
    DEATH = 4  # the client was killed
    READ = 5
    WRITE = 6
    CAS = 7
    ADD = 8
    EFFECT = 9  # something was done that cannot be taken back: ``version`` says which thing
    JOB = 10  # one whole piece of work, from its start to its confirmed end
    FOUND = 11  # read after the load: the store shows ``version`` as done, at place ``value``
    QUIET = 12  # the load is over: from here on this process asks for the key to see if it is free
    QUEUED = 13  # the service has acknowledged the place of an acquire in its queue

    @property
    def word(self) -> str:
        return self.name.lower()


class Type(IntEnum):
    """How it ended. ``OPEN`` stands only in raw recordings; readers turn it into ``INFO``."""

    OPEN = 0
    OK = 1
    FAIL = 2  # certainly no effect
    INFO = 3  # unknown: may take effect at any later time, or never

    @property
    def word(self) -> str:
        return self.name.lower()


class Mode(IntEnum):
    """How a lock is held. ``NONE`` means exclusive."""

    NONE = 0
    READ = 1
    WRITE = 2


# What may have been done under a lock.
JOBS: Final = frozenset(
    {
        "inventory", "payment", "cron", "leader", "rate-limit", "gate", "fairness", "two-locks",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Object:
    """What a key names. ``role`` says what the load used it for (None in foreign histories):
    ``own`` (one client each), ``contended``, ``aimed`` (long holds for the nemesis), ``floor``.

    ``job`` names what was done under the lock, where that has a verdict of its own (one of
    ``JOBS``; ``checker.jobs``). ``bound`` and ``window_ns`` are its limit: so many effects in any
    such time.

    ``lease_ns`` is what holds are asked for, ``slack_ns`` how much longer a key that nobody holds
    may stay taken (``checker.leaks``)."""

    kind: str = "mutex"
    permits: int | None = None
    strict_try: bool = False
    initial: int | None = None
    role: str | None = None
    job: str | None = None
    bound: int | None = None
    window_ns: int | None = None
    lease_ns: int | None = None
    slack_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault as it happened. Toxics and signals are not atomic, so begin and heal are intervals
    ``(first, last)``; ``heal_ns`` is None where the fault never ended.

    ``rules`` names what must have been true for the fault to have been able to hurt (see
    ``checker.rules``). ``facts`` holds what the nemesis saw: probes, leaders before and after,
    durations declared and measured.
    """

    name: str
    targets: tuple[str, ...]
    begin_ns: tuple[int, int]
    heal_ns: tuple[int, int] | None
    rules: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
