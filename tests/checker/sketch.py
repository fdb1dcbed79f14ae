"""Histories in pieces: rows that can be changed and taken away before they become a history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from lockbench.history.builder import Builder
from lockbench.history.columns import History
from lockbench.history.op import F, Mode, Object, Type

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
