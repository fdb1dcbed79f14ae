"""Whose turn it is: the cases of a run in order, or in that in which their images are built.

A figure that was taken beside a build is wrong: the build takes processors and disk from what is
measured. So only cases of a suite are run meanwhile of whose figures enough are left, and their
numbers are void. Cases with rates are never among them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from lockbench.bench import interruption
from lockbench.bench.plan import Case, built_for, expected_s
from lockbench.clusters.builds import Builds
from lockbench.clusters.recipes import lineage, recipes
from lockbench.results.baseline import CASES_MIN
from lockbench.results.errors import BadInput

BUILT_MEANWHILE: Final = "images were built meanwhile"
POLL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Turn:
    """A case to run now."""

    number: int
    case: Case
    unable: str | None
    """Why it cannot be run: an image of it could not be built."""
    beside: str | None
    """What else the bench does meanwhile."""
    rest_s: float
    """What comes after it."""


class Turns:
    """Iterate over it to run every case; it waits for images. ``suite``: some cases may be run
    while others' images are built."""

    def __init__(self, cases: Mapping[int, Case], builds: Builds, *, suite: bool) -> None:
        self._todo = dict(cases)
        self._builds = builds
        self._spare = spare(cases) if suite else set()

    def await_first(self) -> None:
        """Wait until a case can be run. Raises BadInput where none ever can."""
        self._following()
        failures = [self._failure(case) for case in self._todo.values()]
        if all(failures):
            raise BadInput(str(failures[0]))

    def without(self, numbers: Iterable[int]) -> None:
        """Takes out what is done already."""
        for number in numbers:
            del self._todo[number]

    def again(self, turn: Turn) -> None:
        """It is run once more, when nothing is built."""
        self._spare.discard(turn.number)
        self._todo[turn.number] = turn.case

    def __iter__(self) -> Iterator[Turn]:
        while self._todo:
            number = self._following()
            beside = None if self._builds.over else BUILT_MEANWHILE
            case = self._todo.pop(number)
            failure = self._failure(case)
            unable = None if failure is None else str(failure).splitlines()[0]
            yield Turn(number, case, unable, beside, self._rest_s())

    def _following(self) -> int:
        while not self._builds.over:
            todo = ((number, self._todo[number]) for number in self._spare & self._todo.keys())
            able = (number for number, case in todo if self._builds.ended(built_for(case)))
            if (first := min(able, default=None)) is not None:
                return first
            self._builds.wait(timeout_s=POLL_S)
            interruption.raise_if_asked()
        return min(self._todo)

    def _failure(self, case: Case) -> Exception | None:
        return self._builds.failure(built_for(case))

    def _rest_s(self) -> float:
        beside_s = sum(expected_s(c) for number, c in self._todo.items() if number in self._spare)
        others_s = sum(
            expected_s(c) for number, c in self._todo.items() if number not in self._spare
        )
        return max(beside_s, self._builds.left_s()) + others_s


def image_order(cases: Iterable[Case]) -> list[str]:
    """The images of cases, by name: first those of the case that can begin first."""
    known = recipes()

    def takes_s(needed: tuple[str, ...]) -> float:
        return sum(known[each].takes_s for each in {e for n in needed for e in lineage(n)})

    needed = sorted({tuple(built_for(case)) for case in cases}, key=lambda n: (takes_s(n), n))
    return list(dict.fromkeys(name for names in needed for name in names))


def spare(cases: Mapping[int, Case]) -> set[int]:
    """The numbers of the cases that may be run beside builds: those under a fault, but for as many
    of a lock as its figures are made of. A lock that has fewer has no figures anyway."""
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, case in cases.items():
        alike[case.lock, case.topology, case.size, case.workload].append(number)
    found: set[int] = set()
    for numbers in alike.values():
        faulted = [number for number in numbers if cases[number].injections]
        enough = len(numbers) - CASES_MIN if len(numbers) >= CASES_MIN else len(faulted)
        found.update(n for n in faulted[:enough] if not cases[n].rates.steps)
    return found
