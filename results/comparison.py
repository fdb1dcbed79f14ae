"""Two sides of the same cases: which verdicts changed, which numbers, and what may be said of it.

Verdict changes come first and always count. Numbers are gated only where both sides were measured
in turn in one job (``results.gate``); two stored runs show them without a judgement, because other
days and other machines differ by more than most regressions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal

import numpy as np
from msgspec.structs import asdict

from results.cases import (
    attempts,
    broken,
    expected_of,
    in_order,
    is_published,
    k_of_n,
    lock_of,
    results_of,
    undecided,
)
from results.documents import CaseResult, Compared, VerdictChange
from results.gate import Cell, change_words, metrics_of, value_of
from results.statistics import blocks_of, bootstrap_ratio
from results.stored import Stored, samples_ns

Key = tuple[str, str]
IMAGE: Final = "image "
CLIENTS: Final = "clients in "
Sides = Mapping[Key, tuple[Sequence[CaseResult], Sequence[CaseResult]]]
# Kinds of latency behind the metrics that blocks of a single run give an interval for.
KIND_OF: Final = {"acquire-p50": "acquire", "handover-p50": "handover"}
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
# What has to be the same for two cases to be the same experiment.
IDENTITY: Final = (
    "workload",
    "topology",
    "size",
    "network",
    "clients",
    "keys",
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``ending`` is ok, safety, inconclusive, regression or bench. ``repeat`` is one command."""

    kind: Literal["regress", "compare"]
    base: str
    new: str
    ending: str
    headline: str
    changes: Sequence[VerdictChange]
    cells: Sequence[Cell]
    notes: Sequence[str] = field(default_factory=tuple)
    repeat: str = ""

    def document(self) -> Compared:
        """What ``--json`` prints under ``comparison``."""
        return Compared(
            kind=self.kind,
            base=self.base,
            new=self.new,
            ending=self.ending,
            headline=self.headline,
            verdict_changes=tuple(self.changes),
            cells=tuple(cell.document() for cell in self.cells),
            notes=tuple(self.notes),
            repeat=self.repeat,
        )


def verdict_changes(sides: Sides) -> list[VerdictChange]:
    """Every verdict of every case that differs between base and new, what got worse first."""
    found = [
        change
        for (lock, fault), (base, new) in sides.items()
        for verdict in in_order(v for case in (*base, *new) for v in results_of(case))
        if (change := _change(lock, fault, verdict, _tries(base), _tries(new))) is not None
    ]
    rank = ("worse", "open", "as may happen", "better")
    return sorted(found, key=lambda change: rank.index(change.direction))


def _tries(cases: Iterable[CaseResult]) -> list[CaseResult]:
    return [attempt for case in cases for attempt in attempts(case)]


def _change(
    lock: str, fault: str, verdict: str, base: Sequence[CaseResult], new: Sequence[CaseResult]
) -> VerdictChange | None:
    (k_base, n_base), (k_new, n_new) = (k_of_n(tries, verdict) for tries in (base, new))
    expected = next((e for case in new if (e := expected_of(case, verdict))), "undeclared")
    if n_base and not n_new:
        direction, words = "open", "no longer decided"
    elif n_new and not n_base and not k_new:
        direction, words = "better", "decided for the first time"
    elif bool(k_base) is bool(k_new):
        return None
    elif expected in {"may-break", "breaks"}:
        direction, words = "as may happen", f"expected: {expected}"
    elif k_new:
        claimed = expected != "undeclared"
        direction = "worse"
        words = "expected to hold, and broke" if claimed else "nothing is declared, and it broke"
    else:
        direction, words = "better", "broke before, and was not seen to break"
    return VerdictChange(
        lock, fault, verdict, f"{k_base} of {n_base}", f"{k_new} of {n_new}", direction, words
    )


def ending_of_verdicts(sides: Sides) -> str:
    """safety, bench, inconclusive or ok, from the new side's cases; a failed case of either side
    is the bench's failure.

    With several runs of a case, those that were not exposed are tries that do not count; the case
    is inconclusive when none counts, or when any verdict is undecided.
    """
    endings = set()
    for base, new in sides.values():
        endings |= {"safety" for case in new if case.ending == "safety"}
        endings |= {"bench" for case in (*base, *new) if case.ending == "bench"}
        if not any(case.exposed for case in new) or any(map(undecided, new)):
            endings.add("inconclusive")
    return worst(endings)


def worst(endings: Iterable[str]) -> str:
    """The first that there is of safety, bench, inconclusive, regression; else ok."""
    found = set(endings)
    order = ("safety", "bench", "inconclusive", "regression")
    return next((word for word in order if word in found), "ok")


def compare_stored(
    base: Sequence[Stored], new: Sequence[Stored], *, anyway: bool, repeat: str
) -> tuple[Comparison, list[str]]:
    """Two stored sets, and one sentence for each thing that makes them not comparable. With
    ``anyway`` only what both have is compared, and the sentences become notes."""
    differs = differences(base, new)
    notes = list(differs) if anyway else []
    sides = _sides(base, new)
    changes = verdict_changes(sides)
    ending = ending_of_verdicts(sides) if sides else "inconclusive"
    cells = [cell for key, pair in sides.items() for cell in _shown(key, pair, base, new)]
    notes.append(
        "Stored runs show numbers and gate none: the intervals say how far these runs differ, not "
        "what the noise between runs is. `lockbench regress` judges numbers."
    )
    made = Comparison(
        kind="compare",
        base=_names(base),
        new=_names(new),
        ending=ending,
        headline=headline(ending, changes, (), sides),
        changes=changes,
        cells=cells,
        notes=notes,
        repeat=repeat,
    )
    return made, differs


def differences(base: Sequence[Stored], new: Sequence[Stored]) -> list[str]:
    """Sentences; none where the two are the same experiment on the same machine and versions."""
    found = []
    cases = [{_label(c): c for r in runs for c in r.cases} for runs in (base, new)]
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
        if name.startswith((IMAGE, CLIENTS)):
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
    return found


def _changed(base: CaseResult, new: CaseResult) -> list[str]:
    """``name old and new`` for everything that makes two cases of one name two experiments."""
    old, now = ({**_flat(case)} for case in (base, new))
    return [
        f"{name} {old.get(name)} and {now.get(name)}"
        for name in in_order([*old, *now])
        if old.get(name) != now.get(name)
    ]


def _flat(case: CaseResult) -> dict[str, object]:
    found: dict[str, object] = {name: getattr(case, name) for name in IDENTITY}
    phases = {"phases_s": None} if case.phases_s is None else asdict(case.phases_s)
    return found | phases | case.settings


def _sides(
    base: Sequence[Stored], new: Sequence[Stored]
) -> dict[Key, tuple[list[CaseResult], list[CaseResult]]]:
    sides: dict[Key, tuple[list[CaseResult], list[CaseResult]]] = {}
    known = {_label(case) for run in base for case in run.cases}
    for at, runs in enumerate((base, new)):
        for case in (case for run in runs for case in run.cases if not is_published(case)):
            if _label(case) in known:
                sides.setdefault(_label(case), ([], []))[at].append(case)
    return {key: pair for key, pair in sides.items() if all(pair)}


def _label(case: CaseResult) -> Key:
    fault = case.fault
    return lock_of(case), f"{fault}, {case.workload}" if is_published(case) else fault


def _shown(
    key: Key,
    pair: tuple[Sequence[CaseResult], Sequence[CaseResult]],
    base: Sequence[Stored],
    new: Sequence[Stored],
) -> list[Cell]:
    lock, fault = key
    cells = []
    for metric in metrics_of(fault):
        values = [[v for case in of if (v := value_of(case, metric)) is not None] for of in pair]
        if not all(values):
            continue
        old, now = (median(of) for of in values)
        interval = _interval(metric, pair, values, (base, new))
        low, high = (None, None) if interval is None else (end - 1 for end in interval)
        cells.append(
            Cell(
                *(lock, fault, metric, "not judged", min(map(len, values))),
                base=old,
                new=now,
                change=now / old - 1,
                low=low,
                high=high,
            )
        )
    return cells


def _interval(
    metric: str,
    pair: tuple[Sequence[CaseResult], Sequence[CaseResult]],
    values: Sequence[Sequence[float]],
    runs: tuple[Sequence[Stored], Sequence[Stored]],
) -> tuple[float, float] | None:
    """Between single runs from blocks of their operations, between sets from their runs."""
    if min(map(len, values)) > 1 or metric not in KIND_OF:
        whole = [[np.array([value]) for value in of] for of in values]
        return bootstrap_ratio(*whole)
    blocks = []
    for cases, stored in zip(pair, runs, strict=True):
        found = next(run for run in stored for case in run.cases if case is cases[0])
        sample = samples_ns(found.run, cases[0]).get(KIND_OF[metric])
        if sample is None:
            return None
        blocks.append(blocks_of(sample.astype(np.float64)))
    return bootstrap_ratio(*blocks)


def headline(
    ending: str, changes: Sequence[VerdictChange], cells: Sequence[Cell], sides: Sides
) -> str:
    """One sentence that begins with how it ended."""
    if ending == "safety":
        worse = [
            f"{c.lock} under {c.fault}: {c.verdict} {c.new} ({c.words})"
            for c in changes
            if c.direction == "worse"
        ]
        known = [
            f"{lock} under {fault}: {', '.join(broken(case))}, in base too ({case.judgement})"
            for (lock, fault), (_, new) in sides.items()
            for case in new
            if case.ending == "safety"
        ]
        return f"Safety: {'; '.join(worse or in_order(known))}"
    if ending == "bench":
        failed = [
            f"{lock} under {fault} {case.judgement}: {case.why}"
            for (lock, fault), (base, new) in sides.items()
            for case in (*base, *new)
            if case.ending == "bench"
        ]
        return f"The bench failed, which says nothing of the lock: {failed[0]}"
    if ending == "inconclusive":
        few = in_order(f"{c.lock}: {c.words}" for c in cells if c.word == "too few pairs")
        vague = in_order(
            f"{lock} under {fault}: {case.why}"
            for (lock, fault), (_, new) in sides.items()
            for case in new
            if case.ending == "inconclusive"
        )
        return f"Inconclusive: {'; '.join([*few, *vague][:3]) or 'the two have no case in common'}"
    if ending == "regression":
        worse = [change_words(c) for c in cells if c.word == "worse"]
        return f"Slower: {'; '.join(worse)}"
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
