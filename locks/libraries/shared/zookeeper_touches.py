"""What an acknowledged message of a ZooKeeper session promises, although its server may die.

Sessions are ended by the leader: a timeout after it was last told of the session, rounded up to its
next tick, so never early (ExpiryQueue.java:412, roundToNextInterval). Of what a client says to a
follower it is not told at once:

- A follower answers and only notes that the session was touched (ZooKeeperServer.java:1262,
  LearnerSessionTracker.java:148). It tells the leader with its answer to the leader's next PING
  (Learner.java:879-890; LearnerHandler.java:684-692), which is sent every half tick
  (Leader.java:778). So with writes and syncs: the leader carries them out and touches no session
  (LeaderZooKeeperServer.java:200-214).
- To connect is told at once: PrepRequestProcessor.java:570 for a new session, Leader.java:1778 and
  LeaderZooKeeperServer.java:187-191 for one that comes back.

A follower that dies after an answer and before the next PING takes with it every touch since the
last. The leader then counts from an earlier message, as old as the client had been silent before:
for kazoo, which sends a heartbeat after a third of the session, up to that third and half a tick.

Here a message counts once a later one, sent at least a tick after its answer was read, has been
answered too: in between a PING was. The promise runs from when the newest message that counts was
sent. It is never later than the leader's end, and early by no more than the client was silent
before its last answer, one tick, and what the end is rounded up by. Of the tick half is the rule;
the other half is for a leader or a follower that is late.

Sources: org.apache.zookeeper:zookeeper:3.9.3, the version of the image. The tick is that of the
servers' configuration (``tickTime``), which no client is told:
``clusters/zookeeper/ensemble.py`` sets it to a share of the lease, and a test holds this
file to that.

Does not guarantee: the promise of a server that is cut off from its leader in silence, together
with its client. It answers for up to ``syncLimit`` ticks (Learner.java:800); a client that reaches
any other server in time has lost nothing.
"""

from __future__ import annotations

from collections import deque

TICKS_PER_LEASE = 15
TICK_S_MIN = 0.1


def passed_on_ns(lease_s: float) -> int:
    """A tick: a server that still answers after this time has told its leader."""
    return int(max(lease_s / TICKS_PER_LEASE, TICK_S_MIN) * 1e9)


class Touches:
    """The messages of one client. Times are CLOCK_MONOTONIC nanoseconds. Used by one thread."""

    def __init__(self, lease_s: float) -> None:
        """``lease_s`` is the lease that the cluster was made for."""
        self.sent_ns = 0  # of the newest message that counts
        self._passed_on_ns = passed_on_ns(lease_s)
        self._noted: deque[tuple[int, int]] = deque()  # (sent, answer read), not yet counted

    def connected(self, sent_ns: int) -> None:
        """A server accepted the session, new or old; this was sent to ask it."""
        self._noted.clear()
        self.sent_ns = sent_ns

    def answered(self, sent_ns: int, read_ns: int) -> None:
        """A message was sent and its answer read at these times."""
        while self._noted and self._noted[0][1] + self._passed_on_ns <= sent_ns:
            self.sent_ns = max(self.sent_ns, self._noted.popleft()[0])
        self._noted.append((sent_ns, read_ns))
