"""Verdicts where a part of what some machines recorded is missing.

Nothing is called valid: what is missing may be the violation. Two kinds of violation stand, because
they need only what is there: two promises that overlap (``double-grant``), and a use of the
resource while another one's promise held (``stale-holder``). A promise whose end may be missing
ends before anything is: the bench records the death of each process of such a machine
(``lockbench.workloads.worker_process.record_deaths``), and where a hold has neither that nor a
release, nothing stands. Everything else that is broken may be so because something is missing: a
key that seems to be taken by nobody, or an order that nobody explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.verdict import Report, Verdict
from lockbench.history.columns import History
from lockbench.history.op import F

STAND: Final = frozenset({"double-grant", "stale-holder"})


def without_missing(report: Report, history: History) -> Report:
    """What stands of the report on a history of which the recordings of some machines did not come
    back."""
    machines = history.missing
    stand = STAND if _ends_are_known(history, machines) else frozenset()
    whose = " and ".join(f"{machine}'s" for machine in machines)
    several = "recordings" if len(machines) > 1 else "recording"
    why = f"{whose} {several} did not come back"

    def weighed(name: str, verdict: Verdict) -> Verdict:
        if verdict.result == "invalid" and name in stand:
            return replace(verdict, reason=f"{verdict.reason}; {why}")
        if verdict.result == "invalid":
            return Verdict("unknown", f"{why}; so it may be what is missing: {verdict.reason}")
        return Verdict("unknown", f"{why}; {verdict.reason}")

    verdicts = {name: weighed(name, verdict) for name, verdict in report.verdicts.items()}
    return replace(report, verdicts=verdicts)


def _ends_are_known(history: History, machines: Sequence[str]) -> bool:
    """Whether each hold of a process of these machines was released, or the process has ended."""
    if history.machine is None:
        return False
    held = Analysis.of(history).promises
    open_ = held.row[held.release < 0]
    theirs = [n for n, machine in enumerate(history.machines) if machine in machines]
    mine = open_[np.isin(history.machine[open_], theirs)]
    dead = history.process[history.f == F.DEATH]
    return bool(np.all(np.isin(history.process[mine], dead)))
