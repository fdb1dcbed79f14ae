"""Who calls a lock and records it: whose writes are recorded under which holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import cast

import numpy as np
import pytest

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
