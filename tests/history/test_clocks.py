"""The difference of two clocks, read by a process that may stand still."""

from __future__ import annotations

import time

import pytest

from lockbench.history.clocks import LOOKS, wall_minus_monotonic_ns

S = 1_000_000_000
AHEAD_NS = 1_700_000_000 * S


@pytest.mark.parametrize("calm", range(LOOKS))
@pytest.mark.parametrize("before", [0, 5 * S], ids=["before", "after"])
def test_one_look_that_nothing_interrupts_is_enough(
    monkeypatch: pytest.MonkeyPatch, calm: int, before: int
) -> None:
    """In every other one the process stands still for 5 s, before or after it reads the wall."""
    now_ns = reads = 0

    def monotonic_ns() -> int:
        nonlocal now_ns
        now_ns += 100
        return now_ns

    def time_ns() -> int:
        nonlocal now_ns, reads
        stalls = reads != calm
        reads += 1
        now_ns += 100 + stalls * before
        wall_ns = AHEAD_NS + now_ns
        now_ns += stalls * (5 * S - before)
        return wall_ns

    monkeypatch.setattr(time, "monotonic_ns", monotonic_ns)
    monkeypatch.setattr(time, "time_ns", time_ns)
    assert abs(wall_minus_monotonic_ns() - AHEAD_NS) <= 100
