"""What ZooKeeper's followers pass on to their leader, and what a client may take for granted of it.

The simulated ensemble is written from ZooKeeper's sources as ``zookeeper_touches`` quotes them, and
shares nothing with it: a follower notes who spoke to it, tells its leader at every PING, and dies;
the leader ends the session a timeout after it was last told, rounded up to its tick.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import pytest

from lockbench.clusters.base import ClusterPlan
from lockbench.clusters.zookeeper.ensemble import ZooKeeperCluster
from lockbench.locks.libraries.shared.zookeeper_touches import Touches, passed_on_ns

MS = 1_000_000
LEASE_S = 3.0
SESSION_MS, TICK_MS = 3000, 200


@dataclass
class Message:
    """Times in milliseconds: sent, noted by the follower, answer read."""

    sent: float
    noted: float
    read: float


def spoken(draws: random.Random) -> list[Message]:
    """One at a time, after a silence that is short or as long as between two heartbeats."""
    messages: list[Message] = []
    now = draws.uniform(0, TICK_MS)
    for _ in range(draws.randint(1, 30)):
        now += draws.choice([draws.uniform(0, 20), draws.uniform(0, SESSION_MS / 3)])
        noted = now + draws.uniform(0, 30)
        messages.append(Message(now, noted, noted + draws.uniform(0, 30)))
        now = messages[-1].read
    return messages


def leaders_end(messages: list[Message], pings: list[float], death: float) -> float:
    """When the leader ends the session. The first message is the connect, told at once."""
    told = messages[0].noted
    noted: float | None = None
    events = [(m.noted, "message") for m in messages[1:]] + [(at, "ping") for at in pings]
    for at, what in sorted(events):
        if at > death:
            break
        if what == "message":
            noted = at
        elif noted is not None:
            told, noted = at, None
    return (told + SESSION_MS) // TICK_MS * TICK_MS + TICK_MS


def pinged(draws: random.Random) -> list[float]:
    """Every half tick, and now and then later by up to as much."""
    pings = [draws.uniform(0, TICK_MS / 2)]
    while pings[-1] < 60_000:
        late = draws.uniform(0, TICK_MS / 2) if draws.random() < 0.2 else 0.0
        pings.append(pings[-1] + TICK_MS / 2 + late)
    return pings


def promises(messages: list[Message]) -> float:
    """The end of what is promised after these, by the rule under test."""
    touches = Touches(LEASE_S)
    touches.connected(int(messages[0].sent * MS))
    for message in messages[1:]:
        touches.answered(int(message.sent * MS), int(message.read * MS))
    return touches.sent_ns / MS + SESSION_MS


def test_a_follower_that_dies_takes_no_promise_with_it() -> None:
    draws = random.Random(0)
    overrun_by_last_answer = 0
    for _ in range(3000):
        messages, pings = spoken(draws), pinged(draws)
        promised = promises(messages)
        # The worst moment: right after its last answer, before it could tell.
        end = leaders_end(messages, pings, death=messages[-1].noted)
        assert promised <= end
        overrun_by_last_answer += messages[-1].sent + SESSION_MS > end
        # Nor is it earlier than declared.
        silences = [b.sent - a.sent for a, b in itertools.pairwise(messages)]
        counted = [m for m in messages if m.read + TICK_MS <= messages[-1].sent]
        newest = counted[-1].sent if len(counted) > 0 else messages[0].sent
        assert promised >= newest + SESSION_MS - 0.001
        assert not silences or promised >= messages[-1].sent + SESSION_MS - (
            max(silences) + TICK_MS + 60
        )
    assert overrun_by_last_answer > 100, "the simulation never showed what the rule is for"


def test_messages_of_an_earlier_connection_count_for_nothing() -> None:
    touches = Touches(LEASE_S)
    touches.connected(0)
    touches.answered(1000 * MS, 1001 * MS)
    touches.connected(1500 * MS)
    touches.answered(2000 * MS, 2001 * MS)
    assert touches.sent_ns == 1500 * MS
    touches.answered(2000 * MS + passed_on_ns(LEASE_S), 2300 * MS)
    assert touches.sent_ns == 1500 * MS, "sent before the other had been a tick old"
    touches.answered(2001 * MS + passed_on_ns(LEASE_S), 2300 * MS)
    assert touches.sent_ns == 2000 * MS


@pytest.mark.parametrize("lease_s", [0.5, 1.0, 2.0, 3.0, 3.5, 5.0, 10.0, 30.0])
def test_the_tick_is_the_servers(lease_s: float) -> None:
    plan = ClusterPlan("zookeeper", 3, 1, "test", lease_s, "/tmp/none")
    half_a_tick_ns = ZooKeeperCluster(plan).tick_ms * MS / 2
    assert passed_on_ns(lease_s) == pytest.approx(2 * half_a_tick_ns, rel=0.01)
