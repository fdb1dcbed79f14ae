"""What the store of a way to do without a lock shows, read after the load and written into the
history: what was confirmed to a client and is not there is lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lockbench.history.op import F, Type
from lockbench.history.recorder import Recorder
from lockbench.locks.base import Address, NoObserver, System
from lockbench.locks.without.base import Entry, Way

AUDITOR: Final = 1900  # its number as a recorder
PATIENCE_S: Final = 15.0
POLL_S: Final = 0.2


def audit(folder: Path, system: System, nodes: Sequence[tuple[str, int]], timeout_s: float) -> None:
    """Reads the store of a cluster that has been healed. Raises OSError when it cannot be read."""
    way = system.connect(
        [Address(host, port) for host, port in nodes],
        timeout_s=timeout_s,
        ttl_s=0,
        observer=NoObserver(),
    )
    assert isinstance(way, Way)
    end = time.monotonic() + PATIENCE_S
    try:
        while True:
            try:
                write_down(folder, way.ledger())
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(POLL_S)
            else:
                return
    finally:
        way.close()


def write_down(folder: Path, entries: Sequence[Entry]) -> None:
    """As what was found."""
    recorder = Recorder(folder, AUDITOR)
    process = recorder.new_process()
    for entry in entries:
        handle = recorder.invoke(process, F.FOUND, entry.key, hold=entry.by, version=entry.thing)
        recorder.complete(handle, Type.OK, value=entry.place)
    recorder.close()
