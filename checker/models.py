"""What objects do, one operation at a time: pure functions of a state and an operation.

``step(state, operation)`` returns the states in which the operation can leave the object *and* be
answered as it was; none if it cannot. States are hashable values. An unknown operation is asked for
its effect only: that it may also never happen is the search's affair.

Owner-aware models take the identity that the history offers (a hold id, an owner, a process). A
hold remembers, beside it, which acquire or extend decides how long it lasts: whichever took effect
last. The end of a lease is that of one of them, so it ends no hold that was renewed since.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

State = Hashable
Answer = Literal["ok", "info", "refused", "not-held", "expire", "lose"]


class Holder(NamedTuple):
    """Who holds. ``lease`` numbers the acquire or extend whose time to live counts, ``entry`` the
    acquire whose loss does; None where nothing ends the hold. Those of unknown acquires, which
    nobody was told of, are negative."""

    who: int
    lease: int | None = None
    entry: int | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation as a model sees it. ``answer``: ``ok``; ``info`` (unknown); ``refused`` and
    ``not-held`` are failures that say something about the state; ``expire`` is the end of a lease
    and ``lose`` that of a session or a client, which the service may enforce at any time from then
    on. ``grant`` numbers an acquire, or an extend with a time to live; ``limited`` is whether it
    has one. ``owner`` may hold a read-write lock several times. ``asked``: how often an identity
    had asked for a lock that it was told not to hold."""

    f: str
    answer: Answer = "ok"
    who: int | None = None
    value: int | None = None
    old: int | None = None
    fence: int | None = None
    grant: int | None = None
    limited: bool = True
    shared: bool = False
    owner: int | None = None
    asked: int = 1

    @property
    def holder(self) -> Holder:
        """Who holds after it."""
        lease = self.grant if self.limited else None
        return Holder(-1 if self.who is None else self.who, lease, self.grant)

    @property
    def observes(self) -> bool:
        """Whether it can never change the state, whatever the state is."""
        if self.f == "extend":
            return self.grant is None
        return self.f == "read" or self.answer in {"refused", "not-held"}

    def renewed(self, holder: Holder) -> Holder:
        """A hold after it was extended."""
        return holder if self.grant is None else holder._replace(lease=self.grant)

    def ends(self, holder: Holder) -> bool:
        """Whether a release, or the end of a lease or session, is one of this hold."""
        if self.answer == "expire":
            return self.grant is not None and holder.lease == self.grant
        if self.answer == "lose":
            return self.grant is not None and holder.entry == self.grant
        return holder.who == self.who


def holders_in(state: State) -> Iterator[Holder]:
    """Every holder that a state mentions."""
    if isinstance(state, Holder):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from holders_in(part)


_Shared = tuple[Holder, int | None, bool]  # of a read-write lock: with its owner, whether it reads
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
    """A mutex that only its holder can release."""

    def step(state: State, op: Operation) -> tuple[State, ...]:
        holder: Holder | None = state  # type: ignore[assignment]
        mine = holder is not None and holder.who == op.who
        if op.f == "acquire":
            if op.answer == "refused":
                return _when(holder is not None, state)
            return _when(holder is None, op.holder)
        if op.answer == "not-held":
            return _when(not mine, state)
        if op.f == "extend":  # proves the hold
            return (op.renewed(holder),) if holder is not None and mine else ()
        return _when(holder is not None and op.ends(holder), None)

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
    """An owner-aware mutex that its holder can acquire again; released as often as acquired. Every
    entry that the owner was told of decides anew how long the hold lasts."""

    def step(state: State, op: Operation) -> tuple[State, ...]:
        holder: Holder | None
        holder, depth = state  # type: ignore[misc]
        mine = holder is not None and holder.who == op.who
        if op.f == "acquire":
            if op.answer == "refused":
                return _when(holder is not None and not mine, state)
            if holder is None:
                return ((op.holder, 1),)
            return _when(mine, (_entered(holder, op), depth + 1))  # type: ignore[has-type]
        if op.answer == "not-held":
            return _when(not mine, state)
        if holder is None or not op.ends(holder):
            return ()
        if op.f == "extend":
            return ((op.renewed(holder), depth),)  # type: ignore[has-type]
        left = depth - 1 if op.f == "release" else 0  # type: ignore[has-type]
        return ((holder, left) if left else (None, 0),)

    return Model("reentrant", (None, 0), step)


def _entered(holder: Holder, op: Operation) -> Holder:
    if op.answer == "info":
        return holder
    untold = holder.lease is not None and holder.lease < 0
    lease = op.grant if op.limited else None if untold else holder.lease
    return Holder(holder.who, lease, op.grant)


def semaphore(permits: int) -> Model:
    """``permits`` holders at once; an identity may hold several. Who has several and is told that
    one of them is gone may have meant one that is."""

    def step(state: State, op: Operation) -> tuple[State, ...]:
        holders: tuple[Holder, ...] = state  # type: ignore[assignment]
        if op.f == "acquire":
            if op.answer == "refused":
                return _when(len(holders) >= permits, state)
            return _when(len(holders) < permits, _together((*holders, op.holder)))
        if op.answer == "not-held":
            return _when(sum(holder.who == op.who for holder in holders) < op.asked, state)
        changed = op.renewed if op.f == "extend" else None
        return tuple(
            {
                _together(
                    (*holders[:at], *([changed(holder)] if changed else ()), *holders[at + 1 :])
                )
                for at, holder in enumerate(holders)
                if op.ends(holder)
            }
        )

    return Model("semaphore", (), step)


def read_write() -> Model:
    """Readers together, or one owner who writes and may read beside it or enter again. The state
    are the holds: holder, owner, whether it only reads."""

    def step(state: State, op: Operation) -> tuple[State, ...]:
        holds: tuple[_Shared, ...] = state  # type: ignore[assignment]
        if op.f == "acquire":
            if op.answer == "refused":
                # His own hold may be in his way as well: not every lock lets him in again.
                return _when(any(not (reads and op.shared) for _, _, reads in holds), state)
            free = all((reads and op.shared) or owner == op.owner for _, owner, reads in holds)
            return _when(free, _together((*holds, (op.holder, op.owner, op.shared))))
        if op.answer == "not-held":
            return _when(sum(holder.who == op.who for holder, _, _ in holds) < op.asked, state)
        return tuple(
            {
                _together((*holds[:at], *_extended(hold, op), *holds[at + 1 :]))
                for at, hold in enumerate(holds)
                if op.ends(hold[0])
            }
        )

    return Model("read-write", (), step)


def _extended(hold: _Shared, op: Operation) -> tuple[_Shared, ...]:
    holder, owner, reads = hold
    return ((op.renewed(holder), owner, reads),) if op.f == "extend" else ()


def _together(holds: tuple[State, ...]) -> tuple[State, ...]:
    """Holds in an order of their own, so that equal states are equal."""
    return tuple(sorted(holds, key=repr))


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
