"""What an actor is told to do, and what it answers: JSON, one message a line."""

from __future__ import annotations

from typing import Final

import msgspec

from lockbench.workloads.load import Pace

ENVIRONMENT: Final = "LOCKBENCH_ACTOR"  # names the socket on which orders come


class _Order(msgspec.Struct, frozen=True, tag=True, tag_field="do"):
    pass


class Open(_Order, frozen=True, tag="open"):
    """Be a new client of a lock, which records into ``folder`` as worker number ``number``.
    ``seed``: of Python's random numbers, if it is to draw the same as in other plays."""

    lock: str
    nodes: tuple[tuple[str, int], ...]
    pace: Pace
    folder: str
    number: int
    seed: int | None = None


class Start(_Order, frozen=True, tag="start"):
    """Start what the clients of a lock run in beside this process, if they do."""

    lock: str


class Acquire(_Order, frozen=True, tag="acquire"):
    """Ask for a key, waiting up to ``wait_s``; of a lock with readers, to read it or to write."""

    key: str
    wait_s: float
    reads: bool = False


class Extend(_Order, frozen=True, tag="extend"):
    """Extend the newest hold, if there is one."""


class Touch(_Order, frozen=True, tag="touch"):
    """Write at the resource under the newest hold, if there is one."""


class Release(_Order, frozen=True, tag="release"):
    """Give the newest hold back, if there is one."""


class Claim(_Order, frozen=True, tag="claim"):
    """The load is over: ask for a key until it is granted, for a lease and ``slack_s`` and once
    beyond; where it never is, ask for ``spare``, to see whether anything is granted at all."""

    key: str
    spare: str
    slack_s: float


class Close(_Order, frozen=True, tag="close"):
    """Be no client any more. ``sidecars``: nor keep what runs beside this process."""

    sidecars: bool = True


Order = Start | Open | Acquire | Extend | Touch | Release | Claim | Close


class Answer(msgspec.Struct, frozen=True):
    """It was done. ``granted``: what was asked for is held, or was. ``failed``: what the actor
    itself could not do, in a sentence."""

    granted: bool = False
    failed: str = ""
