"""The command ``lockbench alerts``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from lockbench.results.alert_metrics import ALERTS, rules
from tests.command import lockbench
from tests.results.made_run import make_run
from tests.results.plain import write_results


def test_it_prints_the_file_for_prometheus_and_nothing_else(tmp_path: Path) -> None:
    """From a folder that is not the checkout, where ``results`` alone is no module."""
    start = "from lockbench.cli.main import main; main()"
    line = [sys.executable, "-c", start, "alerts", "--rules"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == rules()


def test_every_violation_of_a_run_has_an_answer_from_every_alert(tmp_path: Path) -> None:
    run = make_run(tmp_path, double=True)
    done = lockbench("alerts", str(run.path), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (case,) = found["cases"]
    assert (case["lock"], case["fault"]) == ("etcd", "pause")
    violation = next(v for v in case["violations"] if v["verdict"] == "double-grant")
    names = [alert.name for alert in ALERTS]
    for reading in ("recorded", "repeated"):
        assert [sight["alert"] for sight in violation[reading]] == names
        assert all(sight["why"] for sight in violation[reading] if sight["word"] != "fires")
    assert found["summary"]["recorded_seen_by_field"] == 0
    assert found["cases_without_history"] == 0
    plain = lockbench("alerts", str(run.path))
    assert plain.returncode == 0, plain.stderr
    assert "double-grant" in plain.stdout
    assert "the recommended alerts notice 0" in " ".join(plain.stdout.split())


def test_a_case_without_a_history_is_counted_and_not_judged(tmp_path: Path) -> None:
    run = make_run(tmp_path, faults={"pause": True, "none": False})
    cases = [run.results().cases[0], {"lock": "redlock", "fault": "kill", "judgement": "failed"}]
    write_results(run, {"name": "quick", "cases": cases, "ending": "bench"})
    done = lockbench("alerts", str(run.path), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [case["fault"] for case in found["cases"]] == ["pause"]
    assert found["cases_without_history"] == 1
    assert "of which nothing is known: 1" in lockbench("alerts", str(run.path)).stdout


def test_what_cannot_be_answered_ends_with_254(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs")
    next(run.cases()[0].history.glob("*.ops")).write_bytes(b"something else")
    for arguments in (
        (),
        ("--rules", str(run.path)),
        (str(tmp_path / "nowhere"),),
        (str(run.path),),  # its history is not the one that was judged
    ):
        done = lockbench("alerts", *arguments)
        assert done.returncode == 254, (arguments, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
