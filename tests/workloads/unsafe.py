"""Locks that need no server: one that grants everything, and one that is a file lock. And ways to
do without: one that is careful, one that looks at nothing, one that forgets what it confirmed."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TextIO

from lockbench.locks.base import (
    Acquired,
    Address,
    Denied,
    Freed,
    Granted,
    Hold,
    Observer,
    Released,
    System,
    Unknown,
)
from lockbench.locks.without.base import Conflict, Done, DoneAlready, Entry, Outcome, Thinking
from lockbench.workloads.load import ENVIRONMENT

RETRY_S = 0.002
PERMITS = 2


class Everybody:
    """Grants the lock to whoever asks."""

    topologies: ClassVar = ("redis",)

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        del nodes, timeout_s, ttl_s, observer

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        sent_ns = time.monotonic_ns()
        return Granted(Hold(hold_id, key), None, sent_ns, sent_ns + int(1e9 * ttl_s))

    def release(self, hold: Hold) -> Freed:
        return Released()

    def close(self) -> None:
        """Nothing is open."""


class Nobody(Everybody):
    """No client of it can be made."""

    def __init__(self, *_: object, **__: object) -> None:
        raise OSError("no more files")


class OneAtATime(Everybody):
    """A file that only one process may lock; without a limit in time."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        beside = Path(os.environ[ENVIRONMENT])
        file = os.open(beside.with_name(f"lock-{key}"), os.O_RDWR | os.O_CREAT)
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    os.close(file)
                    return Denied("gave-up: held")
                time.sleep(RETRY_S)
            else:
                return Granted(Hold(hold_id, key, file), None, time.monotonic_ns(), None)

    def release(self, hold: Hold) -> Freed:
        os.close(hold.handle)
        return Released()


class Nested(OneAtATime):
    """Its holder may enter again; it is free when every level was given back."""

    frees_all = False

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        self._levels: dict[str, list[int]] = {}  # key → its file, as often as it is held

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        levels = self._levels.setdefault(key, [])
        if levels:
            levels.append(levels[0])
            return Granted(Hold(hold_id, key, levels[0]), None, time.monotonic_ns(), None)
        found = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        if isinstance(found, Granted):
            levels.append(found.hold.handle)
        return found

    def release(self, hold: Hold) -> Freed:
        levels = self._levels[hold.key]
        file = levels.pop()
        if not levels or (self.frees_all and len(levels) == 2):
            fcntl.flock(file, fcntl.LOCK_UN)
        if not levels:
            os.close(file)
        return Released()


class FreesAll(Nested):
    """It is free as soon as the third level is given back."""

    frees_all = True


class KeepsOne(OneAtATime):
    """The first release of a shared key is lost: nothing is released, and nobody knows."""

    lost = False

    def release(self, hold: Hold) -> Freed:
        if hold.key == "k0" and not KeepsOne.lost:
            KeepsOne.lost = True
            return Unknown("the answer was lost")
        return super().release(hold)


class KeptAlive(OneAtATime):
    """Its heartbeats are those of a session: one was sent before the lock was asked for, and is
    acknowledged after the grant."""

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        self._observer = observer

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        sent_ns = time.monotonic_ns() - 10_000_000
        granted = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        if isinstance(granted, Granted):
            self._observer.extended(
                granted.hold,
                sent_ns=sent_ns,
                acknowledged_ns=time.monotonic_ns(),
                valid_until_ns=sent_ns + int(1e9 * ttl_s),
            )
        return granted


class Garbled(OneAtATime):
    """Its server answers with bytes that are no text, once in an error of ours and then in an
    exception."""

    answers = 0

    def release(self, hold: Hold) -> Freed:
        super().release(hold)
        Garbled.answers += 1
        if Garbled.answers % 2:
            return Unknown("gave up: ERR \udcff")
        raise OSError("ERR \ud800\x1b[31m")


class TwoAtATime(OneAtATime):
    """A semaphore of two files."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        end = time.monotonic() + wait_s
        while True:
            for permit in range(PERMITS):
                found = super().acquire(f"{key}-{permit}", hold_id=hold_id, ttl_s=ttl_s, wait_s=0)
                if isinstance(found, Granted):
                    return replace(found, hold=replace(found.hold, key=key))
            if time.monotonic() > end:
                return Denied("gave-up: held")
            time.sleep(RETRY_S)


class Careful:
    """Compare-and-set on a file: looks, works, and writes only if nobody has written meanwhile."""

    checks = True
    forgets = False

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        self._file = Path(nodes[0].host) / "way"
        self._tries = 0

    def do(self, key: str, thing: int, *, by: int, work: Thinking) -> Outcome:
        with self._open() as file:
            before = self._entries(file, key)
        if self.checks and any(entry.thing == thing for entry in before):
            return DoneAlready()
        work.spend()
        self._tries += 1
        with self._open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if self.checks and len(self._entries(file, key)) != len(before):
                return Conflict("no-effect: somebody was first")
            if self.forgets and self._tries % 5 == 0:
                return Done(len(before))
            file.seek(0, os.SEEK_END)
            file.write(f"{key} {thing} {len(before)} {by}\n")
            file.flush()
        # The answer may be lost, too.
        return Unknown("no answer") if self._tries % 7 == 0 else Done(len(before))

    def ledger(self) -> list[Entry]:
        with self._open() as file:
            return self._entries(file, None)

    def close(self) -> None:
        """Nothing is open."""

    def _open(self) -> TextIO:
        return self._file.open("a+", encoding="ascii")

    def _entries(self, file: TextIO, wanted: str | None) -> list[Entry]:
        file.seek(0)
        # One without its end is being written.
        found = [line.split() for line in file if line.endswith("\n")]
        return [
            Entry(key, int(thing), int(place), int(by))
            for key, thing, place, by in found
            if wanted in {key, None}
        ]


class Blind(Careful):
    """Does what it is asked for."""

    checks = False


class Forgetful(Careful):
    """Confirms what it did not write."""

    forgets = True


def system(connect: object, **more: object) -> System:
    """The declaration of such a lock."""
    usual: dict[str, Any] = {"topologies": ("redis",), "fence": None, "outcomes": {}}
    return System(
        name="unsafe",
        family="file",
        waits_by="trying again",
        source="this file",
        connect=connect,  # type: ignore[arg-type]
        **usual | more,
    )


CAREFUL, BLIND, FORGETFUL = (system(way, kind="none") for way in (Careful, Blind, Forgetful))
# Of two permits: one that keeps to them, one that lets everybody in.
SEMAPHORE, OPEN_DOOR = (
    system(lock, kind="semaphore", permits=PERMITS) for lock in (TwoAtATime, Everybody)
)
NESTED, FREES_ALL = (system(lock, kind="reentrant") for lock in (Nested, FreesAll))
