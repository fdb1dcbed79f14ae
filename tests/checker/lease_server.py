"""A simulated correct lease server with network delays, client pauses and clock-free expiry.

The server grants one hold at a time and takes it back when the lease that it granted has run out on
its own clock. Requests and replies are delayed, replies are lost, clients pause for longer than
their lease. The client anchors its promise at the send time, which is right; the tests anchor it
elsewhere to see that it matters.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from history.builder import Builder
from history.columns import History
from history.op import NULL, F, Type

MS = 1_000_000
TTL = 100 * MS
CLIENT_TIMEOUT = 40 * MS


@dataclass
class _Server:
    holder: int | None = None
    expires: int = 0
    fence: int = 0
    queue: list[tuple[int, int, Callable[[int, int | None], None]]] = field(default_factory=list)

    def holds(self, hold: int, now: int) -> bool:
        return self.holder == hold and now < self.expires


class Simulation:
    """Events in the order of time; every client runs acquire, use, release for ever."""

    def __init__(self, seed: int, *, clients: int, grants: int, anchor: str = "send") -> None:
        self.dice = random.Random(seed)
        self.builder = Builder()
        self.server = _Server()
        self.anchor = anchor
        self.left = grants
        self.now = 0
        self.version = 0
        self._next_hold = 0
        self._next_process = clients
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._open: dict[int, tuple[F, int, int]] = {}  # in flight: lost when it all ends
        for client in range(clients):
            self._after(self.dice.randint(0, MS), lambda c=client: self._acquire(c))  # type: ignore[misc]

    def run(self) -> History:
        while self._events and self.left > 0:
            self.now, _, event = heapq.heappop(self._events)
            event()
        for process, (f, hold, begin) in list(self._open.items()):
            self._record(process, f, hold, begin, lost=1)
        return self.builder.finish()

    def _after(self, delay: int, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, event))

    def _delay(self) -> int:
        """Mostly short, sometimes longer than the client waits."""
        return self.dice.randint(MS // 10, MS) * (60 if self.dice.random() < 0.01 else 1)

    def _pause(self) -> int:
        """The holder's own time: mostly short, sometimes longer than its lease."""
        return self.dice.randint(0, MS) + (2 * TTL if self.dice.random() < 0.01 else 0)

    def _record(self, process: int, f: F, hold: int, begin: int, **more: int | str | None) -> None:
        self._open.pop(process, None)
        error = more.pop("error", None)
        lost = more.pop("lost", None)
        self.builder.add(
            process=process,
            f=int(f),
            outcome=int(Type.INFO if lost else Type.FAIL if error else Type.OK),
            key="k",
            invoke_ns=begin,
            complete_ns=NULL if lost else self.now,
            hold=hold,
            error=str(error) if error else None,
            numbers={name: int(n) for name, n in more.items() if n is not None},
        )

    def _fresh(self) -> int:
        self._next_process += 1
        return self._next_process - 1

    def _acquire(self, process: int) -> None:
        self._next_hold += 1
        hold, begin = self._next_hold, self.now
        self._open[process] = (F.ACQUIRE, hold, begin)

        def arrive() -> None:
            server = self.server
            free = server.holder is None or self.now >= server.expires
            if free:
                server.holder, server.expires = hold, self.now + TTL
                server.fence += 1
            fence = server.fence
            self._after(self._delay(), lambda: reply(free, fence))

        def reply(granted: bool, fence: int) -> None:
            if self.now - begin > CLIENT_TIMEOUT:
                self._record(process, F.ACQUIRE, hold, begin, lost=1)
                self._after(MS, lambda: self._acquire(self._fresh()))
            elif not granted:
                self._record(process, F.ACQUIRE, hold, begin, error="held")
                self._after(self.dice.randint(MS, 3 * MS), lambda: self._acquire(process))
            else:
                self.left -= 1
                anchor = begin if self.anchor == "send" else self.now
                until = None if self.anchor == "none" else anchor + TTL
                self._record(process, F.ACQUIRE, hold, begin, fence=fence, valid_until_ns=until)
                self._after(self._pause(), lambda: self._use(process, hold))

        self._after(self._delay(), arrive)

    def _use(self, process: int, hold: int) -> None:
        begin = self.now

        def read() -> None:
            applied, found = self.now, self.version
            self.now += 1
            self._record(process, F.READ, hold, begin, value=found, applied_ns=applied)
            self._after(self._pause(), lambda: self._write(process, hold, found))

        self._after(MS // 10, read)

    def _write(self, process: int, hold: int, found: int) -> None:
        begin = self.now

        def write() -> None:
            self.version += 1
            applied, made = self.now, self.version
            self.now += 1
            self._record(
                process, F.WRITE, hold, begin, version=found, value=made, applied_ns=applied
            )
            self._after(1, lambda: self._release(process, hold))

        self._after(MS // 10, write)

    def _release(self, process: int, hold: int) -> None:
        begin = self.now
        self._open[process] = (F.RELEASE, hold, begin)

        def arrive() -> None:
            held = self.server.holds(hold, self.now)
            if held:
                self.server.holder = None
            self._after(self._delay(), lambda: reply(held))

        def reply(held: bool) -> None:
            if self.now - begin > CLIENT_TIMEOUT:
                self._record(process, F.RELEASE, hold, begin, lost=1)
                self._after(MS, lambda: self._acquire(self._fresh()))
            else:
                error = None if held else "not-held"
                self._record(process, F.RELEASE, hold, begin, error=error)
                self._after(MS, lambda: self._acquire(process))

        self._after(self._delay(), arrive)
