"""A client's reads and writes of a guarded store (``lockbench.stores``), recorded as they are done.

A write is ``ok`` with the version that it made, ``fail`` where the guard refused it or the store
certainly did nothing, and ``info`` where nobody knows. It has no ``applied_ns``: a store has an
order of its own and no clock of ours, so that a write counts as late only if it was begun late.

Where a store keeps what was done (``Ledger``), a read looks for a thing, and a write is an effect
that does it.

One write in REPEATS is sent again after its answer, as a client does whose answer was lost, where
the guard is to refuse the second of a hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from lockbench.history.op import NULL, F, Type
from lockbench.locks.base import Granted, Hold, Unknown
from lockbench.stores.base import Applied, Away, GuardedStore, Ledger, Outcome, Refused, Seen, Write
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
    outcome = _sent(client, store, Write(hold.key, hold.id, seen, granted.fence, hold.handle))
    return outcome.version if isinstance(outcome, Applied) else NULL


def look(client: Recording, store: Ledger, hold: Hold, thing: int) -> bool:
    """Whether a thing was done. Raises Away."""
    handle = client.recorder.invoke(client.process, F.READ, hold.key, hold=hold.id)
    try:
        done = store.done(hold.key, thing)
    except Away as error:
        client.recorder.complete(handle, Type.FAIL, error=f"no-effect: {error}")
        raise
    client.recorder.complete(handle, Type.OK, value=0)  # there are no versions
    return done


def do(client: Recording, store: GuardedStore, granted: Granted, thing: int) -> bool:
    """Does a thing. Whether it is known to be done, now or before."""
    hold = granted.hold
    write = Write(hold.key, hold.id, Seen(0), granted.fence, hold.handle, thing)
    return isinstance(_sent(client, store, write), Applied | Refused)


def _sent(client: Recording, store: GuardedStore, write: Write) -> Outcome | None:
    """What became of a write, which may be sent again; None: certainly nothing was done."""
    outcome = _try(client, store, write)
    # Ids of holds are drawn, and odd.
    again = client.sends_again and write.hold % (2 * REPEATS) == 1
    if again and isinstance(outcome, Applied):
        _try(client, store, write)
    return outcome


def _try(client: Recording, store: GuardedStore, write: Write) -> Outcome | None:
    recorder, thing = client.recorder, write.thing
    f, version = (F.WRITE, write.seen.version) if thing is None else (F.EFFECT, thing)
    handle = recorder.invoke(client.process, f, write.key, hold=write.hold, version=version)
    fence = or_null(write.fence)
    try:
        outcome = store.write(write)
    except Away as error:
        recorder.complete(handle, Type.FAIL, fence=fence, error=f"no-effect: {error}")
        return None
    match outcome:
        case Applied(version=version):
            value = version if thing is None else NULL
            recorder.complete(handle, Type.OK, value=value, fence=fence)
        case Refused():
            recorder.complete(handle, Type.FAIL, fence=fence, error=REFUSED)
        case Unknown(reason=reason):
            recorder.complete(handle, Type.INFO, fence=fence, error=reason)
            client.process = recorder.new_process()
    return outcome
