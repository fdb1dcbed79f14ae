"""Random small histories of one lock, for every combination of what a history may record.

Three ways: *simulated* ones come from a correct lock, so every answer can be explained; *bent* ones
are simulated and then changed in a place or two; *wild* ones are made without any lock. ``Sketch``
keeps the rows apart, so that a history can be bent and cut down.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle, product
from typing import Final

from history.builder import Builder
from history.columns import History
from history.op import NULL, F, Mode, Object, Type

KINDS: Final = (
    "mutex", "lease", "fenced", "reentrant", "semaphore", "read-write", "ownerless",
)  # fmt: skip
ROWS_MAX: Final = 9
READ: Final = int(Mode.READ)
UNIT: Final = 3  # times are longer than clocks are off


@dataclass(frozen=True, slots=True)
class Combination:
    kind: str
    holds: bool  # operations name their holds
    leases: bool  # grants and extends tell a valid_until
    owners: bool  # beside processes; two clients may share one
    strict: bool
    clocks: bool  # an ε above zero

    def __str__(self) -> str:
        words = [name for name in self.__slots__[1:] if getattr(self, name)]
        return " ".join([self.kind, *words])


COMBINATIONS: Final = tuple(
    Combination(kind, *flags) for kind in KINDS for flags in product((False, True), repeat=5)
)


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a history to be; ``complete`` NULL for unknown outcomes."""

    process: int
    f: F
    type: Type
    invoke: int
    complete: int
    owner: int
    hold: str | None = None
    mode: int = 0
    error: str | None = None
    until: int | None = None  # told when it is acknowledged,
    shown: bool = False  # and here also without an answer
    fence: int | None = None


@dataclass(frozen=True, slots=True)
class Sketch:
    combination: Combination
    permits: int
    epsilon: int
    lines: tuple[Line, ...]
    correct: bool = False  # as a correct lock answered

    def history(self) -> History:
        builder = Builder()
        kind, strict = self.combination.kind, self.combination.strict
        permits = self.permits if kind == "semaphore" else None
        builder.objects["k"] = Object(kind, permits=permits, strict_try=strict)
        builder.epsilon_ns = self.epsilon
        for line in self.lines:
            numbers = {"owner": line.owner} if self.combination.owners else {}
            told = line.type is Type.OK or (line.type is Type.INFO and line.shown)
            if told and line.until is not None and line.f in {F.ACQUIRE, F.EXTEND}:
                numbers["valid_until_ns"] = line.until
            if line.fence is not None:
                numbers["fence"] = line.fence
            builder.add(
                process=line.process,
                f=int(line.f),
                outcome=int(line.type),
                key="k",
                invoke_ns=line.invoke,
                complete_ns=line.complete,
                mode=line.mode,
                hold=line.hold if self.combination.holds else None,
                error=line.error,
                numbers=numbers,
            )
        return builder.finish()


def smallest(sketch: Sketch, wrong: Callable[[History], bool]) -> Sketch:
    """Without every line that is not needed to be wrong."""
    at = 0
    while at < len(sketch.lines):
        less = replace(sketch, lines=sketch.lines[:at] + sketch.lines[at + 1 :])
        if wrong(less.history()):
            sketch, at = less, 0
        else:
            at += 1
    return sketch


def sketches(seed: str, combination: Combination) -> Iterator[Sketch]:
    """Without end: simulated, bent and wild in turn, each with an operation of the lock."""
    dice = random.Random(f"{seed} {combination}")
    for bends in cycle((0, 3, 5, None)):
        sketch = wild(dice, combination) if bends is None else simulated(dice, combination)
        for _ in range(bends or 0):
            sketch = bent(dice, sketch)
        if any(line.f not in {F.LOST, F.DEATH} for line in sketch.lines):
            yield replace(sketch, correct=bends == 0)


# What a correct lock does.


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


def bent(dice: random.Random, sketch: Sketch) -> Sketch:
    """With one change somewhere."""
    lines = list(sketch.lines)
    if not lines:
        return sketch
    at = dice.randrange(len(lines))
    change = dice.choice(
        (_answered_otherwise, _answered_otherwise, _at_another_time, _of_another, _of_another_lease)
    )
    if (die := dice.randint(0, 7)) == 0:
        lines.insert(at, replace(lines[at], invoke=lines[at].invoke, hold=lines[at].hold))
    elif die == 1 and len(lines) > 1:
        del lines[at]
    else:
        lines[at] = change(dice, lines[at], lines)
    return replace(sketch, lines=tuple(lines[:ROWS_MAX]))


def _answered_otherwise(dice: random.Random, line: Line, lines: list[Line]) -> Line:
    if line.f in {F.LOST, F.DEATH}:
        return line
    complete = line.invoke + dice.randint(0, 4) if line.complete == NULL else line.complete
    others = [Type.OK, Type.FAIL, Type.INFO]
    others.remove(line.type)
    outcome = dice.choice(others)
    error = ("held" if line.f is F.ACQUIRE else "not-held") if outcome is Type.FAIL else None
    return replace(
        line, type=outcome, error=error, fence=None if outcome is not Type.OK else line.fence,
        complete=NULL if outcome is Type.INFO else complete,
    )  # fmt: skip


def _at_another_time(dice: random.Random, line: Line, lines: list[Line]) -> Line:
    by = dice.choice((-6, -4, -2, -1, 1, 2, 4, 6))
    complete = line.complete if line.complete == NULL else line.complete + by
    return replace(line, invoke=line.invoke + by, complete=complete)


def _of_another(dice: random.Random, line: Line, lines: list[Line]) -> Line:
    other = dice.choice(lines)
    return replace(line, hold=other.hold, owner=other.owner, process=other.process)


def _of_another_lease(dice: random.Random, line: Line, lines: list[Line]) -> Line:
    by = dice.choice((-3, -1, 1, 3, 6))
    return replace(
        line,
        until=None if line.until is None else line.until + by,
        fence=None if line.fence is None else line.fence + dice.randint(-2, 0),
    )


# No lock at all.


def wild(dice: random.Random, combination: Combination) -> Sketch:
    """Two or three clients who are answered at random."""
    lines: list[Line] = []
    unit = UNIT if combination.clocks else 1
    for client in range(dice.randint(2, 3)):
        owner = dice.choice((client, client, 7)) if combination.owners else client
        now, process, name, holding = dice.randint(0, 4 * unit), client, f"h{client}", False
        for number in range(dice.randint(1, 3)):
            begin = now + dice.randint(0, 3 * unit)
            now = begin + dice.randint(0, 4 * unit)
            f = _wild_wish(dice, combination, holding=holding)
            if f is F.ACQUIRE:
                name = f"h{client}{number if dice.randint(0, 4) else 0}"
            line = _wild_line(dice, combination, Line(process, f, Type.OK, begin, now, owner, name))
            lines.append(line)
            if f is F.DEATH:
                break
            holding = (f is F.ACQUIRE and line.type is not Type.FAIL) or (
                holding and f is not F.RELEASE
            )
            if line.type is Type.INFO and dice.randint(0, 1):
                process += 100
    return Sketch(
        combination,
        dice.choice((1, 1, 2)),
        dice.randint(1, 2) if combination.clocks else 0,
        tuple(lines[:ROWS_MAX]),
    )


def _wild_wish(dice: random.Random, combination: Combination, *, holding: bool) -> F:
    die = dice.randint(0, 19)
    if die == 0:
        return F.LOST
    if die == 1:
        return F.DEATH
    if die < (14 if holding else 3):
        return F.EXTEND if die % 3 == 0 and combination.kind != "ownerless" else F.RELEASE
    return F.ACQUIRE


def _wild_line(dice: random.Random, combination: Combination, line: Line) -> Line:
    if line.f in {F.LOST, F.DEATH}:
        return replace(line, complete=line.invoke)
    mode = 0
    if line.f is F.ACQUIRE and combination.kind == "read-write":
        mode = dice.choice((0, READ))
    fenced = combination.kind == "fenced" and line.f is F.ACQUIRE and dice.randint(0, 3) > 0
    # Grants with and without a limit in one reentrant hold say nothing certain.
    leased = combination.leases and (combination.kind == "reentrant" or dice.randint(0, 9) > 0)
    line = replace(
        line, mode=mode,
        until=line.invoke + dice.randint(0, 20) if leased else None,
        shown=dice.randint(0, 3) == 0,
        fence=line.invoke + dice.randint(-1, 1) if fenced else None,
    )  # fmt: skip
    die = dice.randint(0, 9)
    if die < 2:
        return replace(line, type=Type.INFO, complete=NULL)
    if die == 9:
        error = "held" if line.f is F.ACQUIRE else dice.choice(("not-held", "no-effect"))
        return replace(line, type=Type.FAIL, error=error)
    return line
