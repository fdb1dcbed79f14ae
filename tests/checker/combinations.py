"""Random small histories of one lock, for every combination of what a history may record.

Three ways: *simulated* ones come from a correct lock, so every answer can be explained; *bent* ones
are simulated and then changed in a few places; *wild* ones are made without any lock.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle

from lockbench.history.op import NULL, F, Type
from tests.checker.correct_lock import simulated
from tests.checker.sketch import READ, ROWS_MAX, UNIT, Combination, Line, Sketch


def sketches(seed: str, combination: Combination) -> Iterator[Sketch]:
    """Without end: simulated, bent and wild in turn, each with an operation of the lock."""
    dice = random.Random(f"{seed} {combination}")
    for bends in cycle((0, 3, 5, None)):
        sketch = wild(dice, combination) if bends is None else simulated(dice, combination)
        for _ in range(bends or 0):
            sketch = bent(dice, sketch)
        if any(line.f not in {F.LOST, F.DEATH} for line in sketch.lines):
            yield replace(sketch, correct=bends == 0)


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
