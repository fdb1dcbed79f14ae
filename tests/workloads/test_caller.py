"""Who calls a lock and records it: whose writes are recorded under which holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import cast

import numpy as np
import pytest

from lockbench.checker.check import check
from lockbench.history.op import F, Object
from lockbench.history.recorder import Recorder
from lockbench.history.recording import read_recording, write_meta
from lockbench.locks.base import Acquired, Denied, Freed, Granted, Hold, Lock, Released
from lockbench.locks.registry import find
from lockbench.workloads.caller import Caller
from lockbench.workloads.load import Pace

NS = 1_000_000_000


class Yes:
    """A lock that grants whatever is asked for, unless nobody can be asked."""

    unheard = False

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        if self.unheard:
            return Denied("no-effect: connection refused")
        now_ns = monotonic_ns()
        return Granted(Hold(hold_id, key, None), None, now_ns, now_ns + 2 * NS)

    def release(self, hold: Hold) -> Freed:
        return Released()

    def close(self) -> None: ...


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[Caller]:
    write_meta(tmp_path, {"k": Object(kind="mutex", role="aimed")}, wall_minus_monotonic_ns=0)
    recorder = Recorder(tmp_path, 0, segment_records=16)
    pace = Pace(lease_ttl_s=2.0, client_timeout_s=1.0)
    system = find("redis-watchdog")
    yield Caller(recorder, system, pace, lambda _: cast("Lock", Yes()), lambda _: None)
    recorder.close()


def writes(folder: Path) -> int:
    return int(np.count_nonzero(read_recording(folder).f == F.WRITE))


def test_a_write_is_under_a_hold_that_is_renewed_and_not_lost(
    caller: Caller, tmp_path: Path
) -> None:
    granted = caller.acquire("k")
    assert granted is not None
    hold = granted.hold
    now_ns = monotonic_ns()
    caller.touch(hold)  # its user knows when the promise ends
    assert writes(tmp_path) == 0
    caller.extended(
        hold, sent_ns=now_ns, acknowledged_ns=now_ns + 1, valid_until_ns=now_ns + 2 * NS
    )
    caller.touch(hold)
    assert writes(tmp_path) == 1
    caller.lost(hold)
    caller.touch(hold)
    assert writes(tmp_path) == 1


def test_who_asks_again_and_again_waits_where_nobody_can_be_asked(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = monotonic()
    assert caller.take_all("k", wait_s=30.0), "a grant is not waited for"
    assert monotonic() < began + 30.0
    monkeypatch.setattr(Yes, "unheard", True)
    began = monotonic()
    assert not caller.take_all("k", wait_s=0.2)
    assert monotonic() >= began + 0.2


def granted_after(stopped: Caller, folder: Path) -> bool:
    """Whether nobody is wronged when another is granted the lock after this one was stopped."""
    stopped.stopped()
    recorder = Recorder(folder, 1, segment_records=16)
    system, pace = find("redis-watchdog"), stopped.pace
    other = Caller(recorder, system, pace, lambda _: cast("Lock", Yes()), lambda _: None)
    assert other.acquire("k") is not None
    recorder.close()
    return check(read_recording(folder)).verdicts["double-grant"].result == "valid"


def test_who_was_stopped_inside_a_hold_is_there_no_longer(caller: Caller, tmp_path: Path) -> None:
    assert caller.acquire("k") is not None
    assert granted_after(caller, tmp_path)


def test_who_was_stopped_before_the_other_asked_wrongs_nobody_only_from_then_on(
    caller: Caller, tmp_path: Path
) -> None:
    assert caller.acquire("k") is not None
    assert caller.acquire("k") is not None, "a lock that grants to everybody"
    assert not granted_after(caller, tmp_path)


def test_who_was_stopped_outside_has_not_died(caller: Caller, tmp_path: Path) -> None:
    granted = caller.acquire("k")
    assert granted is not None
    caller.release(granted.hold)
    caller.stopped()
    assert not np.count_nonzero(read_recording(tmp_path).f == F.DEATH)
