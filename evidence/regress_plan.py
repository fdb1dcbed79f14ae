"""What ``lockbench regress`` is asked to do, checked, and the order in which it is done."""

from __future__ import annotations

import random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lockbench.bench import plan
from lockbench.bench.plan import MUTEX, PUBLISHED, Case, expected_s
from lockbench.evidence.sides import Side, check_image_is_used, locks_of, parse, without_login
from lockbench.results.errors import BadInput
from lockbench.results.gate import metrics_of
from lockbench.results.statistics import needed_pairs

BASE, NEW = 0, 1
SIDES: Final = ("base", "new")
# Fewer are allowed where the cells need fewer, but say less.
PAIRS: Final = 10
# Times as many pairs: what is suspected, noisy or void is measured again.
SCHEDULES: Final = 4
# Every run starts a fork server of its own, which imports everything.
START_S: Final = 1.5
Key = tuple[str, str]


@dataclass(frozen=True)
class Order:
    """What was asked for, checked."""

    sides: tuple[Side, Side]
    cases: Mapping[Key, tuple[Case, Case]]  # (lock, fault) → the case of each side
    pairs: int
    seed: int
    repeat: str
    workload: str = MUTEX

    @property
    def numbers(self) -> bool:
        """Whether numbers are judged: those of the plain load, whose noise is known."""
        return self.workload == MUTEX

    @property
    def needed(self) -> int:
        """Pairs without which no number can be judged."""
        if not self.numbers:
            return 0
        return needed_pairs(sum(len(metrics_of(fault)) for _, fault in self.cases))

    def images(self, at: int) -> list[str]:
        """The names of the server images that a side's cases run."""
        return plan.images_of(plan.topology_of(both[at]) for both in self.cases.values())

    @property
    def expected_s(self) -> float:
        """Without any suspicion."""
        runs = (case for both in self.cases.values() for case in both)
        return self.pairs * sum(expected_s(case) + START_S for case in runs)


def order(
    base: str,
    new: str,
    *,
    locks: Sequence[str],
    faults: Sequence[str],
    workload: str = MUTEX,
    pairs: int | None,
    time_limit_s: float,
    seed: int,
) -> Order:
    """Raises BadInput for anything that cannot be done."""
    sides = parse(base), parse(new)
    if sides[BASE] == sides[NEW] and sides[BASE].lock is None and base != "current":
        raise BadInput(f"base and new are both {base}: there is nothing to compare")
    for side, other in (sides, sides[::-1]):
        if side.lock is not None and other.lock is None and len(locks) != 1:
            raise BadInput(f"{side.ref} is a lock: name the one lock it stands against, or --lock")
    if workload == PUBLISHED:
        raise BadInput("the published experiment decides nothing: compare under another workload")

    def planned(side: Side, lock: str, fault: str) -> Case:
        case = plan.make_case(lock, fault, seed=seed, topology=side.topology, workload=workload)
        return plan.resolve(side.apply(replace(case, time_limit_s=time_limit_s)))

    cases: dict[Key, tuple[Case, Case]] = {}
    of_sides = [locks_of(side, locks) for side in sides]
    for lock_base, lock_new in zip(*of_sides, strict=True):
        for fault in faults:
            same = lock_base == lock_new
            label = lock_base if same else f"{short(lock_base)} → {short(lock_new)}"
            cases[label, fault] = (
                planned(sides[BASE], lock_base, fault),
                planned(sides[NEW], lock_new, fault),
            )
    for at, side in enumerate(sides):
        check_image_is_used(side, [both[at] for both in cases.values()])
    draft = Order(sides, cases, 0, seed, "", workload)
    chosen = max(PAIRS, draft.needed) if pairs is None else pairs
    if chosen < 1:
        raise BadInput(f"--pairs is {pairs}; it has to be more than 0")
    for pair in range(SCHEDULES * chosen):
        for case in (case for both in cases.values() for case in both):
            plan.resolve(of_pair(case, seed, pair))
    words = ["lockbench", "regress"]
    words += ["--base", without_login(base), "--new", without_login(new)]
    words += ["--lock", ",".join(locks)] if locks else []
    words += [] if list(faults) == ["none"] else ["--fault", ",".join(faults)]
    words += [] if workload == MUTEX else ["--workload", workload]
    words += ["--pairs", str(chosen), "--time-limit", f"{time_limit_s:g}", "--seed", str(seed)]
    return replace(draft, pairs=chosen, repeat=shlex.join(words))


def of_pair(case: Case, seed: int, pair: int) -> Case:
    """The case with the draws of a pair, its schedule not drawn yet."""
    return replace(case, seed=seed + pair, injections=())


def short(lock: str) -> str:
    """A lock of one's own by its file's name and class."""
    if ".py:" not in lock:
        return lock
    file, _, name = lock.rpartition(":")
    return f"{Path(file).name}:{name}"


def turns(pairs: int, seed: int) -> list[tuple[int, int]]:
    """(pair, side) in the order of their runs: every two pairs a block of ABBA or BAAB."""
    coin = random.Random(f"{seed} order")
    found: list[tuple[int, int]] = []
    first = BASE
    for pair in range(pairs):
        first = coin.choice((BASE, NEW)) if pair % 2 == 0 else 1 - first
        found += [(pair, first), (pair, 1 - first)]
    return found
