"""The vocabulary of a history: operations, outcomes, objects, faults.

Times are nanoseconds of ``CLOCK_MONOTONIC`` (``time.monotonic_ns``), which all processes of one
machine share. A missing number is ``NULL``, so that every column stays a plain int64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Final

import msgspec

from lockbench.history.facts import Facts

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


# What a key can name.
KINDS: Final = frozenset(
    {
        "mutex", "owner-mutex", "ownerless", "reentrant", "fenced", "read-write", "semaphore",
        "lease", "register", "cas-register", "counter", "none",
    }
)  # fmt: skip
# What may have been done under a lock.
JOBS: Final = frozenset(
    {
        "inventory", "payment", "cron", "leader", "rate-limit", "gate", "fairness", "two-locks",
    }
)  # fmt: skip


INT_MIN: Final = -(2**62)
INT_MAX: Final = 2**62 - 1  # so that sums and differences of times stay within 64 bits

# Ranges hold for what is read from files.
Whole = Annotated[int, msgspec.Meta(gt=INT_MIN, le=INT_MAX)]
Number = Annotated[int, msgspec.Meta(gt=NULL, le=2**63 - 1)]  # nothing is added to it
Count = Annotated[int, msgspec.Meta(ge=1, le=INT_MAX)]


@dataclass(frozen=True, slots=True)
class Object:
    """What a key names. ``role`` says what the load used it for (None in foreign histories):
    ``own`` (one client each), ``contended``, ``aimed`` (long holds for the nemesis), ``floor``.

    ``job`` names what was done under the lock, where that has a verdict of its own (one of
    ``JOBS``; ``lockbench.checker.jobs``). ``bound`` and ``window_ns`` are its limit: so many
    effects in any such time.

    Wherever an object is read from a file, ``kind`` and ``job`` are known ones
    (``lockbench.history.lines``).

    ``lease_ns`` is what holds are asked for, ``slack_ns`` how much longer a key that nobody holds
    may stay taken (``lockbench.checker.leaks``)."""

    kind: str = "mutex"
    permits: Count | None = None
    strict_try: bool = False
    initial: Whole | None = None
    role: str | None = None
    job: str | None = None
    bound: Count | None = None
    window_ns: Count | None = None
    lease_ns: Count | None = None
    slack_ns: Count | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault as it happened. Toxics and signals are not atomic, so begin and heal are intervals
    ``(first, last)``; ``heal_ns`` is None where the fault never ended.

    ``rules`` names what must have been true for the fault to have been able to hurt (see
    ``lockbench.checker.rules``). ``facts`` holds what the nemesis saw: probes, leaders before and
    after, durations declared and measured. ``machine`` is on whose clock the times are (None: that
    of the resource, or there is one clock only).
    """

    name: str
    targets: tuple[str, ...]
    begin_ns: tuple[int, int]
    heal_ns: tuple[int, int] | None
    rules: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    machine: str | None = None

    @property
    def seen(self) -> Facts:
        """The facts by name. None is known where they are not such as the nemesis writes."""
        try:
            return msgspec.convert(self.facts, Facts)
        except msgspec.ValidationError:
            return Facts()
