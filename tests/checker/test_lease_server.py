"""Sanity against a simulated correct lease server: no false alarm, every stale holder found."""

from __future__ import annotations

import numpy as np
import pytest

from checker.check import check
from history.columns import History
from history.op import NULL, F, Type
from tests.budget import tries
from tests.checker.lease_server import Simulation

SAFE = (
    "double-grant", "late-grant", "wrong-release", "false-release", "fence-order", "linearizable",
)  # fmt: skip


def simulate(grants: int, *, anchor: str = "send", seed: int = 1) -> History:
    return Simulation(seed, clients=8, grants=grants, anchor=anchor).run()


def no_false_alarm(history: History) -> None:
    report = check(history)
    for name in SAFE:
        # Nothing was late, unless a reply took longer than the lease.
        assert report.verdicts[name].result == "valid", report.verdicts[name].reason
    assert report.verdicts["stale-holder"].result == "invalid"


@pytest.mark.random
def test_a_correct_server_is_never_accused() -> None:
    grants = tries(1000)
    history = simulate(grants)
    assert check(history).grants == grants
    no_false_alarm(history)


@pytest.mark.parametrize("anchor", ["completion", "none"])
def test_other_anchors_would_accuse_it(anchor: str) -> None:
    """The promise counted from the completion, or not limited at all, is more than the server gave:
    false double grants. This is why promises are anchored where they are."""
    report = check(simulate(3000, anchor=anchor))
    assert report.verdicts["double-grant"].result == "invalid"


def test_every_stale_holder_is_found_also_after_the_later_grant_was_released() -> None:
    """Counted once more by brute force, straight from the definition."""
    history = simulate(1000)
    grants = [
        r for r in range(len(history)) if history.f[r] == F.ACQUIRE and history.type[r] == Type.OK
    ]
    of_hold = {int(history.hold[r]): r for r in grants}
    released = {
        int(history.hold[r]): int(history.invoke_ns[r])
        for r in np.flatnonzero(history.f == F.RELEASE).tolist()
    }
    stale = after_release = 0
    for row in np.flatnonzero(history.applied_ns != NULL).tolist():
        mine = of_hold[int(history.hold[row])]
        at = int(history.applied_ns[row])
        end = min(int(history.valid_until_ns[mine]), released.get(int(history.hold[mine]), at + 1))
        later = [
            g
            for g in grants
            if history.complete_ns[mine] < history.complete_ns[g] < at and at > end
        ]
        stale += bool(later)
        after_release += bool(later) and all(
            released.get(int(history.hold[g]), at + 1) < at for g in later
        )
    assert after_release > 0, "the simulation makes no such case"
    reason = check(history).verdicts["stale-holder"].reason
    assert f"{stale} stale operations" in reason
