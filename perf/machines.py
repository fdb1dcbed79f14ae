"""Histories of several machines whose clocks are known: for tests and for measuring the checker.

Simulated is a service of leases and a guarded resource on one machine, and clients on others, over
links that need their time either way. Every key is granted to one after the other; planted
overlaps are grants that come before the release of the one before was asked for.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from lockbench.history.builder import Builder
from lockbench.history.columns import History
from lockbench.history.op import F, Object, Type

US: Final = 1_000
MS: Final = 1_000_000
LEASE_NS: Final = 10_000 * MS


@dataclass(frozen=True, slots=True)
class Link:
    """One way in nanoseconds, from a machine and back to it, and what may be added to either."""

    there_ns: int
    back_ns: int
    jitter_ns: int


LAN: Final = Link(50 * US, 50 * US, 100 * US)
WIDE: Final = Link(15 * MS, 15 * MS, 500 * US)
ASKEW: Final = Link(25 * MS, 5 * MS, 500 * US)


@dataclass(frozen=True, slots=True)
class Clock:
    """What a clock shows: set off, drifting, its drift wandering about that; and set again by
    ``jump_ns`` at ``jump_s``."""

    off_ns: int = 0
    drift_ppm: float = 0.0
    wobble_ppm: float = 0.0
    period_s: float = 20.0
    jump_s: float = math.inf
    jump_ns: int = 0

    def shows(self, true_ns: int) -> int:
        turn = self.period_s / math.tau
        wander = self.wobble_ppm * turn * (1 - math.cos(true_ns / 1e9 / turn))
        jump = self.jump_ns if true_ns >= self.jump_s * 1e9 else 0
        return true_ns + self.off_ns + jump + round(self.drift_ppm * true_ns / 1e6 + wander * 1e3)


@dataclass(frozen=True)
class Machines:
    """``links`` and ``clocks`` are those of the machines, in turn. ``uses`` operations of the
    resource are done in each hold. ``planted``: how far each promise of a planted pair reaches into
    the other; they are spread over keys and time."""

    machines: int = 2
    keys: int = 2
    grants: int = 100  # of each key
    links: tuple[Link, ...] = (LAN,)
    clocks: tuple[Clock, ...] = (Clock(),)
    uses: int = 2
    held_ns: int = 0  # how much longer each hold lasts, at most
    idle_ns: int = 50 * US  # between a release and the next grant at the service, at most
    planted_ns: tuple[int, ...] = ()
    own: int = 0  # keys that one machine alone uses
    deaths: float = 0.0  # share of the holds that are never released
    kinds: tuple[str, ...] = field(default=("mutex",))


def simulated(fleet: Machines, seed: int) -> tuple[History, History]:
    """The same history as its machines recorded it, and with true times."""
    recorded, true = _Run(fleet, seed, recorded=True), _Run(fleet, seed, recorded=False)
    return recorded.history(), true.history()


class _Run:
    def __init__(self, fleet: Machines, seed: int, *, recorded: bool) -> None:
        self.fleet = fleet
        self.dice = random.Random(seed)
        self.builder = Builder()
        self.recorded = recorded
        self.holds = 0

    def history(self) -> History:
        fleet = self.fleet
        where: dict[int, dict[int, int]] = {key: {} for key in range(fleet.keys)}
        for number, overlap in enumerate(fleet.planted_ns):
            key, place = number % fleet.keys, number // fleet.keys
            each = len(fleet.planted_ns) // fleet.keys + 1
            where[key][(place + 1) * fleet.grants // (each + 1)] = overlap
        for key in range(fleet.keys + fleet.own):
            self._key(key, where.get(key, {}))
        return self.builder.finish()

    def _key(self, key: int, planted: dict[int, int]) -> None:
        fleet, dice, name = self.fleet, self.dice, f"k{key}"
        self.builder.objects[name] = Object(fleet.kinds[key % len(fleet.kinds)])
        free, last = dice.randint(0, 2 * MS), key % fleet.machines
        released = 0
        for number in range(fleet.grants):
            machine = key % fleet.machines if key >= fleet.keys else dice.randrange(fleet.machines)
            if number in planted and fleet.machines > 1 and machine == last:
                machine = (machine + 1) % fleet.machines
            back = self._way(machine, "back_ns")
            granted = free + dice.randint(0, fleet.idle_ns)
            if number in planted:
                granted = released - planted[number] - back
            # Both of a planted pair hold for as long as they overlap.
            keep = max(planted.get(number, 0), planted.get(number + 1, 0))
            before, (free, released) = free, self._hold((name, key), machine, (granted, back), keep)
            free, last = max(before, free), machine

    def _hold(
        self, key: tuple[str, int], machine: int, grant: tuple[int, int], keep: int
    ) -> tuple[int, int]:
        """When the service is free again, and when the release was asked for."""
        dice, (granted, back) = self.dice, grant
        self.holds += 1
        asked = granted - self._way(machine, "there_ns") - dice.randint(0, self.fleet.idle_ns)
        now = granted + back
        note = partial(self._note, machine, key)
        note(F.ACQUIRE, (asked, now), valid_until_ns=asked + LEASE_NS, sent_ns=asked)
        for number in range(self.fleet.uses):
            begin = now + dice.randint(1, 20) * US
            if number and number == self.fleet.uses - 1:
                begin += keep
            applied = begin + self._way(machine, "there_ns")
            now = applied + self._way(machine, "back_ns")
            note(F.READ, (begin, now), applied_ns=applied, value=0)
        release = now + dice.randint(1, 20 * US) + dice.randint(0, self.fleet.held_ns)
        release += keep if self.fleet.uses < 2 else 0
        if dice.random() < self.fleet.deaths:
            return granted + LEASE_NS, asked + LEASE_NS
        arrived = release + self._way(machine, "there_ns")
        note(F.RELEASE, (release, arrived + self._way(machine, "back_ns")))
        return arrived, release

    def _way(self, machine: int, which: str) -> int:
        link = self.fleet.links[machine % len(self.fleet.links)]
        # Mostly quick, sometimes late.
        late = self.dice.random() ** 3
        fixed: int = getattr(link, which)
        return fixed + round(late * link.jitter_ns)

    def _note(
        self, machine: int, key: tuple[str, int], f: F, window: tuple[int, int], **numbers: int
    ) -> None:
        clock = self.fleet.clocks[machine % len(self.fleet.clocks)]

        def shown(at: int) -> int:
            return clock.shows(at) if self.recorded else at

        self.builder.add(
            process=machine * 10_000 + key[1], f=int(f), outcome=int(Type.OK), key=key[0],
            invoke_ns=shown(window[0]), complete_ns=shown(window[1]), hold=f"h{self.holds}",
            numbers={n: shown(v) if n in LOCAL else v for n, v in numbers.items()},
            machine=f"m{machine}" if self.recorded else None,
        )  # fmt: skip


LOCAL: Final = frozenset({"valid_until_ns", "sent_ns"})
