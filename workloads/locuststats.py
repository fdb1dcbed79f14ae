"""What Locust is told of our operations: all of it, a little later.

One at a time, between two waits for an answer, telling Locust costs a client some three times the
CPU that it costs many in a row; so it is done every ``LATE_S``. Guarantees: every operation is told
within some ``LATE_S``, and before its user has stopped. Does not guarantee the moment: Locust
counts it when it is told.

Each operation is a request event (``events.request``) where somebody listens: always under plain
Locust, and in a bench's worker where a locustfile or a lock's file added a listener. Where only
Locust's own statistics would hear it, operations are added to these as Locust's master adds a
worker's report, which comes to the same and costs half.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import gevent

if TYPE_CHECKING:
    from locust.env import Environment
    from locust.stats import StatsEntry

log = logging.getLogger("lockbench.locuststats")

# What a process does in that time is told in a millisecond, which none of its clients notices.
LATE_S: Final = 0.05
# Locust's own statistics, which its runner adds.
OWN_LISTENERS: Final = 1


class LockOutcome(Exception):
    """A refusal or an unknown outcome, as Locust's statistics list it."""


class LocustStats:
    """One per process; ``name`` is what its lines are called beside the kind of operation.
    ``ours``: it is a process of a bench."""

    def __init__(self, environment: Environment, name: str, *, ours: bool) -> None:
        self._environment = environment
        self._name = name
        self._ours = ours
        # Once, because a fault may move what this process reads later.
        self._wall_s = time.time() - time.monotonic()
        # What to append to (``lockbench.workloads.caller.Tell``): a method would cost as much
        # again.
        self.untold: deque[tuple[str, int, int, str | None]] = deque()
        gevent.spawn(self._tell_again_and_again)

    def flush(self) -> None:
        """Tells what was not told yet. Raises what a listener of Locust's may raise, such as
        StopUser; the rest is told next time."""
        if self._ours and not self._is_heard():
            self._add()
        else:
            self._fire()

    def _is_heard(self) -> bool:
        """By others than Locust, which has no better way to ask."""
        return len(self._environment.events.request._handlers) > OWN_LISTENERS  # noqa: SLF001

    def _fire(self) -> None:
        untold, request = self.untold, self._environment.events.request
        while untold:
            f, began_ns, ended_ns, error = untold.popleft()
            request.fire(  # type: ignore[no-untyped-call]
                request_type=f,
                name=self._name,
                response_time=(ended_ns - began_ns) / 1e6,
                response_length=0,
                exception=None if error is None else LockOutcome(error),
                context={},
                start_time=self._wall_s + began_ns / 1e9,
                url=None,
                response=None,
            )

    def _add(self) -> None:
        # Not above: it monkey-patches whoever imports it.
        from locust.stats import StatsEntry

        untold, stats, name = self.untold, self._environment.stats, self._name
        batches: dict[str, StatsEntry] = {}
        while untold:
            f, began_ns, ended_ns, error = untold.popleft()
            batch = batches.get(f)
            if batch is None:
                batch = batches[f] = StatsEntry(stats, name, f)
            batch.log((ended_ns - began_ns) / 1e6, 0)  # type: ignore[arg-type]
            if error is not None:
                stats.log_error(f, name, LockOutcome(error))
        for f, batch in batches.items():
            stats.total.extend(batch)
            stats.entries[name, f].extend(batch)

    def _tell_again_and_again(self) -> None:
        while True:
            gevent.sleep(LATE_S)
            try:
                self.flush()
            except Exception:  # a listener of somebody else; the rest is told next time
                log.exception("a listener of Locust's request event failed")
