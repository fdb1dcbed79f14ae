"""What objects do, one operation at a time: pure functions of a state and an operation.

``step(state, operation)`` returns the states in which the operation can leave the object *and* be
answered as it was; none if it cannot. States are hashable values. An unknown operation is asked for
its effect only: that it may also never happen is the search's affair.

Owner-aware models take the identity that the history offers (a hold id, an owner, a process), and
beside it the number of the grant, where grants end by themselves: the end of one must not be taken
for that of a later one of the same identity. A holder is a pair of both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

State = Hashable
Holder = tuple[int, int | None]  # identity, number of the grant
_Shared = tuple[Holder, int | None, bool]  # of a read-write lock: with its owner, whether it reads
Answer = Literal["ok", "info", "refused", "not-held", "expire"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation as a model sees it. ``answer``: ``ok``; ``info`` (unknown); ``refused`` and
    ``not-held`` are failures that say something about the state; ``expire`` is the end of a lease,
    which the service may enforce at any time from then on. ``owner`` may hold a read-write lock
    several times; ``certain`` is false for the lease of an unknown acquire."""

    f: str
    answer: Answer = "ok"
    who: int | None = None
    value: int | None = None
    old: int | None = None
    fence: int | None = None
    grant: int | None = None
    shared: bool = False
    owner: int | None = None
    certain: bool = True

    @property
    def holder(self) -> Holder:
        """Who holds after it."""
        return (-1 if self.who is None else self.who, self.grant)

    @property
    def observes(self) -> bool:
        """Whether it can never change the state, whatever the state is."""
        return self.f in {"read", "extend"} or self.answer in {"refused", "not-held"}


Step = Callable[[State, Operation], tuple[State, ...]]


@dataclass(frozen=True, slots=True)
class Model:
    """A named object: how it starts and what its operations do."""

    name: str
    initial: State
    step: Step


def mutex() -> Model:
    """Knossos' mutex: taken or free, whoever releases it."""

    def step(state: State, op: Operation) -> tuple[State, ...]:
        if op.f == "acquire":
            return ((state,) if state else ()) if op.answer == "refused" else _when(not state, True)
        if op.f == "release" and op.answer != "not-held":
            return _when(bool(state), False)
        return (state,)

    return Model("mutex", False, step)


def owner_mutex() -> Model:
    """A mutex that only its holder can release; with ``expire``, a lease."""

    def step(state: State, op: Operation) -> tuple[State, ...]:
        holder: Holder | None = state  # type: ignore[assignment]
        mine = holder is not None and holder[0] == op.who
        if op.f == "acquire":
            if op.answer == "refused":
                return _when(holder is not None, state)
            return _when(holder is None, op.holder)
        if op.answer == "not-held":
            return _when(not mine, state)
        if op.answer == "expire":
            return _when(holder == op.holder, None)
        return _when(mine, None if op.f == "release" else state)  # an extend proves the hold

    return Model("owner-mutex", None, step)


def fenced() -> Model:
    """An owner-aware mutex whose every known fence is above all earlier ones."""
    plain = owner_mutex().step

    def step(state: State, op: Operation) -> tuple[State, ...]:
        holder, last = state  # type: ignore[misc]
        if op.f == "acquire" and op.answer != "refused" and op.fence is not None:
            if last is not None and op.fence <= last:  # type: ignore[has-type]
                return ()
            last = op.fence
        return tuple((after, last) for after in plain(holder, op))  # type: ignore[has-type]

    return Model("fenced", (None, None), step)


def reentrant() -> Model:
    """An owner-aware mutex that its holder can acquire again; released as often as acquired."""

    def step(state: State, op: Operation) -> tuple[State, ...]:
        holder: Holder | None
        holder, depth = state  # type: ignore[misc]
        mine = holder is not None and holder[0] == op.who
        if op.f == "acquire":
            if op.answer == "refused":
                return _when(holder is not None and not mine, state)
            return _when(holder is None or mine, (holder or op.holder, depth + 1))  # type: ignore[has-type]
        if op.answer == "not-held":
            return _when(not mine, state)
        if op.answer == "expire":
            # Any level of this hold, none of an earlier one. A level that may never have been there
            # ends a hold only if it began it.
            began, grant = (holder[1] or 0) if holder is not None else 0, op.grant or 0
            over = mine and (grant >= began if op.certain else grant == began)
            return _when(over, (None, 0))
        if op.f == "release":
            left = depth - 1  # type: ignore[has-type]
            return _when(mine, (holder, left) if left else (None, 0))
        return _when(mine, state)

    return Model("reentrant", (None, 0), step)


def semaphore(permits: int) -> Model:
    """``permits`` holders at once; an identity may hold several."""

    def step(state: State, op: Operation) -> tuple[State, ...]:
        holders: tuple[Holder, ...] = state  # type: ignore[assignment]
        mine = any(who == op.who for who, _ in holders)
        if op.f == "acquire":
            if op.answer == "refused":
                return _when(len(holders) >= permits, state)
            return _when(len(holders) < permits, tuple(sorted((*holders, op.holder), key=str)))
        if op.answer == "not-held":
            return _when(not mine, state)
        if op.f == "release" or op.answer == "expire":
            return tuple(_without(holders, op))
        return _when(mine, state)

    return Model("semaphore", (), step)


def read_write() -> Model:
    """Readers together, or one owner who writes and may read beside it or enter again. The state
    are the holds: holder, owner, whether it only reads."""

    def step(state: State, op: Operation) -> tuple[State, ...]:
        holds: tuple[_Shared, ...] = state  # type: ignore[assignment]
        mine = any(holder[0] == op.who for holder, _, _ in holds)
        if op.f == "acquire":
            if op.answer == "refused":
                # His own hold may be in his way as well: not every lock lets him in again.
                return _when(any(not (reads and op.shared) for _, _, reads in holds), state)
            free = all((reads and op.shared) or owner == op.owner for _, owner, reads in holds)
            return _when(free, tuple(sorted((*holds, (op.holder, op.owner, op.shared)), key=str)))
        if op.answer == "not-held":
            return _when(not mine, state)
        if op.f == "release" or op.answer == "expire":
            return tuple(
                {
                    holds[:at] + holds[at + 1 :]
                    for at, (holder, _, _) in enumerate(holds)
                    if _ends(holder, op)
                }
            )
        return _when(mine, state)

    return Model("read-write", (), step)


def register(initial: int | None = None) -> Model:
    """A register with reads, writes and compare-and-set. A read of nothing matches any state."""

    def step(state: State, op: Operation) -> tuple[State, ...]:
        if op.f == "read":
            return _when(op.value is None or op.value == state, state)
        if op.f == "write":
            return (op.value,)
        if op.f == "cas":
            return _when(state == op.old, op.value)
        return ()

    return Model("register", initial, step)


def counter(initial: int | None = None) -> Model:
    """A number that amounts are added to."""

    def step(state: State, op: Operation) -> tuple[State, ...]:
        if op.f == "add":
            return (state + (op.value or 0),)  # type: ignore[operator]
        return _when(op.f == "read" and (op.value is None or op.value == state), state)

    return Model("counter", initial or 0, step)


def _when(possible: bool, state: State) -> tuple[State, ...]:
    return (state,) if possible else ()


def _without(holders: tuple[Holder, ...], op: Operation) -> set[tuple[Holder, ...]]:
    """What is left when one of the operation's holds ends: the very one, where it is its end."""
    return {
        holders[:at] + holders[at + 1 :] for at, holder in enumerate(holders) if _ends(holder, op)
    }


def _ends(holder: Holder, op: Operation) -> bool:
    """Whether a release or the end of a lease is one of this hold."""
    return holder == op.holder if op.answer == "expire" else holder[0] == op.who


def model_of(kind: str, permits: int | None, initial: int | None) -> Model:
    """The model of an object of a kind. Raises KeyError for a kind that is not known."""
    if kind == "semaphore":
        return semaphore(permits or 1)
    if kind in {"register", "cas-register"}:
        return register(initial)
    if kind == "counter":
        return counter(initial)
    return LOCKS[kind]()


LOCKS: Final[Mapping[str, Callable[[], Model]]] = {
    "ownerless": mutex,
    "mutex": owner_mutex,
    "owner-mutex": owner_mutex,
    "lease": owner_mutex,
    "fenced": fenced,
    "reentrant": reentrant,
    "read-write": read_write,
}
