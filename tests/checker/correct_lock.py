"""A few requests to a correct lock of any kind: every answer can be explained.

Its clients stall, die, are told of losses, get no reply; the service takes back what has run out at
once, when somebody asks, or never. Times are small whole numbers. Unknown requests shorten no
lease that was acknowledged.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from lockbench.history.op import NULL, F, Type
from tests.checker.sketch import READ, ROWS_MAX, UNIT, Combination, Line, Sketch


@dataclass(slots=True)
class _Held:
    name: str
    owner: int
    process: int
    mode: int
    expires: int | None
    levels: int = 1
    forsaken: bool = False  # its client was told of a loss, or died

    def renew(self, expires: int | None, *, known: bool) -> None:
        """A lease that its client does not know of breaks no longer one that it was told."""
        if known or expires is None or self.expires is None:
            self.expires = expires
        else:
            self.expires = max(self.expires, expires)


@dataclass(slots=True)
class _Client:
    number: int
    process: int
    owner: int
    off: int  # of its clock, at most ε
    believed: list[tuple[str, int]] = field(default_factory=list)  # holds: name and mode


class _Lock:
    """A correct service and its clients, in whole units of time."""

    def __init__(self, dice: random.Random, combination: Combination) -> None:
        self.dice = dice
        self.combination = combination
        self.permits = dice.choice((1, 2, 2, 3))
        self.epsilon = dice.randint(1, 2) if combination.clocks else 0
        self._unit = UNIT if combination.clocks else 1
        self.held: list[_Held] = []
        self.lines: list[Line] = []
        self.fence = 0
        self.left = dice.randint(4, ROWS_MAX)
        self._names = 0
        self._due: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0
        # A service keeps what has run out for a while, or until somebody asks.
        self._lazy = dice.randint(0, 1) == 0

    def run(self) -> Sketch:
        for number in range(self.dice.randint(2, 3)):
            owner = self.dice.choice((number, number, 7)) if self.combination.owners else number
            off = self.dice.randint(-self.epsilon, self.epsilon)
            client = _Client(number, number, owner, off)
            self._ask(client, self._time(0, 4))
        while self._due:
            now, _, effect = heapq.heappop(self._due)
            effect(now)
        return Sketch(self.combination, self.permits, self.epsilon, tuple(self.lines))

    def _at(self, time: int, effect: Callable[[int], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (time, self._count, effect))

    def _time(self, least: int, most: int) -> int:
        return self.dice.randint(least * self._unit, most * self._unit)

    def _ask(self, client: _Client, now: int) -> None:
        """Lets a client ask for something from ``now`` on."""
        if self.left <= 0:
            return
        self.left -= 1
        invoke = now + self._time(0, 3)
        f = self._wish(client)
        if f in {F.LOST, F.DEATH}:
            self._at(invoke, lambda at: self._end(client, f, at))
            return
        name, mode = self._about(client, f)
        ttl = self._time(4, 14) if self.combination.leases else None
        arrives = self.dice.randint(0, 11) > 0
        unknown = not arrives or self.dice.randint(0, 9) == 0
        effect = invoke + self._time(0, 3)
        asked = Line(
            client.process, f, Type.OK, invoke, NULL, client.owner, name, mode,
            until=None if ttl is None else invoke + ttl,
        )  # fmt: skip

        def take_effect(at: int) -> None:
            answer, fence = None, None
            if arrives:
                answer, fence = self._answer(asked, ttl, at, known=not unknown)
            self._reply(client, asked, at, None if unknown else answer, fence)

        self._at(effect, take_effect)

    def _wish(self, client: _Client) -> F:
        die = self.dice.randint(0, 19)
        if not client.believed:
            return F.RELEASE if die == 0 else F.ACQUIRE
        if die == 0:
            return F.LOST
        if die == 1:
            return F.DEATH
        again = 6 if self.combination.kind in {"reentrant", "semaphore", "read-write"} else 3
        if die < again:
            return F.ACQUIRE
        extends = 10 if self.combination.leases else again + 1
        return F.EXTEND if die < extends and self.combination.kind != "ownerless" else F.RELEASE

    def _about(self, client: _Client, f: F) -> tuple[str, int]:
        if f is F.ACQUIRE or not client.believed:
            self._names += 1
            reads = self.combination.kind == "read-write" and self.dice.randint(0, 1)
            return f"h{self._names}", READ if reads else 0
        return self.dice.choice(client.believed)[0], 0

    def _answer(
        self, asked: Line, ttl: int | None, at: int, *, known: bool
    ) -> tuple[str, int | None]:
        """Takes effect, and returns what is answered and a fence."""
        for hold in list(self.held):
            over = hold.forsaken or (hold.expires is not None and hold.expires <= at)
            if over and (not self._lazy or self.dice.randint(0, 3) == 0):
                self.held.remove(hold)
        if asked.f is F.ACQUIRE:
            return self._acquire(asked, ttl, at, known=known)
        mine = next((hold for hold in self.held if self._is_of(asked, hold)), None)
        if mine is None:
            return "not-held", None
        if asked.f is F.EXTEND:
            mine.renew(None if ttl is None else at + ttl, known=known)
        elif mine.levels > 1:
            mine.levels -= 1
        else:
            self.held.remove(mine)
        return "ok", None

    def _is_of(self, asked: Line, hold: _Held) -> bool:
        kind = self.combination.kind
        if kind == "ownerless":
            return True
        if self.combination.holds and kind != "reentrant":
            return hold.name == asked.hold
        return hold.owner == asked.owner

    def _acquire(
        self, asked: Line, ttl: int | None, at: int, *, known: bool
    ) -> tuple[str, int | None]:
        kind = self.combination.kind
        expires = None if ttl is None or kind == "ownerless" else at + ttl
        if kind == "reentrant" and self.held and self.held[0].owner == asked.owner:
            self.held[0].levels += 1
            self.held[0].renew(expires, known=known)
            if known:
                self.held[0].process, self.held[0].forsaken = asked.process, False
            return "ok", None
        if not self._has_place(asked):
            # What has run out ends when somebody asks.
            for hold in list(self.held):
                over = hold.forsaken or (hold.expires is not None and hold.expires <= at)
                if over and self.dice.randint(0, 3):
                    self.held.remove(hold)
        if not self._has_place(asked):
            return "held", None
        assert asked.hold is not None
        self.held.append(_Held(asked.hold, asked.owner, asked.process, asked.mode, expires))
        self.fence += 1
        return "ok", self.fence if kind == "fenced" else None

    def _has_place(self, asked: Line) -> bool:
        if self.combination.kind == "semaphore":
            return len(self.held) < self.permits
        if self.combination.kind == "read-write":
            return all(
                hold.owner == asked.owner or (hold.mode == READ and asked.mode == READ)
                for hold in self.held
            )
        return not self.held

    def _reply(
        self, client: _Client, asked: Line, at: int, answer: str | None, fence: int | None
    ) -> None:
        """``answer`` is None where it is lost."""
        about = (asked.hold or "", asked.mode)
        complete = at + self._time(0, 3)
        if asked.f is F.ACQUIRE and answer in {None, "ok"}:
            client.believed.append(about)
        elif asked.f is F.RELEASE and self.dice.randint(0, 5):
            client.believed = [known for known in client.believed if known[0] != asked.hold]
        if answer is None:
            self._note(client, replace(asked, type=Type.INFO, shown=self.dice.randint(0, 5) == 0))
            if self.dice.randint(0, 2) == 0:
                client.process += 100
                if not self.combination.owners:
                    client.owner = client.process
                if not self.combination.holds:
                    client.believed = []
        elif answer == "ok":
            self._note(client, replace(asked, complete=complete, fence=fence))
        else:
            self._note(client, replace(asked, type=Type.FAIL, complete=complete, error=answer))
        self._ask(client, complete)

    def _end(self, client: _Client, f: F, at: int) -> None:
        """A client is told of a loss, or dies."""
        name = client.believed[-1][0]
        self._note(client, Line(client.process, f, Type.OK, at, at, client.owner, name))
        for hold in self.held if self.combination.kind != "ownerless" else ():
            named = f is F.LOST and self.combination.holds and self.combination.kind != "reentrant"
            hold.forsaken |= hold.name == name if named else hold.process == client.process
        if f is F.LOST:
            if self.dice.randint(0, 1):
                client.believed.pop()
            self._ask(client, at)

    def _note(self, client: _Client, line: Line) -> None:
        """Writes down what happened by the client's clock."""
        off = client.off
        complete = line.complete if line.complete == NULL else line.complete + off
        until = None if line.until is None else line.until + off
        self.lines.append(replace(line, invoke=line.invoke + off, complete=complete, until=until))


def simulated(dice: random.Random, combination: Combination) -> Sketch:
    """Of a correct lock: every answer can be explained."""
    return _Lock(dice, combination).run()
