"""A whole case without containers whose processes somebody else meddles with: it is void, what
broke before is told, and what an offline judge says of it is the same."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from lockbench.bench.plan import Case
from lockbench.checker.check import check
from lockbench.history.recording import read_recording
from tests.bench.test_stopped_cases import CASE, Play, fake, play
from tests.eventually import eventually
from tests.results.plain import plain
from tests.workloads import unsafe

__all__ = ["play"]

pytestmark = pytest.mark.slow
EVERYBODY = replace(CASE, lock=f"{unsafe.__file__}:Everybody", clients=4)


def processes(folder: Path, name: str) -> list[int]:
    """Those that write to this log of the case."""
    log = (folder / "logs" / f"{name}.log").resolve()
    return [pid for pid in psutil.pids() if _writes_to(pid, log)]


def _writes_to(pid: int, log: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/fd/1").resolve() == log
    except OSError:
        return False


Meddle = Callable[[], None]
Played = Callable[[Path, Case, Meddle], dict[str, Any]]


@pytest.fixture
def played(play: Play, monkeypatch: pytest.MonkeyPatch) -> Played:
    """Plays a case into a folder while somebody meddles with it; its document."""
    fake(monkeypatch)

    def played(folder: Path, case: Case, meddle: Meddle) -> dict[str, Any]:
        def meddling() -> None:
            control = folder / "control"
            # From when the load has begun (``lockbench.workloads.control``: the first field is its
            # start).
            eventually(lambda: control.exists() and any(control.read_bytes()[:8]), limit_s=60)
            time.sleep(1.5)
            meddle()

        thread = threading.Thread(target=meddling)
        thread.start()
        outcome = play(folder, case)
        thread.join()
        found: dict[str, Any] = plain(outcome.document)
        return found

    return played


def stopped_for(folder: Path, seconds: float) -> None:
    def workers() -> list[int]:
        return [pid for worker in range(3) for pid in processes(folder, f"worker-{worker}")]

    eventually(lambda: len(workers()) == 3)
    mine = workers()
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in mine:
            os.kill(pid, number)
        if number == signal.SIGSTOP:
            time.sleep(seconds)


def test_workers_that_were_stopped_void_the_case(tmp_path: Path, played: Played) -> None:
    case = played(tmp_path, CASE, lambda: stopped_for(tmp_path, 0.6))
    assert (case["judgement"], case["ending"]) == ("disturbed", "bench"), case["why"]
    assert case["numbers"] == "void"
    assert {one["who"] for one in case["outside"]} == {"worker-0", "worker-1", "worker-2"}
    assert "worker-0 was stopped from outside for" in case["why"]


def test_a_worker_that_somebody_kills_is_named(tmp_path: Path, played: Played) -> None:
    def kill() -> None:
        (pid,) = processes(tmp_path, "worker-1")
        os.kill(pid, signal.SIGKILL)

    case = played(tmp_path, CASE, kill)
    assert (case["judgement"], case["ending"]) == ("disturbed", "bench")
    (one,) = case["outside"]
    assert (one["who"], one["for_s"]) == ("worker-1", None)
    assert case["why"].startswith("worker-1 ended, and not by this run, ")


def test_what_broke_before_is_told_and_offline_it_is_the_same(
    tmp_path: Path, played: Played
) -> None:
    case = played(tmp_path, EVERYBODY, lambda: stopped_for(tmp_path, 0.6))
    assert case["outside"]
    assert case["observed"]["double-grant"] == "invalid"
    assert case["ending"] == "safety"
    again = check(read_recording(tmp_path / "history")).verdicts
    assert {name: verdict.result for name, verdict in again.items()} == case["observed"]


def test_nobody_meddles_and_nothing_is_found(tmp_path: Path, played: Played) -> None:
    case = played(tmp_path, CASE, lambda: None)
    assert "outside" not in case, case["why"]
    assert case["judgement"] != "disturbed"
