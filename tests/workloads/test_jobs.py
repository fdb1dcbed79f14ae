"""Every workload under a lock that grants everything is caught, and under one that works is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from checker.check import check
from checker.jobs import VERDICTS_OF
from history.op import F, Type
from tests.workloads import unsafe
from tests.workloads.playing import play
from workloads.load import Pace
from workloads.registry import find

pytestmark = pytest.mark.slow
EVERYBODY = f"{unsafe.__file__}:Everybody"
ONE_AT_A_TIME = f"{unsafe.__file__}:OneAtATime"
PACE = Pace(aimed_hold_s=0.05)
# Workload → the verdict that a lock which grants everything must break.
BREAKS = {"inventory": "oversold", "payment": "charged-twice"}


@pytest.mark.parametrize(("workload", "verdict"), BREAKS.items())
def test_a_lock_that_grants_everything_is_caught(
    tmp_path: Path, workload: str, verdict: str
) -> None:
    report = check(play(tmp_path, workload, lock=EVERYBODY).history)
    assert report.verdicts[verdict].result == "invalid"
    assert report.verdicts["double-grant"].result == "invalid"


@pytest.mark.parametrize("workload", BREAKS)
def test_a_lock_that_works_breaks_nothing(tmp_path: Path, workload: str) -> None:
    report = check(play(tmp_path, workload, lock=ONE_AT_A_TIME).history)
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


def test_every_job_has_a_case_here() -> None:
    own = {verdict for verdicts in VERDICTS_OF.values() for verdict in verdicts}
    assert set(BREAKS.values()) <= own
