"""A whole case without containers whose processes somebody else meddles with: it is void, what
broke before is told, and what an offline judge says of it is the same."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from lockbench.bench.plan import Case
from lockbench.checker.check import check
from lockbench.history.recording import read_recording
from tests.bench import test_stopped_cases
from tests.bench.test_stopped_cases import Play, fake, play
from tests.eventually import eventually, one_of
from tests.results.plain import plain
from tests.workloads import unsafe

__all__ = ["play"]

pytestmark = pytest.mark.slow
WORKERS = ("worker-0", "worker-1", "worker-2")
CASE = replace(test_stopped_cases.CASE, time_limit_s=5.0)
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
    mine = [pid for worker in WORKERS for pid in processes(folder, worker)]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in mine:
            strike(pid, number)
        if number == signal.SIGSTOP:
            time.sleep(seconds)


def strike(pid: int, number: signal.Signals) -> None:
    """Unless the load is over, as it may be where this process stood still."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def disturbed(
    played: Played, folder: Path, case: Case, meddle: Callable[[Path], None], whom: Sequence[str]
) -> tuple[Path, dict[str, Any]]:
    """A case of which somebody disturbs these alone: its folder and its document."""

    def once(number: int) -> tuple[Path, dict[str, Any]]:
        into = folder / str(number)
        return into, played(into, case, lambda: meddle(into))

    def those_alone(found: tuple[Path, dict[str, Any]]) -> bool:
        return sorted(one["who"] for one in found[1].get("outside", ())) == sorted(whom)

    return one_of(once, those_alone)


def test_workers_that_were_stopped_void_the_case(tmp_path: Path, played: Played) -> None:
    _, case = disturbed(played, tmp_path, CASE, lambda into: stopped_for(into, 0.6), WORKERS)
    assert (case["judgement"], case["ending"]) == ("disturbed", "bench"), case["why"]
    assert case["numbers"] == "void"
    assert {one["who"] for one in case["outside"]} == {*WORKERS}
    assert "worker-0 was stopped from outside for" in case["why"]


def test_a_worker_that_somebody_kills_is_named(tmp_path: Path, played: Played) -> None:
    def kill(folder: Path) -> None:
        for pid in processes(folder, "worker-1"):
            strike(pid, signal.SIGKILL)

    _, case = disturbed(played, tmp_path, CASE, kill, ["worker-1"])
    assert (case["judgement"], case["ending"]) == ("disturbed", "bench")
    (one,) = case["outside"]
    assert (one["who"], one["for_s"]) == ("worker-1", None)
    assert case["why"].startswith("worker-1 ended, and not by this run, ")


def test_what_broke_before_is_told_and_offline_it_is_the_same(
    tmp_path: Path, played: Played
) -> None:
    folder, case = disturbed(
        played, tmp_path, EVERYBODY, lambda into: stopped_for(into, 0.6), WORKERS
    )
    assert case["outside"]
    assert case["observed"]["double-grant"] == "invalid"
    assert case["ending"] == "safety"
    again = check(read_recording(folder / "history")).verdicts
    assert {name: verdict.result for name, verdict in again.items()} == case["observed"]


def test_nobody_meddles_and_nothing_is_found(tmp_path: Path, played: Played) -> None:
    case = one_of(
        lambda number: played(tmp_path / str(number), CASE, lambda: None),
        lambda case: "outside" not in case,
    )
    assert "outside" not in case, case["why"]
    assert case["judgement"] != "disturbed"
