"""A ZooKeeper session that knows what it may promise (``locks/libraries/shared/kazoo_promise.py``).

kazoo is given no retries for requests. Reconnecting is its own affair: it goes through the other
servers at once and pauses RECONNECT_S, more or less, between rounds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from lockbench.locks.base import Address, Deadline
from lockbench.locks.libraries.shared.kazoo_promise import Connection, Promise
from lockbench.locks.libraries.shared.zookeeper_touches import Touches

RECONNECT_S = 0.05

# kazoo warns of every lost connection, and under faults connections are lost all the time.
log = logging.getLogger("lockbench.zookeeper")
log.setLevel(logging.ERROR)


class NoAnswerError(Exception):
    """The request was handed to kazoo and not answered in time; it may still be carried out."""


class Session(Promise):
    """One kazoo client. Its session may end and be followed by another; ``id`` tells which."""

    def __init__(
        self,
        nodes: Sequence[Address],
        session_s: float,
        *,
        on_heartbeat: Callable[[int, int, int], None],
        on_lost: Callable[[], None],
    ) -> None:
        """``session_s`` is asked for, and the lease that the cluster was made for.
        ``on_heartbeat`` is told after every heartbeat: the session's id, when the message that the
        promise runs from was sent, and its end; ``on_lost`` when a session expired. Both run in
        kazoo's connection routine and must not block."""
        super().__init__(Touches(session_s))
        self._on_heartbeat = on_heartbeat
        self._on_lost = on_lost
        self._disposed = False
        self.client: Any = _Client(nodes, session_s, self)
        self.client.add_listener(self._changed)
        self.client.start_async()

    def connected(self, limit_s: float) -> bool:
        """Whether there is a connection, waiting up to ``limit_s`` for one. Without one kazoo would
        keep a request and send it at some later time."""
        return bool(self.client.connected or self.client._live.wait(limit_s))  # noqa: SLF001

    @staticmethod
    def answers(timeout_s: float, *requests: Any) -> list[Any]:
        """The answers to requests that were sent together; the first error is raised."""
        deadline = Deadline(timeout_s)
        for request in requests:
            request.wait(max(0.0, deadline.left_s()))
            if not request.ready():
                raise NoAnswerError(f"no answer in {timeout_s:g} s")
            if isinstance(request.exception, RuntimeError):  # see _read_response
                raise NoAnswerError(str(request.exception))
            if request.exception is not None:
                raise request.exception
        return [request.value for request in requests]

    def dispose(self) -> Any:
        """Ends the session in the background: at once if the server can be told, else when it
        expires. Returns what can be joined."""
        self._disposed = True
        return self.client.handler.spawn(self._end)

    # Called by kazoo's connection routine.

    def renewed(self) -> None:
        """Tells of it, unless nobody listens any more."""
        if not self._disposed:
            self._on_heartbeat(self.id, self.sent_ns, self.valid_until_ns)

    def _changed(self, state: str) -> None:
        if state == KazooState.LOST and not self._disposed:
            self._on_lost()

    def _end(self) -> None:
        try:
            self.client.stop()
            self.client.close()
        except Exception as error:  # noqa: BLE001  kazoo raises bare Exceptions here
            log.info("a session did not end in order: %s", error)


class _Client(KazooClient):  # type: ignore[misc]
    """A client with our connection handler and neither retries nor shared state."""

    def __init__(self, nodes: Sequence[Address], session_s: float, session: Session) -> None:
        handler = _handler()
        super().__init__(
            hosts=",".join(f"{node.host}:{node.port}" for node in nodes),
            timeout=session_s,
            handler=handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=RECONNECT_S,
                backoff=1,
                max_delay=RECONNECT_S,
                sleep_func=handler.sleep_func,
            ),
            command_retry=KazooRetry(max_tries=1, sleep_func=handler.sleep_func),
            logger=log,
        )
        self._connection = _Connection(self, session)


class _Connection(Connection):
    """With a mend for kazoo's connection routine."""

    def _read_response(self, header: Any, buffer: Any, offset: int) -> Any:
        """kazoo's connection routine ends for good when an answer is not the one that is due, and
        the client with it: requests are kept for ever. A soak found it, after servers had been
        killed. The connection is of no more use; the next one may be."""
        try:
            return super()._read_response(header, buffer, offset)
        except RuntimeError as error:
            raise ConnectionDropped(str(error)) from error


def _handler() -> Any:
    """Greenlets where the socket module is gevent's, else threads. kazoo's threads on gevent's
    sockets work too and cost more."""
    try:
        from gevent.monkey import is_module_patched
    except ImportError:
        return SequentialThreadingHandler()
    if not is_module_patched("socket"):
        return SequentialThreadingHandler()
    from kazoo.handlers.gevent import SequentialGeventHandler

    return SequentialGeventHandler()
