"""Every workload under a lock that grants everything is caught, and under one that works is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lockbench.checker.check import check
from lockbench.checker.jobs import VERDICTS_OF
from lockbench.history.columns import History
from lockbench.history.op import F, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER
from lockbench.workloads.base import Job
from lockbench.workloads.jobs.fairness import FAST, SLOW
from lockbench.workloads.load import Pace
from lockbench.workloads.registry import find
from tests.eventually import one_of
from tests.locks.fakes import FakeRedis
from tests.workloads import unsafe
from tests.workloads.playing import Played, all_played, play

pytestmark = pytest.mark.slow
EVERYBODY = f"{unsafe.__file__}:Everybody"
ONE_AT_A_TIME = f"{unsafe.__file__}:OneAtATime"
PACE = Pace(aimed_hold_s=0.05)
# What is renewed must not expire because the machine was busy: two thirds of a lease are left.
LONG_HOLDS = Pace(lease_ttl_s=1.2, client_timeout_s=0.5, wait_s=10, aimed_hold_s=0.05)
RENEWED = replace(LONG_HOLDS, lease_ttl_s=3.0, client_timeout_s=2.0)
# Workload → the verdict that a lock which grants everything must break.
BREAKS = {
    "inventory": "oversold",
    "payment": "charged-twice",
    "cron": "ran-twice",
    "leader": "two-leaders",
    "rate-limit": "rate-exceeded",
    "semaphore": "over-capacity",
    "read-write:reads=0.5": "lost-update",
}
# These have no verdict of their own.
PLAIN = ("mutex:hold=heavy:spread=zipf", "herd", "fairness", "two-locks:order=mixed")
BREAKS |= dict.fromkeys(PLAIN, "lost-update")
WORKS = list(BREAKS)


def once_more(
    first: Played, again: Callable[[Path], Played], folder: Path, good: Callable[[Played], object]
) -> Played:
    """The load, or one like it where a machine that stood still has spoiled it."""
    return one_of(lambda number: again(folder / str(number)) if number else first, good)


@pytest.fixture(scope="module")
def everybody(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """Workload → its load under the lock that grants everything."""
    return all_played(
        tmp_path_factory.mktemp("everybody"),
        {
            workload: partial(play, workload=workload, lock=EVERYBODY, pace=PACE)
            for workload in (*BREAKS, "payment:idempotency=yes")
        },
    )


@pytest.fixture(scope="module")
def one_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """Workload → its load under a lock that works."""
    return all_played(
        tmp_path_factory.mktemp("one"),
        {
            workload: partial(
                play,
                workload=workload,
                lock=ONE_AT_A_TIME,
                keys=1 if workload == "fairness" else 2,
                # So that who is deadlocked gives up soon.
                pace=replace(PACE, wait_s=0.5) if workload == "two-locks:order=mixed" else PACE,
            )
            for workload in WORKS
        },
    )


@pytest.mark.parametrize(("workload", "verdict"), BREAKS.items())
def test_a_lock_that_grants_everything_is_caught(
    everybody: dict[str, Played], workload: str, verdict: str
) -> None:
    report = check(everybody[workload].history)
    assert report.verdicts[verdict].result == "invalid"
    assert report.verdicts["double-grant"].result == "invalid"


@pytest.mark.parametrize("workload", WORKS)
def test_a_lock_that_works_breaks_nothing(one_at_a_time: dict[str, Played], workload: str) -> None:
    report = check(one_at_a_time[workload].history)
    assert {v: r.result for v, r in report.verdicts.items() if r.result != "valid"} == {}
    assert set(find(workload).workload.verdicts) <= set(report.verdicts)


@pytest.mark.parametrize(("lock", "expected"), [("SEMAPHORE", "valid"), ("OPEN_DOOR", "invalid")])
def test_a_semaphore_of_two_permits(tmp_path: Path, lock: str, expected: str) -> None:
    named = f"{unsafe.__file__}:{lock}"
    report = check(play(tmp_path, "semaphore", lock=named, pace=PACE).history)
    assert report.verdicts["over-capacity"].result == expected
    jobs = report.measurements["jobs"]
    assert isinstance(jobs, dict)
    inside = jobs["gate"]["most_inside"]
    assert inside == unsafe.PERMITS if expected == "valid" else inside > unsafe.PERMITS


def test_an_idempotency_key_charges_once_whatever_the_lock_does(
    everybody: dict[str, Played], tmp_path: Path
) -> None:
    workload = "payment:idempotency=yes"
    again = partial(play, workload=workload, lock=EVERYBODY, pace=PACE, contended_s=4)
    history = once_more(everybody[workload], again, tmp_path, refuses).history
    report = check(history)
    assert report.verdicts["double-grant"].result == "invalid"
    assert report.verdicts["charged-twice"].result == "valid"
    assert report.verdicts["lost-charge"].result == "valid"
    assert np.any(refused(history))


def refused(history: History) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (history.f == F.EFFECT) & (history.type == Type.FAIL)
    return found


def refuses(played: Played) -> bool:
    return bool(np.any(refused(played.history)))


def test_every_verdict_of_a_job_is_broken_here() -> None:
    own = {verdict for verdicts in VERDICTS_OF.values() for verdict in verdicts}
    assert own - set(BREAKS.values()) == {"lost-charge"}, "no lock loses a charge"


def on_redis(folder: Path, workload: str, *, contended_s: float, pace: Pace) -> Played:
    with FakeRedis() as server:
        return play(
            folder, workload, address=server.address, keys=2, contended_s=contended_s, pace=pace
        )


@pytest.fixture(scope="module")
def expiring(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """Workload → its load under short leases."""
    both = replace(LONG_HOLDS, lease_ttl_s=1.0)
    renews = (("no", LONG_HOLDS), ("yes", RENEWED))
    holds = {f"long-hold:times=1.4:renew={r}": pace for r, pace in renews}
    orders = [f"two-locks:order={order}" for order in ("kept", "mixed")]
    return all_played(
        tmp_path_factory.mktemp("expiring"),
        {w: partial(on_redis, workload=w, contended_s=5, pace=pace) for w, pace in holds.items()}
        | {w: partial(on_redis, workload=w, contended_s=4, pace=both) for w in orders},
    )


@pytest.mark.parametrize(("renew", "expected"), [("no", "invalid"), ("yes", "valid")])
def test_work_that_outlasts_its_lease_is_stale_unless_it_is_renewed(
    expiring: dict[str, Played], renew: str, expected: str, tmp_path: Path
) -> None:
    workload = f"long-hold:times=1.4:renew={renew}"
    pace = RENEWED if renew == "yes" else LONG_HOLDS
    again = partial(on_redis, workload=workload, contended_s=5, pace=pace)

    def stale(played: Played) -> str:
        return check(played.history).verdicts["stale-holder"].result

    found = once_more(expiring[workload], again, tmp_path, lambda it: stale(it) == expected)
    report = check(found.history)
    assert report.verdicts["stale-holder"].result == expected
    assert report.verdicts["double-grant"].result == "valid"


def two_locks(played: Played) -> dict[str, Any]:
    measured = check(played.history).measurements["jobs"]
    assert isinstance(measured, dict)
    found: dict[str, Any] = measured["two-locks"]
    return found


def test_a_deadlock_is_found_and_broken_by_expiry(expiring: dict[str, Played]) -> None:
    mixed = two_locks(expiring["two-locks:order=mixed"])
    assert mixed["broken_by_expiry"] > 0
    assert 0.5 < mixed["longest_s"] < 10, "a lease, and not the whole wait"
    kept = two_locks(expiring["two-locks:order=kept"])
    assert kept["deadlocks"] == 0
    assert kept["done"] > 10


FAIRNESS = partial(play, workload="fairness", lock=ONE_AT_A_TIME, pace=PACE, contended_s=5)


def by_kind(played: Played) -> dict[str, Any]:
    measured = check(played.history).measurements["jobs"]
    assert isinstance(measured, dict)
    found: dict[str, Any] = measured["fairness"]
    return found


def test_fast_and_slow_clients_are_told_apart(
    one_at_a_time: dict[str, Played], tmp_path: Path
) -> None:
    def faster(played: Played) -> bool:
        found = by_kind(played)
        return bool(found["fast"]["jobs"] > 1.2 * found["slow"]["jobs"] > 0)

    found = by_kind(once_more(one_at_a_time["fairness"], FAIRNESS, tmp_path, faster))
    assert found["fast"]["clients"] == found["slow"]["clients"] == 2
    # Twice as many on an idle machine; on a busy one nobody is fast.
    assert found["fast"]["jobs"] > 1.2 * found["slow"]["jobs"] > 0


def test_each_process_has_clients_of_both_kinds(
    one_at_a_time: dict[str, Played], tmp_path: Path
) -> None:
    """Else what tells processes apart would look like what tells fast from slow."""

    def processes(played: Played) -> dict[int, int]:
        history = played.history
        at_k0 = np.array([key == "k0" for key in history.keys])
        jobs = (history.f == F.JOB) & at_k0[history.key]
        worker = history.process // PROCESSES_PER_WORKER
        return {k: len(np.unique(worker[jobs & (history.version == k)])) for k in (FAST, SLOW)}

    expected = {FAST: 2, SLOW: 2}
    first = one_at_a_time["fairness"]
    found = once_more(first, FAIRNESS, tmp_path, lambda it: processes(it) == expected)
    assert processes(found) == expected


def test_many_clients_leave_each_other_alone_on_their_own_keys(tmp_path: Path) -> None:
    """32 clients every 50 ms, 64 every 100 ms: at most 128 cycles in 200 ms, and not 256."""
    pace = replace(PACE, own_period_s=0.05)
    history = play(tmp_path, "mutex", lock=ONE_AT_A_TIME, clients=64, pace=pace).history
    own = np.array(["own-contended" in key for key in history.keys])
    cycles = np.count_nonzero((history.f == F.ACQUIRE) & own[history.key])
    assert 0 < cycles <= 128 + 64, "each may have begun one more"


def test_every_second_client_is_half_of_each_of_two_processes() -> None:
    kinds = []
    for place in range(8):
        job = Job()
        job.number = place
        kinds.append(job.is_second)
    # Clients take turns over the processes.
    assert sum(kinds[0::2]) == sum(kinds[1::2]) == 2
