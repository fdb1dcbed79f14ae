"""The experiment that articles on distributed locks cite, beside what was measured here.

Five nodes, 100 concurrent clients. Informational: it decides no exit code. The cited figures carry
no method, machine or source; ours come with all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from report.grid import Grid, missing, texts
from results import wording
from results.cases import (
    broken,
    came_to_nothing,
    has_numbers,
    is_generator_bound,
    is_published,
    lock_of,
    quantile_ms,
    rate_per_s,
)
from results.documents import CaseResult
from results.wording import NONE

# lock → p50 ms, p99 ms, locks per second, recovery
CITED: Final = {
    "redlock": ("2.3", "12", "15,000", "about 100 ms"),
    "zookeeper": ("8.7", "45", "3,200", "about 2 s"),
}
TITLE: Final = "The published experiment, repeated (informational)"
HEADINGS: Final = ("lock", "figures", "p50 ms", "p99 ms", "locks/s", "recovery", "remark")
CAPTION: Final = (
    "Cited figures: 5 nodes, 100 concurrent clients; no method, machine or source is given with "
    "them. Measured: the same numbers of nodes and clients on this machine, clients in Python. "
    "Where the remark says generator-bound, the clients and not the lock set the figures. "
    "Informational; no part of the exit code."
)


def published_grid(cases: Sequence[CaseResult]) -> Grid | None:
    """None when the experiment was not part of the run."""
    rows: list[list[str]] = []
    for case in (case for case in cases if is_published(case)):
        rows.append(_measured(case))
        if lock_of(case) in CITED:
            rows.append([lock_of(case), "cited", *CITED[lock_of(case)], ""])
    return texts("published", TITLE, HEADINGS, rows, CAPTION) if rows else None


def _measured(case: CaseResult) -> list[str]:
    kind = _kind(case)
    remarks = [
        "generator-bound" if is_generator_bound(case) else "",
        "keys shared" if kind == "wait" else "",
        f"{case.size} nodes" if case.size not in {None, 5} else "",
        f"{case.clients} clients" if case.clients not in {None, 100} else "",
        f"✗ {', '.join(broken(case))}" if broken(case) else "",
        (case.why or "failed") if came_to_nothing(case) else "",
    ]
    figures = [
        wording.ms(quantile_ms(case, kind, "before", "p50")),
        wording.ms(quantile_ms(case, kind, "before", "p99")),
        wording.rate(rate_per_s(case)),
    ]
    return [
        lock_of(case),
        "measured",
        *(f if has_numbers(case) or missing(f) else f"({f})" for f in figures),
        NONE,
        ", ".join(remark for remark in remarks if remark),
    ]


def _kind(case: CaseResult) -> str:
    """Own keys, unless the case was run with shared ones."""
    own, shared = (quantile_ms(case, kind, "before", "count") for kind in ("acquire", "wait"))
    return "wait" if shared and not own else "acquire"
