"""Whether some order of effects explains every answer of a lock: by trying all of them.

Written from the contract of ``linearizable`` and sharing nothing with ``checker``: it reads the
columns of a history and knows locks of its own. The contract, as it is read here:

- An operation that was answered takes effect at one instant of its window, a closed interval that ε
  widens at both ends. One of unknown outcome takes effect at some instant from its invocation on,
  or never. A failed one had no effect; ``not-held`` says that the caller did not hold at an instant
  of the window, and ``held`` of a strict lock that there was no place.
- Who: the hold where both name one, else the owner, else the process. Reentrant locks know owners
  alone. What does not name its hold may be about any hold of its owner: of semaphores and
  read-write locks, ``not-held`` says that not everything is held that was asked for in that name.
- The service may end a hold by itself, at any time or never, from the last acknowledged
  ``valid_until`` on, or from a loss or a death after its acquire on, in all cases less ε. Of
  acknowledged extends, the one that took effect last counts. An acquire of unknown outcome runs out
  at any time after its effect, unless it or an extend says when; not so on a key whose grants have
  no leases.
- A mutex has one holder; a semaphore as many holds as permits; a reentrant lock one owner, as often
  as that one likes, each acknowledged acquire renewing lease and loss; a read-write lock several
  holds, of which a writer's is together with those of its own owner only. Refusals of a read-write
  lock need a hold (for a reader: a writer), of whatever owner: it need not let anybody in again.
- Of a lock without owners (Knossos' mutex), a release ends the hold of whoever has it, and nothing
  else does.

It is exhaustive and meant for some ten operations a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Mode, Type

FOREVER: Final = 2**62
AT_ONCE: Final = -(2**62)


@dataclass(frozen=True, slots=True)
class Op:
    """One operation that says something. ``answer``: ``ok``, ``info``, ``held`` or ``not-held``;
    ``end`` is FOREVER for info; ``lease`` NULL where none was told; ``lost_ns`` from when on the
    hold of an acquire may be taken away by a loss or a death; ``asked`` how many acquires of the
    same hold or owner were asked for before a ``not-held`` was answered."""

    f: F
    answer: str
    begin: int
    end: int
    name: int
    owner: int
    reads: bool
    lease: int
    fence: int
    lost_ns: int
    asked: int


@dataclass(frozen=True, slots=True, order=True)
class Hold:
    """``by`` is the number of its (outermost) acquire; ``lost_ns`` and ``lease`` as in Op, the
    earlier of them is when the service may end it; ``levels`` more than one for reentrant locks."""

    by: int
    lease: int
    lost_ns: int
    levels: int = 1


Holds = tuple[Hold, ...]
State = tuple[Holds, int]  # and the last fence


def explainable(history: History) -> bool:
    """Whether the answers on every lock of the history can be explained."""
    rows = rows_of(history)
    return all(Lock(history, rows, key).explainable() for key in range(len(history.keys)))


class Lock:
    """The operations on one key and all their orders."""

    def __init__(self, history: History, rows: list[Row], key: int) -> None:
        given = history.object_of(history.keys[key])
        self.kind = given.kind
        self.permits = given.permits or 1
        self.epsilon_ns = history.epsilon_ns
        self.ops = _operations(
            rows, key, given.kind, strict=given.strict_try, epsilon_ns=history.epsilon_ns
        )
        granted = [op for op in self.ops if op.answer == "ok" and op.f is not F.RELEASE]
        self.leased = not granted or any(op.lease != NULL for op in granted)
        answered = [number for number, op in enumerate(self.ops) if op.answer != "info"]
        self._due = sorted(answered, key=lambda number: self.ops[number].end)
        self._tried: set[tuple[int, State]] = set()

    def explainable(self) -> bool:
        return self._explain(0, ((), NULL))

    def _explain(self, done: int, state: State) -> bool:
        """``done`` has a bit for each operation that took effect."""
        due = next((number for number in self._due if not done >> number & 1), None)
        if due is None:
            return True
        if (done, state) in self._tried:
            return False
        self._tried.add((done, state))
        # Whatever comes next comes before the first answer that is still to be explained.
        before = self.ops[due].end
        for number, op in enumerate(self.ops):
            if not done >> number & 1 and op.begin <= before:
                for after in self._steps(number, op, state):
                    if self._explain(done | 1 << number, after):
                        return True
        holds, fence = state
        for hold in holds if self.kind != "ownerless" else ():
            if min(hold.lease, hold.lost_ns) - self.epsilon_ns <= before and self._explain(
                done, (_without(holds, hold), fence)
            ):
                return True
        return False

    def _steps(self, number: int, op: Op, state: State) -> Iterator[State]:
        """The states that an operation can lead to and be answered as it was."""
        holds, fence = state
        mine = [hold for hold in holds if self._is_of(op, hold)]
        if op.answer == "held":
            if self._may_refuse(op, holds):
                yield state
        elif op.answer == "not-held":
            several = self.kind in {"semaphore", "read-write"}
            if not mine or (several and len(mine) < op.asked):
                yield state
        elif op.f is F.ACQUIRE:
            yield from self._granted(number, op, state, mine)
        else:
            for hold in mine:
                others = _without(holds, hold)
                if op.f is F.EXTEND:
                    lease = hold.lease if op.lease == NULL else op.lease
                    others += (Hold(hold.by, lease, hold.lost_ns, hold.levels),)
                elif hold.levels > 1:
                    others += (Hold(hold.by, hold.lease, hold.lost_ns, hold.levels - 1),)
                yield tuple(sorted(others)), fence

    def _granted(self, number: int, op: Op, state: State, mine: list[Hold]) -> Iterator[State]:
        holds, fence = state
        if self.kind == "fenced" and op.fence != NULL:
            if fence != NULL and op.fence <= fence:
                return
            fence = op.fence
        if self.kind == "reentrant" and mine:
            yield (_entered(mine[0], op),), fence
        elif self._has_place(op, holds):
            yield tuple(sorted((*holds, Hold(number, self._lease(op), op.lost_ns)))), fence

    def _is_of(self, op: Op, hold: Hold) -> bool:
        if self.kind == "ownerless":
            return True
        acquire = self.ops[hold.by]
        if op.name == NULL or self.kind == "reentrant":
            return op.owner == acquire.owner
        return op.name == acquire.name

    def _lease(self, op: Op) -> int:
        if op.lease != NULL:
            return op.lease
        return AT_ONCE if op.answer == "info" and self.leased else FOREVER

    def _has_place(self, op: Op, holds: Holds) -> bool:
        if self.kind == "semaphore":
            return len(holds) < self.permits
        if self.kind == "read-write":
            by = [self.ops[hold.by] for hold in holds]
            return all(b.owner == op.owner or (b.reads and op.reads) for b in by)
        return not holds

    def _may_refuse(self, op: Op, holds: Holds) -> bool:
        if self.kind == "semaphore":
            return len(holds) >= self.permits
        if self.kind == "read-write":
            return any(not (op.reads and self.ops[hold.by].reads) for hold in holds)
        if self.kind == "reentrant":
            return any(not self._is_of(op, hold) for hold in holds)
        return bool(holds)


def _entered(hold: Hold, op: Op) -> Hold:
    """A reentrant hold after its owner entered it once more."""
    if op.answer == "info":
        return Hold(hold.by, hold.lease, hold.lost_ns, hold.levels + 1)
    before = FOREVER if hold.lease == AT_ONCE else hold.lease
    return Hold(hold.by, before if op.lease == NULL else op.lease, op.lost_ns, hold.levels + 1)


def _without(holds: Holds, hold: Hold) -> Holds:
    at = holds.index(hold)
    return holds[:at] + holds[at + 1 :]


class Row(NamedTuple):
    """One row of a history as plain numbers."""

    process: int
    f: int
    type: int
    mode: int
    key: int
    error: str
    invoke_ns: int
    complete_ns: int
    hold: int
    fence: int
    lease: int
    owner: int


def rows_of(history: History) -> list[Row]:
    """All rows. The owner is the process where none was recorded."""
    owners = zip(history.owner.tolist(), history.process.tolist(), strict=True)
    return list(
        map(
            Row,
            history.process.tolist(),
            history.f.tolist(),
            history.type.tolist(),
            history.mode.tolist(),
            history.key.tolist(),
            [history.errors[i] if i >= 0 else "" for i in history.error.tolist()],
            history.invoke_ns.tolist(),
            history.complete_ns.tolist(),
            history.hold.tolist(),
            history.fence.tolist(),
            history.valid_until_ns.tolist(),
            [process if owner == NULL else owner for owner, process in owners],
        )
    )


def _operations(rows: list[Row], key: int, kind: str, *, strict: bool, epsilon_ns: int) -> list[Op]:
    ops = []
    endings = [row for row in rows if row.f in {F.LOST, F.DEATH}]
    for row in rows:
        answer = _answer(row, kind, strict=strict) if row.key == key else None
        if answer is None:
            continue
        ops.append(
            Op(
                f=F(row.f),
                answer=answer,
                begin=row.invoke_ns - epsilon_ns,
                end=FOREVER if answer == "info" else row.complete_ns + epsilon_ns,
                name=row.hold,
                owner=row.owner,
                reads=row.mode == Mode.READ,
                lease=row.lease,
                fence=row.fence,
                asked=sum(_is_asked_for(row, other, epsilon_ns) for other in rows),
                lost_ns=_lost(endings, row, reentrant=kind == "reentrant") if endings else FOREVER,
            )
        )
    return ops


def _answer(row: Row, kind: str, *, strict: bool) -> str | None:
    """None for what says nothing: an extend of unknown outcome, most failures, and what a lock
    without owners says of its caller's hold."""
    if row.f not in {F.ACQUIRE, F.RELEASE, F.EXTEND}:
        return None
    if kind == "ownerless" and (row.f == F.EXTEND or row.error.startswith("not-held")):
        return None
    if row.type == Type.OK:
        return "ok"
    if row.type == Type.INFO:
        return None if row.f == F.EXTEND else "info"
    if row.f == F.ACQUIRE:
        return "held" if strict and row.error.startswith("held") else None
    return "not-held" if row.error.startswith("not-held") else None


def _is_asked_for(row: Row, acquire: Row, epsilon_ns: int) -> bool:
    """Whether an acquire may be what a row is about: by name, or whatever became of it."""
    if row.hold == NULL:
        same = acquire.owner == row.owner
    else:
        same = acquire.hold == row.hold and acquire.type != Type.FAIL
    before = acquire.invoke_ns - epsilon_ns <= row.complete_ns + epsilon_ns
    return acquire.f == F.ACQUIRE and acquire.key == row.key and same and before


def _lost(endings: list[Row], acquire: Row, *, reentrant: bool) -> int:
    """When the first loss of the hold or death of its client was told that came after the acquire
    was asked for. Whoever dies loses everything, whatever lock the death was recorded with."""
    first = FOREVER
    for row in endings:
        later = row.invoke_ns >= acquire.invoke_ns and row.key == acquire.key
        mine = later and row.hold != NULL and row.hold == acquire.hold
        if row.f == F.DEATH:
            mine |= row.process == acquire.process and row.invoke_ns >= acquire.invoke_ns
        elif row.hold == NULL or reentrant:
            mine |= later and row.owner == acquire.owner
        if mine:
            first = min(first, row.invoke_ns)
    return first
