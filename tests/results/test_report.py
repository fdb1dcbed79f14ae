from __future__ import annotations

from pathlib import Path

import pytest

from results.report import stored_tables, write_report
from results.store import NotARun, RunFolder, open_run
from results.tables import tables

CASE = {
    "lock": "etcd",
    "fault": "none",
    "judgement": "as expected",
    "exposed": True,
    "verdicts": {"double-grant": {"result": "valid", "reason": "", "evidence": []}},
}


def run_with(tmp_path: Path, cases: object) -> RunFolder:
    run = RunFolder.create(tmp_path, "quick")
    run.write_machine({"cpu": "Some CPU"})
    run.write_versions({"redis": "8.1.0"})
    run.write_results({"cases": cases, "ending": "ok"})
    return run


def test_a_report_is_drawn_again_from_the_folder_alone(tmp_path: Path) -> None:
    run = run_with(tmp_path, [CASE])
    facts = {"cpu": "Some CPU"}
    report = write_report(run, tables([CASE], machine=facts, versions={"redis": "8.1.0"}))
    run.finish("ok")
    first = report.read_text(encoding="utf-8")
    assert "Some CPU" in first
    assert {path.name for path in run.path.glob("*.csv")} == {
        "cases.csv", "latency.csv", "verdicts.csv"
    }  # fmt: skip
    again = write_report(run, stored_tables(open_run(run.path)))
    assert again.read_text(encoding="utf-8") == first


def test_results_without_cases_are_named(tmp_path: Path) -> None:
    for wrong in (None, {"a": 1}, ["etcd"]):
        run = run_with(tmp_path, wrong)
        run.finish("ok")
        with pytest.raises(NotARun, match="no list of cases"):
            stored_tables(run)
