"""Small histories of several machines, and every vector of offsets tried on them.

Shares no rule with ``checker``: offsets that contradict a probe are thrown away one by one, and
what is left is put on one clock and given to ``promise_reference``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from lockbench.history.builder import Builder
from lockbench.history.columns import History
from lockbench.history.op import F, Mode, Object, Type
from tests.checker.promise_reference import double_grant

UNIT = 10  # ns; what is rounded by the checker is less


@dataclass(frozen=True, slots=True)
class Hold:
    """A grant on a machine, in local units of time, and the uses made under it: (invoke, applied,
    complete), with the second on the clock of the resource."""

    machine: int
    granted: int
    released: int
    uses: tuple[tuple[int, int, int], ...] = ()
    reads: bool = False


@dataclass(frozen=True, slots=True)
class Little:
    """``stated``: clocks are off by at most so much."""

    kind: str
    machines: int
    stated: int
    holds: tuple[Hold, ...]

    def history(self, offsets: tuple[int, ...] | None = None) -> History:
        """As it was recorded, or with these offsets on one clock."""
        builder = Builder()
        builder.objects["k"] = Object(self.kind)
        builder.epsilon_ns = self.stated * UNIT if offsets is None else 0
        for number, hold in enumerate(self.holds):
            off = 0 if offsets is None else offsets[hold.machine]
            mode = Mode.READ if hold.reads else Mode.NONE
            operations = [
                (F.ACQUIRE, hold.granted, hold.granted, None),
                *((F.READ, invoke, complete, applied) for invoke, applied, complete in hold.uses),
                (F.RELEASE, hold.released, hold.released, None),
            ]
            for f, begin, end, applied in operations:
                builder.add(
                    process=number,
                    f=int(f),
                    outcome=int(Type.OK),
                    key="k",
                    invoke_ns=(begin + off) * UNIT,
                    complete_ns=(end + off) * UNIT,
                    mode=int(mode if f is F.ACQUIRE else Mode.NONE),
                    hold=f"h{number}",
                    numbers={} if applied is None else {"applied_ns": applied * UNIT, "value": 0},
                    machine=f"m{hold.machine}" if offsets is None else None,
                )
        return builder.finish()

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """All that no probe contradicts."""
        for offsets in product(range(-self.stated, self.stated + 1), repeat=self.machines):
            if all(
                invoke + offsets[hold.machine] <= applied <= complete + offsets[hold.machine]
                for hold in self.holds
                for invoke, applied, complete in hold.uses
            ):
                yield offsets

    def explained(self) -> bool | None:
        """Whether some offsets keep every promise; None where there are no offsets."""
        none = True
        for offsets in self.offsets():
            none = False
            if not double_grant(self.history(offsets), self.kind, 1):
                return True
        return None if none else False


def little(dice: random.Random, kind: str, machines: int) -> Little:
    """Holds one after the other by a true clock, now and then too early, on clocks that are off."""
    stated = dice.randint(1, 4 if machines == 2 else 2)
    off = [dice.randint(-stated, stated) for _ in range(machines)]
    now, holds = 0, []
    for _ in range(dice.randint(2, 5)):
        machine = dice.randrange(machines)
        start = now + dice.choice((0, 0, 1, 2, -1, -2, -4))
        end = start + dice.randint(1, 7)
        uses = []
        for _ in range(dice.choice((0, 0, 1, 2))):
            applied = dice.randint(start, end)
            begin, done = applied - dice.randint(0, 3), applied + dice.randint(0, 3)
            uses.append((begin - off[machine], applied, done - off[machine]))
        reads = kind == "read-write" and dice.random() < 0.5
        holds.append(Hold(machine, start - off[machine], end - off[machine], tuple(uses), reads))
        now = max(now, end)
    return Little(kind, machines, stated, tuple(holds))
