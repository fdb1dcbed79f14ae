"""The general search for a linearization, after Wing & Gong and Lowe, bounded in time and memory.

It goes through the calls and returns of one object in the order of time and keeps the *frontier*:
every configuration that the answers up to now allow. A configuration is the state of the object,
the set of operations under way that took effect already, and how many unknown operations of each
sort were used up. When an operation returns, every configuration in which it has not taken effect
is extended by the operations under way until it has ("just in time", Lowe 2017); configurations in
which that is impossible die. The history is linearizable if and only if the frontier outlives it.

Three reductions keep the frontier small without changing the answer:

- an operation that never changes a state (a read, a refusal) takes effect as soon as it can: of two
  configurations that differ in such operations only, the one in which more of them has happened
  can do whatever the other can;
- so does an extend that changes nothing any more, because others at the same time set the
  shortest lease that it could have set (``lockbench.checker.calls``);
- unknown operations that do the same are interchangeable: only their number matters;
- the end of a lease ends the hold that it belongs to and no other, so it needs no count;
- of two configurations that differ in unknown operations only, one that used none that the other
  has not used can do whatever the other can.

Times are closed intervals: an operation that returns at the instant at which another is called is
concurrent with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Literal

import numpy as np

from lockbench.checker.models import Model, Operation, State, holders_in

FRONTIER_MAX: Final = 100_000  # configurations, some 200 bytes each
SECONDS_MAX: Final = 20.0
LOOK_AT_CLOCK: Final = 4096  # steps between two looks at the clock
COUNT_BITS: Final = 24  # per sort of unknown operation
COUNT_MASK: Final = (1 << (COUNT_BITS - 1)) - 1


@dataclass(frozen=True, slots=True)
class Call:
    """One operation of the object: its window in nanoseconds, ``end`` None for unknown ones."""

    operation: Operation
    begin: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Found:
    """``failed`` is the number of the operation that no configuration could explain, with those
    under way when it returned, and every state that was met."""

    result: Literal["valid", "invalid", "unknown"]
    reason: str
    failed: int = -1
    open_then: tuple[int, ...] = ()
    states: tuple[State, ...] = ()


class OverBudget(Exception):
    """The search gave up; the message says at which bound."""


class Budget:
    """The time of a search, to be asked for every few steps. Raises OverBudget once it is up."""

    __slots__ = ("_deadline", "_left")

    def __init__(self, seconds: float) -> None:
        self._deadline = perf_counter() + seconds
        self._left = LOOK_AT_CLOCK

    def spend(self, steps: int = 1) -> None:
        """Looks at the clock when enough steps were made."""
        self._left -= steps
        if self._left <= 0:
            self._left = LOOK_AT_CLOCK
            if perf_counter() > self._deadline:
                raise OverBudget("the time for this key was up")


def search(
    model: Model,
    calls: Sequence[Call],
    *,
    seconds_max: float = SECONDS_MAX,
    frontier_max: int = FRONTIER_MAX,
    initials: Sequence[State] | None = None,
    budget: Budget | None = None,
) -> Found:
    """Whether the calls of one object can be linearized, from the model's initial state or from any
    of those given. A ``budget`` that has begun already takes the place of ``seconds_max``."""
    try:
        run = _Search(model, calls, budget or Budget(seconds_max), frontier_max)
        failed = run.run(initials or (model.initial,))
    except OverBudget as bound:
        return Found("unknown", str(bound))
    if failed is None:
        return Found("valid", f"{len(calls)} operations linearized")
    under_way = tuple(run.under_way(failed))
    reason = "no order of effects explains it"
    return Found("invalid", reason, failed, under_way, run.states())


Config = tuple[int, int, int]  # state, operations under way that took effect, unknowns used up


class _Search:
    def __init__(
        self, model: Model, calls: Sequence[Call], budget: Budget, frontier_max: int
    ) -> None:
        self._calls = calls
        self._step = model.step
        self._frontier_max = frontier_max
        self._budget = budget
        self._states: dict[State, int] = {model.initial: 0}
        self._by_id: list[State] = [model.initial]
        # For every state, the states after each sort of operation.
        self._after: list[dict[int, tuple[int, ...]]] = [{}]
        self._sorts: list[Operation] = []
        self._sort = self._sorted()
        self._observes = [operation.observes for operation in self._sorts]
        self._open: dict[int, int] = {}  # call under way → its bit
        self._bits: list[int] = []  # free bits
        self._unknown: dict[int, int] = {}  # sort of unknown operation → how many were called
        self._field: dict[int, int] = {}  # … → where its count stands
        self._guard = 0  # the highest bit of every count, never used by one
        self._over: set[int] = set()  # sorts of leases and sessions that may be over by now
        # By number of the grant, and per state those that end one of its holds.
        self._ends: dict[int | None, list[int]] = {}
        for sort, operation in enumerate(self._sorts):
            if operation.f == "expire":
                self._ends.setdefault(operation.grant, []).append(sort)
        self._ending: dict[int, list[int]] = {}

    def _sorted(self) -> list[int]:
        known: dict[Operation, int] = {}
        sorts = []
        for call in self._calls:
            self._budget.spend()
            number = known.setdefault(call.operation, len(known))
            if number == len(self._sorts):
                self._sorts.append(call.operation)
            sorts.append(number)
        return sorts

    def states(self) -> tuple[State, ...]:
        """Every state that was met."""
        return tuple(self._by_id)

    def run(self, initials: Sequence[State]) -> int | None:
        """The first call that cannot be explained, or None."""
        frontier: set[Config] = {(self._number(state), 0, 0) for state in initials}
        calls = self._calls
        ended = [i for i, call in enumerate(calls) if call.end is not None]
        times = np.array([call.begin for call in calls] + [calls[i].end for i in ended], np.int64)
        # At one instant, what is called comes before what returns.
        order: list[int] = np.argsort(times, kind="stable").tolist()
        for event in order:
            self._budget.spend()
            returns = event >= len(calls)
            i = ended[event - len(calls)] if returns else event
            if returns:
                frontier = self._return(frontier, i)
                if not frontier:
                    return i
            elif calls[i].operation.f == "expire":
                self._over.add(self._sort[i])
            elif calls[i].end is None:
                sort = self._sort[i]
                self._unknown[sort] = self._unknown.get(sort, 0) + 1
                if sort not in self._field:
                    self._field[sort] = COUNT_BITS * len(self._field)
                    self._guard |= 1 << (self._field[sort] + COUNT_BITS - 1)
            else:
                bit = self._bits.pop() if self._bits else 1 << len(self._open)
                self._open[i] = bit
        return None

    def under_way(self, failed: int) -> list[int]:
        """The calls that were under way when a call returned."""
        return [i for i in self._open if i != failed]

    def _return(self, frontier: set[Config], i: int) -> set[Config]:
        bit = self._open[i]
        done: set[Config] = set()
        todo: list[Config] = []
        self._budget.spend(len(frontier))
        for config in frontier:
            if config[1] & bit:
                done.add((config[0], config[1] & ~bit, config[2]))
            else:
                todo.append(config)
        if todo:
            self._extend(todo, i, bit, done)
        del self._open[i]
        self._bits.append(bit)
        if len(done) > 1 and self._unknown:
            done = self._minimal(done)
        if len(done) > self._frontier_max:
            raise OverBudget(f"more than {self._frontier_max} configurations at once")
        return done

    def _extend(self, todo: list[Config], target: int, bit: int, done: set[Config]) -> None:
        """Extends configurations by whatever is under way until ``target`` has taken effect."""
        goal = self._sort[target]
        others = [(b, self._sort[i]) for i, b in self._open.items() if b != bit]
        watching = [(b, sort) for b, sort in others if self._observes[sort]]
        others = [(b, sort) for b, sort in others if not self._observes[sort]]
        renewing = [(b, sort) for b, sort in others if self._sorts[sort].f == "extend"]
        seen: dict[tuple[int, int], list[int]] = {}
        for state, mask, used in todo:
            seen.setdefault((state, mask), []).append(used)
        # First in, first out: configurations that used fewer unknowns come first and prune more.
        queue = deque(todo)
        while queue:
            state, mask, used = queue.popleft()
            self._budget.spend(1 + len(others))
            if len(seen) > self._frontier_max:
                raise OverBudget(f"more than {self._frontier_max} configurations at once")
            for its_bit, sort in watching:
                if not mask & its_bit and self._next(state, sort):
                    mask |= its_bit  # at once: nothing is lost by it
            for its_bit, sort in renewing:
                if not mask & its_bit and self._next(state, sort) == (state,):
                    mask |= its_bit
            afters = self._next(state, goal)
            done.update((after, mask, used) for after in afters)
            if afters and self._observes[goal]:
                continue
            for config in self._branches(state, mask, used, others):
                if self._is_new(config, seen):
                    queue.append(config)

    def _branches(
        self, state: int, mask: int, used: int, others: list[tuple[int, int]]
    ) -> list[Config]:
        """What may happen next beside the operation that is due."""
        found: list[Config] = []
        for its_bit, sort in others:
            if not mask & its_bit:
                found.extend((after, mask | its_bit, used) for after in self._next(state, sort))
        for sort in self._ends_of(state) if self._ends else ():
            if sort in self._over:
                found.extend((after, mask, used) for after in self._next(state, sort))
        for sort, called in self._unknown.items():
            field = self._field[sort]
            if (used >> field) & COUNT_MASK < called:
                more = used + (1 << field)
                afters = self._next(state, sort)
                found.extend((after, mask, more) for after in afters if after != state)
        return found

    def _ends_of(self, state: int) -> list[int]:
        """The ends of leases and sessions that would end a hold of a state."""
        known = self._ending.get(state)
        if known is None:
            numbers = {n for h in holders_in(self._by_id[state]) for n in (h.lease, h.entry)}
            sorts = (sort for n in numbers - {None} for sort in self._ends.get(n, ()))
            known = self._ending[state] = [sort for sort in sorts if self._next(state, sort)]
        return known

    def _is_new(self, config: Config, seen: dict[tuple[int, int], list[int]]) -> bool:
        """Notes a configuration unless one was seen that can do whatever it can."""
        state, mask, used = config
        useds = seen.get((state, mask))
        if useds is None:
            seen[state, mask] = [used]
            return True
        self._budget.spend(len(useds))
        if used in useds or (self._unknown and any(self._within(u, used) for u in useds)):
            return False
        useds.append(used)
        return True

    def _within(self, small: int, large: int) -> bool:
        """Whether every count of one is at most that of the other: subtracting them field by field
        borrows from no guard bit."""
        guard = self._guard
        return ((large | guard) - small) & guard == guard

    def _minimal(self, configs: set[Config]) -> set[Config]:
        """Without those that used more unknown operations than another that is the same else."""
        groups: dict[tuple[int, int], list[int]] = {}
        for state, mask, used in configs:
            groups.setdefault((state, mask), []).append(used)
        if len(groups) == len(configs):
            return configs
        return {
            (state, mask, used)
            for (state, mask), useds in groups.items()
            for used in (useds if len(useds) == 1 else self._least(useds))
        }

    def _least(self, useds: list[int]) -> list[int]:
        least: list[int] = []
        for used in sorted(useds, key=int.bit_count):
            self._budget.spend(1 + 2 * len(least))
            least = [u for u in least if not self._within(used, u)]
            if not any(self._within(small, used) for small in least):
                least.append(used)
        return least

    def _next(self, state: int, sort: int) -> tuple[int, ...]:
        known = self._after[state].get(sort)
        if known is None:
            afters = self._step(self._by_id[state], self._sorts[sort])
            known = self._after[state][sort] = tuple(self._number(after) for after in afters)
        return known

    def _number(self, state: State) -> int:
        number = self._states.get(state)
        if number is None:
            number = self._states[state] = len(self._by_id)
            self._by_id.append(state)
            self._after.append({})
        return number
