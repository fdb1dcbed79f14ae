"""The bench on real clusters: a run, an interruption, a kill, plain Locust, a frozen worker, a
comparison, and workloads with verdicts of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from lockbench.bench.replay import stored_cases
from lockbench.clusters.engine.docker import Engine
from lockbench.clusters.engine.reaper import reap
from lockbench.history.op import F, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER
from lockbench.history.recording import read_recording
from lockbench.nemesis.base import Injection
from lockbench.results.documents import FORMAT
from lockbench.results.errors import Ending
from lockbench.results.stored import stored
from lockbench.workloads.fork_server import RUN_ENVIRONMENT
from tests.eventually import eventually

pytestmark = [pytest.mark.docker, pytest.mark.slow]
LIMIT_S = 60.0


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lockbench.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )


def containers(owner: int, part: str = "") -> list[str]:
    """Ours, started by the process ``owner``, whose names end with ``part``."""
    with Engine() as engine:
        return [
            c.name
            for c in engine.containers({"lockbench": "1"})
            if c.name.endswith(part)
            and (state := engine.state(c)) is not None
            and state.labels.get("lockbench.owner", "").startswith(f"{owner}:")
        ]


def processes(owner: int) -> list[int]:
    """The load's processes that were started by the process ``owner``."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(RUN_ENVIRONMENT, "").partition("@")[2].startswith(f"{owner}:"):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def concluded(folder: Path, *words: str) -> tuple[dict[str, Any], int]:
    """What a run came to, and its process. Once more if it was inconclusive, as in a nightly run,
    or the machine stood still: others may load it."""
    for _ in range(3):
        bench = start(folder, *words, "--json")
        out, err = bench.communicate(timeout=2 * LIMIT_S)
        if bench.returncode not in {Ending.INCONCLUSIVE.code, Ending.BENCH.code}:
            break
    assert bench.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found, bench.pid


def one_case(folder: Path, *words: str) -> dict[str, Any]:
    """The only case of a run."""
    found, _ = concluded(folder, "run", *words)
    (case,) = found["cases"]
    return dict(case)


def under_load(folder: Path) -> bool:
    return any(folder.glob("runs/*/cases/*/history/1.0.ops"))


def test_a_pause_of_the_holder_is_caught_and_its_fence_refuses_it(tmp_path: Path) -> None:
    found, pid = concluded(tmp_path, "run", "--lock", "etcd", "--fault", "client-pause")
    (case,) = found["cases"]
    assert found["ending"] == "ok"
    assert case["observed"]["stale-holder"] == "invalid"
    assert case["observed"]["double-grant"] == "valid"
    assert case["exposed"] is True
    fenced = case["measurements"]["fencing"]
    assert fenced["unfenced"]["stale_applied"] >= 1
    assert fenced["fence-on-read-and-write"]["stale_applied"] == 0
    assert fenced["fence-on-read-and-write"]["lost_updates"] == 0
    for kind in ("acquire", "handover", "wait", "release"):
        assert case["latency_ms"][kind]["before"]["count"] > 0
    assert not containers(pid)
    assert not processes(pid)
    run = tmp_path / case["run"]
    assert (run / "ending").read_text().strip() == "ok"
    assert (tmp_path / "runs" / "latest").resolve() == run.resolve()
    # The frozen worker came back into the load: it was granted again after the thaw.
    history = read_recording(next(run.glob("cases/*/history")))
    thaw = history.faults[0].heal_ns
    assert thaw is not None
    victims = (
        (history.process < PROCESSES_PER_WORKER)
        & (history.f == F.ACQUIRE)
        & (history.type == Type.OK)
        & (history.complete_ns > thaw[1])
    )
    assert np.count_nonzero(victims) > 0
    # Anybody can judge it again, offline.
    judged = subprocess.run(
        [sys.executable, "-m", "lockbench.cli.main", "check", str(run), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert judged.returncode == 1
    assert json.loads(judged.stdout)["verdicts"]["stale-holder"]["result"] == "invalid"


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    bench = start(tmp_path, "run", "--lock", "redis-token", "--fault", "pause")
    eventually(lambda: under_load(tmp_path), "no load", limit_s=LIMIT_S)
    assert containers(bench.pid)
    bench.send_signal(signal.SIGINT)
    interrupted(bench)


def test_a_closed_terminal_in_the_middle_of_the_start_leaves_nothing(tmp_path: Path) -> None:
    """And neither do the signals that arrive while it clears away."""
    bench = start(tmp_path, "run", "--lock", "redlock", "--fault", "none")
    eventually(lambda: bool(containers(bench.pid)), "no container", limit_s=LIMIT_S)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        bench.send_signal(number)
    interrupted(bench)
    assert (tmp_path / "runs" / "latest" / "ending").read_text() == "bench\n"


def interrupted(bench: subprocess.Popen[str]) -> None:
    _, err = bench.communicate(timeout=LIMIT_S)
    assert bench.returncode == 255
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not containers(bench.pid)
    assert not processes(bench.pid)


def test_what_a_killed_bench_leaves_is_removed_by_the_next_start(tmp_path: Path) -> None:
    bench = start(tmp_path, "run", "--lock", "redis-token", "--fault", "client-pause")
    eventually(lambda: under_load(tmp_path), "no load", limit_s=LIMIT_S)
    # Before: whoever else starts a bench on this machine removes them.
    assert containers(bench.pid)
    bench.kill()
    bench.communicate(timeout=LIMIT_S)
    eventually(lambda: not processes(bench.pid), "processes outlive the bench", limit_s=LIMIT_S)
    reap()
    assert not containers(bench.pid)


def test_plain_locust_drives_a_cluster_that_was_started_for_it(tmp_path: Path) -> None:
    stand = start(tmp_path, "break", "--topology", "redis", "--lock", "redis-token")
    try:
        assert stand.stdout is not None
        line = ""
        while "LOCKBENCH_LOAD=" not in line:
            line = stand.stdout.readline()
            assert line, "the cluster did not come up"
        load = line.strip().split()[0].partition("=")[2]
        locustfile = Path(__file__).parents[2] / "workloads" / "locustfile.py"
        ended = subprocess.run(
            [
                *[str(Path(sys.executable).parent / "locust"), "-f", str(locustfile)],
                *["--headless", "-u", "6", "-r", "6", "-t", "20s", "--only-summary"],
            ],
            env=os.environ | {"LOCKBENCH_LOAD": load},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        report = ended.stdout + ended.stderr
        assert "acquire" in report
        assert "release" in report
        assert ended.returncode == 0, report
    finally:
        stand.send_signal(signal.SIGINT)
        stand.communicate(timeout=LIMIT_S)
    assert not containers(stand.pid)


def test_faults_of_clients_one_after_the_other_and_the_same_again(tmp_path: Path) -> None:
    words = "client-gc:for=1 then reply-lost then client-kill"
    found, _ = concluded(tmp_path, "run", "--lock", "redis-token", "--fault", words)
    (case,) = found["cases"]
    assert case["exposed"] is True, case["exposure"]
    assert [i["fault"] for i in case["injections"]] == ["client-gc", "reply-lost", "client-kill"]
    run = tmp_path / case["run"]
    history = read_recording(next(run.glob("cases/*/history")))
    assert [fault.name for fault in history.faults] == ["client-gc", "reply-lost", "client-kill"]
    # The dead did nothing more, and their death is in the history.
    died = history.invoke_ns[history.f == F.DEATH]
    assert len(died) > 0
    victims = (history.process < PROCESSES_PER_WORKER) & (history.f != F.DEATH)
    assert history.invoke_ns[victims].max() <= died.min()
    assert np.count_nonzero(history.invoke_ns > died.max()) > 0
    # What was played is in the plan, and can be played again as it was.
    assert stored_cases(run)[0].injections == tuple(
        Injection(**i | {"parameters": tuple(map(tuple, i.get("parameters", ())))})
        for i in case["injections"]
    )


def test_a_stopped_suite_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    words = ("suite", "full", "--lock", "redis-token", "--fault", "none,kill", "--json")
    bench = start(tmp_path, *words)
    second = "runs/latest/cases/02-redis-token-kill"
    eventually(
        lambda: bool(list(tmp_path.glob(f"{second}/history/*.ops"))),
        "no second case",
        limit_s=LIMIT_S,
    )
    bench.send_signal(signal.SIGINT)
    out, _ = bench.communicate(timeout=LIMIT_S)
    assert bench.returncode == 255
    assert not containers(bench.pid)
    run = (tmp_path / "runs" / "latest").resolve()
    assert (run / "ending").read_text().strip() == "bench"
    first = (run / "cases" / "01-redis-token-none" / "case.json").read_bytes()

    bench = start(tmp_path, *words, "--resume", "runs/latest")
    out, err = bench.communicate(timeout=LIMIT_S)
    none, kill = json.loads(out)["cases"]
    # Others may load this machine.
    assert bench.returncode in {0, 2} or kill["judgement"] == "disturbed", err
    stored = json.loads(first)
    assert stored.pop("format") == FORMAT  # of results.json it stands at its top
    assert json.dumps(none) == json.dumps(stored)
    assert (run / "cases" / "01-redis-token-none" / "case.json").read_bytes() == first
    assert (kill["fault"], kill["tries"], kill["verdicts"] != {}) == ("kill", 1, True)
    assert none["run"] == kill["run"] == f"runs/{run.name}"
    assert [path.name for path in (run / "cut").iterdir()] == ["02-redis-token-kill"]
    # What is pooled over the cases of a lock has both; numbers of a busy machine are void.
    pooled = json.loads((run / "results.json").read_text()).get("undisturbed", [])
    valid = [case["numbers"] for case in (none, kill)].count("valid")
    assert [lock["cases"] for lock in pooled] == ([valid] if valid else [])
    assert (run / "report.html").exists()
    assert none["footprint"]["own"]["commands_per_grant"] > 2
    assert none["footprint"]["contended"]["cpu_us_per_grant"] > 0


SERVER_LACKS_IT = """
from lockbench.locks.redis.token import RedisToken


class Lacking(RedisToken):
    topologies = ("redis",)

    def take(self, key, token, ttl_ms):
        return self._link.call("SETTOKEN", key, token, ttl_ms)
"""
WITHOUT_SOURCE = "from lockbench.locks.base import Expectation\nE = Expectation('holds', '')\n"


def test_what_cannot_run_stops_nothing_and_is_never_kept(tmp_path: Path) -> None:
    (tmp_path / "lacking.py").write_text(SERVER_LACKS_IT)
    (tmp_path / "unsaid.py").write_text(WITHOUT_SOURCE)
    locks = "unsaid.py:Unsaid,lacking.py:Lacking,redis-token"
    bench = start(tmp_path, "run", "--lock", locks, "--time-limit", "8", "--json")
    out, err = bench.communicate(timeout=2 * LIMIT_S)
    assert bench.returncode == 255, err
    cases = {case["lock"]: case for case in json.loads(out)["cases"]}
    assert cases["redis-token"]["judgement"] in {"as expected", "not exposed", "disturbed"}
    lacking, unsaid = cases["lacking.py:Lacking"], cases["unsaid.py:Unsaid"]
    assert lacking["judgement"] == unsaid["judgement"] == "could not run"
    assert "nothing was granted" in lacking["why"]
    assert "unknown command 'SETTOKEN'" in lacking["why"]
    assert "an expectation without a source" in unsaid["why"]
    run = (tmp_path / "runs" / "latest").resolve()
    assert (run / "ending").read_text().strip() == "bench"
    report = (run / "report.md").read_text()
    assert report.count("could not run") >= 4
    assert "could not run" in (run / "report.html").read_text()
    # Alone there is nothing to run: that is bad input.
    alone = start(tmp_path, "run", "--lock", "unsaid.py:Unsaid")
    _, err = alone.communicate(timeout=LIMIT_S)
    assert alone.returncode == 254
    assert "an expectation without a source" in " ".join(err.split())


MINE = """
from lockbench.locks.redis.token import SYSTEM, RedisToken


class Mine(RedisToken):
    topologies = ("redis",)
    source = "a test"
    expectations = SYSTEM.expectations
"""


def test_one_pair_of_a_lock_of_ones_own_is_too_few(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    words = ("--base", "redis-token", "--new", "mine.py:Mine", "--pairs", "1", "--json")
    bench = start(tmp_path, "regress", *words)
    out, err = bench.communicate(timeout=4 * LIMIT_S)
    assert bench.returncode == 2, err
    found = json.loads(out)
    assert found["ending"] == "inconclusive"
    assert {cell["verdict"] for cell in found["comparison"]["cells"]} == {
        "too few pairs, need n ≥ 6"
    }
    sides = {case["side"]: case for case in found["cases"]}
    assert sides["base"]["lock"] == "redis-token"
    assert sides["new"]["lock"] == "mine.py:Mine"
    assert all(case["observed"]["double-grant"] == "valid" for case in found["cases"])
    run = tmp_path / found["run"]
    assert (run / "ending").read_text() == "inconclusive\n"
    assert len(stored(run).cases) == len(found["cases"])
    assert not containers(bench.pid)
    assert not processes(bench.pid)


@pytest.mark.long
def test_a_frozen_holder_charges_twice_and_a_fence_would_have_refused_it(tmp_path: Path) -> None:
    words = ("--lock", "etcd", "--fault", "client-pause", "--workload", "payment")
    case = one_case(tmp_path, *words)
    assert case["observed"]["double-grant"] == "valid", "the service kept its word"
    assert case["observed"]["charged-twice"] == "invalid"
    assert case["observed"]["lost-charge"] == "valid"
    assert case["expected"]["charged-twice"] == "may-break"
    scored = case["measurements"]["fencing"]
    assert scored["unfenced"]["repeated_effects"] >= 1
    for policy in ("fence-on-write", "fence-on-read-and-write", "random-token-cas"):
        assert scored[policy]["repeated_effects"] == 0, policy
        assert scored[policy]["stale_refused"] == scored[policy]["stale_attempted"], policy
    assert case["latency_ms"]["job"]["before"]["count"] > 0


@pytest.mark.long
def test_without_a_lock_a_frozen_owner_delays_and_loses_nothing(tmp_path: Path) -> None:
    words = ("--lock", "without-actor", "--fault", "client-pause", "--workload", "payment")
    case = one_case(tmp_path, *words)
    assert case["observed"] == {"charged-twice": "valid", "lost-charge": "valid"}
    assert case["exposed"] is True, case["exposure"]
    jobs = case["measurements"]["jobs"]["payment"]
    assert jobs["done"] > 100
    assert jobs["unknown"] == 0
    assert case["latency_ms"]["job"]["during"]["max"] > 1000, "the owner was frozen"


@pytest.mark.long
def test_a_permit_that_comes_too_late_lets_one_in_too_many(tmp_path: Path) -> None:
    words = ("--lock", "zookeeper-semaphore", "--fault", "client-pause", "--workload", "semaphore")
    case = one_case(tmp_path, *words)
    assert case["observed"]["double-grant"] == "valid", "the service kept its word"
    assert case["observed"]["over-capacity"] == "invalid"
    assert case["measurements"]["jobs"]["gate"]["most_inside"] == 4


def test_a_sweep_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    words = ("sweep", "--lock", "redis-token", "--rate", "20,60", "--seconds", "1")
    bench = start(tmp_path, *words)
    done = tmp_path / "runs/latest/cases/01-redis-token-none/case.json"
    eventually(done.exists, "the first round did not end", limit_s=2 * LIMIT_S)
    bench.send_signal(signal.SIGINT)
    bench.communicate(timeout=LIMIT_S)
    first = done.read_bytes()
    found, pid = concluded(tmp_path, *words, "--resume", "runs/latest")
    assert done.read_bytes() == first
    assert [len(case["rates"]) for case in found["cases"]] == [3, 3, 3]
    (lock,) = found["rates"]
    assert lock["of"]["lock"] == "redis-token"
    assert lock["carried_per_s"]["count"] == 3
    slow, fast = lock["rates"]
    assert (slow["offered_per_s"]["median"], fast["offered_per_s"]["median"]) == (20, 60)
    for rate in (slow, fast):
        assert rate["due"] >= rate["granted"] > 0
        # On a busy machine they are void, with the reason.
        assert rate["blocks"] == 3
        assert rate["void_blocks"] == 0 or rate["why"]
    # Three seconds of Poisson arrivals at three times the rate.
    assert fast["due"] > slow["due"]
    for case in found["cases"]:
        assert case["verdicts"]["double-grant"]["result"] == "valid"
    assert not containers(pid)
    assert not processes(pid)
