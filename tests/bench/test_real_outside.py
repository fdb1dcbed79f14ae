"""On a real cluster: what somebody else does voids a case, what the nemesis does voids none."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lockbench.clusters.engine.docker import Container, Engine, EngineError
from lockbench.results.errors import Ending
from tests.bench.test_real import containers, processes, start, under_load
from tests.eventually import eventually, one_of

pytestmark = [pytest.mark.docker, pytest.mark.slow]
LIMIT_S = 120.0
# Into the load, past the own phase.
WAIT_S = 4.0


# Done to the bench, given its process number; what it returns is done some seconds into the load.
Meddle = Callable[[int], Callable[[], None]]


def played(folder: Path, meddle: Meddle | None, *words: str) -> tuple[dict[str, Any], int]:
    """One short case, its document and the exit code."""
    bench = start(folder, "run", *words, "--json")

    def meddling() -> None:
        eventually(lambda: under_load(folder), "no load", limit_s=60)
        if meddle is not None:
            # On a busy machine it takes seconds to find whom to strike.
            strike = meddle(bench.pid)
            time.sleep(WAIT_S)
            strike()

    thread = threading.Thread(target=meddling)
    thread.start()
    out, err = bench.communicate(timeout=LIMIT_S)
    thread.join()
    assert out, err
    run = json.loads(out)
    assert "cases" in run, out
    (case,) = run["cases"]
    return case, bench.returncode


def container(bench: int, part: str) -> Container:
    (name,) = containers(bench, f"-{part}")
    return Container(name, name)


def killed(part: str) -> Meddle:
    def meddle(bench: int) -> Callable[[], None]:
        struck = container(bench, part)
        return lambda: Engine().kill(struck)

    return meddle


def paused_for_a_moment(part: str) -> Meddle:
    def meddle(bench: int) -> Callable[[], None]:
        struck = container(bench, part)

        def strike() -> None:
            with Engine() as engine:
                engine.pause(struck)
                time.sleep(0.5)
                engine.unpause(struck)

        return strike

    return meddle


def restarted(part: str) -> Meddle:
    def meddle(bench: int) -> Callable[[], None]:
        struck = container(bench, part)

        def strike() -> None:
            # The case may be over before it is there again.
            with Engine() as engine, suppress(EngineError):
                engine.stop(struck, grace_s=0)
                engine.start(struck)

        return strike

    return meddle


def workers_stopped(bench: int) -> Callable[[], None]:
    mine = [pid for pid in processes(bench) if _is_worker(pid)]
    assert len(mine) == 3

    def strike() -> None:
        for pid in mine:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(3)
        for pid in mine:
            os.kill(pid, signal.SIGCONT)

    return strike


def _is_worker(pid: int) -> bool:
    """They differ in what they write to."""
    return Path(f"/proc/{pid}/fd/1").resolve().name.startswith("worker-")


@pytest.mark.parametrize(
    ("lock", "meddle", "who", "what"),
    [
        ("redlock", killed("redis-2"), "redis-2", "die (exit code 137)"),
        ("etcd", killed("etcd-1-link"), "etcd-1-link", "die"),
        ("redis-token", paused_for_a_moment("redis-1"), "redis-1", "pause"),
        ("redis-token", restarted("redis-1"), "redis-1", "stop"),
        ("redis-token", workers_stopped, "worker-1", "was stopped from outside for"),
    ],
)
def test_what_happens_from_outside_voids_the_case(
    tmp_path: Path, lock: str, meddle: Meddle, who: str, what: str
) -> None:
    case, code = played(tmp_path, meddle, "--lock", lock, "--time-limit", "20")
    assert (case["judgement"], code) == ("disturbed", Ending.BENCH.code), case["why"]
    assert case["numbers"] == "void"
    found = {one["who"]: one for one in case["outside"]}
    assert what in found[who]["what"]
    assert 0 < found[who]["at_s"] < 20
    assert who in case["why"]
    if who.startswith(("redis", "etcd")):
        assert found[who]["log"]
    assert "invalid" not in case["observed"].values()


@pytest.mark.parametrize(
    ("lock", "fault"),
    [
        ("redis-token", "kill"),
        ("redis-token", "pause"),
        ("redis-token", "wipe"),
        ("redis-token", "client-pause"),
        ("redis-token", "client-kill"),
        ("redlock", "rolling-restart"),
    ],
)
def test_what_the_nemesis_does_itself_is_no_disturbance(
    tmp_path: Path, lock: str, fault: str
) -> None:
    def once(number: int) -> tuple[dict[str, Any], int]:
        folder = tmp_path / str(number)
        folder.mkdir()
        return played(folder, None, "--lock", lock, "--fault", fault)

    case, _ = one_of(once, lambda found: "outside" not in found[0], 3)
    assert "outside" not in case, case["why"]
    assert case["judgement"] != "disturbed"
