"""Keeps holds alive in the background, round after round, and reports what came of it.

One thread per client (a greenlet where gevent has replaced threads), started by the first hold. A
hold is renewed in every round from the next one on, so at the latest one period after its grant. An
unknown answer changes nothing; the next round tries again. A hold that the service no longer knows
is reported as lost, once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lockbench.locks.base import Extended, Granted, Hold, NotHeld, Observer


class Renewals:
    """The holds of one client. ``renew`` must not share a connection with anybody else."""

    def __init__(
        self, renew: Callable[[Hold], Extended], observer: Observer, *, period_s: float
    ) -> None:
        self._renew = renew
        self._observer = observer
        self._period_s = period_s
        self._holds: dict[int, Hold] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, hold: Hold) -> None:
        """From now on the hold is renewed."""
        self._holds[hold.id] = hold
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._rounds, name="renewals", daemon=True)
            self._thread.start()

    def discard(self, hold: Hold) -> None:
        """Not renewed any more. A renewal under way is still told if it is acknowledged, for it has
        happened; a loss is not, for the holder has let go."""
        self._holds.pop(hold.id, None)

    def close(self, limit_s: float) -> None:
        """Ends the thread; waits up to ``limit_s`` for a renewal that is under way."""
        self._holds.clear()
        self._closed.set()
        if self._thread is not None:
            self._thread.join(limit_s)

    def _rounds(self) -> None:
        while not self._closed.wait(self._period_s):
            for hold in list(self._holds.values()):
                if hold.id in self._holds:  # the one before took its time
                    self._renew_one(hold)

    def _renew_one(self, hold: Hold) -> None:
        answer = self._renew(hold)
        if isinstance(answer, Granted) and answer.valid_until_ns is not None:
            self._observer.extended(
                hold,
                sent_ns=answer.sent_ns,
                acknowledged_ns=time.monotonic_ns(),
                valid_until_ns=answer.valid_until_ns,
            )
        elif isinstance(answer, NotHeld) and self._holds.pop(hold.id, None) is not None:
            self._observer.lost(hold)
