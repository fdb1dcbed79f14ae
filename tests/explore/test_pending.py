"""What is played together: what strikes no server, and what shares a strike at servers."""

from __future__ import annotations

from collections.abc import Sequence

from lockbench.explore.pending import Pending
from lockbench.explore.trial import Place, Strike, Trial

MANY = 12
FIVE = (1, 2, 3, 4, 5)


def struck(fault: str, *nodes: int, number: int = 1, at_s: float = 0.0) -> Trial:
    """At an event of each of these nodes."""
    places = (Place("request", number + n, node, at_s) for n, node in enumerate(nodes))
    return Trial("free", tuple(Strike(place, fault) for place in places))


def wiped(*nodes: int) -> Trial:
    return struck("server-wiped", *nodes)


def sizes(pending: Pending, alone: int = MANY, sharing: int = MANY) -> list[int]:
    """How many are played together, until nothing is left."""
    return [len(chunk) for chunk in iter(lambda: pending.take(alone, sharing), ())]


def test_what_changes_the_leader_comes_last_however_many_they_are() -> None:
    """From then on another node may be the primary."""
    faults = ["leader-changed", "leader-changed", "server-wiped", "request-lost", "server-frozen"]
    pending = Pending([struck(fault, 1, number=n) for n, fault in enumerate(faults)])
    chunks = [*iter(lambda: pending.take(MANY, MANY), ())]
    assert sorted(chunk[0].strikes[0].fault for chunk in chunks[:3]) == sorted(faults[2:])
    assert [trial.strikes[0].fault for trial in chunks[3]] == faults[:2]


def test_those_that_strike_no_server_come_first_then_those_of_which_the_most_are_left() -> None:
    def node(chunk: Sequence[Trial]) -> int:
        return chunk[0].strikes[0].place.node

    alone = struck("request-lost", 7)
    pending = Pending([wiped(1)] * 3 + [alone] + [wiped(2)] * 5)
    assert node(pending.take(2, 2)) == 7
    assert node(pending.take(2, 2)) == 2
    pending.add([alone])
    assert [node(chunk) for chunk in iter(lambda: pending.take(2, 2), ())] == [7, 1, 2, 1, 2]


def test_what_does_not_fit_at_once_is_played_in_parts_of_the_same_size() -> None:
    assert sizes(Pending([wiped(1)] * 7), sharing=6) == [4, 3]
    assert sizes(Pending([struck("request-lost", 1)] * 7), alone=3) == [3, 2, 2]


def test_events_that_come_at_the_same_time_are_struck_together() -> None:
    """Of what strikes no server, those whose plays last longest come first."""
    times = [0.3, 0.1, 0.4, 0.2]
    pending = Pending([struck("server-frozen", 1, at_s=at_s) for at_s in times])
    assert [t.strikes[0].place.at_s for t in pending.take(MANY, 2)] == [0.1, 0.2]
    pending = Pending([struck("request-lost", 1, at_s=at_s) for at_s in times])
    assert [t.strikes[0].place.at_s for t in pending.take(2, MANY)] == [0.4, 0.3]


def test_those_that_strike_other_servers_share_no_strike() -> None:
    assert sizes(Pending([wiped(2), wiped(1), wiped(2)])) == [2, 1]


def test_servers_that_know_nothing_of_each_other_are_struck_for_one_another() -> None:
    trials = [wiped(2), wiped(5, 3, 4), wiped(1), wiped(3, 1, 2), wiped(5)]
    assert sizes(Pending(trials, interchangeable=FIVE)) == [3, 2]


def test_those_of_different_lists_share_no_strike() -> None:
    assert sizes(Pending([wiped(1)] * 2, [wiped(1)] * 3)) == [3, 2]
    assert sizes(Pending([struck("request-lost", 1)], [struck("request-lost", 1)])) == [2]
    assert sizes(Pending()) == []


def test_the_leader_is_struck_wherever_the_event_is() -> None:
    trials = [struck("leader-changed", node) for node in FIVE]
    assert sizes(Pending(trials)) == [5]


def test_where_any_server_may_be_asked_all_share_a_strike_until_one_is_outnumbered() -> None:
    trials = [struck("server-frozen", node, number=n) for n, node in enumerate((1, 2, 2))]
    assert sizes(Pending(trials)) == [2, 1]
    pending = Pending(trials, of_one_quorum=True)
    for _ in range(3):
        assert len(pending.take(MANY, MANY)) == 3
        pending.add(trials)
    assert sizes(pending) == [2, 1]
    assert sizes(Pending([wiped(1, 2), wiped(2, 3)], of_one_quorum=True)) == [1, 1]
