"""``lockbench compare`` and ``adr`` at the command line: one sentence, 254, nothing overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from lockbench.cli import adr
from lockbench.evidence.adr_tree import Answers
from lockbench.results.errors import BadInput
from lockbench.results.store import RunFolder
from tests.command import lockbench
from tests.results.plain import write_machine, write_plan, write_results, write_versions


def finished(tmp_path: Path, **results: object) -> Path:
    run = RunFolder.create(tmp_path, "quick")
    write_plan(run, {})
    write_machine(run, {})
    write_versions(run, {})
    write_results(run, {"cases": [], "ending": "ok"} | results)
    run.finish("ok")
    return run.path


@pytest.mark.parametrize("command", [["compare", "RUN", "RUN"], ["adr", "RUN"]])
@pytest.mark.parametrize(
    ("results", "said"),
    [
        ({}, "holds no case"),
        ({"parts": ["runs/a", "runs/b"]}, "sums up a night; give one of its runs: runs/a, runs/b"),
        ({"cases": [{"lock": "etcd", "fault": "none"}]}, "does not say which folder is its own"),
        (
            {"cases": [{"lock": "etcd", "fault": "none", "folder": "01-x"}]},
            "its case.json is missing",
        ),
    ],
)
def test_what_is_no_evidence_is_refused(
    tmp_path: Path, command: list[str], results: dict[str, object], said: str
) -> None:
    path = finished(tmp_path, **results)
    ended = lockbench(*[str(path) if word == "RUN" else word for word in command])
    assert ended.returncode == 254
    # Lines are broken for the terminal, in paths too.
    assert said.replace(" ", "") in "".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_with_json_even_a_refusal_is_json(tmp_path: Path) -> None:
    ended = lockbench("compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json")
    assert json.loads(ended.stdout)["exit"] == 254


def test_at_a_terminal_it_asks_for_what_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter(["disaster", "20", "", "etcd=3", ""])
    monkeypatch.setattr(typer, "prompt", lambda *_, **__: next(told))
    asked = adr.asked_for(Answers(already_have=("redis",)))
    assert asked == Answers("correctness", 20.0, None, ("redis",), (("etcd", 3.0),))
    told = iter(["perhaps", *[""] * 5])
    with pytest.raises(BadInput, match="it is correctness or efficiency"):
        adr.asked_for(Answers())
    told = iter(["nuisance", "fast", *[""] * 4])
    with pytest.raises(BadInput, match="this must be a number"):
        adr.asked_for(Answers())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--needs", "speed"], "--needs speed: it is correctness or efficiency"),
        (["--p99-ms", "0"], "--p99-ms is 0"),
        (["--costs", "etcd"], "--costs etcd: it is written NAME=NUMBER"),
        (["--output", "here.md"], "here.md exists; a record is never overwritten"),
    ],
)
def test_a_record_needs_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.md").write_text("mine")
    ended = lockbench("adr", str(finished(tmp_path)), *words)
    assert ended.returncode == 254
    assert said in " ".join(ended.stderr.split())
    assert (tmp_path / "here.md").read_text() == "mine"
