from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from lockbench.report import tables
from lockbench.report.write import files
from lockbench.results.documents import Results, made
from lockbench.results.store import RunFolder, open_run
from tests.results.plain import write_json, write_machine, write_versions

CASE = {
    "lock": "etcd",
    "fault": "none",
    "judgement": "as expected",
    "exposed": True,
    "verdicts": {"double-grant": {"result": "valid", "reason": "", "evidence": []}},
}


def run_with(tmp_path: Path, cases: object) -> RunFolder:
    run = RunFolder.create(tmp_path, "quick")
    write_machine(run, {"cpu": "Some CPU"})
    write_versions(run, {"libraries": {"redis": "8.1.0"}})
    write_json(run.path / "results.json", {"cases": cases, "ending": "ok"})
    return run


def test_a_report_is_drawn_again_from_the_folder_alone(tmp_path: Path) -> None:
    run = run_with(tmp_path, [CASE])
    results = made(Results, {"cases": [CASE], "ending": "ok"})
    first = files(run, results)
    assert set(first) == {"report.md", "cases.csv", "latency.csv", "verdicts.csv"}
    assert "Some CPU" in first["report.md"]
    assert run.path.name in first["report.md"]
    run.finish("ok")
    stored = open_run(run.path)
    assert files(stored, stored.results()) == first
    out = io.StringIO()
    tables.show(stored, stored.results(), Console(file=out, width=100))
    assert "✓ kept" in out.getvalue()
