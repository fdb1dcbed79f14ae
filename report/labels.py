"""What rows of cases are called, where one lock has several."""

from __future__ import annotations

from collections.abc import Sequence

from lockbench.results.cases import is_control, lock_of
from lockbench.results.documents import CaseResult


def row_labels(cases: Sequence[CaseResult]) -> list[str]:
    """The lock's name, with whatever else tells two of its cases apart."""

    def distinct(case: CaseResult, field: str) -> bool:
        return len({getattr(c, field) for c in cases if lock_of(c) == lock_of(case)}) > 1

    labels = []
    for case in cases:
        extras = [
            str(getattr(case, field)) + (" nodes" if field == "size" else "")
            for field in ("topology", "size", "network", "workload", "clients")
            if distinct(case, field) and not (field == "clients" and distinct(case, "workload"))
        ]
        control = "\n(control)" if is_control(case) else ""
        labels.append(lock_of(case) + "".join(f", {extra}" for extra in extras) + control)
    return labels


def flat_labels(cases: Sequence[CaseResult]) -> list[str]:
    """The same, each in one line."""
    return [label.replace("\n", " ") for label in row_labels(cases)]
