"""A lock that nobody gets any more is told from one that nobody asked for, or not for long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.locked import DeadHolder, dead_holder
from checker.check import check
from history.columns import History
from history.op import F, Fault, Type
from history.recorder import Recorder
from history.recording import read_recording, write_faults, write_meta
from results.cases import judged
from results.documents import Case, Measurements, Recovery

S = 10**9
LEASE_S = 3.0
END_S = 12.0
KILLED_S = 2.0


def history(
    folder: Path,
    *,
    freed_s: float | None = None,
    asked_until_s: float = END_S,
    unknown: bool = False,
    served: bool = True,
) -> History:
    """The victim, worker 0, is killed at 2 s while it holds; another asks for its key every second
    and is refused, and from ``freed_s`` on granted. A third has a key of its own."""
    victim, other = Recorder(folder, 0), Recorder(folder, 1)
    taken = victim.invoke(0, F.ACQUIRE, "aimed", hold=1, invoke_ns=S)
    victim.complete(taken, Type.OK, complete_ns=S + 1)
    victim.close()
    process = 1 << 20
    for n in range(int(END_S)):
        at = n * S + S // 4
        if n >= 2 and n < asked_until_s:
            ask = other.invoke(process, F.ACQUIRE, "aimed", hold=100 + n, invoke_ns=at)
            granted = freed_s is not None and n >= freed_s
            refused = Type.INFO if unknown and n == 4 else Type.FAIL
            answer = Type.OK if granted else refused
            if answer is Type.INFO:
                other.complete(ask, answer, error="timeout")
            else:
                other.complete(ask, answer, complete_ns=at + S - S // 8)
            if granted:
                back = other.invoke(process, F.RELEASE, "aimed", hold=100 + n, invoke_ns=at + S - 9)
                other.complete(back, Type.OK, complete_ns=at + S - 5)
        own = other.invoke(process + 1, F.ACQUIRE, "own-0", hold=200 + n, invoke_ns=at + 1)
        other.complete(own, Type.OK if served else Type.FAIL, complete_ns=at + 2)
        if served:
            back = other.invoke(process + 1, F.RELEASE, "own-0", hold=200 + n, invoke_ns=at + 3)
            other.complete(back, Type.OK, complete_ns=at + 4)
    other.close()
    write_meta(folder, {}, wall_minus_monotonic_ns=0)
    begin = int(KILLED_S * S)
    fault = Fault(
        "client-kill", (), (begin, begin + 1), (begin + S, begin + S), facts={"worker": 0}
    )
    write_faults(folder, [fault])
    return read_recording(folder)


def told(recorded: History, lease_s: float = LEASE_S) -> DeadHolder | None:
    case = Case(lock="etcd", fault="client-kill", settings={"lease_ttl_s": lease_s})
    return dead_holder(judged(case, check(recorded)), lambda: recorded)


def test_a_key_that_nobody_gets_again_is_locked(tmp_path: Path) -> None:
    assert told(history(tmp_path)) == DeadHolder(longest_s=None, locked=True)


def test_a_key_that_was_granted_again_is_not(tmp_path: Path) -> None:
    found = told(history(tmp_path, freed_s=6))
    assert found is not None
    assert not found.locked
    assert found.longest_s == pytest.approx(6.25 + 0.875 - KILLED_S)


@pytest.mark.parametrize(
    "made",
    [
        {"asked_until_s": 5},  # the lease had not ended when the last one asked
        {"asked_until_s": 9},  # nobody asked any more
        {"unknown": True},  # this one may have been granted
        {"served": False},  # the service granted nothing at all
    ],
    ids=["too early", "not to the end", "unknown", "not served"],
)
def test_what_may_have_another_reason_is_not_called_locked(
    made: dict[str, Any], tmp_path: Path
) -> None:
    assert told(history(tmp_path, **made)) == DeadHolder(longest_s=None, locked=False)


def test_a_lease_that_lasts_to_the_end_is_no_lock_for_ever(tmp_path: Path) -> None:
    """It ends when the last one has just asked."""
    lease_s = END_S - 0.75 - KILLED_S
    assert told(history(tmp_path), lease_s) == DeadHolder(longest_s=None, locked=False)


def test_nothing_is_said_where_no_holder_was_struck() -> None:
    def never() -> History:
        raise AssertionError("there is nothing to look at")

    def recovered(longest_s: float | None) -> Case:
        found = Measurements(recovery=(Recovery(dead_holder_s=longest_s),))
        return Case(lock="etcd", fault="client-kill", measurements=found)

    assert dead_holder(recovered(None), never) is None
    assert dead_holder(recovered(3.1), never) == DeadHolder(3.1, locked=False)
