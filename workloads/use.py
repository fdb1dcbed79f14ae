"""What a job may do under a hold: use the guarded resource, and spend its time. Everything is
recorded as it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lockbench.declarations.lazy import lazy
from lockbench.history.op import NULL, F, Type
from lockbench.locks.base import Granted
from lockbench.stores.base import Ledger, Seen
from lockbench.workloads import guarded as store
from lockbench.workloads.resource import PLAINLY, or_null

if TYPE_CHECKING:
    import gevent

    from lockbench.workloads.client import Client
else:
    gevent = lazy("gevent")

# Reading a member of an Enum class costs as much as recording an operation.
READ: Final = F.READ
WRITE: Final = F.WRITE
OK: Final = Type.OK

# Spends the time of a hold.
Keep = Callable[[Granted], None]


class Lasting:
    """A hold that lasts so many seconds and does nothing else."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, _: Granted) -> None:
        gevent.sleep(self.seconds)

    def spend(self) -> None:
        """The same, without a grant."""
        gevent.sleep(self.seconds)


class Use:
    """One hold of one client. ``thing`` is the number that its job gave out, ``reads`` whether it
    is held for reading alone, ``guarded`` whether it keeps everybody else out."""

    __slots__ = ("_client", "granted", "guarded", "keep_with", "reads", "seen", "thing")

    def __init__(
        self,
        client: Client,
        granted: Granted,
        keep: Keep,
        *,
        thing: int,
        reads: bool,
        guarded: bool,
    ) -> None:
        self._client = client
        self.keep_with = keep
        self.granted = granted
        self.thing = thing
        self.reads = reads
        self.guarded = guarded
        self.seen = Seen(NULL)

    def keep(self) -> None:
        """Takes the time that a hold takes."""
        self.keep_with(self.granted)

    @property
    def lease_s(self) -> float:
        """How long a lease lasts."""
        return self._client.pace.lease_ttl_s

    def extend(self) -> None:
        """Lets the hold live a whole lease from now, where the lock has an extend."""
        self._client.extend(self.granted.hold)

    def also(self, key: str) -> Use | None:
        """A second lock, beside this one; None: it was not granted."""
        granted = self._client.acquire(key)
        if granted is None:
            return None
        return Use(
            self._client,
            granted,
            self.keep_with,
            thing=self.thing,
            reads=False,
            guarded=self.guarded,
        )

    def give_back(self) -> None:
        """Releases a second lock."""
        self._client.release(self.granted.hold)

    @property
    def stored(self) -> bool:
        """Whether a store is guarded, in place of the resource."""
        return self._client.store is not None

    def read(self, number: int = NULL, *, how: int = PLAINLY) -> tuple[int, int]:
        """Returns the version found and what was asked for (see ``Resource.read``)."""
        client, hold = self._client, self.granted.hold
        if number != NULL and isinstance(client.store, Ledger):
            return 0, store.look(client, client.store, hold, number)
        if client.store is not None:
            self.seen = store.read(client, client.store, hold)
            return self.seen.version, 0
        handle = client.recorder.invoke(client.process, READ, hold.key, hold=hold.id)
        version, applied_ns, answer = client.resource.read(hold.key, hold.id, number, how=how)
        client.recorder.complete(handle, OK, value=version, applied_ns=applied_ns)
        return version, answer

    def write(self, version: int, number: int = NULL) -> int:
        """Writes on top of a version that was read, marks a number. Returns the version made."""
        client, hold, fence = self._client, self.granted.hold, self.granted.fence
        if client.store is not None:
            return store.write(client, client.store, self.granted, self.seen)
        handle = client.recorder.invoke(
            client.process, WRITE, hold.key, hold=hold.id, version=version
        )
        made, applied_ns = client.resource.write(hold.key, hold.id, version, fence, number)
        client.recorder.complete(
            handle, OK, value=made, fence=or_null(fence), applied_ns=applied_ns
        )
        return made

    def do(self, thing: int) -> bool:
        """Does a thing in a store, which keeps that it was done. Whether that is known."""
        client = self._client
        assert client.store is not None
        return store.do(client, client.store, self.granted, thing)

    def effect(self, thing: int, *, once: bool = False) -> bool:
        """Does a thing; returns whether it was done. Refused only ``once``, when it was before."""
        client, hold, fence = self._client, self.granted.hold, self.granted.fence
        handle = client.recorder.invoke(
            client.process, F.EFFECT, hold.key, hold=hold.id, version=thing
        )
        done, version, applied_ns = client.resource.effect(
            hold.key, hold.id, thing, fence, once=once
        )
        if not done:
            client.recorder.complete(handle, Type.FAIL, error="no-effect: done already")
            return False
        client.recorder.complete(
            handle, OK, value=version, fence=or_null(fence), applied_ns=applied_ns
        )
        return True
