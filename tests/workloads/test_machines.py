"""Load from machines that are namespaces: what was recorded there is judged with what was recorded
here, workers there are frozen and killed, and whoever is lost is never called well."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from lockbench.checker.check import check
from lockbench.history.columns import History
from lockbench.history.op import F, Type
from lockbench.history.recording import read_recording, write_faults, write_meta
from lockbench.results.on_machines import on_machines
from lockbench.workloads.fleet import Fleet
from lockbench.workloads.load import Load, Pace, Phases
from lockbench.workloads.machines.file import Machine, read
from lockbench.workloads.worker_process import LoadError
from tests.eventually import eventually
from tests.locks.fakes import FakeRedis
from tests.workloads.namespaces import machines_file, why_not
from tests.workloads.playing import fork_server

WORKERS = 2
LEASE_S = 3.0
SHORT_S = 0.8
TRIES = 4
S = 1_000_000_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
]


def play(
    folder: Path,
    machines: list[Machine],
    lock: str,
    contended_s: float,
    meanwhile: Callable[[Fleet], None] = lambda _: None,
    *,
    keys: int = 1,
    hold_s: float = 0.005,
    lease_s: float = LEASE_S,
) -> History:
    """A load of these machines and this one, to its end."""
    workers = WORKERS + sum(len(machine.workers) for machine in machines)
    phases = Phases(floor_s=0.1, own_s=0.3, contended_s=contended_s)
    with (
        FakeRedis() as redis,
        Fleet(folder, "test", workers, fork_server(), machines=machines, lock=lock) as fleet,
    ):
        fleet.launch()
        load = Load(
            lock=lock,
            keys=keys,
            clients=2 * workers,
            solo=2,
            rivals=2,
            workers=workers,
            phases=phases,
            pace=Pace(lease_ttl_s=lease_s, client_timeout_s=0.5, hold_s=hold_s),
            seed=1,
            nodes=(((redis.address.host, redis.address.port),),) * (workers + 1),
            resource=fleet.resource,
            folder=str(fleet.folder.resolve()),
            master_port=fleet.master_port,
            elsewhere=workers - WORKERS,
        )
        write_meta(
            fleet.history,
            load.objects(),
            wall_minus_monotonic_ns=0,
            machines={machine.name: machine.workers for machine in machines},
        )
        fleet.begin(load)
        ends_ns = phases.ends_ns(fleet.go())
        try:
            while time.monotonic_ns() < ends_ns[1]:
                fleet.raise_if_failed()
                time.sleep(0.01)
            meanwhile(fleet)
            while time.monotonic_ns() < ends_ns[2]:
                fleet.raise_if_failed()
                time.sleep(0.01)
        finally:
            write_faults(fleet.history, [])
        eventually(lambda: fleet.busy() == 0)
    return read_recording(folder / "history")


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    eventually(lambda: not agents())


def agents() -> list[psutil.Process]:
    """Those that run here, without the commands that lead to them."""
    found = []
    for pid in psutil.pids():
        try:
            process = psutil.Process(pid)
            words = process.cmdline()
        except psutil.Error:
            continue
        if len(words) == 3 and Path(words[1]).name == "lockbench" and words[2] == "agent":
            found.append(process)
    return found


def rows_on(history: History, machine: str) -> NDArray[np.bool_]:
    assert history.machine is not None
    found: NDArray[np.bool_] = history.machine == history.machines.index(machine)
    return found


def test_a_lock_that_keeps_its_word_over_three_machines(tmp_path: Path) -> None:
    """Whose clocks are a day apart."""
    machines = list(read(machines_file(tmp_path, a=(100_000, 1), b=(40_000, 1)), WORKERS + 1))
    history = play(tmp_path / "case", machines, "redis-token", 1.5)
    assert history.machines == ("a", "b")
    assert history.missing == ()
    for machine in history.machines:
        granted = rows_on(history, machine) & (history.f == F.ACQUIRE) & (history.type == Type.OK)
        assert np.any(granted), machine
        assert not np.any(rows_on(history, machine) & (history.type == Type.OPEN))
    ahead_s = np.median(history.invoke_ns[rows_on(history, "a")]) / S - time.monotonic()
    assert 90_000 < ahead_s < 110_000
    report = check(history)
    found = {name: verdict.result for name, verdict in report.verdicts.items()}
    assert found["double-grant"] == "valid", report.verdicts["double-grant"]
    assert "invalid" not in found.values()
    assert [(one.name, one.came_back) for one in on_machines(history)] == [
        ("here", True),
        ("a", True),
        ("b", True),
    ]
    folders = list((tmp_path / "case" / "logs").glob("worker-[34].jsonl"))
    assert len(folders) == 2, "what workers there report of themselves comes back, too"


@pytest.mark.parametrize(
    ("lock", "broken"),
    [
        ("redis-token", {"stale-holder"}),
        pytest.param("redis-no-owner", {"double-grant", "wrong-release"}, marks=pytest.mark.long),
    ],
)
def test_workers_of_another_machine_are_frozen_and_killed(
    tmp_path: Path, lock: str, broken: set[str]
) -> None:
    machines = list(read(machines_file(tmp_path, a=(100_000, 2)), WORKERS + 1))
    frozen_ns: list[int] = []
    gone_ns: list[int] = []  # on the clock of the machine

    def meanwhile(fleet: Fleet) -> None:
        assert not fleet.frozen(3)
        # Two of four keys are mostly held there or at another worker.
        for _ in range(4):
            fleet.freeze([3])
            frozen_ns.append(time.monotonic_ns())
            eventually(lambda: fleet.frozen(3))
            assert not fleet.frozen(4)
            time.sleep(1.4 * SHORT_S)
            assert fleet.struck_ns(3, frozen_ns[-1], time.monotonic_ns()) > SHORT_S * S
            fleet.thaw([3])
            eventually(lambda: not fleet.frozen(3))
            time.sleep(0.2)
        fleet.kill([4])
        gone_ns.append(time.monotonic_ns() + 100_000 * S)
        assert fleet.killed(4)
        fleet.raise_if_failed()

    # Whether one of them is frozen while it holds is up to them.
    for attempt in range(TRIES):
        folder = tmp_path / f"case-{attempt}"
        history = play(folder, machines, lock, 6.0, meanwhile, keys=4, hold_s=0.3, lease_s=SHORT_S)
        assert history.missing == ()
        deaths = rows_on(history, "a") & (history.f == F.DEATH)
        assert np.any(deaths), "the deaths are on the clock of the machine"
        assert np.all(deaths[history.f == F.DEATH])
        last_ns = int(history.invoke_ns[deaths].max())
        of_killed = history.process // (1 << 20) == 4
        # A death is noted before the signal is sent, and no operation ends after that was answered.
        assert last_ns <= gone_ns[-1] + S
        assert not np.any(history.complete_ns[of_killed] > gone_ns[-1] + S)
        verdicts = check(history).verdicts
        if lock == "redis-token":
            assert verdicts["double-grant"].result != "invalid"
        if any(verdicts[name].result == "invalid" for name in broken):
            return
    pytest.fail(f"none of {broken} broke in {TRIES} tries: {verdicts}")


def test_a_machine_with_a_full_disk_is_named(tmp_path: Path) -> None:
    machines = list(read(machines_file(tmp_path, "300k", a=(100_000, 1)), WORKERS + 1))
    said = "of worker 3 on machine a with: OSError: .*No space left on device"
    with pytest.raises(LoadError, match=said):
        play(tmp_path / "case", machines, "redis-token", 3.0)


def test_a_machine_that_is_lost_is_never_called_well(tmp_path: Path) -> None:
    machines = list(read(machines_file(tmp_path, a=(100_000, 1)), WORKERS + 1))
    workers: list[psutil.Process] = []

    def meanwhile(fleet: Fleet) -> None:
        eventually(lambda: any((fleet.history).glob("3.*.ops")))
        (agent,) = agents()
        workers.extend(agent.children(recursive=True))
        agent.kill()

    with pytest.raises(LoadError, match="machine a was lost: its streams ended"):
        play(tmp_path / "case", machines, "redis-token", 30.0, meanwhile)
    assert workers
    eventually(lambda: not any(one.is_running() for one in workers))
    history = read_recording(tmp_path / "case" / "history")
    assert history.missing == ("a",)
    assert np.any(rows_on(history, "a") & (history.f == F.ACQUIRE)), "what had come is kept"
    assert np.any(rows_on(history, "a") & (history.f == F.DEATH))
    results = {name: verdict.result for name, verdict in check(history).verdicts.items()}
    assert "valid" not in results.values()
    assert "invalid" not in results.values()
