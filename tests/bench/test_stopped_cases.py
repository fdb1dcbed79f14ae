"""A case on a cluster that exists in the test alone: what it leaves voids it, and whenever it is
interrupted, the cluster is told to go and no process of the load is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from lockbench.bench import document
from lockbench.bench import run as module
from lockbench.bench.plan import Case, make_case
from lockbench.bench.run import Outcome, run_case
from lockbench.clusters.base import HARNESS, Cluster, ClusterError, ClusterPlan
from lockbench.clusters.registry import topologies
from lockbench.history.recording import read_recording
from lockbench.workloads.fleet import Fleet
from lockbench.workloads.fork_server import RUN_ENVIRONMENT, ForkServer
from tests.eventually import eventually
from tests.workloads import unsafe

LEFT = ("lockbench-x-redis-1", "lockbench-x-net")
CASE = replace(
    make_case(f"{unsafe.__file__}:OneAtATime", "none", seed=0), clients=2, keys=1, time_limit_s=3.0
)


class NoCluster(Cluster):
    """Nothing runs; ``at_start`` is called when it is started."""

    def __init__(self, left: Sequence[str], at_start: Callable[[], None]) -> None:
        self._left = left
        self._at_start = at_start
        self.started = 0
        self.stopped = 0

    def __call__(self, plan: ClusterPlan) -> NoCluster:
        self.plan = plan
        return self

    @property
    def nodes(self) -> Sequence[int]:
        return (1,)

    def start(self) -> None:
        self.started += 1
        self._at_start()

    def verify(self) -> None: ...

    def empty(self) -> None: ...

    def stop(self) -> Sequence[str]:
        self.stopped += 1
        return self._left

    def addresses(self, group: int) -> Sequence[tuple[str, int]]:
        return [("127.0.0.1", 1)]

    def node_name(self, node: int) -> str:
        return f"redis-{node}"

    def serves(self, node: int, timeout_s: float, group: int = HARNESS) -> bool:
        return True


def nothing() -> None: ...


def fake(
    monkeypatch: pytest.MonkeyPatch,
    left: Sequence[str] = (),
    at_start: Callable[[], None] = nothing,
) -> NoCluster:
    cluster = NoCluster(left, at_start)
    declared = replace(topologies()["redis"], make=cluster)
    monkeypatch.setattr(module, "topology_of", lambda _: declared)
    return cluster


Play = Callable[..., Outcome]


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    """Plays a case into a folder."""
    with ForkServer("test") as fork_server:

        def play(folder: Path, case: Case = CASE) -> Outcome:
            return run_case(
                case, folder, run_id="test", fork_server=fork_server, on_progress=lambda _: None
            )

        yield play


def load_of(folder: Path) -> list[int]:
    """The processes whose load is that of this case."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):
            continue
        if RUN_ENVIRONMENT in environment and str(folder) in environment.get("LOCKBENCH_LOAD", ""):
            found.append(process.pid)
    return found


def test_a_case_that_is_cleared_away_is_judged_by_what_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, play: Play
) -> None:
    cluster = fake(monkeypatch)
    document = play(tmp_path).document
    # That the load stood still on a busy machine says nothing of how it was cleared away.
    assert document.ending != "bench" or "stood still" in str(document.why), document.why
    assert cluster.stopped == 1
    assert not load_of(tmp_path)


def test_a_case_that_could_not_be_cleared_away_is_never_green(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, play: Play
) -> None:
    fake(monkeypatch, LEFT)
    document = play(tmp_path).document
    assert document.ending == "bench"
    assert document.numbers == "void"
    assert "did not remove lockbench-x-redis-1, lockbench-x-net;" in str(document.why)


def test_what_is_left_hides_no_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, play: Play
) -> None:
    fake(monkeypatch, LEFT)
    case = replace(CASE, lock=f"{unsafe.__file__}:Everybody", clients=4)
    document = play(tmp_path, case).document
    assert document.observed["double-grant"] == "invalid"
    assert document.ending == "safety", document.why


def test_a_start_that_fails_and_leaves_something_says_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, play: Play
) -> None:
    def fail() -> None:
        raise ClusterError("it does not come up")

    fake(monkeypatch, LEFT, fail)
    why = str(play(tmp_path).document.why)
    assert "it does not come up" in why
    assert "lockbench-x-net" in why


def interrupt(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt


WHERE: dict[str, tuple[type, str]] = {
    "launch": (Fleet, "launch"),
    "begin": (Fleet, "begin"),
    "connecting": (Fleet, "_await"),
    "go": (Fleet, "go"),
    "load": (Fleet, "raise_if_failed"),
    "drain": (Fleet, "busy"),
    "quiet": (Fleet, "ask_for_all"),
}


@pytest.mark.parametrize("where", [*WHERE, "start", "judge"])
def test_an_interruption_at_any_moment_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, play: Play, where: str
) -> None:
    cluster = fake(monkeypatch, at_start=interrupt if where == "start" else nothing)
    if where == "judge":
        monkeypatch.setattr(document, "check", interrupt)
    elif where != "start":
        monkeypatch.setattr(*WHERE[where], interrupt)
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path)
    assert cluster.stopped >= cluster.started
    eventually(lambda: not load_of(tmp_path), "processes of the load are left")
    if (tmp_path / "history" / "meta.json").exists():
        read_recording(tmp_path / "history")
