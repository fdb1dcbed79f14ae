"""Whom servers no longer hear, as they say it themselves. Pure: nothing is contacted.

What an answer has to say before it shows that two servers are apart. etcd and ZooKeeper say nothing
of the kind: in etcd 3.6 a peer that was cut off by a firewall was still counted as active
(``etcd_network_active_peers``) some 25 s after the cut.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final

from lockbench.clusters.redis.cluster import Seen

# A Sentinel pings everybody every second (SENTINEL_PING_PERIOD in src/sentinel.c).
UNHEARD_MS: Final = 2000
# How long the answer to a ping takes at the most while nothing is wrong.
UNANSWERED_S: Final = 0.8
# How long a write is on its way to a replica that answers. Less than until a replica is promoted,
# and then follows nobody.
STALE_S: Final = 0.4
DOWN: Final = frozenset({"s_down", "disconnected"})


class Unchanged:
    """Since when values have been the same."""

    def __init__(self) -> None:
        self._since: dict[Hashable, tuple[object, float]] = {}

    def for_s(self, name: Hashable, value: object) -> float:
        """Seconds since this value was first seen under the name, and no other one since."""
        now = time.monotonic()
        before, since = self._since.get(name, (None, now))
        if before != value:
            since = now
        self._since[name] = value, since
        return now - since


def is_unheard(seen: Mapping[str, str]) -> bool:
    """Whether a Sentinel hears nothing of whom it describes so (SENTINEL MASTER, REPLICAS or
    SENTINELS). Raises ValueError."""
    down = not DOWN.isdisjoint(seen.get("flags", "").split(","))
    return down or int(seen.get("last-ok-ping-reply", 0)) >= UNHEARD_MS


def unanswered(lines: Iterable[str], node: int, pinged: Unchanged) -> Iterator[int]:
    """The ports of those who do not answer a node, by its CLUSTER NODES. It says ``fail?`` by
    itself, and ``fail`` by what others say, which does not count. Raises ValueError."""
    for line in lines:
        seen = Seen.read(line)
        if "myself" in seen.flags:
            continue
        sent, state = line.split()[4], line.split()[7]
        waits_s = pinged.for_s((node, seen.port), sent)
        silent = sent != "0" and waits_s >= UNANSWERED_S
        if silent or "fail?" in seen.flags or state == "disconnected":
            yield seen.port


def is_behind(primary: Mapping[str, str], replica: Mapping[str, str], same_s: float) -> bool:
    """Whether what a primary wrote does not reach its replica, by INFO of both; ``same_s``: for how
    long the replica has been where it is. Raises ValueError."""
    if replica.get("master_link_status") == "down":
        return True
    written, copied = int(primary["master_repl_offset"]), int(replica["slave_repl_offset"])
    return written > copied and same_s >= STALE_S
