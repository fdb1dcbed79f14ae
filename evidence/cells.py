"""What is said of one lock on one topology under one fault: the same words on every page.

A cell is green (``kept``) only where the lock is expected to hold, nothing broke, and at least one
try could have shown it. One try is called so, and a bound stands only where there are three.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple

from lockbench.bench.judge import MAY, Expected
from lockbench.bench.plan import applies, make_case
from lockbench.bench.suites import faults_of
from lockbench.checker.catalogue import ALWAYS, CATALOGUE, NAMED, OF_LOCKS
from lockbench.evidence.observations import Key, Observations, Observed, Share
from lockbench.locks.base import System
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import GO_IMAGE, JVM_IMAGE, NODE_IMAGE, PHP_IMAGE
from lockbench.locks.shared.library import library_of
from lockbench.nemesis.registry import NONE
from lockbench.results.statistics import BOUND_TRIES_MIN, share
from lockbench.results.wording import times, tries

CANONICAL: Final = (NONE, *faults_of("full"))
LEAKED: Final = "leaked-lock"  # judged since there is a quiet phase
COUNTS: Final = {0: "none", 1: "one", 2: "two"}
LANGUAGES: Final = {GO_IMAGE: "Go", JVM_IMAGE: "Java", NODE_IMAGE: "Node", PHP_IMAGE: "PHP"}
# worse: broke against its declaration, or where nothing is declared. may: its declaration lets it
# break, and it did not. open: ran, and nothing could have shown. plain: not run. na: does not
# apply.
Kind = Literal["worse", "broke", "may", "open", "kept", "plain", "na"]
SIGNS: Final[Mapping[Kind, str]] = {
    "worse": "✗✗",
    "broke": "✗",
    "may": "~",
    "open": "?",
    "kept": "✓",
    "plain": "not run",
    "na": "·",
}


class Line(NamedTuple):
    """One sentence about one verdict; ``verdict`` is empty for the others."""

    kind: Kind
    text: str
    verdict: str = ""


@dataclass(frozen=True)
class Cell:
    """``observed`` is None where no stored run has it."""

    system: System
    key: Key
    observed: Observed | None

    @property
    def elsewhere(self) -> str:
        """The topology, where that is not the lock's usual one."""
        return "" if self.key.topology == self.system.topologies[0] else self.key.topology

    @cached_property
    def applies(self) -> bool:
        """Whether the fault can be applied there, and leaves something to judge."""
        return applies(make_case(self.key.lock, self.key.fault, seed=0, topology=self.key.topology))

    @cached_property
    def due(self) -> bool:
        """Whether the suite ``full`` has it."""
        usual = self.key.fault in full(self.system) and not self.elsewhere
        return usual and self.applies

    @property
    def enough(self) -> bool:
        """Whether each of its verdicts had as many tries as a bound needs, but for those that are
        judged in few runs."""
        fewer = [n for verdict, n in self._fewer.items() if not CATALOGUE[verdict].by_chance]
        return min([self.least, *fewer]) >= BOUND_TRIES_MIN

    @cached_property
    def expected(self) -> Mapping[str, str]:
        """Verdict → what is expected of it, in one word."""
        all_of = Expected(self.system, (self.key.fault,))
        return {verdict: all_of.of(verdict).expected for verdict in OF_LOCKS}

    @cached_property
    def broke(self) -> tuple[str, ...]:
        """The verdicts that broke and are told: the general one only alone."""
        if self.observed is None:
            return ()
        found = [verdict for verdict in OF_LOCKS if self.observed.share(verdict).k]
        return tuple([verdict for verdict in found if verdict in NAMED] or found)

    @property
    def undeclared(self) -> bool:
        """Whether the declaration is silent of the fault."""
        return self.key.fault not in (NONE, *self.system.expectations)

    @property
    def unbroken(self) -> list[str]:
        """What may break, or has to, and did not."""
        named = [v for v in NAMED if self.expected[v] in MAY and v not in self.broke]
        return [v for v in named if not CATALOGUE[v].follows_from or v in self._declared]

    @property
    def unjudged(self) -> bool:
        """Whether nobody looked for leaked locks in the quiet phase after the load."""
        return self.observed is not None and LEAKED not in self.observed.verdicts

    @property
    def _declared(self) -> Mapping[str, object]:
        return self.system.expectations.get(self.key.fault, {})

    @cached_property
    def least(self) -> int:
        """In how many tries each verdict could have broken by which every lock is judged."""
        if self.observed is None:
            return 0
        due = [verdict for verdict in ALWAYS if self.expected[verdict] != "n/a"]
        return min(self.observed.share(verdict).n for verdict in due or self.observed.verdicts)

    @property
    def _fewer(self) -> Mapping[str, int]:
        """Verdict → its tries, of those that fewer runs judged than ``least``."""
        found = {} if self.observed is None else self.observed.verdicts
        return {verdict: share.n for verdict, share in found.items() if share.n < self.least}

    @cached_property
    def kind(self) -> Kind:
        """What the cell is called and coloured by."""
        if not self.applies:
            return "na"
        if self.observed is None:
            return "plain"
        if any(self.expected[verdict] not in MAY for verdict in self.broke):
            return "worse"
        if self.broke or self.observed.locked.k:
            return "broke"
        if not self.least:
            return "open"
        return "may" if self.unbroken else "kept"

    @property
    def short(self) -> str:
        """For the table of all locks."""
        if self.kind in {"plain", "na"}:
            return SIGNS[self.kind]
        codes = [CATALOGUE[v].code for v in self.broke or self.unbroken if self.kind != "open"]
        named = "locked" if self.kind == "broke" and not self.broke else ", ".join(codes)
        return f"{SIGNS[self.kind]} {named}".strip()

    @property
    def counted(self) -> str:
        """Beside it: in how many tries."""
        it = self.observed
        if it is None or self.kind == "na":
            return ""
        if self.kind == "open":
            return "not exposed" if not it.exposed else "not decided"
        found = it.share(self.broke[0]) if self.broke else it.locked
        if self.kind in {"worse", "broke"} and found.n >= BOUND_TRIES_MIN:
            return f"{found.k} of {found.n}"
        return tries(found.n if self.kind in {"worse", "broke"} else self.least)

    @property
    def lines(self) -> list[Line]:
        """All of it in sentences."""
        it = self.observed
        if it is None or self.kind == "na":
            return [Line(self.kind, "not run" if self.kind == "plain" else "does not apply")]
        found = []
        for verdict in self.broke:
            word = self.expected[verdict]
            kind: Kind = "broke" if word in MAY else "worse"
            against = {"holds": ", and is declared to hold", "undeclared": ", undeclared"}
            said = f"{verdict} {broken_in(it.share(verdict))}{against.get(word, '')}"
            found.append(Line(kind, said, verdict))
        if it.locked.k:
            said = f"the key of the struck holder was never granted again {_in(it.locked)}"
            found.append(Line("broke", said))
        if not self.least:
            why = "not all was judged" if it.exposed else "the fault could not have hurt"
            return [*found, Line("open", f"{times(it.cases, 'case')} ran; {why}")]
        if not found:
            silent = "; nothing is declared" if self.undeclared else ""
            fewer = ", ".join(f"{v}: {COUNTS.get(n, n)}" for v, n in self._fewer.items())
            but = f" ({fewer})" if fewer else ""
            found.append(Line("kept", f"nothing broke in {tries(self.least)}{but}{silent}"))
        for verdict in self.unbroken:
            word = "may break" if self.expected[verdict] == "may-break" else "has to break"
            found.append(Line("may", f"{verdict} {word}; {_unbroken_in(it.share(verdict).n)}"))
        return found


def full(system: System) -> tuple[str, ...]:
    """The faults that a lock meets in the suite ``full``, as far as they apply."""
    return (NONE, *faults_of("variants" if system.variant else "full"))


class Far(NamedTuple):
    """How far the cases of ``full`` are filled: how many there are, in how many a break could have
    shown at all, and in how many three times or more."""

    due: int
    tried: int
    enough: int

    def said(self, recent: int) -> str:
        """In a sentence or two. ``recent``: how many were run three times or more with the versions
        that are pinned now."""
        if self.enough == recent == self.due:
            return (
                f"Each of the {self.due} cases of the full suite has three tries or more in which "
                "a break could have shown, and three or more with the versions that are pinned now."
            )
        return (
            f"Of the {self.due} cases of the full suite, {self.enough} have three tries or more "
            f"in which a break could have shown, {self.tried - self.enough} one or two, and "
            f"{self.due - self.tried} none. With the versions that are pinned now, {recent} of "
            "them were run three times or more."
        )


def far(cells: Iterable[Cell]) -> Far:
    """Of any cells, those that ``full`` has."""
    due = [cell for cell in cells if cell.due]
    return Far(len(due), sum(bool(cell.least) for cell in due), sum(cell.enough for cell in due))


def _unbroken_in(n: int) -> str:
    if not n:
        return "no try decides it"
    bound = f" (95 %: at most {share(0, n).at_most_percent} %)" if n >= BOUND_TRIES_MIN else ""
    return f"it did not in {tries(n)}{bound}"


def broken_in(found: Share) -> str:
    """``broke in 3 of 5 tries``, with bounds where there are three."""
    if found.n < BOUND_TRIES_MIN:
        return f"broke {_in(found)}"
    both = share(found.k, found.n)
    return f"broke {_in(found)} (95 %: {100 * both.low:.0f} to {both.at_most_percent} %)"


def _in(found: Share) -> str:
    if found.k == found.n < BOUND_TRIES_MIN:
        return "in one try" if found.n == 1 else "in both tries"
    return f"in {found.k} of {found.n} tries"


def cells_of(system: System, observations: Observations) -> dict[Key, Cell]:
    """Of a lock: what ``full`` has on its first topology, then whatever else was observed."""
    seen = [key for key in observations.cases if key.lock == system.name]
    usual = [Key(system.name, system.topologies[0], fault) for fault in full(system)]
    order = {topology: n for n, topology in enumerate(system.topologies)}
    there = sorted(seen, key=lambda key: order.get(key.topology, len(order)))
    keys = dict.fromkeys([*usual, *there])
    return {key: Cell(system, key, observations.cases.get(key)) for key in keys}


def language(system: System) -> str:
    """In which the client is written."""
    library = library_of(system)
    return LANGUAGES[library.image] if isinstance(library, ContainerLibrary) else "Python"
