"""One shared page of memory between the bench and the load: start, stop, aim, progress.

Every field is an aligned 64-bit number with one writer, so no locks are needed. Times are
CLOCK_MONOTONIC nanoseconds; 0 means not yet. Messages through Locust's master would take a network
round trip, and would stop while a process is frozen.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

PAGE: Final = 4096
WORKER_FIELDS: Final = 256  # byte offset at which the per-worker fields begin
WORKER_BYTES: Final = 56
WORKERS_MAX: Final = (PAGE - WORKER_FIELDS) // WORKER_BYTES  # the victim's counted
CLOCK_OFFSET_AT: Final = 72  # read by sidecars as well (``docs/sidecar.md``)
BUSY_AT: Final = 16  # in the fields of a worker
_INT: Final = struct.Struct("<q")


class _Part:
    """The fields from one offset of the page on."""

    def __init__(self, memory: mmap.mmap, begin: int = 0) -> None:
        self.memory = memory
        self.begin = begin


class _Number:
    """A field, at so many bytes from the beginning of its part."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def __get__(self, part: _Part, owner: type[_Part]) -> int:
        value: int = _INT.unpack_from(part.memory, part.begin + self.offset)[0]
        return value

    def __set__(self, part: _Part, value: int) -> None:
        _INT.pack_into(part.memory, part.begin + self.offset, value)


class _Flag(_Number):
    """A field that is true or false."""

    def __get__(self, part: _Part, owner: type[_Part]) -> bool:
        return super().__get__(part, owner) != 0


class OfWorker(_Part):
    """What one worker writes about its users."""

    ready = _Number(0)  # how many are connected
    failed = _Number(8)  # could not connect, or failed by the bench's own fault
    busy = _Number(BUSY_AT)  # are in the middle of a cycle
    rivals = _Number(24)  # ask for the aimed key or hold it
    quieted = _Number(32)  # solo users that have asked for all of their keys
    ticked_ns = _Number(40)  # when the event loop was last seen to turn
    carried = _Number(48)  # grants to the clients of the rates

    def busy_setter(self) -> Callable[[int], None]:
        """Sets ``busy``, which every cycle does twice, without a frame of Python."""
        return partial(_INT.pack_into, self.memory, self.begin + BUSY_AT)


class Control(_Part):
    """The page, mapped from the file ``path``."""

    # Written by the bench.
    start_ns = _Number(0)  # when the first phase begins
    stop = _Flag(8)  # the load is over; the master ends itself and the workers
    aim = _Flag(16)  # the victim's next grant is to be held until this is false again
    # The victim stops before its next acquire until this is false again; the rivals stay away from
    # the aimed key, unless one is to occupy it.
    gate = _Flag(48)
    occupy = _Flag(56)  # a rival's next grant is to be held until this is false again
    extends = _Number(64)  # how often the victim was told to extend the hold that it keeps
    clock_offset_ns = _Number(CLOCK_OFFSET_AT)  # how far the victim's wall clock is to be ahead
    opened_ns = _Number(112)  # when the victim was last let go on from where it stood
    # What the last saturated step carried, grants per 1,000 seconds, and how many are over.
    carried_per_1000_s = _Number(128)
    saturated = _Number(136)
    quiet = _Flag(120)  # nobody holds anything any more: the solo users ask for every key

    # Written by a rival: the id of the hold that it keeps because it was told to, or 0.
    occupied = _Number(80)

    # Written by the victim.
    held = _Number(24)  # the id of the hold that it keeps because it was told to, or 0
    held_until_ns = _Number(32)  # the promise of that hold; 0: without limit
    floor_cpu_ns = _Number(40)  # CPU time that its process spent in the floor phase
    stopped_before_acquire = _Flag(88)  # it has stopped before its next acquire
    asking = _Flag(96)  # its acquire is under way
    clock_read_ns = _Number(104)  # how far its own reading of the wall clock is ahead

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        if create:
            path.write_bytes(bytes(PAGE))
        with path.open("r+b") as file:
            super().__init__(mmap.mmap(file.fileno(), PAGE))

    def worker(self, number: int) -> OfWorker:
        """What a worker writes, at its own place."""
        return OfWorker(self.memory, WORKER_FIELDS + number * WORKER_BYTES)
