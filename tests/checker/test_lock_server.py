"""Simulated correct locks of every kind are never accused; the same with one defect are. Of their
holders each one that is stale is found."""

from __future__ import annotations

from itertools import product
from typing import Final, get_args

import numpy as np
import pytest

from lockbench.checker.check import check
from lockbench.history.op import NULL, F, Type
from tests.budget import tries
from tests.checker.lock_server import Ending, Faulty, Setup, Simulation

KINDS: Final = ("mutex", "reentrant", "read-write", "semaphore")
USING: Final = Setup("mutex", True, "lease", uses=True)
SETUPS: Final = (
    USING,
    *(
        Setup(kind, holds, ending)
        for kind, holds, ending in product(KINDS, (True, False), get_args(Ending))
    ),
)
JUDGED: Final = {"double-grant", "late-grant", "false-release", "linearizable"}


def accused(setup: Setup, grants: int, seed: int = 1) -> dict[str, str]:
    """The verdicts that are not valid, with their reasons. What a client does after its promise is
    no fault of the lock."""
    report = check(Simulation(seed, setup, grants=grants).run())
    assert report.grants >= grants
    # No grant is late that was promised without an end.
    assert set(report.verdicts) >= JUDGED - ({"late-grant"} if setup.faulty == "endless" else set())
    found = {name: v.reason for name, v in report.verdicts.items() if v.result != "valid"}
    if setup.uses:
        found.pop("stale-holder")
    return found


@pytest.mark.random
@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_a_correct_lock_is_never_accused(setup: Setup) -> None:
    for seed in range(tries(0.25)):
        assert accused(setup, 400, seed) == {}


@pytest.mark.parametrize("faulty", get_args(Faulty))
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_with_a_defect_is_accused(kind: str, faulty: Faulty) -> None:
    for holds in (True, False):
        assert "double-grant" in accused(Setup(kind, holds, "lease", faulty), 1500)


def test_every_stale_holder_is_found_also_after_the_later_grant_was_released() -> None:
    """Counted once more by brute force, straight from the definition. Clocks are off by up to ε, so
    times of two machines are in order for certain only if they differ by more than twice that."""
    history = Simulation(1, USING, grants=1000).run()
    width = 2 * history.epsilon_ns
    grants = np.flatnonzero((history.f == F.ACQUIRE) & (history.type == Type.OK)).tolist()
    of_hold = {int(history.hold[row]): row for row in grants}
    released = {
        int(history.hold[row]): int(history.invoke_ns[row])
        for row in np.flatnonzero(history.f == F.RELEASE).tolist()
    }
    stale = after_release = 0
    for row in np.flatnonzero(history.applied_ns != NULL).tolist():
        mine = of_hold[int(history.hold[row])]
        at, hold = int(history.applied_ns[row]), int(history.hold[row])
        end = min(int(history.valid_until_ns[mine]), released.get(hold, at))
        later = [
            other
            for other in grants
            if history.key[other] == history.key[mine]
            and history.complete_ns[mine] < history.complete_ns[other] < at - width
            and at - width > end
        ]
        stale += bool(later)
        after_release += bool(later) and all(
            released.get(int(history.hold[other]), at) < at for other in later
        )
    assert after_release > 0, "the simulation makes no such case"
    reason = check(history).verdicts["stale-holder"].reason
    assert f"{stale} stale operations" in reason
