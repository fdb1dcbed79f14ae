"""Random small histories of one lock: nothing is simulated, so most kinds of nonsense occur."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from history.builder import Builder
from history.columns import History
from history.op import NULL, F, Mode, Object, Type


class Dice(Protocol):
    """What ``random.Random`` and a Hypothesis draw have in common."""

    def randint(self, a: int, b: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Shape:
    """What may occur in a history; chances are in tenths."""

    kind: str = "mutex"
    permits: int | None = None
    holds: bool = True
    leases: bool = False
    strict: bool = False
    reuse: bool = False  # a process goes on after an unknown outcome
    unknown: int = 2
    alternate: int = 9  # how often a process keeps to acquire, release, acquire …
    fences: bool = False


SHAPES = {
    "plain": Shape(holds=False),
    "holds": Shape(alternate=7),
    "lease": Shape(leases=True, alternate=7),
    "reused": Shape(holds=False, reuse=True, alternate=6),
    "strict": Shape(holds=False, strict=True),
    "strict-lease": Shape(leases=True, strict=True, alternate=8),
    "reentrant": Shape(kind="reentrant", holds=False, alternate=5),
    "reentrant-known": Shape(kind="reentrant", holds=False, alternate=5, unknown=0),
    "semaphore": Shape(kind="semaphore", permits=2),
    "semaphore-lease": Shape(kind="semaphore", permits=2, leases=True),
    "read-write": Shape(kind="read-write"),
    "read-write-lease": Shape(kind="read-write", leases=True, alternate=7),
    "fenced": Shape(kind="fenced", fences=True),
    "ownerless": Shape(kind="ownerless", holds=False),
}


def random_history(dice: Dice, shape: Shape) -> History:
    """Two or three processes with a few operations each, at times from 0 to about 20."""
    builder = Builder()
    builder.objects["k"] = Object(shape.kind, permits=shape.permits, strict_try=shape.strict)
    number = 0
    for client in range(dice.randint(2, 3)):
        now = dice.randint(0, 4)
        process, hold, holding = client, "none", False
        for _ in range(dice.randint(1, 4)):
            begin = now + dice.randint(0, 3)
            now = begin + dice.randint(0, 4)
            f = _choose(dice, shape, holding=holding)
            if f is F.ACQUIRE:
                number += 1
                hold, holding = f"h{number}", True
            elif f is F.RELEASE:
                holding = False
            outcome, error = _outcome(dice, shape, f)
            if outcome is Type.FAIL and f is F.ACQUIRE:
                holding = False
            numbers = {}
            if shape.leases and outcome is Type.OK and f in {F.ACQUIRE, F.EXTEND}:
                numbers["valid_until_ns"] = begin + dice.randint(0, 9)
            if shape.fences and f is F.ACQUIRE and outcome is Type.OK and dice.randint(0, 3):
                numbers["fence"] = number + dice.randint(-1, 1)
            builder.add(
                process=process,
                f=int(f),
                outcome=int(outcome),
                key="k",
                invoke_ns=begin,
                complete_ns=NULL if outcome is Type.INFO else now,
                mode=int(Mode.READ if shape.kind == "read-write" and client else Mode.NONE),
                hold=hold if shape.holds else None,
                error=error,
                numbers=numbers,
            )
            if outcome is Type.INFO and not shape.reuse and not _cleans_up(dice, f):
                process += 100
                if not shape.holds:
                    holding = False
        if shape.leases and dice.randint(0, 9) == 0:
            builder.add(
                process=process, f=int(F.LOST), outcome=int(Type.OK), key="k",
                invoke_ns=now, complete_ns=now, hold=hold if shape.holds else None,
            )  # fmt: skip
    return builder.finish()


def _cleans_up(dice: Dice, f: F) -> bool:
    """Sometimes the same process tries to clean up after an unknown outcome before it retires."""
    return f is not F.EXTEND and dice.randint(0, 3) > 0


def _choose(dice: Dice, shape: Shape, *, holding: bool) -> F:
    if dice.randint(0, 9) < shape.alternate:
        if holding and shape.leases and dice.randint(0, 2) == 0:
            return F.EXTEND
        return F.RELEASE if holding else F.ACQUIRE
    return (F.ACQUIRE, F.RELEASE, F.EXTEND)[dice.randint(0, 2 if shape.leases else 1)]


def _outcome(dice: Dice, shape: Shape, f: F) -> tuple[Type, str | None]:
    die = dice.randint(0, 9)
    if die < shape.unknown:
        return Type.INFO, None
    if die == 9:
        if f is F.ACQUIRE:
            return Type.FAIL, "held"
        return Type.FAIL, ("not-held", "no-effect")[dice.randint(0, 1)]
    return Type.OK, None


KINDS = ("mutex", "lease", "reentrant", "semaphore", "read-write", "fenced", "ownerless")


@dataclass(frozen=True, slots=True)
class Wild:
    """What a wild history may have beside everything else; chances are in tenths."""

    kind: str
    keys: int
    leases: bool
    named: int  # operations that name their hold
    owners: bool
    ends: bool  # losses and deaths, at any time and of anybody


def wild_history(dice: Dice) -> History:
    """One or two locks as no recorder of ours writes them: clock bounds, hold names used twice or
    by half of the operations, owners beside processes, losses and deaths out of nowhere."""
    wild = Wild(
        kind=KINDS[dice.randint(0, len(KINDS) - 1)],
        keys=dice.randint(1, 2),
        leases=dice.randint(0, 1) == 0,
        named=(0, 5, 10)[dice.randint(0, 2)],
        owners=dice.randint(0, 4) == 0,
        ends=dice.randint(0, 2) == 0,
    )
    builder = Builder()
    builder.epsilon_ns = max(0, dice.randint(-2, 2))
    strict, permits = dice.randint(0, 3) == 0, dice.randint(1, 2)
    for number in range(wild.keys):
        builder.objects[f"k{number}"] = Object(wild.kind, permits=permits, strict_try=strict)
    for client in range(dice.randint(2, 3)):
        _wild_client(builder, dice, wild, client)
    return builder.finish()


def _wild_client(builder: Builder, dice: Dice, wild: Wild, client: int) -> None:
    now, process, hold, holding = dice.randint(0, 5), client, "x", ""
    for number in range(dice.randint(1, 4)):
        begin = now + dice.randint(0, 3)
        now = begin + dice.randint(0, 4)
        f, key = F.ACQUIRE, f"k{dice.randint(0, wild.keys - 1)}"
        if holding and dice.randint(0, 9) < 8:
            f, key = (F.RELEASE, F.RELEASE, F.EXTEND)[dice.randint(0, 2)], holding
        elif dice.randint(0, 9) == 0:
            last = 3 if wild.ends else 1
            f = (F.RELEASE, F.EXTEND, F.LOST, F.DEATH)[dice.randint(0, last)]
        if f is F.ACQUIRE:
            hold, holding = f"h{client}{number if dice.randint(0, 4) else 0}", key
        outcome, error = _outcome(dice, Shape(unknown=2), f)
        if f in {F.LOST, F.DEATH}:
            outcome, error, now = Type.OK, None, begin
        if f is F.RELEASE or (f is F.ACQUIRE and outcome is Type.FAIL):
            holding = ""
        numbers: dict[str, int] = {}
        if wild.leases and outcome is Type.OK and f in {F.ACQUIRE, F.EXTEND} and dice.randint(0, 9):
            numbers["valid_until_ns"] = begin + dice.randint(0, 9)
        if wild.kind == "fenced" and f is F.ACQUIRE and outcome is Type.OK:
            numbers["fence"] = begin + dice.randint(-1, 1)
        if wild.owners:
            numbers["owner"] = client if dice.randint(0, 3) else 9
        builder.add(
            process=process,
            f=int(f),
            outcome=int(outcome),
            key=key,
            invoke_ns=begin,
            complete_ns=NULL if outcome is Type.INFO else now,
            mode=int(Mode.READ if wild.kind == "read-write" and dice.randint(0, 1) else Mode.NONE),
            hold=hold if dice.randint(0, 9) < wild.named else None,
            error=error,
            numbers=numbers,
        )
        if f is F.DEATH:
            return
        process += 100 if outcome is Type.INFO and dice.randint(0, 1) else 0
