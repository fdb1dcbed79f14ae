"""One shared page of memory between the bench and the load: start, stop, aim, progress.

Every field is an aligned 64-bit number with one writer, so no locks are needed. Messages through
Locust's master would take a network round trip and stop while a process is frozen.
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
WORKER_BYTES: Final = 48
CLOCK_OFFSET_AT: Final = 72  # read by sidecars as well (``docs/sidecar.md``)
_INT: Final = struct.Struct("<q")


class Control:
    """Times are CLOCK_MONOTONIC nanoseconds; 0 means not yet."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        if create:
            path.write_bytes(bytes(PAGE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), PAGE)

    def _get(self, offset: int) -> int:
        value: int = _INT.unpack_from(self._map, offset)[0]
        return value

    def _set(self, offset: int, value: int) -> None:
        _INT.pack_into(self._map, offset, value)

    # Written by the bench.

    @property
    def start_ns(self) -> int:
        """When the first phase begins."""
        return self._get(0)

    @start_ns.setter
    def start_ns(self, value: int) -> None:
        self._set(0, value)

    @property
    def stop(self) -> bool:
        """The load is over; the master ends itself and the workers."""
        return self._get(8) != 0

    @stop.setter
    def stop(self, value: bool) -> None:
        self._set(8, int(value))

    @property
    def aim(self) -> bool:
        """The victim's next grant is to be held until this is false again."""
        return self._get(16) != 0

    @aim.setter
    def aim(self, value: bool) -> None:
        self._set(16, int(value))

    @property
    def gate(self) -> bool:
        """The victim stops before its next acquire until this is false again; the rivals stay away
        from the aimed key, unless one is to occupy it."""
        return self._get(48) != 0

    @gate.setter
    def gate(self, value: bool) -> None:
        self._set(48, int(value))

    @property
    def occupy(self) -> bool:
        """A rival's next grant is to be held until this is false again."""
        return self._get(56) != 0

    @occupy.setter
    def occupy(self, value: bool) -> None:
        self._set(56, int(value))

    @property
    def extends(self) -> int:
        """How often the victim has been told to extend the hold that it keeps."""
        return self._get(64)

    @extends.setter
    def extends(self, value: int) -> None:
        self._set(64, value)

    @property
    def clock_offset_ns(self) -> int:
        """How far the victim's wall clock is to be ahead."""
        return self._get(CLOCK_OFFSET_AT)

    @clock_offset_ns.setter
    def clock_offset_ns(self, value: int) -> None:
        self._set(CLOCK_OFFSET_AT, value)

    @property
    def opened_ns(self) -> int:
        """When the victim was last let go on from where it stood."""
        return self._get(112)

    @opened_ns.setter
    def opened_ns(self, value: int) -> None:
        self._set(112, value)

    @property
    def quiet(self) -> bool:
        """Nobody holds anything any more: the solo users ask for every key."""
        return self._get(120) != 0

    @quiet.setter
    def quiet(self, value: bool) -> None:
        self._set(120, int(value))

    # Written by a rival.

    @property
    def occupied(self) -> int:
        """The id of the hold that a rival keeps because it was told to, or 0."""
        return self._get(80)

    @occupied.setter
    def occupied(self, value: int) -> None:
        self._set(80, value)

    # Written by the victim.

    @property
    def stopped_before_acquire(self) -> bool:
        """It has stopped before its next acquire."""
        return self._get(88) != 0

    @stopped_before_acquire.setter
    def stopped_before_acquire(self, value: bool) -> None:
        self._set(88, int(value))

    @property
    def asking(self) -> bool:
        """Its acquire is under way."""
        return self._get(96) != 0

    @asking.setter
    def asking(self, value: bool) -> None:
        self._set(96, int(value))

    @property
    def clock_read_ns(self) -> int:
        """How far its own reading of the wall clock is ahead."""
        return self._get(104)

    @clock_read_ns.setter
    def clock_read_ns(self, value: int) -> None:
        self._set(104, value)

    @property
    def held(self) -> int:
        """The id of the hold that the victim keeps because it was told to, or 0."""
        return self._get(24)

    @held.setter
    def held(self, value: int) -> None:
        self._set(24, value)

    @property
    def held_until_ns(self) -> int:
        """The promise of that hold (0: without limit)."""
        return self._get(32)

    @held_until_ns.setter
    def held_until_ns(self, value: int) -> None:
        self._set(32, value)

    # Written by each worker, at its own place.

    def ready(self, worker: int) -> int:
        """How many users of a worker are connected."""
        return self._get(WORKER_FIELDS + worker * WORKER_BYTES)

    def set_ready(self, worker: int, users: int) -> None:
        self._set(WORKER_FIELDS + worker * WORKER_BYTES, users)

    def failed(self, worker: int) -> int:
        """How many users of a worker could not connect, or failed by the bench's own fault."""
        return self._get(WORKER_FIELDS + worker * WORKER_BYTES + 8)

    def set_failed(self, worker: int, users: int) -> None:
        self._set(WORKER_FIELDS + worker * WORKER_BYTES + 8, users)

    def busy(self, worker: int) -> int:
        """How many users of a worker are in the middle of a cycle."""
        return self._get(self._busy_at(worker))

    def set_busy(self, worker: int, users: int) -> None:
        self._set(self._busy_at(worker), users)

    def busy_setter(self, worker: int) -> Callable[[int], None]:
        """``set_busy`` of one worker, for every cycle twice: without a frame of Python."""
        return partial(_INT.pack_into, self._map, self._busy_at(worker))

    @staticmethod
    def _busy_at(worker: int) -> int:
        return WORKER_FIELDS + worker * WORKER_BYTES + 16

    def rivals(self, worker: int) -> int:
        """How many rivals of a worker ask for the aimed key or hold it."""
        return self._get(WORKER_FIELDS + worker * WORKER_BYTES + 24)

    def set_rivals(self, worker: int, users: int) -> None:
        self._set(WORKER_FIELDS + worker * WORKER_BYTES + 24, users)

    def quieted(self, worker: int) -> int:
        """How many solo users of a worker have asked for all of their keys."""
        return self._get(WORKER_FIELDS + worker * WORKER_BYTES + 32)

    def set_quieted(self, worker: int, users: int) -> None:
        self._set(WORKER_FIELDS + worker * WORKER_BYTES + 32, users)

    def ticked_ns(self, worker: int) -> int:
        """When the event loop of a worker was last seen to turn."""
        return self._get(WORKER_FIELDS + worker * WORKER_BYTES + 40)

    def set_ticked_ns(self, worker: int, value: int) -> None:
        self._set(WORKER_FIELDS + worker * WORKER_BYTES + 40, value)

    def floor_cpu_ns(self) -> int:
        """CPU time that the victim's process spent in the floor phase."""
        return self._get(40)

    def set_floor_cpu_ns(self, value: int) -> None:
        self._set(40, value)
