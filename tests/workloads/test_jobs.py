"""Every workload under a lock that grants everything is caught, and under one that works is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checker.check import check
from checker.jobs import VERDICTS_OF
from history.op import F, Type
from tests.locks.fakes import FakeRedis
from tests.workloads import unsafe
from tests.workloads.playing import play
from workloads.load import Pace
from workloads.registry import find

pytestmark = pytest.mark.slow
EVERYBODY = f"{unsafe.__file__}:Everybody"
ONE_AT_A_TIME = f"{unsafe.__file__}:OneAtATime"
PACE = Pace(aimed_hold_s=0.05)
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


@pytest.mark.parametrize(("workload", "verdict"), BREAKS.items())
def test_a_lock_that_grants_everything_is_caught(
    tmp_path: Path, workload: str, verdict: str
) -> None:
    report = check(play(tmp_path, workload, lock=EVERYBODY, pace=PACE).history)
    assert report.verdicts[verdict].result == "invalid"
    assert report.verdicts["double-grant"].result == "invalid"


@pytest.mark.parametrize(
    "workload", [*BREAKS, "mutex:hold=heavy:spread=zipf", "herd", "two-locks:order=mixed"]
)
def test_a_lock_that_works_breaks_nothing(tmp_path: Path, workload: str) -> None:
    pace = replace(PACE, wait_s=0.5) if workload == "two-locks:order=mixed" else PACE
    report = check(play(tmp_path, workload, lock=ONE_AT_A_TIME, keys=2, pace=pace).history)
    assert {v: r.result for v, r in report.verdicts.items() if r.result != "valid"} == {}
    assert set(find(workload).workload.verdicts) <= set(report.verdicts)


def test_an_idempotency_key_charges_once_whatever_the_lock_does(tmp_path: Path) -> None:
    history = play(tmp_path, "payment:idempotency=yes", lock=EVERYBODY).history
    report = check(history)
    assert report.verdicts["double-grant"].result == "invalid"
    assert report.verdicts["charged-twice"].result == "valid"
    assert report.verdicts["lost-charge"].result == "valid"
    refused = (history.f == F.EFFECT) & (history.type == Type.FAIL)
    assert np.count_nonzero(refused) > 0


def test_every_verdict_of_a_job_is_broken_here() -> None:
    own = {verdict for verdicts in VERDICTS_OF.values() for verdict in verdicts}
    assert own - set(BREAKS.values()) == {"lost-charge"}, "no lock loses a charge"


@pytest.mark.parametrize(("renew", "expected"), [("no", "invalid"), ("yes", "valid")])
def test_work_that_outlasts_its_lease_is_stale_unless_it_is_renewed(
    tmp_path: Path, renew: str, expected: str
) -> None:
    pace = Pace(lease_ttl_s=1.2, client_timeout_s=0.5, wait_s=10, aimed_hold_s=0.05)
    server = FakeRedis()
    try:
        history = play(
            tmp_path,
            f"long-hold:times=1.4:renew={renew}",
            address=server.address,
            clients=2,
            contended_s=5,
            pace=pace,
        ).history
    finally:
        server.stop()
    report = check(history)
    assert report.verdicts["stale-holder"].result == expected
    assert report.verdicts["double-grant"].result == "valid"


def two_locks(folder: Path, order: str) -> dict[str, Any]:
    server = FakeRedis()
    try:
        history = play(
            folder,
            f"two-locks:order={order}",
            address=server.address,
            keys=2,
            contended_s=4,
            pace=Pace(lease_ttl_s=1.0, client_timeout_s=0.5, wait_s=3, aimed_hold_s=0.05),
        ).history
    finally:
        server.stop()
    measured = check(history).measurements["jobs"]
    assert isinstance(measured, dict)
    found: dict[str, Any] = measured["two-locks"]
    return found


def test_a_deadlock_is_found_and_broken_by_expiry(tmp_path: Path) -> None:
    mixed = two_locks(tmp_path / "mixed", "mixed")
    assert mixed["broken_by_expiry"] > 0
    assert 0.5 < mixed["longest_s"] < 3.0, "a lease, and not the whole wait"
    kept = two_locks(tmp_path / "kept", "kept")
    assert kept["deadlocks"] == 0
    assert kept["done"] > 10


def test_fast_and_slow_clients_are_told_apart(tmp_path: Path) -> None:
    history = play(tmp_path, "fairness", lock=ONE_AT_A_TIME, pace=PACE).history
    measured = check(history).measurements["jobs"]
    assert isinstance(measured, dict)
    found = measured["fairness"]
    assert found["fast"]["clients"] == found["slow"]["clients"] == 2
    assert found["fast"]["jobs"] > 2 * found["slow"]["jobs"] > 0
