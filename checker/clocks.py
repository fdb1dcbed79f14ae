"""The clocks of a history of several machines: where they place its operations, and how surely.

A history keeps the times of each machine as its own clock showed them. ``Clocks`` puts them on the
clock of the resource, by the middle of each machine's bounds (``lockbench.checker.bounds``), and
says what is certain whatever the clocks were:

- The *certain part* of a promise is from the latest that it can have begun to the earliest that it
  can have ended, by the bounds at these two times.
- An operation of the resource that was invoked and completed inside a promise, by one clock, is a
  moment on the resource's clock inside this promise: a *referee stamp*. All of them are in its
  certain part, without a rule of their own: at the invocation the offset is at most applied -
  invoke, and no later time of a clock is an earlier time of the resource, so that the promise began
  at the latest when it was applied. Likewise it ended then at the earliest.

All times are nanoseconds. The machine -1 is the clock of the resource itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.bounds import ANY_NS, Bounds
from lockbench.checker.intervals import ByKey
from lockbench.checker.rows import FOREVER, Bools
from lockbench.history.columns import History, Ids, Ints
from lockbench.history.op import INT_MAX, NULL, Fault

TIMES: Final = ("invoke_ns", "intended_ns", "complete_ns", "sent_ns", "valid_until_ns")
Offset = Callable[[int, Ints], Ints]  # of a machine at local times


@dataclass(frozen=True)
class Clocks:
    """``recorded`` has the times as they were recorded, ``placed`` on the clock of the resource;
    the rows of both are in the order of the latter."""

    recorded: History
    placed: History
    bounds: dict[int, Bounds]

    @staticmethod
    def of(history: History) -> Clocks:
        """``history`` names machines."""
        assert history.machine is not None
        stated = history.epsilon_ns or ANY_NS
        rows = ByKey(history.machine + 1)
        bounds = {m: Bounds.of(history, rows[m + 1], stated) for m in range(len(history.machines))}
        bounds[-1] = Bounds.of(history, rows[0], 0)
        faults = tuple(_on_resource(fault, history, bounds) for fault in history.faults)
        history = replace(history, faults=faults, epsilon_ns=0)
        placed = shifted(history, lambda machine, at: bounds[machine].middle(at))
        order = np.argsort(placed.invoke_ns, kind="stable")
        return Clocks(history.only(order), placed.only(order), bounds)

    @property
    def machine(self) -> Ids:
        assert self.recorded.machine is not None
        return self.recorded.machine

    def name(self, machine: int) -> str:
        return "the resource" if machine < 0 else f"machine {self.recorded.machines[machine]}"

    @cached_property
    def _rows(self) -> ByKey:
        """Those of each machine, counted from 1."""
        return ByKey(self.machine + 1)

    def contradiction(self) -> str | None:
        """A sentence about a clock that no offset explains."""
        for machine, bounds in self.bounds.items():
            at = bounds.contradiction_ns
            if at is not None:
                since = (at - int(self.recorded.invoke_ns[self._rows[machine + 1]].min())) / 1e9
                within = "" if bounds.stated_ns == ANY_NS else ", or is not within its epsilon_ns"
                return (
                    f"{self.name(machine)}'s clock contradicts itself at {since:.1f} s: "
                    f"it jumped or was suspended{within}"
                )
        return None

    @cached_property
    def shared(self) -> Bools:
        """The keys that more than one machine used."""
        used = np.unique(np.stack([self.recorded.key, self.machine]), axis=1)[0]
        return np.bincount(used, minlength=len(self.recorded.keys)) > 1

    @cached_property
    def local(self) -> Analysis:
        """Everything by the clock of its own machine: a hold is on one."""
        return Analysis.of(self.recorded)

    def at(self, machines: Ids, times_ns: Ints, which: str) -> Ints:
        """``low``, ``middle``, ``high`` or ``half_width`` of the bounds of these machines at their
        local times."""
        found = np.zeros(len(times_ns), np.int64)
        places = ByKey(machines + 1)
        for present in places.present():
            mine = places[present]
            found[mine] = getattr(self.bounds[present - 1], which)(times_ns[mine])
        return found

    @cached_property
    def epsilon_ns(self) -> int:
        """By how much a time of ``curtailed`` may be wrong at most."""
        worst = 0
        for present in self._rows.present():
            rows, machine = self._rows[present], present - 1
            done, until = self.recorded.complete_ns[rows], self.recorded.valid_until_ns[rows]
            last = self._last_ns(machine)
            until = np.minimum(until[until != NULL], last)
            at = [self.recorded.invoke_ns[rows], done[done != NULL], until, [last]]
            widths = self.bounds[machine].half_width(np.concatenate(at))
            worst = max(worst, int(widths.max()))
        return worst

    @cached_property
    def _end_ns(self) -> int:
        placed = self.placed
        columns = (placed.invoke_ns, placed.complete_ns, placed.applied_ns)
        return max(int(column.max(initial=NULL)) for column in columns)

    def _last_ns(self, machine: int) -> int:
        """When the history ends, on the clock of a machine."""
        rows = self._rows[machine + 1]
        times = (self.recorded.invoke_ns[rows], self.recorded.complete_ns[rows])
        last = max(int(column.max()) for column in times)
        offset = int(self.bounds[machine].middle(np.array([last]))[0])
        return max(last, self._end_ns - offset)

    @cached_property
    def curtailed(self) -> History:
        """``placed`` with what clocks are wrong by as ε. Leases end with the history, because how
        wrong a clock is later is not known as well."""
        until = self.recorded.valid_until_ns
        if until.strides[0]:
            until = until.copy()
            for present in self._rows.present():
                rows = self._rows[present]
                until[rows] = np.minimum(until[rows], self._last_ns(present - 1))
        short = shifted(
            replace(self.recorded, valid_until_ns=until), lambda m, at: self.bounds[m].middle(at)
        )
        return replace(short, epsilon_ns=self.epsilon_ns)

    @cached_property
    def certain(self) -> tuple[Ints, Ints]:
        """The certain part of each promise, on the clock of the resource: from, to. Nothing is
        certain unless from <= to."""
        promises = self.local.promises
        machine = self.machine[promises.row]
        latest = promises.start + self.at(machine, promises.start, "high")
        until = np.minimum(promises.end, INT_MAX)
        earliest = until + self.at(machine, until, "low")
        earliest[promises.end >= FOREVER] = FOREVER
        return latest, earliest


def on_one_clock(history: History) -> History:
    """The history as verdicts name its rows and times."""
    return history if history.machine is None else Clocks.of(history).placed


def at_least(history: History) -> History:
    """The history on the clock of the resource, with what the clocks are wrong by as ε: what it
    shows to have been at the same time was so."""
    return history if history.machine is None else Clocks.of(history).curtailed


def shifted(history: History, offset: Offset) -> History:
    """The history on the clock of the resource, its rows as they are."""
    assert history.machine is not None
    columns = {name: getattr(history, name) for name in TIMES}
    # All times of a machine at once: of a thousand machines each has few.
    if len(history) == 0:
        return replace(history, machine=None, machines=())
    times = np.concatenate([column for column in columns.values() if column.strides[0]])
    machine = np.tile(history.machine, len(times) // max(1, len(history)))
    known = np.flatnonzero(times != NULL)
    places = ByKey(machine[known] + 1, known)
    for present in places.present():
        at = places[present]
        times[at] += offset(present - 1, times[at])
    times[known] = np.clip(times[known], -INT_MAX, INT_MAX)
    moved: Any = {}
    for name, column in columns.items():
        if column.strides[0]:
            moved[name], times = times[: len(history)], times[len(history) :]
    return replace(history, machine=None, machines=(), **moved)


def _on_resource(fault: Fault, history: History, bounds: dict[int, Bounds]) -> Fault:
    """A fault on the clock of the resource: it began and healed somewhere in what bounds leave."""
    if fault.machine is None or fault.machine not in history.machines:
        return replace(fault, machine=None)
    mine = bounds[history.machines.index(fault.machine)]

    def wide(interval: tuple[int, int]) -> tuple[int, int]:
        first, last = np.array(interval[:1]), np.array(interval[1:])
        return int((first + mine.low(first))[0]), int((last + mine.high(last))[0])

    heal = None if fault.heal_ns is None else wide(fault.heal_ns)
    return replace(fault, machine=None, begin_ns=wide(fault.begin_ns), heal_ns=heal)
