"""One strike at servers for all plays that have come to their event."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import cast

from lockbench.clusters.base import Cluster
from lockbench.explore.servers import ELSEWHERE, LATE, Blow, possible

LIMIT_S = 20.0
LEASE_S = 0.2
# Plays are waited for so much longer that all of them come also on a busy machine.
LONG_S = 3.0


class Pauses:
    """A cluster that can only be paused, and notes it."""

    def __init__(self, failure: str = "") -> None:
        self.done: list[str] = []
        self.failure = failure

    def pause(self, nodes: Iterable[int]) -> None:
        if self.failure:
            raise OSError(self.failure)
        self.done.append(f"pause {[*nodes]}")

    def unpause(self, nodes: Iterable[int]) -> None:
        self.done.append(f"unpause {[*nodes]}")

    def frozen(self, node: int) -> bool:
        return False


def blow(cluster: Pauses, plays: int, lease_s: float = LEASE_S) -> tuple[Blow, threading.Thread]:
    made = Blow(cast("Cluster", cluster), [2], "server-frozen", plays=plays, lease_s=lease_s)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    return made, thread


def arrive(made: Blow, *nodes: int) -> list[str]:
    """What plays are told whose events come at these nodes."""
    why: list[str] = []

    def play(node: int) -> None:
        why.append(made.struck(object(), node))
        made.healed()

    threads = [threading.Thread(target=play, args=(node,), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    return sorted(why)


def test_all_plays_share_one_strike() -> None:
    cluster = Pauses()
    made, thread = blow(cluster, 3, LONG_S)
    assert arrive(made, 2, 2, 2) == [""] * 3
    made.over()
    thread.join(LIMIT_S)
    assert cluster.done == ["pause [2]", "unpause [2]"]
    assert not made.failure


def test_who_comes_too_late_is_told_so() -> None:
    cluster = Pauses()
    made, thread = blow(cluster, 2)
    assert arrive(made, 2) == [""]
    assert arrive(made, 2) == [LATE]
    made.over()
    thread.join(LIMIT_S)
    assert cluster.done == ["pause [2]", "unpause [2]"]


def test_the_server_is_struck_at_which_most_are_and_the_others_are_told() -> None:
    cluster = Pauses()
    made, thread = blow(cluster, 3, LONG_S)
    assert arrive(made, 3, 1, 3) == ["", "", ELSEWHERE]
    made.over()
    thread.join(LIMIT_S)
    assert cluster.done == ["pause [3]", "unpause [3]"]


def test_a_play_with_events_at_several_nodes_is_struck_once() -> None:
    """Its other events may come when the servers are whole again."""
    cluster = Pauses()
    made = Blow(cast("Cluster", cluster), [1, 2], "server-frozen", plays=1, lease_s=LEASE_S)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    play = object()
    assert made.struck(play, 1) == ""
    assert made.struck(play, 2) == ""
    thread.join(LIMIT_S)
    assert made.struck(play, 2) == ""
    assert made.struck(object(), 1) == LATE
    assert cluster.done == ["pause [1, 2]", "unpause [1, 2]"]


def test_nobody_came_and_nothing_was_struck() -> None:
    cluster = Pauses()
    made, thread = blow(cluster, 2)
    made.over()
    thread.join(LIMIT_S)
    assert cluster.done == []


def test_a_strike_that_fails_is_healed_and_told() -> None:
    cluster = Pauses("the engine is gone")
    made, thread = blow(cluster, 1)
    (why,) = arrive(made, 2)
    assert "the engine is gone" in why
    thread.join(LIMIT_S)
    assert cluster.done == ["unpause [2]"]
    assert "the engine is gone" in made.failure


def test_a_cluster_is_asked_only_for_what_it_can() -> None:
    can = cast("Cluster", Pauses())
    assert possible("server-frozen", can)
    assert possible("client-killed", can)
    assert not possible("server-killed", can)
    for act in ("leader-changed", "server-wiped", "clock-jumped"):
        assert not possible(act, can)
