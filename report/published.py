"""The experiment that articles on distributed locks cite, beside what was measured here.

Five nodes, 100 concurrent clients. Informational: it decides no exit code. The cited figures carry
no method, machine or source; ours come with all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lockbench.report.grid import Grid, missing, texts
from lockbench.results import wording
from lockbench.results.cases import (
    broken,
    came_to_nothing,
    has_numbers,
    is_generator_bound,
    is_published,
    lock_of,
    quantile_ms,
    rate_per_s,
)
from lockbench.results.documents import CaseResult
from lockbench.results.wording import NONE

# lock → p50 ms, p99 ms, locks per second, recovery
CITED: Final = {
    "redlock": ("2.3", "12", "15,000", "about 100 ms"),
    "zookeeper": ("8.7", "45", "3,200", "about 2 s"),
}
SPARE: Final = 2  # at half of its processors a machine adds no time in queues to speak of
TITLE: Final = "The published experiment, repeated (informational)"
HEADINGS: Final = ("lock", "figures", "p50 ms", "p99 ms", "locks/s", "recovery", "remark")
CAPTION: Final = (
    "Cited figures: 5 nodes, 100 concurrent clients; no method, machine or source is given with "
    "them. Measured: the same numbers of nodes and clients on this machine, clients in Python. "
    "Where the remark says generator-bound, the clients and not the lock set the figures. Cores: "
    "what servers, links, clients and bench used for a lock here, times the cited rate, times two, "
    "so that half of them stay idle. Informational; no part of the exit code."
)


def published_grid(cases: Sequence[CaseResult], cores: int | None = None) -> Grid | None:
    """None when the experiment was not part of the run. ``cores`` are those of the machine."""
    rows: list[list[str]] = []
    for case in (case for case in cases if is_published(case)):
        rows.append(_measured(case, cores))
        if lock_of(case) in CITED:
            rows.append([lock_of(case), "cited", *CITED[lock_of(case)], ""])
    return texts("published", TITLE, HEADINGS, rows, CAPTION) if rows else None


def cores_needed(case: CaseResult, cores: int | None) -> float | None:
    """How many processors like these the cited rate takes; None where it is not known."""
    cited, carried = CITED.get(lock_of(case)), rate_per_s(case)
    used = case.generator and case.generator.processors and case.generator.processors.parts
    if not cited or not carried or not used or not cores:
        return None
    busy = cores * sum(part.used_percent for part in used.values()) / 100
    return SPARE * busy / carried * float(cited[2].replace(",", ""))


def _measured(case: CaseResult, cores: int | None) -> list[str]:
    kind = _kind(case)
    needed = cores_needed(case, cores) if is_generator_bound(case) else None
    remarks = [
        "generator-bound" if is_generator_bound(case) else "",
        ""
        if needed is None
        else f"a machine with {needed:.0f} such cores could carry the cited rate",
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
