"""The topology that a file declares: a kind of servers, and what its commands can do to them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from itertools import chain, permutations
from pathlib import Path
from typing import Final

from lockbench.clusters.base import HARNESS, ClusterPlan, Topology
from lockbench.clusters.elsewhere import heard
from lockbench.clusters.elsewhere.cluster import Elsewhere
from lockbench.clusters.elsewhere.hands import BY_HAND
from lockbench.clusters.elsewhere.place import place_of
from lockbench.clusters.elsewhere.site import Site, SiteError, read
from lockbench.clusters.etcd.members import EtcdMembers
from lockbench.clusters.postgres.servers import PostgresServers
from lockbench.clusters.redis import protocol as resp
from lockbench.clusters.redis.cluster import ShardedServers
from lockbench.clusters.redis.replicated import ASK_LIMIT_S
from lockbench.clusters.redis.sentinel import SENTINELS, SentinelServers, seen_by
from lockbench.clusters.redis.servers import RedisServers
from lockbench.clusters.wire import PROBE_FAILURES, Address, Line, ProbeFailed
from lockbench.clusters.zookeeper import protocol as jute
from lockbench.clusters.zookeeper.servers import ZooKeeperServers

ELSEWHERE: Final = "-elsewhere"  # ends the names of these topologies
BY_HAND_S: Final = 5.0  # what commands take beside what they are to do


class SentinelElsewhere(Elsewhere, SentinelServers):
    """A primary, its replicas, and three Sentinels."""

    elects = True
    sees_peers = True

    def __init__(self, plan: ClusterPlan, site: Site) -> None:
        super().__init__(plan, site)
        self._copied = heard.Unchanged()

    def deaf(self, pairs: set[frozenset[int]]) -> set[frozenset[int]]:
        """A Sentinel says since when it has had no answer of whom it pings; a replica has to get
        nothing of what its primary writes."""
        watching = [node for node in _nodes(pairs) if node in self.sentinels]
        data = [pair for pair in pairs if pair.isdisjoint(watching)]
        told = [*self._each(watching, self._unheard), *self._each(data, self._behind)]
        return pairs.intersection(chain.from_iterable(told))

    def _unheard(self, sentinel: int) -> set[frozenset[int]]:
        try:
            with Line(self.address(HARNESS, sentinel), ASK_LIMIT_S) as line:
                unheard = list(filter(heard.is_unheard, seen_by(line)))
            silent = [self._node_at(int(one["port"])) for one in unheard]
        except (*PROBE_FAILURES, KeyError):
            return set()
        return {frozenset((sentinel, node)) for node in silent if node is not None}

    def _behind(self, pair: frozenset[int]) -> set[frozenset[int]]:
        """Something is written at the primary, so that there is something to get. Two replicas have
        nothing to say to each other."""
        try:
            for primary, replica in permutations(pair):
                if self._follows(replica, primary):
                    self.serves(primary, ASK_LIMIT_S)
                    here, there = map(self._replication, (primary, replica))
                    same_s = self._copied.for_s(pair, there["slave_repl_offset"])
                    return {pair} if heard.is_behind(here, there, same_s) else set()
            roles = {self._replication(node)["role"] for node in pair}
        except (*PROBE_FAILURES, KeyError):
            return set()
        return {pair} if roles == {"slave"} else set()

    def _replication(self, node: int) -> Mapping[str, str]:
        """What INFO says of it. Raises OSError or ProbeFailed."""
        said = str(resp.ask_once(self.address(HARNESS, node), ASK_LIMIT_S, "INFO", "replication"))
        return resp.fields(said)


class ShardedElsewhere(Elsewhere, ShardedServers):
    """All nodes of a Redis Cluster."""

    elects = True
    sees_peers = True

    def __init__(self, plan: ClusterPlan, site: Site) -> None:
        super().__init__(plan, site)
        self._pinged = heard.Unchanged()

    def deaf(self, pairs: set[frozenset[int]]) -> set[frozenset[int]]:
        """A node says whose answer to a ping it misses."""
        told = self._each(_nodes(pairs), self._unanswered)
        return pairs.intersection(chain.from_iterable(told))

    def _unanswered(self, node: int) -> set[frozenset[int]]:
        try:
            asked = ("CLUSTER", "NODES")
            said = str(resp.ask_once(self.address(HARNESS, node), ASK_LIMIT_S, *asked))
            silent = map(self._node_at, heard.unanswered(said.splitlines(), node, self._pinged))
            return {frozenset((node, other)) for other in silent if other is not None}
        except PROBE_FAILURES:
            return set()


class ZooKeeperElsewhere(Elsewhere, ZooKeeperServers):
    """All servers of an ensemble, or one alone. Whoever set them up may have allowed no word of
    four letters but ``srvr``, which is allowed unless it was forbidden."""

    def check_answer(self, address: Address, limit_s: float) -> None:
        """Any word, that it does not serve included."""
        if not jute.four_letters(address, "srvr", limit_s):
            raise ProbeFailed("no answer to srvr")

    def _synced(self, node: int) -> int:
        """As many as say that they follow, where it does not tell."""
        with suppress(ValueError):
            return super()._synced(node)
        return len(self.nodes) - 1


KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "redis": (Elsewhere, RedisServers),
    "redlock": (Elsewhere, RedisServers),
    "sentinel": (SentinelElsewhere,),
    "redis-cluster": (ShardedElsewhere,),
    "etcd": (Elsewhere, EtcdMembers),
    "postgres": (Elsewhere, PostgresServers),
    "zookeeper": (ZooKeeperElsewhere,),
}


@cache
def known(file: str) -> Site:
    """The cluster of a file, read once. A password's variable is taken out of the environment, so
    that nothing which is started from here on inherits it. Raises SiteError."""
    site = read(Path(file))
    sizes = place_of(site).sizes if site.topology != "redis" else (1,)
    if len(site.nodes) not in sizes:
        raise SiteError(
            f"{file} names {len(site.nodes)} nodes, and {site.topology} is tried with"
            f" {', '.join(map(str, sizes))}"
        )
    if site.sentinels not in {0, len(SENTINELS)}:
        raise SiteError(f"{file} names {site.sentinels} sentinels, and three are tried")
    site.context()
    os.environ.pop(site.password_env, None)
    return site


@cache
def topology(file: str) -> Topology:
    """The declaration of the topology that a file is. Raises SiteError."""
    site = known(file)
    hands = tuple(BY_HAND[verb] for verb in site.hands.verbs)
    kind = type("Elsewhere", (*hands, *KINDS[site.topology]), {})
    return Topology(
        name=site.topology + ELSEWHERE,
        sizes=(len(site.nodes),),
        default_size=len(site.nodes),
        images=(),
        settings={"servers": "of somebody else, whose settings are not known here"},
        make=lambda plan: kind(plan, site),
        quorum=site.topology in {"etcd", "zookeeper"},
        fails_over=site.topology in {"sentinel", "redis-cluster"},
        restart_s=BY_HAND_S if site.hands.verbs else 0.0,
    )


def _nodes(pairs: Iterable[frozenset[int]]) -> list[int]:
    return sorted({node for pair in pairs for node in pair})
