"""A client's reads and writes of a guarded store (``lockbench.stores``), recorded as they are done.

A write is ``ok`` with the version that it made, ``fail`` where the guard refused it or the store
certainly did nothing, and ``info`` where nobody knows. It has no ``applied_ns``: a store has an
order of its own and no clock of ours, so that a write counts as late only if it was begun late.

One write in REPEATS is sent again after its answer, as a client does whose answer was lost, where
the guard is to refuse the second of a hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from lockbench.history.op import NULL, F, Type
from lockbench.locks.base import Granted, Hold, Unknown
from lockbench.stores.base import Applied, Away, GuardedStore, Refused, Seen, Write
from lockbench.workloads.resource import or_null

if TYPE_CHECKING:
    from lockbench.history.recorder import Recorder

REPEATS: Final = 16
REFUSED: Final = "refused: by the guard"


class Recording(Protocol):
    """A client that records what it does. It takes a new process number after every unknown
    outcome."""

    recorder: Recorder
    process: int
    sends_again: bool


def read(client: Recording, store: GuardedStore, hold: Hold) -> Seen:
    """Raises Away."""
    handle = client.recorder.invoke(client.process, F.READ, hold.key, hold=hold.id)
    try:
        seen = store.read(hold.key)
    except Away as error:
        client.recorder.complete(handle, Type.FAIL, error=f"no-effect: {error}")
        raise
    client.recorder.complete(handle, Type.OK, value=seen.version)
    return seen


def write(client: Recording, store: GuardedStore, granted: Granted, seen: Seen) -> int:
    """The version made; NULL where none is known to be."""
    hold = granted.hold
    made = _try(client, store, Write(hold.key, hold.id, seen, granted.fence, hold.handle))
    # Ids of holds are drawn, and odd.
    if client.sends_again and made != NULL and hold.id % (2 * REPEATS) == 1:
        _try(client, store, Write(hold.key, hold.id, seen, granted.fence, hold.handle))
    return made


def _try(client: Recording, store: GuardedStore, write: Write) -> int:
    recorder = client.recorder
    handle = recorder.invoke(
        client.process, F.WRITE, write.key, hold=write.hold, version=write.seen.version
    )
    fence = or_null(write.fence)
    try:
        outcome = store.write(write)
    except Away as error:
        recorder.complete(handle, Type.FAIL, fence=fence, error=f"no-effect: {error}")
        return NULL
    match outcome:
        case Applied(version=version):
            recorder.complete(handle, Type.OK, value=version, fence=fence)
            return version
        case Refused():
            recorder.complete(handle, Type.FAIL, fence=fence, error=REFUSED)
        case Unknown(reason=reason):
            recorder.complete(handle, Type.INFO, fence=fence, error=reason)
            client.process = recorder.new_process()
    return NULL
