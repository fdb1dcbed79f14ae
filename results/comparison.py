"""Two sides of the same cases: which verdicts changed, which numbers, and what may be said of it.

Verdict changes come first and always count. Numbers are gated only where both sides were measured
in turn in one job (``lockbench.results.gate``); two stored runs show them without a judgement and
without an interval. What one run says of itself does not hold the noise between runs: intervals
from within two runs of the same thing excluded zero in 31 to 56 of 100 pairs of runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final, Literal

from msgspec.structs import asdict

from lockbench.results.cases import (
    MUTEX,
    attempts,
    expected_of,
    in_order,
    is_published,
    k_of_n,
    lock_of,
    proven,
    results_of,
    undecided,
)
from lockbench.results.documents import CaseResult, Compared, VerdictChange
from lockbench.results.errors import worst_first
from lockbench.results.gate import (
    UNDECIDED,
    Cell,
    Often,
    change_words,
    finite,
    judged_together,
    metrics_of,
    ranked_value,
)
from lockbench.results.judgements import NOTHING_DECLARED
from lockbench.results.statistics import holm, p_more_often
from lockbench.results.stored import Stored

Key = tuple[str, str]
MORE_OFTEN: Final = "more often"
NO_LONGER: Final = "no longer decided"
# The judgement of a case in which what was to be tested did not take place: a try less.
NOT_EXPOSED: Final = "not exposed"
# Nothing is measured a second time before this counts. At 5 % of a verdict that breaks in half of
# the tries 2 jobs in 100 were a false alarm, at 1 % one in 250.
MORE_OFTEN_ALPHA: Final = 0.01
IMAGE: Final = "image "
CLIENTS: Final = "clients in "
SERVERS: Final = "servers of "
Sides = Mapping[Key, tuple[Sequence[CaseResult], Sequence[CaseResult]]]
MACHINE: Final = (
    "cpu",
    "cores",
    "cores_usable",
    "cores_limit",
    "kernel",
    "architecture",
    "os",
    "python",
    "virtual",
)
# What has to be the same for two cases to be the same experiment, and tells several cases of a
# lock apart.
IDENTITY: Final = (
    "workload",
    "topology",
    "size",
    "network",
    "clients",
    "keys",
    "resource",
)
UNSAID: Final = {"workload": MUTEX, "resource": "the plain resource"}
UNITS: Final = {"size": " nodes", "clients": " clients", "keys": " keys"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """``endings`` are all that occurred, the worst first, ``sentences`` what is said of each.
    ``repeat`` is one command."""

    kind: Literal["regress", "compare"]
    base: str
    new: str
    endings: Sequence[str]
    sentences: Mapping[str, str]
    changes: Sequence[VerdictChange]
    cells: Sequence[Cell]
    notes: Sequence[str] = field(default_factory=tuple)
    repeat: str = ""

    @property
    def ending(self) -> str:
        return self.endings[0]

    @property
    def headline(self) -> str:
        """A sentence for each ending, the worst first."""
        return ". ".join(self.sentences[ending] for ending in self.endings)

    def document(self) -> Compared:
        """What ``--json`` prints under ``comparison``."""
        return Compared(
            kind=self.kind,
            base=self.base,
            new=self.new,
            ending=self.ending,
            endings=tuple(self.endings),
            headline=self.headline,
            verdict_changes=tuple(self.changes),
            cells=tuple(cell.document() for cell in self.cells),
            notes=tuple(self.notes),
            repeat=self.repeat,
        )


def rejudged(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Several comparisons, their numbers corrected for all of them."""
    return [
        _with_cells(made, cells)
        for made, cells in zip(
            comparisons, judged_together([made.cells for made in comparisons]), strict=True
        )
    ]


def _with_cells(made: Comparison, cells: Sequence[Cell]) -> Comparison:
    words = {cell.word for cell in cells}
    if [cell.word for cell in cells] == [cell.word for cell in made.cells]:
        return replace(made, cells=cells)
    endings = set(made.endings)
    if "worse" not in words and not any(c.direction == MORE_OFTEN for c in made.changes):
        endings.discard("regression")
    if words & UNDECIDED:
        endings.add("inconclusive")
    ordered = worst_first(endings)
    # What was said of verdicts and of runs stays; of numbers it is said anew.
    stays = {e: s for e, s in made.sentences.items() if e in {"safety", "bench", "inconclusive"}}
    before_after = zip(made.cells, cells, strict=True)
    unsure = [change_words(now) for was, now in before_after if was.word == "worse" != now.word]
    if unsure and "inconclusive" in stays:
        stays["inconclusive"] += f"; uncertain beside the other comparisons: {'; '.join(unsure)}"
    anew = sentences([e for e in ordered if e not in stays], made.changes, cells, {})
    said = {ending: stays.get(ending) or anew[ending] for ending in ordered}
    return replace(made, endings=ordered, cells=cells, sentences=said)


def verdict_changes(sides: Sides) -> list[VerdictChange]:
    """Every verdict of every case that differs between base and new, what got worse first.

    One that breaks *more often* is told from chance by Fisher's exact test of k of n, at 1 % for
    all that broke at all (Holm)."""
    tallies = [
        _tally(lock, fault, verdict, _tries(base), _tries(new))
        for (lock, fault), (base, new) in sides.items()
        for verdict in in_order(v for case in (*base, *new) for v in results_of(case))
    ]
    corrected = iter(holm([one.p_more_often for one in tallies if one.broke]))
    found = [
        change
        for one in tallies
        if (change := _change(one, next(corrected) if one.broke else 1.0)) is not None
    ]
    rank = ("worse", MORE_OFTEN, "open", "as may happen", "better")
    return sorted(found, key=lambda change: rank.index(change.direction))


def _tries(cases: Iterable[CaseResult]) -> list[CaseResult]:
    return [attempt for case in cases for attempt in attempts(case)]


@dataclass(frozen=True, slots=True)
class _Tally:
    """In how many tries a verdict broke on each side. ``violated``: it broke in a case that was
    judged a violation."""

    lock: str
    fault: str
    verdict: str
    expected: str
    violated: bool
    k_base: int
    n_base: int
    k_new: int
    n_new: int

    @property
    def broke(self) -> bool:
        return self.k_base + self.k_new > 0

    @property
    def p_more_often(self) -> float:
        return p_more_often(self.k_base, self.n_base, self.k_new, self.n_new)


def _tally(
    lock: str, fault: str, verdict: str, base: Sequence[CaseResult], new: Sequence[CaseResult]
) -> _Tally:
    shown = {case.ending for case in new if verdict in proven(case)}
    violated = "safety" in shown
    # A document names what is expected of the usual verdicts alone. Of another one, a case that it
    # broke without being a violation says that it may.
    unsaid = "may-break" if shown and not violated else "undeclared"
    expected = next((e for case in new if (e := expected_of(case, verdict))), unsaid)
    counted = (*k_of_n(base, verdict), *k_of_n(new, verdict))
    return _Tally(lock, fault, verdict, expected, violated, *counted)


def _change(one: _Tally, p_more_often: float) -> VerdictChange | None:
    """``p_more_often`` is corrected."""
    same_share = one.k_base * one.n_new == one.k_new * one.n_base
    may_break = one.expected in {"may-break", "breaks"}
    # Nobody has claimed anything, and no lease prevents it: what counts is how often.
    unclaimed = one.expected == NOTHING_DECLARED
    expected = "nothing is declared" if unclaimed else f"expected: {one.expected}"
    if one.n_base and not one.n_new:
        direction, words = "open", NO_LONGER
    elif one.n_new and not one.n_base and not one.k_new:
        direction, words = "better", "decided for the first time"
    elif one.k_new and not one.k_base and not may_break and not unclaimed:
        silent = one.expected == "undeclared"
        # What no case was judged for is no violation, and it got worse all the same.
        direction = "worse" if one.violated else MORE_OFTEN
        words = "nothing is declared, and it broke" if silent else "expected to hold, and broke"
    elif p_more_often < MORE_OFTEN_ALPHA and one.expected != "breaks":
        direction, words = MORE_OFTEN, f"breaks more often, {expected}"
    elif bool(one.k_base) is bool(one.k_new) and same_share:
        return None
    elif may_break:
        direction, words = "as may happen", expected
    elif one.k_new:
        where = "on both sides" if one.k_base else "and nothing is declared"
        direction, words = "open", f"broke {where}; more often is not shown"
    else:
        direction, words = "better", "broke before, and was not seen to break"
    return VerdictChange(
        one.lock,
        one.fault,
        one.verdict,
        f"{one.k_base} of {one.n_base}",
        f"{one.k_new} of {one.n_new}",
        direction,
        words,
    )


def endings_of_verdicts(sides: Sides) -> set[str]:
    """Those of safety, regression, bench and inconclusive that occurred, from the new side's
    cases; a failed case of either side is the bench's failure. A verdict that breaks more often is
    a regression: where the declaration lets it break, no promise was broken, and something got
    worse.

    With several runs of a case, those that were not exposed are tries that do not count; the case
    is inconclusive when none counts, when a verdict is undecided or no longer decided, and when a
    run was inconclusive for any other reason.
    """
    changes = verdict_changes(sides)
    endings = {"regression" for change in changes if change.direction == MORE_OFTEN}
    endings |= {"inconclusive" for change in changes if change.words == NO_LONGER}
    for base, new in sides.values():
        endings |= {"safety" for case in new if case.ending == "safety"}
        endings |= {"bench" for case in (*base, *new) if case.ending == "bench"}
        endings |= {"inconclusive" for _ in _open(new)}
    return endings


def _open(new: Sequence[CaseResult]) -> list[str]:
    """Why the runs of a case decide nothing; empty where they do."""
    found = []
    for case in new:
        if case.ending == "inconclusive" and case.judgement != NOT_EXPOSED:
            found.append(case.why or str(case.judgement))
        elif names := in_order(name for one in attempts(case) for name in undecided(one)):
            found.append(f"{', '.join(names)}: undecided")
    if not any(case.exposed for case in new):
        missed = [case.why for case in new if case.judgement == NOT_EXPOSED and case.why]
        found += missed or ["no run was exposed"]
    return in_order(found)


def compare_stored(
    base: Sequence[Stored], new: Sequence[Stored], *, anyway: bool, repeat: str
) -> tuple[Comparison, list[str]]:
    """Two stored sets, and one sentence for each thing that makes them not comparable. With
    ``anyway`` only what both have is compared, and the sentences become notes."""
    differs = differences(base, new)
    notes = list(differs) if anyway else []
    sides = _sides(base, new)
    changes = verdict_changes(sides)
    endings = worst_first(endings_of_verdicts(sides) if sides else {"inconclusive"})
    cells = [cell for key, pair in sides.items() for cell in shown(key, pair)]
    notes.append(
        "Stored runs show numbers and gate none: how far two runs of the same thing differ is not "
        "known here. `lockbench regress` judges numbers."
    )
    made = Comparison(
        kind="compare",
        base=_names(base),
        new=_names(new),
        endings=endings,
        sentences=sentences(endings, changes, (), sides),
        changes=changes,
        cells=cells,
        notes=notes,
        repeat=repeat,
    )
    return made, differs


def differences(base: Sequence[Stored], new: Sequence[Stored]) -> list[str]:
    """Sentences; none where the two are the same experiment on the same machine and versions."""
    found = []
    cases = _labelled(base, new)
    for what, only in zip(
        ("base", "new"),
        (cases[0].keys() - cases[1].keys(), cases[1].keys() - cases[0].keys()),
        strict=True,
    ):
        if only:
            names = [f"{lock} under {fault}" for lock, fault in sorted(only)]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            found.append(f"other suite: only {what} has {', '.join(names[:3])}{more}")
    changed = in_order(
        name
        for label in cases[0].keys() & cases[1].keys()
        for name in _changed(cases[0][label], cases[1][label])
    )
    if changed:
        found.append(f"other settings of the same cases: {', '.join(sorted(changed))}")
    found += _differing("machine", [_machine(r) for r in base], [_machine(r) for r in new])
    found += _differing("versions", [_versions(r) for r in base], [_versions(r) for r in new])
    return found


def _differing(
    what: str, base: Sequence[Mapping[str, str]], new: Sequence[Mapping[str, str]]
) -> list[str]:
    parts = []
    for name in in_order(name for facts in (*base, *new) for name in facts):
        old, now = ({facts.get(name, "none") for facts in side} for side in (base, new))
        if name.startswith((IMAGE, CLIENTS, SERVERS)):
            # A run of other locks has other images; that is no other version of one.
            old, now = old - {"none"}, now - {"none"}
            if not old or not now:
                continue
        if old != now or len(old) > 1:
            parts.append(f"{name} {'/'.join(sorted(old))} and {'/'.join(sorted(now))}")
    return [f"other {what}: {'; '.join(parts)}"] if parts else []


def _machine(run: Stored) -> dict[str, str]:
    facts = {name: str(getattr(run.machine, name)) for name in MACHINE}
    memory = run.machine.memory_bytes
    return facts | {"memory": f"{memory / 2**30:.0f} GiB" if memory else "unknown"}


def _versions(run: Stored) -> dict[str, str]:
    found = {f"library {n}": str(v) for n, v in (run.versions.libraries or {}).items()}
    found["engine"] = str(run.versions.engine)
    instead = {ref: name for case in run.plan.cases for name, ref in case.images}
    for name, image in (run.versions.images or {}).items():
        inside = ", ".join(f"{n} {v}" for n, v in sorted((image.versions or {}).items()))
        # An image that we did not build says nothing of its inside but its identity.
        found[f"{IMAGE}{instead.get(name, name)}"] = inside or str(image.digest or image.id)
    for name, client in (run.versions.clients or {}).items():
        inside = ", ".join(f"{n} {v}" for n, v in sorted((client.versions or {}).items()))
        # What they stand on may differ where what was asked for does not.
        found[f"{CLIENTS}{name}"] = f"{inside} ({client.fingerprint})".strip()
    return found | {f"{SERVERS}{name}": v for name, v in (run.versions.servers or {}).items()}


def _changed(base: Sequence[CaseResult], new: Sequence[CaseResult]) -> list[str]:
    """``name old and new`` for everything that makes the cases of one name two experiments, on
    two sides or within one."""
    sides = [[_flat(case) for case in cases] for cases in (base, new)]
    found = []
    for name in in_order(name for flat in (*sides[0], *sides[1]) for name in flat):
        old, now = ({flat.get(name) for flat in side} for side in sides)
        if old != now or len(old) > 1:
            said = ("/".join(sorted(map(str, values))) for values in (old, now))
            found.append(f"{name} {' and '.join(said)}")
    return found


def _flat(case: CaseResult) -> dict[str, object]:
    found: dict[str, object] = {name: getattr(case, name) for name in IDENTITY}
    found["machines"] = ", ".join(one.name for one in case.machines) or "this one"
    phases = {"phases_s": None} if case.phases_s is None else asdict(case.phases_s)
    return found | phases | case.settings


def _sides(
    base: Sequence[Stored], new: Sequence[Stored]
) -> dict[Key, tuple[list[CaseResult], list[CaseResult]]]:
    """What both have, without the published experiment."""
    old, now = _labelled(base, new)
    both = [key for key in old if key in now]
    return {key: (old[key], now[key]) for key in both if not is_published(old[key][0])}


def _labelled(
    base: Sequence[Stored], new: Sequence[Stored]
) -> tuple[dict[Key, list[CaseResult]], dict[Key, list[CaseResult]]]:
    """(lock, fault) → the cases, of each side. The lock is called with its workload, topology and
    what else tells its cases apart, where one side has several; what differs only between the
    sides is no name but a difference."""
    cases = [[case for run in runs for case in run.cases] for runs in (base, new)]
    locks = [[lock_of(case) for case in side] for side in cases]
    for name in IDENTITY:
        several: set[str] = set()
        for side, of in zip(cases, locks, strict=True):
            values: dict[str, set[str]] = defaultdict(set)
            for case, lock in zip(side, of, strict=True):
                if not is_published(case):
                    values[lock].add(_said(case, name))
            several |= {lock for lock, found in values.items() if len(found) > 1}
        locks = [
            [
                f"{lock}, {_said(case, name)}"
                if lock in several and not is_published(case)
                else lock
                for case, lock in zip(side, of, strict=True)
            ]
            for side, of in zip(cases, locks, strict=True)
        ]
    old, now = (_by_key(side, of) for side, of in zip(cases, locks, strict=True))
    return old, now


def _by_key(cases: Sequence[CaseResult], locks: Sequence[str]) -> dict[Key, list[CaseResult]]:
    found: dict[Key, list[CaseResult]] = defaultdict(list)
    for case, lock in zip(cases, locks, strict=True):
        fault = f"{case.fault}, {case.workload}" if is_published(case) else case.fault
        found[lock, fault].append(case)
    return dict(found)


def _said(case: CaseResult, name: str) -> str:
    value = getattr(case, name)
    return (value or UNSAID[name]) if name in UNSAID else f"{value}{UNITS.get(name, '')}"


def shown(key: Key, pair: tuple[Sequence[CaseResult], Sequence[CaseResult]]) -> list[Cell]:
    """The numbers of stored runs of a case, which are no pairs and are not judged."""
    lock, fault = key
    cells = []
    for metric in metrics_of(fault):
        ranked = [[ranked_value(case, metric) for case in of] for of in pair]
        values = [[value for value in of if value is not None] for of in ranked]
        if not any(values):
            continue
        old, now = (finite(median(of)) if of else None for of in values)
        cells.append(
            Cell(
                lock,
                fault,
                metric,
                "not judged",
                min(map(len, values)),
                old,
                now,
                change=None if old is None or now is None else now / old - 1,
                missing=Often.unpaired(*([v is None for v in of] for of in ranked)),
                never=Often.unpaired(*([v == math.inf for v in of] for of in ranked)),
            )
        )
    return cells


def sentences(
    endings: Sequence[str], changes: Sequence[VerdictChange], cells: Sequence[Cell], sides: Sides
) -> dict[str, str]:
    """Ending → a sentence without its period."""
    return {ending: _sentence(ending, changes, cells, sides) for ending in endings}


def _sentence(
    ending: str, changes: Sequence[VerdictChange], cells: Sequence[Cell], sides: Sides
) -> str:
    if ending == "safety":
        worse = [
            f"{c.lock} under {c.fault}: {c.verdict} {c.new} ({c.words})"
            for c in changes
            if c.direction == "worse"
        ]
        known = [
            f"{lock} under {fault}: {', '.join(proven(case))}, in base too ({case.judgement})"
            for (lock, fault), (_, new) in sides.items()
            for case in new
            if case.ending == "safety"
        ]
        return f"Safety: {'; '.join(worse or in_order(known))}"
    if ending == "regression":
        slower = [change_words(c) for c in cells if c.word == "worse"]
        often = [
            f"{c.lock} under {c.fault}: {c.verdict} {c.new}, base {c.base}"
            for c in changes
            if c.direction == MORE_OFTEN
        ]
        said = (("Breaks more often", often), ("Slower", slower))
        return ". ".join(f"{word}: {'; '.join(each)}" for word, each in said if each)
    if ending == "bench":
        failed = [
            f"{lock} under {fault} {case.judgement}: {case.why}"
            for (lock, fault), (base, new) in sides.items()
            for case in (*base, *new)
            if case.ending == "bench"
        ]
        return f"The bench failed, which says nothing of the lock: {failed[0]}"
    if ending == "inconclusive":
        few = in_order(f"{c.lock}: {c.words}" for c in cells if c.word in UNDECIDED)
        lost = [
            f"{c.lock} under {c.fault}: {c.verdict} is {NO_LONGER}"
            for c in changes
            if c.words == NO_LONGER
        ]
        vague = in_order(
            f"{lock} under {fault}: {each}"
            for (lock, fault), (_, new) in sides.items()
            for each in _open(new)
        )
        why = "; ".join([*few, *vague, *lost][:3])
        return f"Inconclusive: {why or 'the two have no case in common'}"
    return _nothing_worse(changes, cells)


def _nothing_worse(changes: Sequence[VerdictChange], cells: Sequence[Cell]) -> str:
    better = [change_words(c) for c in cells if c.word == "improved"]
    if better:
        return f"Improved: {'; '.join(better)}"
    if changes:
        return "No verdict got worse: " + "; ".join(
            f"{c.lock} under {c.fault}: {c.verdict} {c.words}" for c in changes[:3]
        )
    judged = any(c.word != "not judged" for c in cells)
    return "No verdict changed" + ("; no difference shown in any number" if judged else "")


def _names(runs: Sequence[Stored]) -> str:
    first = str(runs[0].path)
    return first if len(runs) == 1 else f"{first} and {len(runs) - 1} more"
