"""What happens to processes, loops, clocks and containers is found, unless the nemesis did it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from lockbench.bench.outside import Outside, OutsideError, Watch, as_faults, stall_s_max, told
from lockbench.bench.run import _clock_step
from lockbench.checker.outside import OUTSIDE
from lockbench.clusters.engine.docker import Event
from lockbench.clusters.engine.events import Running
from lockbench.clusters.engine.owner import OWNER, is_stopped
from lockbench.workloads.fleet import Fleet, Member
from lockbench.workloads.worker_process import LocalWorker
from tests.eventually import eventually

S = 10**9
STALL_S = 1.0


@dataclass
class FakeFleet:
    """Processes that the test starts, and loops that tick when it says so."""

    there: list[Member] = field(default_factory=list)
    struck: list[tuple[int, int]] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    ticks: dict[int, int] = field(default_factory=dict)

    def members(self) -> list[Member]:
        return list(self.there)

    def last_lines(self, member: Member) -> list[str]:
        return [f"{member.name} said\x1b[2J this"]

    def struck_ns(self, worker: int, begin_ns: int, end_ns: int) -> int:
        return sum(max(0, min(end_ns, b) - max(begin_ns, a)) for a, b in self.struck)

    def killed_pids(self) -> list[int]:
        return self.killed

    def ticked_ns(self, worker: int) -> int:
        return self.ticks.get(worker, 0)


@dataclass
class Clock:
    """Both clocks of the machine."""

    now_ns: int = 1000 * S
    slept_ns: int = 5 * S

    def __call__(self) -> tuple[int, int]:
        return self.now_ns, self.now_ns + self.slept_ns


@dataclass
class FakeContainers:
    events: list[Event] = field(default_factory=list)
    running: dict[str, Running] = field(default_factory=dict)
    lost: str | None = None
    host: str = ""

    def unexplained(self) -> list[Event]:
        return self.events

    def name_of(self, event: Event) -> str:
        return event.name

    def last_words(self, event: Event) -> list[str]:
        return ["Ready to accept connections"]

    def close(self, *, ask: bool = True) -> None:
        """Nothing to end."""


class NoCluster:
    """One that runs in no containers."""


def watch(fleet: Any, clock: Clock | None = None, **more: Any) -> Watch:
    """Without a clock of its own it takes the machine's, and then no stall counts."""
    cluster: Any = NoCluster()
    return Watch(fleet, cluster, 1, STALL_S if clock else 1e6, clocks=clock, **more)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield running
    running.kill()
    running.wait()


def test_nothing_happened(process: subprocess.Popen[bytes]) -> None:
    fleet, clock = FakeFleet([Member("worker-1", process.pid, 1)]), Clock()
    looking = watch(fleet, clock)
    for _ in range(30):
        clock.now_ns += S // 10
        fleet.ticks = {0: clock.now_ns - 1, 1: clock.now_ns - S // 50}
        looking.look()
    looking.raise_if_lasting()
    assert looking.found() == []


def seen(looking: Watch) -> list[Outside]:
    looking.look()
    return looking.found()


def stop(process: subprocess.Popen[bytes], looking: Watch) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    eventually(lambda: seen(looking))
    os.kill(process.pid, signal.SIGCONT)


def test_a_process_that_was_stopped_is_found_with_its_time(
    process: subprocess.Popen[bytes],
) -> None:
    begin_ns = time.monotonic_ns()
    looking = watch(FakeFleet([Member("worker-1", process.pid, 1)]))
    stop(process, looking)
    looking.raise_if_lasting()  # it is over: the load goes on
    eventually(lambda: seen(looking) and not looking._stopped)
    (found,) = looking.found()
    assert found.who == "worker-1"
    assert "was stopped from outside" in found.what
    assert found.end_ns is not None
    assert begin_ns <= found.begin_ns <= found.end_ns <= time.monotonic_ns()


def test_who_still_stands_at_the_end_is_found(process: subprocess.Popen[bytes]) -> None:
    with watch(FakeFleet([Member("master", process.pid)])) as looking:
        os.kill(process.pid, signal.SIGSTOP)
        eventually(looking.found)
    (found,) = looking.found()
    assert found.who == "master"
    assert found.end_ns is not None


def test_whom_the_nemesis_freezes_is_innocent(process: subprocess.Popen[bytes]) -> None:
    fleet = FakeFleet([Member("worker-0", process.pid, 0), Member("the sidecar", process.pid, 0)])
    looking = watch(fleet)
    fleet.struck.append((time.monotonic_ns(), 2**62))
    os.kill(process.pid, signal.SIGSTOP)
    eventually(lambda: is_stopped(process.pid))
    assert seen(looking) == []
    # As the fleet does it: the signal first, and then the end is noted.
    os.kill(process.pid, signal.SIGCONT)
    fleet.struck = [(fleet.struck[0][0], time.monotonic_ns())]
    looking.look()
    assert looking.found() == []


def test_while_the_nemesis_freezes_one_worker_another_is_not_excused(
    process: subprocess.Popen[bytes],
) -> None:
    looking = watch(FakeFleet([Member("the guarded resource", process.pid)], [(0, 2**62)]))
    stop(process, looking)
    assert [one.who for one in looking.found()] == ["the guarded resource"]


def test_a_process_that_ended_ends_the_load(process: subprocess.Popen[bytes]) -> None:
    looking = watch(FakeFleet([Member("worker-1", process.pid, 1)]))
    process.kill()
    process.wait()
    looking.look()
    looking.look()
    (found,) = looking.found()
    assert found.end_ns is None
    with pytest.raises(OutsideError, match=r"worker-1 ended.*worker-1 said.x1b.2J this"):
        looking.raise_if_lasting()


def test_whom_the_nemesis_kills_is_innocent(process: subprocess.Popen[bytes]) -> None:
    fleet = FakeFleet([Member("worker-0", process.pid, 0)])
    looking = watch(fleet)
    looking.look()
    fleet.there.clear()  # as the fleet does it: before the signal
    process.kill()
    process.wait()
    looking.look()
    assert looking.found() == []


def stalled(for_s: float, *, struck_s: float = 0.0, last: bool = False) -> list[Outside]:
    """A loop that ticks, stands still and ticks again, or not any more."""
    fleet, clock = FakeFleet(), Clock()
    looking = watch(fleet, clock)
    fleet.ticks[1] = clock.now_ns
    looking.look()
    froze_ns = clock.now_ns
    fleet.struck.append((froze_ns, froze_ns + int(S * struck_s)))
    for _ in range(int(10 * for_s)):
        clock.now_ns += S // 10
        looking.look()
    if last:
        looking._over.set()
    else:
        fleet.ticks[1] = clock.now_ns
    looking.look()
    return looking.found()


def test_the_longest_stall_counts_not_a_quantile() -> None:
    assert stalled(0.9) == []
    (found,) = stalled(1.2)
    assert (found.who, found.what) == ("worker-1", "stood still for 1.2 s")
    assert found.end_ns == found.begin_ns + int(1.2 * S)
    assert len(stalled(1.2, last=True)) == 1


def test_of_a_stall_the_nemesis_own_part_is_taken_away() -> None:
    assert stalled(4.8, struck_s=4.8) == []
    assert stalled(5.6, struck_s=4.8) == []
    (found,) = stalled(6.2, struck_s=4.8)
    assert found.what == "stood still for 1.4 s"


def test_that_a_stopped_process_stood_still_is_told_once(process: subprocess.Popen[bytes]) -> None:
    fleet, clock = FakeFleet([Member("worker-1", process.pid, 1)]), Clock()
    looking = watch(fleet, clock)
    fleet.ticks[1] = clock.now_ns
    looking.look()
    stop(process, looking)
    for _ in range(20):
        clock.now_ns += S // 10
        looking.look()
    fleet.ticks[1] = clock.now_ns
    looking.look()
    (found,) = looking.found()
    assert found.what.startswith("was stopped")


def test_a_bench_that_did_not_run_was_blind() -> None:
    clock = Clock()
    looking = watch(FakeFleet(), clock)
    clock.now_ns += 2 * S
    looking.look()
    (found,) = looking.found()
    assert (found.who, found.what) == ("lockbench", "stood still for 2.0 s")


def test_a_machine_that_slept_ends_the_load() -> None:
    clock = Clock()
    looking = watch(FakeFleet(), clock)
    clock.now_ns += S // 10
    clock.slept_ns += 40 * S
    looking.look()
    looking.look()
    with pytest.raises(OutsideError, match=r"this machine slept for 40\.0 s"):
        looking.raise_if_lasting()
    assert len(looking.found()) == 1


def test_a_step_of_the_wall_clock_voids_the_case() -> None:
    offset = time.time_ns() - time.monotonic_ns()
    assert _clock_step(offset) is None
    assert "was set by +2.0" in (_clock_step(offset - 2 * S) or "")
    assert "was set by -2.0" in (_clock_step(offset + 2 * S) or "")


def test_a_watch_that_falls_over_is_no_watch() -> None:
    fleet = FakeFleet()
    with watch(fleet) as looking:
        fleet.ticked_ns = lambda worker: 1 // 0  # type: ignore[method-assign]
        eventually(looking.found)
        fleet.ticked_ns = lambda worker: 0  # type: ignore[method-assign]
    (found,) = looking.found()
    assert found.who == "the watch"


def died(name: str, at_ns: int, action: str = "die", **attributes: str) -> Event:
    return Event("1", name, action, at_ns, attributes)


def test_a_container_is_named_with_what_happened_and_its_last_words() -> None:
    containers: Any = FakeContainers()
    start_ns = time.monotonic_ns()
    with watch(FakeFleet(), containers=containers) as looking:
        wall_ns = time.time_ns() - time.monotonic_ns() + start_ns
        containers.events = [
            died("redis-2", wall_ns + S, "kill", signal="9"),
            died("redis-2", wall_ns + 2 * S, exitCode="137"),
        ]
        with pytest.raises(OutsideError, match="redis-2"):
            looking.raise_if_lasting()
    said = told(looking.found(), start_ns)
    assert "redis-2 met with kill (signal 9), die (exit code 137)" in said
    assert "1.0 s into the load; its log ends: Ready to accept connections" in said


def test_a_watch_over_containers_that_was_lost_voids_the_case() -> None:
    containers: Any = FakeContainers(lost="the engine went away")
    with watch(FakeFleet(), containers=containers) as looking, pytest.raises(OutsideError):
        looking.raise_if_lasting()
    assert looking.found()[0].end_ns is None


def test_a_stopped_server_is_found_and_a_client_container_is_the_fleets(
    process: subprocess.Popen[bytes],
) -> None:
    def looked(*, of_client: bool) -> list[str]:
        running = {"1": Running("redis-1", process.pid, (), of_client)}
        containers: Any = FakeContainers(running=running)
        with watch(FakeFleet(), containers=containers) as looking:
            os.kill(process.pid, signal.SIGSTOP)
            eventually(lambda: is_stopped(process.pid))
            looking.look()
        os.kill(process.pid, signal.SIGCONT)
        return [one.who for one in looking.found()]

    assert looked(of_client=False) == ["redis-1"]
    assert looked(of_client=True) == []


def test_the_container_of_a_killed_worker_is_excused() -> None:
    fleet = FakeFleet(killed=[77])
    looking = watch(fleet)
    assert looking._is_of_a_killed(died("client", 1, **{OWNER: "77:1:here"}))
    assert not looking._is_of_a_killed(died("client", 1, **{OWNER: "78:1:here"}))
    assert not looking._is_of_a_killed(died("redis-1", 1))


def test_the_threshold_leaves_a_late_client_no_way_out() -> None:
    # Three seconds of lease, a call that took one, a hold of 0.3 s.
    assert stall_s_max(3.0, 1.0, 0.3) == pytest.approx(1.7)
    assert stall_s_max(10.0, 1.0, 0.3) == pytest.approx(8.7)
    assert stall_s_max(3.0, 1.0, 2.4) == pytest.approx(0.3)
    assert stall_s_max(3.0, 1.0, 4.2) == pytest.approx(1.5)


def test_in_the_history_it_is_a_fault_of_its_own_name() -> None:
    found = [Outside("redis-1", "died", 5 * S), Outside("worker-1", "stood", 7 * S, 9 * S)]
    lasting, over = as_faults(found, 4 * S)
    assert {lasting.name, over.name} == {OUTSIDE}
    assert (lasting.targets, lasting.heal_ns) == (("redis-1",), None)
    assert over.heal_ns == (9 * S, 9 * S)
    assert lasting.facts["what"] == "redis-1 died, 1.0 s into the load"


def test_the_fleet_notes_before_it_strikes(tmp_path: Any) -> None:
    """Whom it freezes and kills, from before the signal until after it."""
    fleet = Fleet(tmp_path, "test", 2)
    noted: list[int] = []

    class Child:
        pid = 4242

        def send_signal(self, number: signal.Signals) -> None:
            now_ns = time.monotonic_ns()
            noted.append(fleet.struck_ns(1, now_ns, now_ns + 1))

        def wait(self, limit_s: float) -> bool:
            return True

    child: Any = Child()
    fleet._children = {f"worker-{n}": LocalWorker(n, child, fleet.history) for n in range(3)}
    assert {m.name for m in fleet.members()} == {"worker-0", "worker-1", "worker-2"}
    fleet.freeze([1])
    fleet.thaw([1])
    assert noted == [1, 1]
    now_ns = time.monotonic_ns()
    assert fleet.struck_ns(1, now_ns, now_ns + S) == 0
    assert fleet.struck_ns(2, 0, now_ns) == 0
    fleet.kill([1])
    assert noted == [1, 1, 1]
    assert fleet.killed_pids() == [4242]
    assert {m.name for m in fleet.members()} == {"worker-0", "worker-2"}
