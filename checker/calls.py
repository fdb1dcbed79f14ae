"""From the columns of one key to the calls that the general search takes.

Failures are left out, because they certainly had no effect, unless they say something about the
state: ``not-held``, and ``held`` where the lock declares strict tries. The end of a lease, a loss
and a death become an operation of their own, unknown from that instant on: the service may take the
lock away then, later, or never. Windows are widened by ε, and leases end earlier by it. How long
the lease of an unknown acquire lasts nobody was told: it may be over at any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.kinds import OWNERLESS, RESOURCES, SHARED
from lockbench.checker.models import Answer, Operation
from lockbench.checker.promises import limits, losses
from lockbench.checker.rows import FOREVER, Rows, answered_ns, owners, rows_of
from lockbench.checker.search import Budget, Call
from lockbench.history.columns import Ints
from lockbench.history.op import NULL, F, Mode, Type

RESOURCE_OPERATIONS: Final = frozenset({F.READ, F.WRITE, F.CAS, F.ADD})
LOCK_OPERATIONS: Final = frozenset({F.ACQUIRE, F.RELEASE, F.EXTEND})
ALMOST_FOREVER: Final = FOREVER // 2  # no time of an operation, even with an ε taken off a limit


def calls_of(analysis: Analysis, key: int, kind: str) -> tuple[list[Call], list[int]]:
    """The calls on one key and the row each of them comes from."""
    return Calls(analysis).key(key, kind, np.flatnonzero(analysis.history.key == key))


class Calls:
    """Makes the calls of many keys. What is the same for all of them is worked out once."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._links = analysis.links

    def key(
        self, key: int, kind: str, rows: Rows, budget: Budget | None = None
    ) -> tuple[list[Call], list[int]]:
        """The calls on one key, given its rows, and the row each of them comes from. Raises
        OverBudget."""
        budget = budget or Budget(FOREVER)
        if kind in RESOURCES:
            return _resource_calls(self._analysis, rows, budget)
        return self._lock_calls(rows, kind, key, budget)

    @cached_property
    def _owners(self) -> Ints:
        return owners(self._analysis.history)

    @cached_property
    def _limits(self) -> Ints:
        """For every acquire and acknowledged extend: from when on the lease that it began may be
        over. ε is taken off."""
        return limits(self._analysis.history) - self._analysis.history.epsilon_ns

    @cached_property
    def _losses(self) -> Ints:
        """For every acquire: from when on its session or client may be gone. ε is taken off."""
        history = self._analysis.history
        acquires = rows_of(history, F.ACQUIRE, Type.OK, Type.INFO)
        found = np.full(len(history), FOREVER, np.int64)
        found[acquires] = losses(history, self._links, acquires)
        return found - history.epsilon_ns

    def _lock_calls(
        self, rows: Rows, kind: str, key: int, budget: Budget
    ) -> tuple[list[Call], list[int]]:
        analysis, links, history = self._analysis, self._links, self._analysis.history
        strict = history.object_of(history.keys[key]).strict_try
        names: dict[tuple[str, int], int] = {}
        asked: dict[int, list[int]] = {}  # identity → when it asked for the lock

        def who(row: int) -> int | None:
            if kind == OWNERLESS:
                return None
            # What was done without a hold's name belongs to the acquire that it was done under.
            acquire = int(links.acquire[row])
            hold = int(history.hold[row if acquire < 0 else acquire])
            by_owner = kind == "reentrant" or hold == NULL
            name = ("owner", int(self._owners[row])) if by_owner else ("hold", hold)
            return names.setdefault(name, len(names))

        def often(row: int, identity: int | None) -> int:
            """How often an identity had asked for the lock by the end of an operation."""
            by = int(history.complete_ns[row]) + 2 * history.epsilon_ns
            return max(1, bisect_right(asked.get(-1 if identity is None else identity, []), by))

        several = kind in SHARED
        if several:
            for row in rows[history.f[rows] == F.ACQUIRE].tolist():
                # One that was refused under a name is no hold that a not-held could be about.
                if history.type[row] != Type.FAIL or history.hold[row] == NULL:
                    asked.setdefault(who(row) or 0, []).append(int(history.invoke_ns[row]))
        ends = kind != OWNERLESS
        shortest = self._shortest(rows, who, kind) if ends else {}
        calls, where = [], []
        for row in rows.tolist():
            budget.spend()
            f = F(int(history.f[row]))
            if f not in LOCK_OPERATIONS:
                continue
            answer = _answer(analysis, row, f, strict=strict)
            if answer is None:
                continue
            acquires, identity = f is F.ACQUIRE, who(row)
            granted = answer in {"ok", "info"} and f is not F.RELEASE
            limit = int(self._limits[row]) if ends and granted else FOREVER
            loss = int(self._losses[row]) if ends and acquires and granted else FOREVER
            limited, lost = limit < ALMOST_FOREVER, loss < ALMOST_FOREVER
            number = row if answer == "ok" else ~row
            operation = Operation(
                f.word,
                answer,
                identity,
                fence=_number(int(history.fence[row])) if kind == "fenced" and acquires else None,
                grant=shortest.get(row, number) if limited or lost else None,
                limited=limited,
                shared=bool(history.mode[row] == Mode.READ) and acquires,
                owner=int(self._owners[row]) if kind == "read-write" and acquires else None,
                asked=often(row, identity) if several and answer == "not-held" else 1,
            )
            calls.append(_call(analysis, row, operation))
            where.append(row)
            ended: list[tuple[Answer, int]] = [("expire", limit)] if limited else []
            ended += [("lose", loss)] if lost else []
            for end, at in ended:
                calls.append(Call(Operation("expire", end, grant=number), at, None))
                where.append(row)
        return calls, where

    def _shortest(self, rows: Rows, who: Callable[[int], int | None], kind: str) -> dict[int, int]:
        """For extends of one hold that are all at the same time, so that any may be the last: the
        one with the shortest lease, which allows everything that the others do. Where only
        neighbours overlap, not every order is possible, and nothing is said; nor where the identity
        may have another hold, which one of them may be about."""
        history, width = self._analysis.history, 2 * self._analysis.history.epsilon_ns
        extends = rows[(history.f[rows] == F.EXTEND) & (history.type[rows] == Type.OK)]
        extends = extends[history.valid_until_ns[extends] != NULL]
        groups: dict[int | None, list[list[int]]] = {}
        for row in extends.tolist():
            mine = groups.setdefault(who(row), [[]])
            ended = max((int(history.complete_ns[other]) for other in mine[-1]), default=FOREVER)
            if history.invoke_ns[row] - width > ended:
                mine.append([])
            mine[-1].append(row)
        acquires = rows[(history.f[rows] == F.ACQUIRE) & (history.type[rows] != Type.FAIL)]
        asked: dict[int | None, list[int]] = {}
        for row in acquires.tolist():
            asked.setdefault(who(row), []).append(row)
        found: dict[int, int] = {}
        for identity, group in ((one, group) for one, mine in groups.items() for group in mine):
            together = max(history.invoke_ns[group]) <= min(history.complete_ns[group]) + width
            if len(group) < 2 or not together:
                continue
            theirs = np.array(asked.get(identity, ()), np.intp)
            meets = history.invoke_ns[theirs] - width <= max(history.complete_ns[group])
            meets &= answered_ns(history, theirs) + width >= min(history.invoke_ns[group])
            if not meets.any() and (kind not in SHARED or len(theirs) < 2):
                shortest = min(group, key=lambda row: int(self._limits[row]))
                found |= dict.fromkeys(group, shortest)
        return found


def _resource_calls(analysis: Analysis, rows: Rows, budget: Budget) -> tuple[list[Call], list[int]]:
    history = analysis.history
    calls, where = [], []
    for row in rows.tolist():
        budget.spend()
        f, outcome = F(int(history.f[row])), int(history.type[row])
        known = outcome == Type.OK
        if f not in RESOURCE_OPERATIONS or outcome == Type.FAIL or (f is F.READ and not known):
            continue
        operation = Operation(
            f.word,
            "ok" if known else "info",
            value=_number(int(history.value[row])),
            old=_number(int(history.old[row])),
        )
        calls.append(_call(analysis, row, operation))
        where.append(row)
    return calls, where


def _answer(analysis: Analysis, row: int, f: F, *, strict: bool) -> Answer | None:
    """How a lock operation is judged; None where it says nothing."""
    outcome = int(analysis.history.type[row])
    if outcome == Type.OK:
        return "ok"
    if outcome == Type.INFO:
        return None if f is F.EXTEND else "info"
    if analysis.links.not_held[row] and f is not F.ACQUIRE:
        return "not-held"
    return "refused" if strict and analysis.links.held[row] and f is F.ACQUIRE else None


def _call(analysis: Analysis, row: int, operation: Operation) -> Call:
    history = analysis.history
    epsilon = history.epsilon_ns
    end = None if history.type[row] == Type.INFO else int(history.complete_ns[row]) + epsilon
    return Call(operation, int(history.invoke_ns[row]) - epsilon, end)


def _number(value: int) -> int | None:
    return None if value == NULL else value
