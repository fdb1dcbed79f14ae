"""What grants promised, and which of them break each other: every pair looked at.

Restates ``docs/checker.md`` for histories in which every operation names its hold and no name is
used for two acquires, so that nothing has to be guessed; not for reentrant locks. Shares nothing
with ``checker``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Mode, Type
from tests.checker.reference import FOREVER, Row, rows_of


@dataclass(frozen=True, slots=True)
class Promise:
    """``start`` to ``end`` of a grant, with ε; empty unless start < end."""

    grant: Row
    start: int
    end: int

    def overlaps(self, other: Promise) -> bool:
        return max(self.start, other.start) < min(self.end, other.end)


def is_plain(history: History) -> bool:
    """Whether every operation is about one acquire for certain, and no two extends of a hold are
    under way at once."""
    rows = rows_of(history)
    acquired = [row.hold for row in rows if row.f == F.ACQUIRE]
    if len(acquired) != len(set(acquired)):
        return False
    began = {row.hold: row for row in rows if row.f == F.ACQUIRE}
    for row in rows:
        mine = began.get(row.hold)
        if row.f != F.DEATH and (mine is None or row.invoke_ns < mine.invoke_ns):
            return False
    extends = [row for row in rows if row.f == F.EXTEND and row.type == Type.OK]
    return all(a.hold != b.hold or a.complete_ns < b.invoke_ns for a, b in combinations(extends, 2))


def promises(history: History) -> list[Promise]:
    rows, epsilon = rows_of(history), history.epsilon_ns
    made = []
    for grant in rows:
        if grant.f == F.ACQUIRE and grant.type == Type.OK:
            end = _end(rows, grant)
            start = grant.complete_ns + epsilon
            made.append(Promise(grant, start, end if end == FOREVER else end - epsilon))
    return made


def _end(rows: list[Row], grant: Row) -> int:
    lease = FOREVER if grant.lease == NULL else grant.lease
    ends = [FOREVER]
    for row in rows:
        if row.f == F.DEATH:
            dead = row.process == grant.process and row.invoke_ns >= grant.invoke_ns
            if dead or (row.hold == grant.hold and row.invoke_ns >= grant.invoke_ns):
                ends.append(row.invoke_ns)
        elif row.hold != grant.hold:
            continue
        elif row.f == F.LOST:
            ends.append(row.invoke_ns)
        elif row.f == F.EXTEND and row.type == Type.OK and row.lease != NULL:
            lease = row.lease
        elif row.f == F.RELEASE and (row.type != Type.FAIL or row.error.startswith("not-held")):
            ends.append(row.invoke_ns)
    return min(lease, *ends)


def double_grant(history: History, kind: str, permits: int) -> bool:
    """Whether two promises are incompatible at some instant."""
    held = [promise for promise in promises(history) if promise.start < promise.end]
    if kind == "semaphore":
        return any(
            sum(other.start <= promise.start < other.end for other in held) > permits
            for promise in held
        )
    for a, b in combinations(held, 2):
        together = kind == "read-write" and (
            a.grant.owner == b.grant.owner or a.grant.mode == b.grant.mode == Mode.READ
        )
        if not together and a.overlaps(b):
            return True
    return False


def late_grant(history: History) -> bool:
    return any(
        promise.grant.lease != NULL and promise.grant.complete_ns > promise.grant.lease
        for promise in promises(history)
    )


def fence_order(history: History) -> bool:
    """Whether of two grants of a mutex certainly in order the later has no larger fence, or two
    that are promised at once have the same."""
    fenced = [promise for promise in promises(history) if promise.grant.fence != NULL]
    epsilon = history.epsilon_ns
    for a in fenced:
        for b in fenced:
            if a is b:
                continue
            answered = a.grant.complete_ns + epsilon < b.grant.invoke_ns - epsilon
            held = a.start < a.end and b.start < b.end
            in_order = answered or (held and a.end <= b.start)
            if in_order and a.grant.fence >= b.grant.fence:
                return True
            if held and a.overlaps(b) and a.grant.fence == b.grant.fence:
                return True
    return False
