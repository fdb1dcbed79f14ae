"""A disk that fills up under a run: one sentence, an ending, and all that was recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from rich.console import Console

from lockbench.bench import room, suite
from lockbench.bench.plan import make_case
from lockbench.bench.run import Outcome
from lockbench.clusters.builds import Builds
from lockbench.history.lines import UnreadableHistory
from lockbench.history.op import F, Fault, Type
from lockbench.history.recorder import Recorder
from lockbench.history.recording import read_recording, write_faults, write_meta
from lockbench.report import write
from lockbench.results import machine
from lockbench.results.documents import CaseResult, Machine, Results, Versions, made
from lockbench.results.errors import BadInput, Failed
from lockbench.results.store import RESERVE, RunFolder, open_run
from tests.results.plain import write_case, write_results
from tests.tiny_disk import fill, tiny_disk

__all__ = ["tiny_disk"]

Play = Callable[[Path], None]
BIG = "x" * 100_000
CASE = {"lock": "lock", "fault": "none", "why": BIG}


# --- the run folder ------------------------------------------------------------------------------


def test_what_is_reserved_is_enough_to_say_how_it_ended(tiny_disk: Path) -> None:
    run = RunFolder.create(tiny_disk / "runs", "full")
    case = run.case(1, "lock", "none")
    write_results(run, {"ending": "running", "cases": []})
    fill(tiny_disk)
    write_case(case, CASE)
    write_results(run, {"ending": "bench", "cases": [], "name": BIG})
    run.finish("bench")
    found = open_run(run.path)
    assert found.ending == "bench"
    assert found.results() == Results(ending="bench", cases=(), name=BIG)
    assert case.read_case() == made(CaseResult, CASE)
    assert not (run.path / RESERVE).exists()


def test_without_anything_reserved_the_ending_is_written_in_place(tiny_disk: Path) -> None:
    run = RunFolder.create(tiny_disk / "runs", "full")
    write_results(run, {"ending": "running", "cases": []})
    fill(tiny_disk)
    (run.path / RESERVE).unlink()
    fill(tiny_disk)
    with pytest.raises(OSError, match="No space left"):
        write_results(run, {"cases": [], "name": BIG})
    run.finish("inconclusive")
    found = open_run(run.path)
    assert found.ending == "inconclusive"
    assert found.results() == Results(ending="running", cases=()), "what was there is whole"
    assert not [path for path in run.path.iterdir() if path.name.endswith(".tmp")]


def test_a_reserve_of_others_is_not_given_up(tiny_disk: Path) -> None:
    (tiny_disk / RESERVE).write_bytes(bytes(4096))
    run = RunFolder.create(tiny_disk / "runs", "full")
    fill(tiny_disk)
    (run.path / RESERVE).unlink()
    fill(tiny_disk)
    with pytest.raises(OSError, match="No space left"):
        write_results(run, {"cases": [], "name": BIG})
    assert (tiny_disk / RESERVE).exists()


def test_a_finished_run_reserves_nothing(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "whole")
    assert (run.path / RESERVE).stat().st_blocks > 0
    run.finish("ok")
    assert not (run.path / RESERVE).exists()


# --- the recording -------------------------------------------------------------------------------

RECORD = """
import sys
from pathlib import Path
from lockbench.history.op import F
from lockbench.history.recorder import Recorder
recorder = Recorder(Path(sys.argv[1]), 1)
try:
    recorder.invoke(1, F.ACQUIRE, "k0")
except OSError as error:
    print(error.strerror)
"""


def test_a_recorder_without_room_says_so(tiny_disk: Path) -> None:
    """And is not killed by the kernel, which would leave nobody to say why."""
    (tiny_disk / "history").mkdir()
    fill(tiny_disk)
    words = [sys.executable, "-c", RECORD, str(tiny_disk / "history")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "No space left on device\n"), done.stderr


def test_what_is_written_of_a_recording_is_whole_or_not_there(tiny_disk: Path) -> None:
    history = tiny_disk / "history"
    recorder = Recorder(history, 1)
    recorder.complete(recorder.invoke(1, F.ACQUIRE, "k0"), Type.OK)
    recorder.close()
    write_meta(history, {}, wall_minus_monotonic_ns=0)
    fault = Fault("pause", ("redis-1",), (1, 2), (3, 4), facts={"said": BIG})
    write_faults(history, [fault])
    fill(tiny_disk)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            write_faults(history, [fault, fault])
        assert [f.name for f in read_recording(history).faults] == ["pause"]
        assert not [path for path in history.iterdir() if path.name.endswith(".tmp")]


def test_a_string_that_was_cut_off_is_named_by_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 1)
    recorder.complete(recorder.invoke(1, F.ACQUIRE, "k0"), Type.OK)
    recorder.close()
    write_meta(tmp_path, {}, wall_minus_monotonic_ns=0)
    strings = tmp_path / "1.strings"
    whole = strings.read_bytes()
    strings.write_bytes(whole + b'"half a te')
    assert read_recording(tmp_path).keys == ("k0",)
    strings.write_bytes(whole[:-2])
    with pytest.raises(UnreadableHistory, match="names a string"):
        read_recording(tmp_path)


# --- the run -------------------------------------------------------------------------------------


class Nobody:
    """In the place of the fork server."""

    def __init__(self, _run_id: str) -> None:
        pass

    def __enter__(self) -> Nobody:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def played(tiny_disk: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Play], Path]:
    """Runs two cases without a cluster; ``play`` does in the case's folder what it likes. Answers
    the run's folder, after Failed."""
    monkeypatch.chdir(tiny_disk)
    nothing = Builds([], lambda _: None, lambda _: None)
    engine = SimpleNamespace(version=lambda: "1")
    monkeypatch.setattr(suite, "begun", lambda *_: (nothing, engine))
    monkeypatch.setattr(suite, "versions_of", lambda *_: Versions())
    monkeypatch.setattr(suite, "ForkServer", Nobody)
    monkeypatch.setattr(machine, "facts", lambda *_, **__: Machine())
    monkeypatch.setattr(room, "CASE_FREE_MIN_BYTES", 6 * 2**20)
    monkeypatch.setattr(room, "FULL_BYTES", 1)

    def run(play: Play) -> Path:
        def run_case(_case: Any, folder: Path, **_: Any) -> Outcome:
            play(folder)
            document = CaseResult(
                lock="redis-token",
                fault="none",
                judgement="bench",
                why="no space",
                ending="bench",
                numbers="void",
            )
            return Outcome(document, {})

        monkeypatch.setattr(suite, "run_case", run_case)
        monkeypatch.setattr(write, "files", lambda *_: {"table.csv": "a,b\n"})
        cases = [make_case("redis-token", "none", seed=seed) for seed in (0, 1)]
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123
            console = Console(file=nowhere)
            with pytest.raises(Failed, match=r"where the run is written \(.*/runs/.*\)"):
                suite.run_cases(cases, "full", console)
        return (tiny_disk / "runs" / "latest").resolve()

    return run


def ended(run: Path, cases: int) -> None:
    found = open_run(run)
    assert found.ending == "bench"
    results = found.results()
    assert results.ending == "bench"
    assert len(results.cases) == cases
    for path in run.rglob("*.json"):
        json.loads(path.read_text())


def test_a_case_that_fills_the_disk_is_told_and_no_other_is_begun(
    played: Callable[[Play], Path], tiny_disk: Path
) -> None:
    ended(played(lambda _: fill(tiny_disk)), 1)


def test_a_case_that_cannot_write_ends_the_run(
    played: Callable[[Play], Path], tiny_disk: Path
) -> None:
    def play(folder: Path) -> None:
        fill(tiny_disk)
        (folder / "history" / "meta.json").write_text("{}")

    run = played(play)
    assert open_run(run).ending == "bench"
    (run / "cases" / "01-redis-token-none" / "history" / "meta.json").unlink()
    ended(run, 0)


def test_a_limit_of_file_sizes_is_told_too(played: Callable[[Play], Path]) -> None:
    def play(_: Path) -> None:
        raise OSError(27, "File too large")

    ended(played(play), 0)


def test_an_error_beside_enough_room_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine"), room.in_one_sentence(tmp_path):
        raise ValueError("mine")


@pytest.mark.parametrize(
    ("function", "found", "said"),
    [
        ("disk_usage", SimpleNamespace(free=10**9), r"0\.9 GiB are free where runs are written"),
        ("virtual_memory", SimpleNamespace(available=10**9), r"0\.9 GiB of memory"),
    ],
)
def test_too_little_is_named_before_a_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str, found: object, said: str
) -> None:
    monkeypatch.setattr(psutil, function, lambda *_: found)
    with pytest.raises(BadInput, match=said):
        room.check_room(tmp_path)


def test_room_is_looked_for_where_the_runs_will_be(tiny_disk: Path) -> None:
    """Also behind a link, and before the folder is there."""
    with pytest.raises(BadInput, match=r"0\.0 GiB are free where runs are written"):
        room.check_room(tiny_disk / "not" / "yet")
    elsewhere = tiny_disk.parent / "runs"
    elsewhere.symlink_to(tiny_disk)
    with pytest.raises(BadInput, match=str(tiny_disk)):
        room.check_room(elsewhere)
    room.check_room(tiny_disk.parent / "other")


def test_where_no_run_can_be_written_is_told_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "runs"
    file.touch()
    with pytest.raises(BadInput, match="name one with --runs"):
        room.check_room(file)
    room.check_room(tmp_path / "not" / "yet")
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(BadInput, match="cannot be written"):
        room.check_room(tmp_path / "not" / "yet")
