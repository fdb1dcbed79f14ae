"""Verdicts where a part of what some machines recorded is missing.

Nothing is called valid: what is missing may be the violation. Two kinds of violation stand, because
they need only what is there: two promises that overlap (``double-grant``), and a use of the
resource while another one's promise held (``stale-holder``). A promise whose end may be missing
ends before anything is (``lockbench.workloads.worker_process.record_deaths``). Everything else that
is broken may be so because something is missing: a key that seems to be taken by nobody, or an
order that nobody explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from lockbench.checker.verdict import Report, Verdict

STAND: Final = frozenset({"double-grant", "stale-holder"})


def without_missing(report: Report, machines: Sequence[str]) -> Report:
    """What stands of a report where the recordings of these machines did not come back."""
    whose = " and ".join(f"{machine}'s" for machine in machines)
    several = "recordings" if len(machines) > 1 else "recording"
    why = f"{whose} {several} did not come back"

    def weighed(name: str, verdict: Verdict) -> Verdict:
        if verdict.result == "invalid" and name in STAND:
            return replace(verdict, reason=f"{verdict.reason}; {why}")
        if verdict.result == "invalid":
            return Verdict("unknown", f"{why}; so it may be what is missing: {verdict.reason}")
        return Verdict("unknown", f"{why}; {verdict.reason}")

    verdicts = {name: weighed(name, verdict) for name, verdict in report.verdicts.items()}
    return replace(report, verdicts=verdicts)
