"""Simulated correct locks of every kind, under everything that a correct lock may meet.

Requests and replies are delayed, replies are lost, clients stall for longer than their lease or
die, and clocks are off by up to ε. The service takes a hold back when its time is over by its own
clock, and not before. A client anchors what it was promised at the send time of the request that
was acknowledged, which is right. ``Faulty`` says what is wrong on purpose, so it must be found.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from lockbench.history.builder import Builder
from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Mode, Object, Type

MS: Final = 1_000_000
TTL: Final = 100 * MS
BEAT: Final = TTL // 3
CLIENT_TIMEOUT: Final = 40 * MS
CLIENTS: Final = 6  # of a key
GRANTS: Final = 20  # of a key
PERMITS: Final = 2
EPSILON: Final = MS // 5

# What ends a hold that nobody releases: a lease of its own; one that a watchdog renews; a session
# of the client, which its beats and requests keep.
Ending = Literal["lease", "watchdog", "session"]
# Promises counted from the completion, or without an end; leases that the service cuts short; a
# grant that should not have been.
Faulty = Literal["anchor", "endless", "early", "spare"]


@dataclass(frozen=True, slots=True)
class Setup:
    kind: str
    holds: bool
    ending: Ending
    faulty: Faulty | None = None
    # Whether holders read at a resource before they release, however late.
    uses: bool = field(default=False, repr=False)


@dataclass(slots=True)
class _Hold:
    token: int
    client: int
    reads: bool
    expires: int
    levels: int = 1


@dataclass(slots=True)
class _Client:
    number: int  # new for every process
    off: int  # of its clock
    mine: list[int] = field(default_factory=list)  # tokens that it means to hold
    dead: bool = False


class Simulation:
    """One key after the other, each with clients of its own who acquire, hold and release."""

    def __init__(self, seed: int, setup: Setup, *, grants: int) -> None:
        self.dice = random.Random(f"{seed} {setup}")
        self.setup = setup
        self.builder = Builder()
        self.builder.epsilon_ns = EPSILON
        self._grants = grants
        self._numbers = 0

    def run(self) -> History:
        for number in range(-(-self._grants // GRANTS)):
            key = f"k{number}"
            permits = PERMITS if self.setup.kind == "semaphore" else None
            self.builder.objects[key] = Object(self.setup.kind, permits=permits)
            _Key(self, key).run()
        return self.builder.finish()

    def number(self) -> int:
        self._numbers += 1
        return self._numbers


class _Key:
    """The service of one key, and its clients."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.sim, self.setup, self.dice = simulation, simulation.setup, simulation.dice
        self.name = name
        self.now = 0
        self.left = GRANTS
        self.holds: list[_Hold] = []
        self.fence = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._open: dict[int, tuple[_Client, F, int, int, Mode]] = {}  # by number of the request

    def run(self) -> None:
        for _ in range(CLIENTS):
            self._join()
        while self._events and self.left > 0:
            self.now, _, event = heapq.heappop(self._events)
            event()
        for client, f, token, begin, mode in list(self._open.values()):
            self._note(client, f, token, begin, mode, Type.INFO)

    def _after(self, delay: int, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, event))

    def _delay(self) -> int:
        """Mostly short, sometimes longer than the client waits."""
        return self.dice.randint(MS // 10, 4 * MS) * (15 if self.dice.random() < 0.01 else 1)

    def _pause(self) -> int:
        """The client's own time: mostly short, sometimes longer than its lease."""
        return self.dice.randint(0, 2 * MS) + (2 * TTL if self.dice.random() < 0.04 else 0)

    # The clients.

    def _join(self, off: int | None = None) -> None:
        """A new process takes its place, on the same machine where one was given up."""
        clock = self.dice.randint(-EPSILON, EPSILON) if off is None else off
        client = _Client(self.sim.number(), clock)
        self._after(self.dice.randint(0, 5 * MS), lambda: self._acquire(client))

    def _acquire(self, client: _Client) -> None:
        if client.dead:
            return
        token = self.sim.number()
        reads = self.setup.kind == "read-write" and self.dice.random() < 0.5

        def told(answer: str | None, _: int) -> None:
            if answer is None:
                # Whoever cleans up does so under the same name, and then under another.
                client.mine.append(token)
                self._after(self._pause(), lambda: self._release(client, token, last=True))
            elif answer == "ok":
                self.left -= 1
                client.mine.append(token)
                if self.setup.ending != "lease":
                    self._after(BEAT, lambda: self._extend(client, token))
                self._after(self._pause(), lambda: self._use(client))
            else:
                self._after(self.dice.randint(MS, 5 * MS), lambda: self._next(client))

        self._send(client, F.ACQUIRE, token, Mode.READ if reads else Mode.NONE, told)

    def _use(self, client: _Client) -> None:
        """Dies, asks once more where that is possible, or goes on to release."""
        if self.setup.uses and client.mine:
            at = self.now + client.off
            self.sim.builder.add(
                process=client.number, f=int(F.READ), outcome=int(Type.OK), key=self.name,
                invoke_ns=at, complete_ns=at, hold=client.mine[-1],
                numbers={"value": 0, "applied_ns": self.now},
            )  # fmt: skip
        if self.dice.random() < 0.01:
            client.dead = True
            at = self.now + client.off
            self.sim.builder.add(
                process=client.number, f=int(F.DEATH), outcome=int(Type.OK), key=self.name,
                invoke_ns=at, complete_ns=at,
            )  # fmt: skip
            self._join(client.off)
        elif len(client.mine) < 3 and self.setup.kind != "mutex" and self.dice.random() < 0.2:
            self._acquire(client)
        else:
            self._next(client)

    def _next(self, client: _Client) -> None:
        if client.mine:
            self._release(client, self.dice.choice(client.mine))
        else:
            self._acquire(client)

    def _release(self, client: _Client, token: int, *, last: bool = False) -> None:
        if client.dead:
            return
        client.mine.remove(token)

        def told(answer: str | None, _: int) -> None:
            if answer is None or last:
                client.dead = True  # given up, its beats and its session with it
                self._join(client.off)
            else:
                self._after(self._pause(), lambda: self._next(client))

        self._send(client, F.RELEASE, token, Mode.NONE, told)

    def _extend(self, client: _Client, token: int) -> None:
        """In the background; a stalled client's beats are late as well."""
        if client.dead or token not in client.mine:
            return

        def told(answer: str | None, begin: int) -> None:
            if answer == "not-held":
                if token in client.mine:
                    at = self.now + client.off
                    self.sim.builder.add(
                        process=client.number, f=int(F.LOST), outcome=int(Type.OK), key=self.name,
                        invoke_ns=at, complete_ns=at, hold=token if self.setup.holds else None,
                    )  # fmt: skip
            else:
                stall = 2 * TTL if self.dice.random() < 0.01 else 0
                self._after(BEAT + stall, lambda: self._extend(client, token))

        self._send(client, F.EXTEND, token, Mode.NONE, told)

    def _send(
        self, client: _Client, f: F, token: int, mode: Mode, told: Callable[[str | None, int], None]
    ) -> None:
        """Sends a request and tells what came of it: an answer, or None after the time-out."""
        begin, request = self.now, self.sim.number()
        self._open[request] = (client, f, token, begin, mode)

        def arrive() -> None:
            answer = self._serve(client, f, token, mode)
            fence = self.fence if f is F.ACQUIRE and self.setup.kind == "mutex" else None
            self._after(self._delay(), lambda: reply(answer, fence))

        def reply(answer: str, fence: int | None) -> None:
            if self.now - begin > CLIENT_TIMEOUT:
                return
            given_up.clear()
            del self._open[request]
            outcome = Type.OK if answer == "ok" else Type.FAIL
            self._note(client, f, token, begin, mode, outcome, answer, fence)
            told(answer, begin)

        def time_out() -> None:
            if given_up:
                del self._open[request]
                self._note(client, f, token, begin, mode, Type.INFO)
                told(None, begin)

        given_up = [True]
        if self.dice.random() >= 0.005:
            self._after(self._delay(), arrive)
        self._after(CLIENT_TIMEOUT + 1, time_out)

    def _note(
        self, client: _Client, f: F, token: int, begin: int, mode: Mode, outcome: Type,
        answer: str = "", fence: int | None = None,
    ) -> None:  # fmt: skip
        numbers = {}
        promised = outcome is Type.OK and f in {F.ACQUIRE, F.EXTEND}
        if promised and self.setup.faulty != "endless":
            anchor = self.now if self.setup.faulty == "anchor" else begin
            numbers["valid_until_ns"] = anchor + client.off + TTL
        if outcome is Type.OK and fence is not None:
            numbers["fence"] = fence
        self.sim.builder.add(
            process=client.number,
            f=int(f),
            outcome=int(outcome),
            key=self.name,
            invoke_ns=begin + client.off,
            complete_ns=NULL if outcome is Type.INFO else self.now + client.off,
            mode=int(mode),
            hold=token if self.setup.holds else None,
            error=answer if outcome is Type.FAIL else None,
            numbers=numbers,
        )

    # The service.

    def _serve(self, client: _Client, f: F, token: int, mode: Mode) -> str:
        self.holds = [hold for hold in self.holds if hold.expires > self.now]
        ttl = TTL // 2 if self.setup.faulty == "early" else TTL
        expires = self.now + ttl
        mine = next((hold for hold in self.holds if self._is(hold, client, token)), None)
        if f is F.ACQUIRE:
            answer = self._grant(client, token, mode is Mode.READ, expires)
        elif mine is None:
            return "not-held"
        else:
            answer = "ok"
            if f is F.EXTEND:
                mine.expires = expires
            elif mine.levels > 1:
                mine.levels -= 1
            else:
                self.holds.remove(mine)
        if self.setup.ending == "session":
            for hold in self.holds:
                if hold.client == client.number:
                    hold.expires = expires
        return answer

    def _grant(self, client: _Client, token: int, reads: bool, expires: int) -> str:
        mine = next((hold for hold in self.holds if hold.client == client.number), None)
        if mine is not None and self.setup.kind == "reentrant":
            mine.levels += 1
            mine.expires = expires
            return "ok"
        spare = self.setup.faulty == "spare" and self.dice.random() < 0.05
        if not (spare or self._has_place(client, reads=reads)):
            return "held"
        self.fence += 1
        self.holds.append(_Hold(token, client.number, reads, expires))
        return "ok"

    def _has_place(self, client: _Client, *, reads: bool) -> bool:
        if self.setup.kind == "semaphore":
            return len(self.holds) < PERMITS
        if self.setup.kind == "read-write":
            others = [hold for hold in self.holds if hold.client != client.number]
            return all(hold.reads and reads for hold in others)
        return not self.holds

    def _is(self, hold: _Hold, client: _Client, token: int) -> bool:
        if self.setup.kind == "reentrant":
            return hold.client == client.number
        return hold.token == token
