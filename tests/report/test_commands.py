"""The commands report and export, and the report at the end of a run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lockbench.report import charts, commands
from lockbench.results.errors import BadInput
from tests.command import lockbench
from tests.results.made_run import make_run


def test_report_and_export_as_commands(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs")
    done = lockbench("report", str(run.path))
    assert done.returncode == 0, done.stderr
    assert str(run.path / "report.html") in done.stdout
    assert (run.path / "report.html").exists()
    out = tmp_path / "out"
    done = lockbench("export", str(run.path), "--format", "parquet", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert (out / "latency.parquet").exists()


def test_what_is_no_run_ends_with_254(tmp_path: Path) -> None:
    for arguments in (
        ("report", str(tmp_path / "nowhere")),
        ("report", str(tmp_path)),
        ("export", str(tmp_path), "--format", "csv", "--out", str(tmp_path / "out")),
        ("export", str(tmp_path), "--format", "csv"),
    ):
        done = lockbench(*arguments)
        assert done.returncode == 254, (arguments, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_fails_says_so_and_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    assert "report.html" in commands.report_after(run.path)
    next(run.cases()[0].history.glob("*.ops")).unlink()
    said = commands.report_after(run.path)
    assert said.startswith("the report failed (")
    assert "tries again" in said
    assert run.ending == "ok"
    with pytest.raises(BadInput, match="is missing"):
        commands.report(run.path)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", stopped)
    assert "interrupted" in commands.report_after(run.path)


def test_without_the_library_that_draws_a_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "CAN_DRAW", False)
    run = make_run(tmp_path / "runs")
    said = commands.report(run.path)
    assert said.endswith("charts are not drawn here: pip install 'lockbench[charts]'")
    assert charts.NOT_DRAWN in (run.path / "report.html").read_text()
