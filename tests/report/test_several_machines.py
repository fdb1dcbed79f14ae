"""A case of several machines is shown on one clock, as its verdicts are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lockbench.checker.check import check
from lockbench.checker.clocks import on_one_clock
from lockbench.checker.drawing import figure
from lockbench.history.columns import History
from lockbench.history.op import Object
from lockbench.report import source
from lockbench.results.alert_replay import replay
from lockbench.results.documents import CaseResult, Series
from lockbench.results.store import CaseFolder, RunFolder
from perf.machines import MS, Clock, Machines, simulated

HOURS_NS = 3600 * 1_000_000_000


@pytest.fixture(scope="module")
def recorded() -> History:
    """A second on two machines whose clocks are five hours apart, with two holders at once."""
    clocks = (Clock(off_ns=0), Clock(off_ns=5 * HOURS_NS))
    fleet = Machines(2, 2, 300, clocks=clocks, planted_ns=(60 * MS,) * 4, held_ns=5 * MS)
    found, _ = simulated(fleet, 1)
    objects = {key: Object(known.kind, role="contended") for key, known in found.objects.items()}
    return replace(found, objects=objects)


def test_figures_and_times_are_of_the_rows_that_verdicts_name(
    recorded: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_history", lambda *_: recorded)
    placed = on_one_clock(recorded)
    series = Series(int(placed.invoke_ns[0]), (1, 2, 3))
    case = CaseResult(
        lock="redis-token", fault="none", folder="01", judgement="as expected", series=series
    )
    seen = source._seen(1, case, {"01": CaseFolder(tmp_path)}, RunFolder(tmp_path))
    assert seen.line is not None
    assert seen.line.end_s < 60
    verdict = check(recorded).verdicts["double-grant"]
    assert verdict.result == "invalid"
    assert seen.figures["double-grant"] == figure(placed, "double-grant", verdict)
    (violation,) = [one for one in seen.replayed if one.verdict == "double-grant"]
    assert 0 <= violation.at_s < seen.line.end_s


def test_alerts_are_replayed_on_one_clock(recorded: History) -> None:
    placed = on_one_clock(recorded)
    assert replay(recorded) == replay(placed)
