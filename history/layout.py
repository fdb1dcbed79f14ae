"""The fixed-width record in which an operation is stored, 112 bytes, little-endian.

A recording is a folder: ``<worker>.<n>.ops`` segments (64 bytes of header, then records),
``<worker>.strings`` (one JSON string a line; keys and errors are stored as line numbers),
``meta.json`` (objects, ε, clock offset) and ``faults.jsonl``.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from lockbench.history.op import NULL

MAGIC: Final = b"LBH1"
HEADER_BYTES: Final = 64
NO_STRING: Final = 0xFFFFFFFF

RECORD: Final = np.dtype(
    [
        # Known when the operation is invoked.
        ("process", "<i4"),
        ("f", "u1"),
        ("type", "u1"),
        ("mode", "u1"),
        ("spare", "u1"),
        ("key", "<u4"),
        ("error", "<u4"),
        ("invoke_ns", "<i8"),
        ("intended_ns", "<i8"),  # when the operation should have started; NULL = invoke_ns
        ("hold", "<i8"),
        ("version", "<i8"),  # writes: the version that had been read; effects: which thing is done
        ("old", "<i8"),  # first half of a cas
        ("owner", "<i8"),
        # Filled in by completion.
        ("complete_ns", "<i8"),
        ("value", "<i8"),  # reads: the version found; writes: the version made
        ("fence", "<i8"),
        ("sent_ns", "<i8"),
        ("valid_until_ns", "<i8"),
        ("applied_ns", "<i8"),  # resource operations: when the resource applied it
    ]
)
# Native byte order packs twice as fast; every platform of ours is little-endian.
INVOKED: Final = struct.Struct("@iBBBxIIqqq")
INVOKED_RARE: Final = struct.Struct("@qqq")
COMPLETED: Final = struct.Struct("@qqqqqq")
INVOKED_RARE_OFFSET: Final = RECORD.fields["version"][1]  # type: ignore[index]
TYPE_OFFSET: Final = RECORD.fields["type"][1]  # type: ignore[index]
ERROR_OFFSET: Final = RECORD.fields["error"][1]  # type: ignore[index]
COMPLETED_OFFSET: Final = RECORD.fields["complete_ns"][1]  # type: ignore[index]
# A record with invoke_ns 0 was never used.
EMPTY_RECORD: Final = (
    bytes(INVOKED.size) + INVOKED_RARE.pack(*[NULL] * 3) + COMPLETED.pack(*[NULL] * 6)
)
