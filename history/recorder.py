"""Writes what one worker process does, cheaply, into a memory-mapped file.

Guarantees: a record is complete as soon as ``complete`` returns, and it survives ``kill -9`` of the
process (the pages belong to the kernel), so at most the operations in flight are left open.
It does not survive a power cut of the machine: nothing is synced.

One recorder belongs to one process and one thread of control (gevent greenlets count as one:
no call here yields).
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from time import monotonic_ns
from typing import Final

from lockbench.history.layout import (
    COMPLETED,
    COMPLETED_OFFSET,
    EMPTY_RECORD,
    ERROR_OFFSET,
    HEADER_BYTES,
    INVOKED,
    INVOKED_RARE,
    INVOKED_RARE_OFFSET,
    MAGIC,
    NO_STRING,
    RECORD,
    TYPE_OFFSET,
)
from lockbench.history.op import NULL, F, Mode, Type
from lockbench.history.text import json_text

# A segment is filled with nulls when it is opened: 1 MB, a fifth of a millisecond.
SEGMENT_RECORDS: Final = 1 << 13
PROCESSES_PER_WORKER: Final = 1 << 20
ERROR: Final = struct.Struct("<I")

# Reading a member of an Enum class costs as much as packing a record.
RECORD_BYTES: Final = RECORD.itemsize
OPEN: Final = int(Type.OPEN)
INFO: Final = int(Type.INFO)
EXCLUSIVE: Final = int(Mode.NONE)

Handle = tuple[mmap.mmap, int]


class Recorder:
    """Records the operations of worker number ``worker`` (0 to 2047) into ``folder``.

    >>> handle = recorder.invoke(process, F.ACQUIRE, "k0", hold=7)
    >>> recorder.complete(handle, Type.OK, fence=12, sent_ns=t)
    """

    def __init__(
        self, folder: Path, worker: int, *, segment_records: int = SEGMENT_RECORDS
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._worker = worker
        self._segment_records = segment_records
        self._segment = -1
        self._map: mmap.mmap
        self._used = segment_records
        self._next_process = worker * PROCESSES_PER_WORKER
        self._strings: dict[str, int] = {}
        self._strings_file = (folder / f"{worker}.strings").open("x", encoding="utf-8")

    def new_process(self) -> int:
        """A process number that nobody had before. A client takes a new one after every info."""
        self._next_process += 1
        return self._next_process - 1

    def invoke(
        self,
        process: int,
        f: F,
        key: str,
        *,
        hold: int = NULL,
        version: int = NULL,
        old: int = NULL,
        owner: int = NULL,
        mode: int = EXCLUSIVE,
        intended_ns: int = NULL,
        invoke_ns: int | None = None,
    ) -> Handle:
        """Opens an operation; returns the handle for ``complete``. ``invoke_ns`` is now if None."""
        if self._used == self._segment_records:
            self._open_segment()
        buffer = self._map
        at = HEADER_BYTES + self._used * RECORD_BYTES
        key_id = self._strings.get(key)
        if key_id is None:
            key_id = self._intern(key)
        INVOKED.pack_into(
            buffer,
            at,
            process,
            f,
            OPEN,
            mode,
            key_id,
            NO_STRING,
            monotonic_ns() if invoke_ns is None else invoke_ns,
            intended_ns,
            hold,
        )
        if version != NULL or old != NULL or owner != NULL:
            INVOKED_RARE.pack_into(buffer, at + INVOKED_RARE_OFFSET, version, old, owner)
        self._used += 1
        return buffer, at

    def complete(
        self,
        handle: Handle,
        outcome: Type,
        *,
        value: int = NULL,
        fence: int = NULL,
        sent_ns: int = NULL,
        valid_until_ns: int = NULL,
        applied_ns: int = NULL,
        error: str | None = None,
        complete_ns: int | None = None,
    ) -> int:
        """Closes an operation and returns the time. An info keeps its ``complete_ns`` null."""
        buffer, at = handle
        now = monotonic_ns() if complete_ns is None else complete_ns
        COMPLETED.pack_into(
            buffer,
            at + COMPLETED_OFFSET,
            NULL if outcome == INFO else now,
            value,
            fence,
            sent_ns,
            valid_until_ns,
            applied_ns,
        )
        if error is not None:
            ERROR.pack_into(buffer, at + ERROR_OFFSET, self._string(error))
        # The outcome is written last: a record with an outcome is whole.
        buffer[at + TYPE_OFFSET] = outcome
        return now

    def close(self) -> None:
        """Trims the last segment. A recording that was never closed is read just as well."""
        if self._segment >= 0:
            self._map.flush()
            self._map.close()
            path = self._folder / f"{self._worker}.{self._segment}.ops"
            with path.open("r+b") as file:
                file.truncate(HEADER_BYTES + self._used * RECORD.itemsize)
        self._strings_file.close()

    def _open_segment(self) -> None:
        path = self._folder / f"{self._worker}.{self._segment + 1}.ops"
        with path.open("x+b") as file:
            # Room that the disk does not have is an error here, and would be SIGBUS in the map.
            size = HEADER_BYTES + self._segment_records * RECORD.itemsize
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError:
                path.unlink()
                raise
            # An earlier segment stays mapped for as long as an open operation refers to it.
            self._map = mmap.mmap(file.fileno(), 0)
        self._segment += 1
        self._map[0:4] = MAGIC
        self._map[4:8] = self._worker.to_bytes(4, "little")
        self._map[HEADER_BYTES:] = EMPTY_RECORD * self._segment_records
        self._used = 0

    def _string(self, text: str) -> int:
        known = self._strings.get(text)
        return self._intern(text) if known is None else known

    def _intern(self, text: str) -> int:
        number = len(self._strings)
        # On disk before the first record that uses it.
        self._strings_file.write(json_text(text) + "\n")
        self._strings_file.flush()
        self._strings[text] = number
        return number
