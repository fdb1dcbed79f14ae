"""A lock that nobody gets any more is told from one that nobody asked for, or not for long."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lockbench.checker.check import check
from lockbench.evidence.dead_holder import DeadHolder, dead_holder
from lockbench.history.columns import History
from lockbench.results.cases import judged
from lockbench.results.documents import CaseResult, Measurements, Recovery
from tests.checker.scenes import Scene

VICTIM, OTHER = 0, 1 << 20  # of worker 0, and of worker 1
ERROR = {"ok": None, "fail": "held", "info": "timeout"}
LEASE_S = 3.0
END_S = 12.0
KILLED_S = 2.0


def history(
    *,
    freed_s: float = math.inf,
    asked_until_s: float = END_S,
    unknown: bool = False,
    served: bool = True,
) -> History:
    """The victim is killed at 2 s while it holds ``aimed``; another asks for its key every second
    and is refused, and from ``freed_s`` on granted. A third has a key of its own."""
    scene = Scene(key="aimed").acquire(VICTIM, 1, 1.001)
    scene.fault("client-kill", KILLED_S, 3, targets=(), worker=0).death(VICTIM, KILLED_S)
    for n in range(int(END_S)):
        if 2 <= n < asked_until_s:
            answer = "ok" if n >= freed_s else "info" if unknown and n == 4 else "fail"
            scene.acquire(OTHER, n + 0.25, n + 1.125, answer, hold=f"a{n}", error=ERROR[answer])
            if answer == "ok":
                scene.release(OTHER, n + 1.15, n + 1.2, hold=f"a{n}")
        answer = "ok" if served else "fail"
        own: dict[str, Any] = {"key": "own-0", "hold": f"o{n}"}
        scene.acquire(OTHER + 1, n + 0.3, n + 0.31, answer, error=ERROR[answer], **own)
        if served:
            scene.release(OTHER + 1, n + 0.32, n + 0.33, **own)
    return scene.history()


def told(recorded: History, lease_s: float = LEASE_S) -> DeadHolder | None:
    case = CaseResult(lock="etcd", fault="client-kill", settings={"lease_ttl_s": lease_s})
    return dead_holder(judged(case, check(recorded)), lambda: recorded)


def test_a_key_that_nobody_gets_again_is_locked() -> None:
    assert told(history()) == DeadHolder(longest_s=None, locked=True)


def test_a_key_that_was_granted_again_is_not() -> None:
    found = told(history(freed_s=6))
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
    made: dict[str, Any],
) -> None:
    assert told(history(**made)) == DeadHolder(longest_s=None, locked=False)


def test_a_lease_that_lasts_to_the_end_is_no_lock_for_ever() -> None:
    """It ends when the last one has just asked."""
    lease_s = END_S - 0.75 - KILLED_S
    assert told(history(), lease_s) == DeadHolder(longest_s=None, locked=False)


def test_nothing_is_said_where_no_holder_was_struck() -> None:
    def never() -> History:
        raise AssertionError("there is nothing to look at")

    def recovered(longest_s: float | None) -> CaseResult:
        found = Measurements(recovery=(Recovery(dead_holder_s=longest_s),))
        return CaseResult(lock="etcd", fault="client-kill", measurements=found)

    assert dead_holder(recovered(None), never) is None
    assert dead_holder(recovered(3.1), never) == DeadHolder(3.1, locked=False)
