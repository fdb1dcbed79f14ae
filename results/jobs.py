"""What was done under the locks of a run, and without them, side by side: one row a case.

For workloads that record whole jobs. Latency is of a whole job on a contended key, from its start
to its confirmed end; what went wrong and what a fence would have refused is of the whole case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from results import wording
from results.cases import Case, fault_of, lock_of, phases_of
from results.wording import NONE

TITLE: Final = "Jobs: correctness, latency, throughput, conflicts"
CAPTION: Final = (
    "A job: a whole piece of work on a shared key, ms, p50 / p99, from its start (closed load) or "
    "its arrival (open load). Conflicts: tries that met somebody who was first; a lock has none, "
    "it waits. Stale: what holders did after their time, and how much of it each fence would have "
    "refused."
)
WRONG: Final = {"oversold": "sold twice", "repeated": "done again"}
POLICIES: Final = {
    "fence-on-write": "fence on write",
    "fence-on-read-and-write": "on read and write",
    "random-token-cas": "random token",
}


def jobs_grid(cases: Sequence[Case]) -> pd.DataFrame | None:
    """None where no case recorded jobs."""
    rows = [
        row
        for case in cases
        for name, numbers in _mapping(_mapping(case.get("measurements")).get("jobs")).items()
        for row in _rows(case, name, _mapping(numbers))
    ]
    return pd.DataFrame(rows) if rows else None


def _rows(case: Case, name: str, numbers: Mapping[str, Any]) -> list[dict[str, str]]:
    if "done" not in numbers:
        return []
    tries, done = numbers.get("tries", 0), numbers["done"]
    wrong = [f"{numbers[key]:,} {what}" for key, what in WRONG.items() if numbers.get(key)]
    unsure = [
        f"{numbers[key]:,} {what}"
        for key, what in (("not_done", "not done"), ("unknown", "unknown"))
        if numbers.get(key)
    ]
    conflicts = numbers.get("conflicts", 0)
    rates = _mapping(case.get("cycles_per_second_by_phase"))
    return [
        {
            "fault": fault_of(case),
            "lock": lock_of(case) if first else "",
            "job": str(case.get("workload", name)) if first else "",
            "phase": phase,
            "ms": _latency(case, phase),
            "per s": wording.rate(rates.get(phase)),
            "done": ", ".join([f"{done:,}", *unsure]) if first else "",
            "conflicts": _share(conflicts, tries) if first and not _locked(case) else "",
            "wrong": (", ".join(wrong) or "nothing") if first else "",
            "stale": _stale(case) if first else "",
        }
        for phase in phases_of(case)
        for first in (phase == phases_of(case)[0],)
    ]


def _locked(case: Case) -> bool:
    """Whether a lock was asked for at all."""
    return bool(_mapping(case.get("counts")).get("acquire"))


def _latency(case: Case, phase: str) -> str:
    for basis in ("response_ms", "latency_ms"):
        found = _mapping(_mapping(_mapping(case.get(basis)).get("job")).get(phase))
        if found.get("count"):
            text = wording.pair(found.get("p50"), found.get("p99"))
            return text if case.get("numbers") == "valid" else f"({text})"
    return NONE


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} tries" if part else "none"


def _stale(case: Case) -> str:
    """``2 attempted; refused: 2 fence on write, 2 random token``."""
    scored = _mapping(_mapping(case.get("measurements")).get("fencing"))
    attempted = _mapping(scored.get("unfenced")).get("stale_attempted")
    if not attempted:
        return NONE if attempted is None else "none"
    refused = [
        f"{_mapping(scored[policy])['stale_refused']:,} {words}"
        for policy, words in POLICIES.items()
        if policy in scored
    ]
    return f"{attempted:,} attempted; refused: {', '.join(refused)}"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
