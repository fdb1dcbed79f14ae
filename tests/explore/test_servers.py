"""One strike at servers for all plays that have come to their event."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import cast

from lockbench.clusters.base import Cluster
from lockbench.explore.faults import Act
from lockbench.explore.plays import Later
from lockbench.explore.servers import APART, ELSEWHERE, SERVES_S, Blow, possible
from tests.eventually import eventually

LIMIT_S = 20.0
LEASE_S = 0.2
# Plays are waited for so much longer that all of them come also on a busy machine.
LONG_S = 100.0


class Pauses:
    """A cluster that can only be paused, and notes it."""

    nodes: Sequence[int] = (1, 2, 3)

    def __init__(self, failure: str = "") -> None:
        self.done: list[str] = []
        self.failure = failure
        self.serving = threading.Event()
        self.serving.set()

    def serves(self, node: int, limit_s: float) -> bool:
        return self.serving.is_set()

    def pause(self, nodes: Iterable[int]) -> None:
        if self.failure:
            raise OSError(self.failure)
        self.done.append(f"pause {[*nodes]}")

    def unpause(self, nodes: Iterable[int]) -> None:
        self.done.append(f"unpause {[*nodes]}")

    def frozen(self, node: int) -> bool:
        return False


def made_of(
    cluster: object,
    nodes: Sequence[int],
    act: Act,
    *,
    plays: int,
    lease_s: float = LEASE_S,
    serves_s: float = SERVES_S,
) -> Blow:
    cluster = cast("Cluster", cluster)
    long = lease_s == LONG_S
    return Blow(
        cluster,
        nodes,
        act,
        plays=plays,
        lease_s=lease_s,
        frozen_s=0.0 if long else 1.3 * lease_s,
        gathers_s=LONG_S if long else lease_s / 4,
        serves_s=serves_s,
    )


def blow(cluster: Pauses, plays: int, lease_s: float = LEASE_S) -> tuple[Blow, threading.Thread]:
    made = made_of(cluster, [2], "server-frozen", plays=plays, lease_s=lease_s)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    return made, thread


def end(made: Blow, thread: threading.Thread) -> None:
    """No play comes any more."""
    made.over()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def arrive(made: Blow, *nodes: int) -> list[str]:
    """What plays are told whose events come at these nodes."""
    why: list[str] = []

    def play(node: int) -> None:
        why.append(made.struck(object(), node))
        if not why[-1]:
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
    end(made, thread)
    assert cluster.done == ["pause [2]", "unpause [2]"]
    assert not made.failure


def test_nobody_waits_for_a_play_that_could_not_begin() -> None:
    made, thread = blow(Pauses(), 2, LONG_S)
    begins, ends = Later(made, 0.0), Later(made, 0.0)
    waiting = threading.Thread(target=begins.ready, daemon=True)
    waiting.start()
    ends.leave()
    waiting.join(LIMIT_S)  # the start alone would last longer
    assert not waiting.is_alive()
    begins.leave()
    end(made, thread)


def test_who_comes_too_late_is_told_so() -> None:
    cluster = Pauses()
    made, thread = blow(cluster, 2)
    assert arrive(made, 2) == [""]
    assert arrive(made, 2) == [APART]
    end(made, thread)
    assert cluster.done == ["pause [2]", "unpause [2]"]


def test_who_comes_much_earlier_than_most_is_not_struck() -> None:
    cluster = Pauses()
    made, thread = blow(cluster, 9)
    assert arrive(made, 2) == [APART]
    assert not cluster.done
    made._gathers_s = LONG_S  # all eight come, however busy the machine is
    assert arrive(made, *[2] * 8) == [""] * 8
    end(made, thread)
    assert cluster.done == ["pause [2]", "unpause [2]"]


def test_one_play_after_the_other_ends_with_a_strike() -> None:
    """However far apart they come."""
    cluster = Pauses()
    made, thread = blow(cluster, 6)
    told = [arrive(made, 2) for _ in range(6)]
    assert told[:2] == [[APART]] * 2
    assert told.count([""]) == 1
    end(made, thread)
    assert cluster.done == ["pause [2]", "unpause [2]"]


def test_the_server_is_struck_at_which_most_are_and_the_others_are_told() -> None:
    cluster = Pauses()
    made, thread = blow(cluster, 3, LONG_S)
    assert arrive(made, 3, 1, 3) == ["", "", ELSEWHERE]
    end(made, thread)
    assert cluster.done == ["pause [3]", "unpause [3]"]


def test_a_play_with_events_at_several_nodes_is_struck_once() -> None:
    """Its other events may come when the servers are whole again."""
    cluster = Pauses()
    made = made_of(cluster, [1, 2], "server-frozen", plays=1)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    play = object()
    assert made.struck(play, 1) == ""
    assert made.struck(play, 2) == ""
    thread.join(LIMIT_S)
    assert made.struck(play, 2) == ""
    assert made.struck(object(), 1) == APART
    assert cluster.done == ["pause [1, 2]", "unpause [1, 2]"]


def test_nobody_came_and_nothing_was_struck() -> None:
    cluster = Pauses()
    made, thread = blow(cluster, 2)
    end(made, thread)
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


class Elects(Pauses):
    """Three servers that elect a leader, and five more."""

    nodes = range(1, 9)
    quorums = ((1, 2, 3), (4, 5, 6, 7, 8))
    independent = quorums[1]

    def leader(self) -> int | None:
        return 1


def test_a_majority_is_struck_where_a_leader_is_elected() -> None:
    elects = cast("Cluster", Elects())
    assert possible("majority-frozen", elects)
    assert not possible("majority-killed", elects), "it cannot kill"
    assert not possible("majority-frozen", cast("Cluster", Pauses()))


def test_a_majority_is_of_the_part_of_the_server_with_the_event() -> None:
    for came, struck in (((3, 1, 3), "[3, 1]"), ((6,), "[6, 4, 5]")):
        cluster = Elects()
        made = made_of(cluster, [2], "majority-frozen", plays=len(came), lease_s=LONG_S)
        thread = threading.Thread(target=made.run, daemon=True)
        thread.start()
        assert arrive(made, *came) == [""] * len(came), "all of them are struck"
        thread.join(LIMIT_S)
        assert cluster.done == [f"pause {struck}", f"unpause {struck}"]


def test_they_are_whole_when_all_serve_again() -> None:
    cluster = Pauses()
    made, thread = blow(cluster, 1)
    healed = threading.Event()

    def play() -> None:
        cluster.serving.clear()
        made.struck(object(), 2)
        made.healed()
        healed.set()

    threading.Thread(target=play, daemon=True).start()
    eventually(lambda: cluster.done == ["pause [2]", "unpause [2]"])
    assert not healed.wait(LEASE_S)
    cluster.serving.set()
    assert healed.wait(LIMIT_S)
    end(made, thread)


def test_a_play_whose_servers_do_not_serve_again_is_none() -> None:
    cluster = Pauses()
    cluster.serving.clear()
    made = made_of(cluster, [2], "server-frozen", plays=1, lease_s=LEASE_S, serves_s=LEASE_S)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    assert arrive(made, 2) == [""], "it is struck"
    thread.join(LIMIT_S)
    assert "did not serve again" in made.failure


class Shards:
    """Whose primary says who follows it, and says nothing once it is gone."""

    nodes = (1, 4)
    elects = True

    def __init__(self) -> None:
        self.alive = {1, 4}
        self.leads = 1

    def primary(self) -> int | None:
        return self.leads

    def replicas(self) -> Sequence[int]:
        return [4] if self.leads in self.alive else []

    def promotes_nobody(self) -> str | None:
        return None

    def promote(self, node: int, timeout_s: float) -> None:
        self.leads = node

    def kill(self, nodes: Iterable[int]) -> None:
        self.alive -= {*nodes}

    def restart(self, nodes: Iterable[int]) -> None:
        self.alive |= {*nodes}

    def serves(self, node: int, limit_s: float) -> bool:
        return node in self.alive


def test_who_follows_is_asked_before_the_primary_dies() -> None:
    cluster = Shards()
    made = made_of(cluster, [1], "leader-changed", plays=1)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    assert made.struck(object(), 1) == ""
    made.healed()
    thread.join(LIMIT_S)
    assert (made.failure, cluster.leads, cluster.alive) == ("", 4, {1, 4})
