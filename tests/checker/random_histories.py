"""Random small histories of one lock: nothing is simulated, so most kinds of nonsense occur."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lockbench.history.builder import Builder
from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Mode, Object, Type


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
    background: bool = False  # extends are asked for before the acquire was answered


SHAPES = {
    "plain": Shape(holds=False),
    "holds": Shape(alternate=7),
    "lease": Shape(leases=True, alternate=7),
    "reused": Shape(holds=False, reuse=True, alternate=6),
    "strict": Shape(holds=False, strict=True),
    "background-lease": Shape(leases=True, alternate=8, background=True),
    "background-semaphore": Shape(
        kind="semaphore", permits=2, leases=True, alternate=8, background=True
    ),
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
            if shape.background and f is F.ACQUIRE and outcome is Type.OK and dice.randint(0, 1):
                _renew(builder, dice, (process, hold), begin, now)
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


def _renew(builder: Builder, dice: Dice, who: tuple[int, str], begin: int, end: int) -> None:
    """Some extends that were asked for in the background, before the acquire was answered."""
    for _ in range(dice.randint(1, 2)):
        at = dice.randint(begin - 1, end)
        builder.add(
            process=who[0], f=int(F.EXTEND), outcome=int(Type.OK), key="k", invoke_ns=at,
            complete_ns=at + dice.randint(0, 3), hold=who[1],
            numbers={"valid_until_ns": at + dice.randint(0, 9)},
        )  # fmt: skip


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
