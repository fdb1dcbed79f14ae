"""Offsets of several clocks under which holds exclude each other: by linear programs.

In which order two rival holds were is given (``lockbench.checker.rivals``). Then everything that
offsets have to fulfil is linear in them: the bounds of each clock, and for each pair that the first
had ended when the second began. An offset is a line or a chain of lines over local time, as steep
as a clock may drift at most. Of all that fulfil everything those are taken that leave the most time
between two rivals. Only what is violated is ever put into the program (cutting planes, Kelley, J.
SIAM 8, 1960), so it stays small however long the history is.

Offsets are floored to whole nanoseconds. That keeps every condition, because local times are whole:
from x <= y + n follows floor(x) <= floor(y) + n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lockbench.checker.bounds import ANY_NS, PER_DRIFT
from lockbench.checker.clocks import Clocks, Offset
from lockbench.checker.rivals import Holds, Rivals
from lockbench.checker.rows import Bools, Rows
from lockbench.history.columns import Ids, Ints

CHAINS: Final = (1, 8)  # lines in a chain, in the order in which they are tried
ROUNDS: Final = 60
SECONDS_MAX: Final = 5.0  # of one program; none takes nearly as long
PARTS: Final = 8  # of the time of a machine, or of a pair of them; the worst of each is taken
AMPLE_NS: Final = 1_000_000  # more time between rivals than this is not asked for
TINY_NS: Final = 1e-3

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Chain:
    """The variables of each machine: offsets relative to ``base`` at ``lines`` + 1 times."""

    lines: int
    base: dict[int, int]
    number: dict[int, int]  # of each machine among the variables; the resource has none
    from_ns: Ints
    step_ns: Ints

    @staticmethod
    def over(holds: Holds, clocks: Clocks, base: dict[int, int], lines: int) -> _Chain:
        machines = [machine for machine in base if machine >= 0]
        first, last = [], []
        for machine in machines:
            mine = holds.machine == machine
            times = np.concatenate([holds.start[mine], clocks.bounds[machine].probed_ns])
            first.append(int(times.min()))
            last.append(int(times.max()))
        step = (np.array(last, np.int64) - np.array(first, np.int64)) // lines + 1
        number = {machine: at for at, machine in enumerate(machines)}
        return _Chain(lines, base, number, np.array(first, np.int64), step)

    @property
    def variables(self) -> int:
        return len(self.number) * (self.lines + 1)

    def weights(self, machines: Ids, times_ns: Ints) -> tuple[Rows, Floats]:
        """For each local time: the first of the two variables between which it lies (-1 for the
        resource), and how much the second weighs."""
        place = np.full(max(self.base) + 2, -1, np.intp)
        for machine, number in self.number.items():
            place[machine + 1] = number
        numbers = place[machines + 1]
        mine = np.maximum(numbers, 0)
        if not len(self.number):
            return np.full(len(times_ns), -1, np.intp), np.zeros(len(times_ns))
        since = (times_ns - self.from_ns[mine]) / self.step_ns[mine]
        since = np.clip(since, 0, self.lines)
        line = np.minimum(since.astype(np.intp), self.lines - 1)
        first = np.where(numbers < 0, -1, mine * (self.lines + 1) + line)
        return first, since - line

    def at(self, found: Floats, machines: Ids, times_ns: Ints) -> Floats:
        """Relative offsets."""
        first, weight = self.weights(machines, times_ns)
        known = np.append(found, [0.0, 0.0])
        offset: Floats = known[first] * (1 - weight) + known[first + 1] * weight
        offset[first < 0] = 0.0
        return offset


@dataclass(frozen=True)
class _Conditions:
    """``sign[0] * offset(machine[0], at[0]) + sign[1] * offset(machine[1], at[1]) <= most``, with
    relative offsets. ``apart``: the time between two rivals is to be left over. ``group``: of each
    the worst is put into the program."""

    machine: tuple[Ids, Ids]
    at_ns: tuple[Ints, Ints]
    sign: tuple[int, int]
    most: Floats
    apart: bool
    group: Ints

    def left(self, chain: _Chain, found: Floats) -> Floats:
        total = -self.most
        for machine, at, sign in zip(self.machine, self.at_ns, self.sign, strict=True):
            if sign:
                total = total + sign * chain.at(found, machine, at)
        return -total

    def worst(self, left: Floats) -> Rows:
        """The most violated of each group."""
        wrong = np.flatnonzero(left < -TINY_NS)
        order = wrong[np.lexsort((left[wrong], self.group[wrong]))]
        first = np.ones(len(order), np.bool_)
        first[1:] = self.group[order][1:] != self.group[order][:-1]
        worst: Rows = order[first]
        return worst


def explaining(holds: Holds, found: Rivals, p_first: Bools, clocks: Clocks) -> Offset | None:
    """Offsets within the bounds under which the rivals are in this order, or None where none were
    found."""
    if np.any(found.impossible):
        return None
    for lines in CHAINS:
        chain = _Chain.over(holds, clocks, found.base, lines)
        conditions = [*_of_probes(clocks, chain), _of_rivals(holds, found, p_first, chain)]
        solved = _solve(chain, conditions, clocks)
        if solved is not None:
            return _offset(chain, solved, clocks)
    return None


def _offset(chain: _Chain, solved: Floats, clocks: Clocks) -> Offset:
    def offset(machine: int, times_ns: Ints) -> Ints:
        if machine not in chain.base:  # it holds nothing that anybody rivals for
            return clocks.bounds[machine].middle(times_ns)
        machines = np.full(len(times_ns), machine, np.int32)
        relative = np.floor(chain.at(solved, machines, times_ns) + TINY_NS)
        return chain.base[machine] + relative.astype(np.int64)

    return offset


def _of_probes(clocks: Clocks, chain: _Chain) -> list[_Conditions]:
    """That offsets are within the bounds wherever these are close."""
    machines, times, low, high = [], [], [], []
    for machine in chain.number:
        bounds, base = clocks.bounds[machine], chain.base[machine]
        at = bounds.probed_ns
        machines.append(np.full(len(at), machine, np.int32))
        times.append(at)
        low.append(bounds.low(at) - base)
        high.append(bounds.high(at) - base)
    if not machines:
        return []
    several, at = np.concatenate(machines), np.concatenate(times)
    group = _parts(several.astype(np.int64), at)
    both = ((1, np.concatenate(high)), (-1, -np.concatenate(low)))
    return [
        _Conditions((several, several), (at, at), (sign, 0), most.astype(np.float64), False, group)
        for sign, most in both
    ]


def _of_rivals(holds: Holds, found: Rivals, p_first: Bools, chain: _Chain) -> _Conditions:
    """That the first of each two had ended when the second began."""
    apart = holds.machine[found.p] != holds.machine[found.q]
    one = np.where(p_first, found.p, found.q)[apart]
    two = np.where(p_first, found.q, found.p)[apart]
    fixed = np.zeros(max(chain.base) + 2, np.int64)
    for machine, base in chain.base.items():
        fixed[machine + 1] = base
    a, b = holds.machine[one], holds.machine[two]
    most = (holds.start[two] + fixed[b + 1]) - (holds.end[one] + fixed[a + 1])
    pair = (a.astype(np.int64) + 1) * (max(chain.base) + 2) + b + 1
    return _Conditions(
        (a, b),
        (holds.end[one], holds.start[two]),
        (1, -1),
        most.astype(np.float64),
        True,
        _parts(pair, holds.start[two]),
    )


def _parts(group: Ints, at_ns: Ints) -> Ints:
    """Each group cut into parts by time."""
    if len(at_ns) == 0:
        return group
    order = np.lexsort((at_ns, group))
    first = np.searchsorted(group[order], group[order], side="left")
    size = np.searchsorted(group[order], group[order], side="right") - first
    part = np.empty(len(group), np.int64)
    part[order] = (np.arange(len(order)) - first) * PARTS // size
    return group * PARTS + part


def _solve(chain: _Chain, conditions: list[_Conditions], clocks: Clocks) -> Floats | None:
    """The variables, or None where no values fulfil the conditions or none were found."""
    limits = _limits(chain, clocks)
    rows: list[dict[int, float]] = []
    most: list[float] = []
    spare = chain.variables  # the variable that stands for the time between rivals
    _steepness(chain, rows, most)
    values: Floats = np.zeros(chain.variables)
    for _ in range(ROUNDS):
        added = _add_worst(chain, conditions, values, (rows, most, spare))
        if not added:
            return values
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

        size = [len(row) for row in rows]
        column = np.array([variable for row in rows for variable in row])
        weight = np.array([weight for row in rows for weight in row.values()])
        at = np.repeat(np.arange(len(rows)), size)
        matrix = csr_array((weight, (at, column)), shape=(len(rows), spare + 1))
        goal = np.zeros(spare + 1)
        goal[spare] = -1.0
        solved = linprog(  # type: ignore[call-overload]
            goal, A_ub=matrix, b_ub=most, bounds=limits, options={"time_limit": SECONDS_MAX}
        )
        if solved.status != 0:
            return None
        values = solved.x[:spare]
    return None


def _limits(chain: _Chain, clocks: Clocks) -> list[tuple[float | None, float | None]]:
    """What is said of each clock, and how much time between rivals is asked for."""
    limits: list[tuple[float | None, float | None]] = []
    for machine in chain.number:
        stated, base = clocks.bounds[machine].stated_ns, chain.base[machine]
        said = (None, None) if stated == ANY_NS else (-stated - base, stated - base)
        limits += [said] * (chain.lines + 1)
    return [*limits, (0.0, float(AMPLE_NS))]


def _steepness(chain: _Chain, rows: list[dict[int, float]], most: list[float]) -> None:
    """No line is steeper than a clock may drift."""
    for number, step in enumerate(chain.step_ns.tolist()):
        for line in range(chain.lines):
            at = number * (chain.lines + 1) + line
            for sign in (1.0, -1.0):
                rows.append({at: sign, at + 1: -sign})
                most.append(step / PER_DRIFT)


def _add_worst(
    chain: _Chain,
    conditions: list[_Conditions],
    values: Floats,
    program: tuple[list[dict[int, float]], list[float], int],
) -> bool:
    """Puts what is violated most into the program; False where nothing is violated."""
    rows, most, spare = program
    added = False
    for some in conditions:
        worst = some.worst(some.left(chain, values))
        sides = [
            (sign, *chain.weights(machine[worst], at[worst]))
            for machine, at, sign in zip(some.machine, some.at_ns, some.sign, strict=True)
            if sign
        ]
        for at in range(len(worst)):
            row: dict[int, float] = {spare: 1.0} if some.apart else {}
            for sign, first, weight in sides:
                if first[at] >= 0:
                    row[int(first[at])] = sign * (1.0 - float(weight[at]))
                    row[int(first[at]) + 1] = sign * float(weight[at])
            rows.append(row)
            most.append(float(some.most[worst[at]]))
            added = True
    return added
