"""Simulated correct locks of every kind are never accused; the same with one defect are."""

from __future__ import annotations

from itertools import product
from typing import Final, get_args

import pytest

from checker.check import check
from tests.budget import tries
from tests.checker.lock_server import Ending, Faulty, Setup, Simulation

KINDS: Final = ("mutex", "reentrant", "read-write", "semaphore")
SETUPS: Final = tuple(
    Setup(kind, holds, ending)
    for kind, holds, ending in product(KINDS, (True, False), get_args(Ending))
)
# What a client does after its promise is no fault of the lock; nothing here uses a resource.
JUDGED: Final = {"double-grant", "late-grant", "false-release", "linearizable"}


def accused(setup: Setup, grants: int, seed: int = 1) -> dict[str, str]:
    """The verdicts that are not valid, with their reasons."""
    report = check(Simulation(seed, setup, grants=grants).run())
    assert report.grants >= grants
    assert set(report.verdicts) >= JUDGED
    verdicts = report.verdicts.items()
    return {name: verdict.reason for name, verdict in verdicts if verdict.result != "valid"}


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
