"""A simulated fleet that takes leases: discrete events, with the truth beside what was recorded.

One machine has the service of leases and the guarded resource; its clock is the true one. Clients
on the others, one each, ask for a key, wait for their turn, take it, use the resource under it and
release it. All messages need the time of their link (``perf.clocks.delays``), and every machine
writes down what its own clock shows. ``Told.history`` is that and no more; it is all that rules may
see. ``Told.overlaps`` are the pairs of holds that really were at once, by how long.

A planted overlap is a service that gives a key away while somebody else has it: two promises are at
once for exactly as long as was asked for. Nothing else overlaps.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Final

from lockbench.history.builder import Builder
from lockbench.history.columns import History
from lockbench.history.op import F, Object, Type
from perf.clocks.delays import PLACES, Way, drawn_clock
from perf.machines import MS, US, Clock

LEASE_NS: Final = 5_000 * MS
KEPT: Final = 0.999  # of a lease a client relies on, because its clock may be slow
HELD_NS: Final = 5 * MS  # mean, beside the uses
THINK_NS: Final = 2 * MS  # mean
EACH: Final = 5  # machines for each key
# Share of the holds that are never released; of none where clocks jump, because whoever counts the
# end of his lease by a clock that stands still really has it for too long.
DEATHS: Final = 0.01
NEVER: Final = 2**62
APART_NS: Final = 1 * US  # between two operations of one client
USES: Final = ("in-holds", "between-holds", "none")  # where operations of the resource are

Pair = tuple[str, str]


@dataclass(frozen=True)
class World:
    """``places``: where machines are, in turn. ``overlap_ns``: 0 for none. ``jump_ns``: how far
    the clocks of a third of the machines jump, at some time of the run."""

    machines: int
    places: tuple[str, ...]
    holds: int
    overlap_ns: int = 0
    uses: str = "in-holds"
    jump_ns: int = 0
    epsilon_ns: int = 0  # as the header of the history states it


@dataclass(frozen=True)
class Told:
    """``clocks`` of the machines, by their names. ``slower``: the place of the machine with the
    longer way, of the two whose holds were made to overlap."""

    history: History
    overlaps: dict[Pair, int]
    clocks: dict[str, Clock]
    slower: str | None


def simulated(world: World, seed: int) -> Told:
    """The same for the same seed."""
    return _Run(world, seed).told()


@dataclass
class _Hold:
    """True times."""

    name: str
    key: str
    begin: int = 0
    end: int = 0


@dataclass
class _Key:
    """What the service knows: the hold that has it or whose turn it is, and who waits."""

    name: str
    holder: _Hold | None = None
    waiting: deque[tuple[int, _Process, _Hold]] = field(default_factory=deque)


# Yields the time at which it goes on; None waits until somebody else wakes it.
_Process = Generator[int | None, None, None]


@dataclass(frozen=True)
class _Planted:
    """What two clients are made to do: ``second`` has its grant at ``meet_ns``, after these ways,
    and ``first`` asks for its release at ``release_ns``."""

    first: _Hold
    second: _Hold
    meet_ns: int
    release_ns: int
    there_ns: int
    back_ns: int
    slower: str


class _Run:
    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.dice = random.Random(seed)
        self.now = 0
        self.queue: list[tuple[int, int, _Process]] = []
        self.number = count()
        self.keys = [_Key(f"k{n}") for n in range(max(1, world.machines // EACH))]
        self.ways = [Way.drawn(world.places[m % len(world.places)], self.dice)
                     for m in range(world.machines)]  # fmt: skip
        self.clocks = [drawn_clock(self.dice) for _ in range(world.machines)]
        self.jumps_at = int(world.holds * self.dice.uniform(0.3, 0.7))
        self.builder = Builder()
        self.builder.epsilon_ns = world.epsilon_ns
        for key in self.keys:
            self.builder.objects[key.name] = Object("mutex")
        self.holds: list[_Hold] = []
        self.planted: _Planted | None = None
        # Somewhere in the middle, where everybody has been at work for a while.
        self.plant_at = int(world.holds * self.dice.uniform(0.3, 0.7))
        if not world.overlap_ns:
            self.plant_at = NEVER
        self.processes = [self._client(machine) for machine in range(world.machines)]

    def told(self) -> Told:
        for process in self.processes:
            self._go(process, self._random(THINK_NS))
        while self.queue:
            self.now, _, process = heapq.heappop(self.queue)
            self._step(process)
        assert (self.planted is not None) == (self.world.overlap_ns > 0), "nobody waited"
        clocks = {f"m{machine}": clock for machine, clock in enumerate(self.clocks)}
        slower = None if self.planted is None else self.planted.slower
        return Told(self.builder.finish(), self._overlaps(), clocks, slower)

    def _overlaps(self) -> dict[Pair, int]:
        found = {}
        for key in self.keys:
            mine = sorted(
                (h for h in self.holds if h.key == key.name), key=lambda h: (h.begin, h.end)
            )
            longest = mine[0] if mine else None
            for hold in mine[1:]:
                assert longest is not None
                shared = min(longest.end, hold.end) - hold.begin
                if shared > 0:
                    found[longest.name, hold.name] = shared
                longest = max(longest, hold, key=lambda h: h.end)
        return found

    # Events.

    def _go(self, process: _Process, at_ns: int) -> None:
        heapq.heappush(self.queue, (at_ns, next(self.number), process))

    def _step(self, process: _Process) -> None:
        for at_ns in process:
            if at_ns is not None:
                self._go(process, at_ns)
            return

    def _random(self, mean_ns: int) -> int:
        return 1 + int(self.dice.expovariate(1 / mean_ns))

    # A client.

    def _client(self, machine: int) -> _Process:
        way, dice = self.ways[machine], self.dice
        while len(self.holds) < self.world.holds:
            if self.world.jump_ns and len(self.holds) >= self.jumps_at:
                self._jump()
            key = dice.choice(self.keys)
            hold = _Hold(f"h{len(self.holds)}", key.name)
            self.holds.append(hold)
            asked = self.now
            yield self.now + way.there_ns(dice)
            if key.holder is None:
                key.holder = hold
            else:
                key.waiting.append((machine, self.processes[machine], hold))
                yield None
            yield from self._held(machine, key, hold, asked)
            yield self.now + self._random(THINK_NS)
            if self.world.uses == "between-holds":
                ways = (way.there_ns(dice), way.back_ns(dice))
                yield from self._use(machine, "clock", None, ways)

    def _held(self, machine: int, key: _Key, hold: _Hold, asked: int) -> _Process:
        """From the answer that it is its turn."""
        way, dice = self.ways[machine], self.dice
        planted = self.planted
        if planted is not None and planted.second is hold:
            there, back = planted.there_ns, planted.back_ns
            sent = planted.meet_ns - there - back
        else:
            sent = self.now + way.back_ns(dice)
            there, back = way.there_ns(dice), way.back_ns(dice)
        yield sent + there
        granted = self.now
        begin = granted + back
        uses = [(way.there_ns(dice), way.back_ns(dice)) for _ in range(2)]
        yield begin
        hold.begin = begin
        self._note(machine, F.ACQUIRE, key.name, hold, window=(asked, begin), sent=sent)
        if len(self.holds) >= self.plant_at:
            self.plant_at = NEVER
            while all(other == machine for other, _, _ in key.waiting):
                yield self.now + 1 * MS
            # Both uses have time before the other one comes.
            planted = self._plant(machine, key, hold, self.now + sum(map(sum, uses)) + 2 * APART_NS)
        release = self.now + self._random(HELD_NS)
        if planted is not None and hold is planted.first:
            release = planted.release_ns
        elif planted is not None and hold is planted.second:
            release = planted.release_ns + self._random(HELD_NS)
        elif dice.random() < DEATHS and not self.world.jump_ns:
            yield from self._died(machine, key, hold, sent, granted)
            return
        if self.world.uses == "in-holds":
            yield from self._use(machine, key.name, hold, uses[0])
            yield max(self.now, release - sum(uses[1]) - APART_NS)
            yield from self._use(machine, key.name, hold, uses[1])
        yield max(self.now, release)
        hold.end = min(self.now, self._true(machine, self._until(machine, sent)))
        released = self.now
        yield released + way.there_ns(dice)
        if key.holder is hold:
            self._next(key)
        yield self.now + way.back_ns(dice)
        self._note(machine, F.RELEASE, key.name, hold, window=(released, self.now))

    def _died(self, machine: int, key: _Key, hold: _Hold, sent: int, granted: int) -> _Process:
        """A holder that does nothing more; its promise and the lease end by themselves."""
        hold.end = max(hold.begin, self._true(machine, self._until(machine, sent)))
        yield granted + LEASE_NS
        if key.holder is hold:
            self._next(key)

    def _use(self, machine: int, key: str, hold: _Hold | None, ways: tuple[int, int]) -> _Process:
        began, applied = self.now, self.now + ways[0]
        yield applied + ways[1]
        self._note(machine, F.READ, key, hold, window=(began, self.now), applied=applied)

    # The service.

    def _next(self, key: _Key) -> None:
        """The next one's turn."""
        key.holder = None
        if key.waiting:
            _, process, key.holder = key.waiting.popleft()
            self._go(process, self.now)

    def _plant(self, machine: int, key: _Key, first: _Hold, ready_ns: int) -> _Planted:
        """The service gives the key to the next one on another machine as well, which comes when
        the first one is ready."""
        at = next(n for n, (other, _, _) in enumerate(key.waiting) if other != machine)
        other, process, second = key.waiting[at]
        del key.waiting[at]
        way, dice = self.ways[other], self.dice
        there, back = way.there_ns(dice), way.back_ns(dice)
        told = self.now + way.back_ns(dice) + there + back
        meet = max(ready_ns, told) + self._random(HELD_NS)
        release = meet + self.world.overlap_ns
        slower = max((self.ways[it].place for it in (machine, other)), key=PLACES.index)
        self.planted = _Planted(first, second, meet, release, there, back, slower)
        key.holder = second
        self._go(process, self.now)
        return self.planted

    # What machines write down.

    def _shows(self, machine: int, true_ns: int) -> int:
        """A clock that is set back stands still, so that no time is before an earlier one."""
        clock = self.clocks[machine]
        shown = clock.shows(true_ns)
        if clock.jump_ns < 0 and true_ns >= clock.jump_s * 1e9:
            shown = max(shown, clock.shows(int(clock.jump_s * 1e9) - 1))
        return shown

    def _true(self, machine: int, shown_ns: int) -> int:
        """When a clock shows this. What it is off changes slowly, so this converges."""
        true = shown_ns
        for _ in range(6):
            true = shown_ns - (self._shows(machine, true) - true)
        return true

    def _jump(self) -> None:
        self.jumps_at = self.world.holds
        for machine in self.dice.sample(range(self.world.machines), -(-self.world.machines // 3)):
            ns = self.dice.choice((-1, 1)) * self.world.jump_ns
            jumped = replace(self.clocks[machine], jump_s=self.now / 1e9, jump_ns=ns)
            self.clocks[machine] = jumped

    def _until(self, machine: int, sent: int) -> int:
        return self._shows(machine, sent) + int(LEASE_NS * KEPT)

    def _note(
        self, machine: int, f: F, key: str, hold: _Hold | None, *,
        window: tuple[int, int], sent: int | None = None, applied: int | None = None,
    ) -> None:  # fmt: skip
        shows = partial(self._shows, machine)
        numbers = {}
        if sent is not None:
            numbers = {"sent_ns": shows(sent), "valid_until_ns": self._until(machine, sent)}
        if applied is not None:
            numbers = {"applied_ns": applied, "value": 0}
        self.builder.add(
            process=machine, f=int(f), outcome=int(Type.OK), key=key, machine=f"m{machine}",
            invoke_ns=shows(window[0]), complete_ns=shows(window[1]),
            hold=None if hold is None else hold.name, numbers=numbers,
        )  # fmt: skip
