"""Whom servers no longer hear, by what they say."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lockbench.clusters.elsewhere import heard
from lockbench.clusters.elsewhere.heard import (
    Unchanged,
    is_behind,
    is_unheard,
    unanswered,
)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock says, in its last place."""
    now = [100.0]
    monkeypatch.setattr(heard, "time", SimpleNamespace(monotonic=lambda: now[-1]))
    return now


def test_only_what_stays_the_same_is_unchanged(at: list[float]) -> None:
    seen = Unchanged()
    told = []
    for now, name, value in [
        (100.0, "a", 7),
        (101.5, "a", 7),
        (101.5, "b", 7),
        (102.0, "a", 8),
        (102.5, "a", 8),
        (103.0, "a", 7),
    ]:
        at.append(now)
        told.append(seen.for_s(name, value))
    assert told == [0.0, 1.5, 0.0, 0.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("flags", "last_ms", "unheard"),
    [
        ("master", "900", False),
        ("master", "2000", True),
        ("s_down,slave", "900", True),
        ("sentinel,disconnected", "900", True),
        ("o_down,master", "900", False),  # by what others say
    ],
)
def test_a_sentinel_hears_whom_it_pings(flags: str, last_ms: str, unheard: bool) -> None:
    assert is_unheard({"flags": flags, "last-ok-ping-reply": last_ms}) is unheard


def line(flags: str, port: int, ping_sent: int = 0, state: str = "connected") -> str:
    """Of CLUSTER NODES, as Redis 8 has it."""
    return f"{port}id 10.0.0.1:{port}@1{port} {flags} - {ping_sent} 1700000000000 1 {state} 0-5"


@pytest.mark.parametrize(
    ("before", "now", "silent"),
    [
        (line("master", 2), line("master", 2), False),
        (line("master", 2, 17), line("master", 2, 17), True),
        (line("master", 2, 17), line("master", 2, 18), False),
        (line("master", 2), line("master,fail?", 2), True),
        (line("master", 2), line("master,fail", 2), False),  # by what others say
        (line("master", 2), line("master", 2, 0, "disconnected"), True),
        (line("myself,master", 2, 17), line("myself,master", 2, 17, "disconnected"), False),
    ],
)
def test_a_node_of_a_cluster_misses_an_answer(
    before: str, now: str, silent: bool, at: list[float]
) -> None:
    pinged = Unchanged()
    list(unanswered([before], 1, pinged))
    at.append(at[-1] + 2 * heard.UNANSWERED_S)
    assert list(unanswered([now], 1, pinged)) == [2] * silent


@pytest.mark.parametrize(
    ("written", "copied", "status", "same_s", "behind"),
    [
        (20, 10, "up", heard.STALE_S, True),
        (20, 10, "up", 0.1, False),
        (20, 20, "up", 60.0, False),
        (20, 20, "down", 0.0, True),
    ],
)
def test_a_replica_gets_nothing(
    written: int, copied: int, status: str, same_s: float, behind: bool
) -> None:
    primary = {"role": "master", "master_repl_offset": str(written)}
    replica = {"master_link_status": status, "slave_repl_offset": str(copied)}
    assert is_behind(primary, replica, same_s) is behind
