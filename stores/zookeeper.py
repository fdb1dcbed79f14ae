"""A node of ZooKeeper. The guard is a ``multi``: what was looked at must still have the version
that was seen, or nothing of it is done.

A holder reads the node behind a sync, so that it builds on what was there when it asked. A look at
the fence may be of a server that is behind; then the version does not fit, and the program looks
again. So a fence that is too low is refused only on the word of one that was there.

The record is a node for each write, numbered in sequence, that the same ``multi`` makes: number n
with the version n + 1 of the node that was written.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from lockbench.declarations.lazy import lazy
from lockbench.locks.base import Unknown
from lockbench.stores.base import (
    PREFIX,
    UNGUARDED,
    UNGUARDED_PROMISES,
    Applied,
    Away,
    Entry,
    Guard,
    Outcome,
    Refused,
    Seen,
    Store,
    Where,
    Write,
    entry,
)

if TYPE_CHECKING:
    from kazoo import exceptions

    from lockbench.locks.zookeeper import session
else:
    exceptions = lazy("kazoo.exceptions")
    session = lazy("lockbench.locks.zookeeper.session")

# Nothing here lasts as long as the session, so it may be any that a server grants.
SESSION_S: Final = 30.0
# After a rest the connection may have ended without a word.
RESTED_S: Final = 0.5
LOOKS: Final = 3
LOOK_PAUSE_S: Final = 0.02
FENCE_NODE: Final = "fence"
WRITTEN_NODE: Final = "written"
NUMBERED: Final = "n"  # how the nodes of a record begin


def write_if_newer(zk: Any, path: str, value: bytes, fence: int) -> int | None:
    """The version made, or None: refused. ``zk`` is a KazooClient; ``…/fence`` is a node that was
    made before."""
    while True:
        newest, stat = zk.get(f"{path}/fence")
        if fence <= int(newest):
            return None
        multi = zk.transaction()
        multi.set_data(f"{path}/fence", str(fence).encode(), stat.version)
        multi.set_data(path, value)
        done = multi.commit()
        if not isinstance(done[0], exceptions.BadVersionError):
            return int(done[1].version)


def write_if_unchanged(zk: Any, path: str, value: bytes, version: int) -> int | None:
    """The version made, or None: refused. ``version`` is that of the read."""
    multi = zk.transaction()
    multi.check(path, version)
    multi.set_data(path, value)
    done = multi.commit()
    return None if any(isinstance(one, Exception) for one in done) else int(done[1].version)


def write_if_held(zk: Any, path: str, value: bytes, lock_node: str) -> int | None:
    """The version made, or None: refused. ``lock_node`` is the holder's own node in the queue of
    the lock; nobody writes to it, so its version is 0 for as long as it is there."""
    multi = zk.transaction()
    multi.check(lock_node, 0)
    multi.set_data(path, value)
    done = multi.commit()
    return None if any(isinstance(one, Exception) for one in done) else int(done[1].version)


def write_anyway(zk: Any, path: str, value: bytes) -> int:
    """The version made."""
    multi = zk.transaction()
    multi.set_data(path, value)
    return int(multi.commit()[0].version)


class ZooKeeper:
    """One client, with a session of its own."""

    def __init__(self, where: Where, guard: Guard, recorded: bool) -> None:
        self._timeout_s = where.timeout_s
        self._rule = guard.rule
        self._recorded = recorded
        self._used_s = 0.0
        self._session = session.Session(
            where.nodes, SESSION_S, on_heartbeat=lambda *_: None, on_lost=lambda: None
        )

    def read(self, key: str) -> Seen:
        """Makes the nodes where there are none."""
        path, limited = _path(key), self._limited()
        self._see_that_it_lives(path)
        try:
            try:
                _, stat = limited.newest(path)
            except exceptions.NoNodeError:
                self._make(path)
                _, stat = limited.newest(path)
        except _unsure() as error:
            raise Away(f"{type(error).__name__}: {error}") from error
        self._used_s = time.monotonic()
        return Seen(int(stat.version))

    def write(self, write: Write) -> Outcome:
        path, value = _path(write.key), write.value.encode()
        limited = self._limited(path, value)
        self._see_that_it_lives(path)
        tries: dict[str, Callable[[], int | None]] = {
            "newer": lambda: write_if_newer(limited, path, value, write.fence or 0),
            "unchanged": lambda: write_if_unchanged(limited, path, value, write.seen.version),
            "held": lambda: write_if_held(limited, path, value, write.handle.path),
            "any": lambda: write_anyway(limited, path, value),
        }
        try:
            made = tries[self._rule]()
        except exceptions.NoNodeError as error:  # of a server that is behind
            raise Away(f"{type(error).__name__}: {error}") from error
        except _unsure() as error:
            return Unknown(f"{type(error).__name__}: {error}")
        self._used_s = time.monotonic()
        return Refused() if made is None else Applied(made)

    def written(self) -> list[Entry]:
        """Behind a sync: not older than this call."""
        found: list[Entry] = []
        try:
            limited = self._limited()
            limited.sync(f"/{PREFIX}")
            for name in sorted(limited.get_children(f"/{PREFIX}")):
                written = f"/{PREFIX}/{name}/{WRITTEN_NODE}"
                for child in sorted(limited.get_children(written)):
                    value, stat = limited.get(f"{written}/{child}")
                    made = int(child.removeprefix(NUMBERED)) + 1
                    found.append(entry(unquote(name), int(stat.czxid), made, value.decode()))
        except exceptions.NoNodeError:
            return found
        except _unsure() as error:
            raise Away(f"{type(error).__name__}: {error}") from error
        return found

    def close(self) -> None:
        self._session.dispose().join(self._timeout_s)

    def _see_that_it_lives(self, path: str) -> None:
        """Asks while nothing is at stake, and again where the connection is found dead, or so new
        that kazoo cannot use it yet. Raises Away."""
        if time.monotonic() - self._used_s < RESTED_S:
            return
        said = ""
        for _ in range(LOOKS):
            try:
                self._answers(lambda: self._session.client.exists_async(path))
            except _unsure() as error:
                said = f"{type(error).__name__}: {error}"
                time.sleep(LOOK_PAUSE_S)
            else:
                return
        raise Away(said)

    def _make(self, path: str) -> None:
        """The node with all that belongs to it in one step, unless another one was first."""
        client = self._session.client
        self._answers(lambda: client.ensure_path_async(f"/{PREFIX}"))
        multi = client.transaction()
        multi.create(path)
        multi.create(f"{path}/{FENCE_NODE}", b"0")
        multi.create(f"{path}/{WRITTEN_NODE}")
        self._answers(multi.commit_async)

    def _limited(self, path: str = "", value: bytes = b"") -> Limited:
        record = f"{path}/{WRITTEN_NODE}/{NUMBERED}" if path and self._recorded else ""
        return Limited(self._session.client, self._answers, record, value)

    def _answers(self, *requests: Callable[[], Any]) -> list[Any]:
        """Begins them once it is connected: what is begun before, kazoo sends whenever it is."""
        if not self._session.connected(self._timeout_s):
            raise Away("not connected")
        return list(self._session.answers(self._timeout_s, *(begin() for begin in requests)))


class Limited:
    """A KazooClient whose every request has a time limit, and whose transactions also make a node
    of the record."""

    def __init__(
        self, client: Any, answers: Callable[..., list[Any]], record: str, value: bytes
    ) -> None:
        self._client, self._answers, self._record, self._value = client, answers, record, value

    def get(self, path: str) -> Any:
        return self._answers(lambda: self._client.get_async(path))[0]

    def newest(self, path: str) -> Any:
        """Behind a sync: not older than this call. Requests of a session keep their order."""
        sync, get = self._client.sync_async, self._client.get_async
        return self._answers(lambda: sync(path), lambda: get(path))[1]

    def get_children(self, path: str) -> Any:
        return self._answers(lambda: self._client.get_children_async(path))[0]

    def sync(self, path: str) -> None:
        self._answers(lambda: self._client.sync_async(path))

    def transaction(self) -> Any:
        multi = self._client.transaction()

        def commit() -> Any:
            if self._record:
                multi.create(self._record, self._value, sequence=True)
            return self._answers(multi.commit_async)[0]

        multi.commit = commit
        return multi


def _path(key: str) -> str:
    return f"/{PREFIX}/{quote(key, safe='')}"


def _unsure() -> tuple[type[Exception], ...]:
    """What a request ends with whose effect is not known."""
    return exceptions.KazooException, session.NoAnswerError


MULTI_DOC = (
    "https://zookeeper.apache.org/doc/current/apidocs/zookeeper-server/org/apache/zookeeper/"
    "Transaction.html; as Kafka fences its controllers: https://github.com/apache/kafka/pull/5101"
)

STORE = Store(
    name="zookeeper",
    summary="a node of ZooKeeper",
    topologies=("zookeeper",),
    connect=ZooKeeper,
    record="the nodes that the same multi makes",
    guards=(
        Guard(
            "fence",
            "newer",
            "python",
            inspect.getsource(write_if_newer).rstrip(),
            "A write is applied if its fence is above every fence applied before.",
            MULTI_DOC,
        ),
        Guard(
            "compare-and-set",
            "unchanged",
            "python",
            inspect.getsource(write_if_unchanged).rstrip(),
            "A write is applied if the node still has the version that it was made from; needs no "
            "fence.",
            MULTI_DOC,
        ),
        Guard(
            "own-key",
            "held",
            "python",
            inspect.getsource(write_if_held).rstrip(),
            "A write is applied if the holder's own node of the lock is still there: the lock and "
            "what it guards are decided together.",
            MULTI_DOC,
            locks=("zookeeper",),
        ),
        Guard(
            UNGUARDED,
            "any",
            "python",
            inspect.getsource(write_anyway).rstrip(),
            UNGUARDED_PROMISES,
            MULTI_DOC,
        ),
    ),
)
