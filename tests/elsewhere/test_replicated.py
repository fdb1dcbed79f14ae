"""Redis that names addresses of its own: Sentinels and a Redis Cluster of somebody else. No client
gets past the near links."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from lockbench.clusters.base import ClusterError, Cuttable, Edge, Replicated
from lockbench.clusters.elsewhere.cluster import Elsewhere
from lockbench.clusters.redis.protocol import ask, ask_once, items
from lockbench.clusters.wire import Line, ProbeFailed
from lockbench.locks.base import Granted
from lockbench.results.errors import Unfit
from tests.elsewhere import servers
from tests.elsewhere.servers import PASSWORD, PREFIX, Foreign
from tests.elsewhere.there import LONG_S, case, lock_on, look, made, taken_and_released
from tests.eventually import eventually

pytestmark = [pytest.mark.docker, pytest.mark.slow]
PROBE_S = 0.5


def nobody_gets_past_the_links(there: Elsewhere, name: str) -> None:
    """With all of them cut a lock is not granted, with them whole it is."""
    assert isinstance(there, Cuttable)
    with closing(lock_on(there, name)) as lock:
        taken_and_released(lock)
        there.cut([Edge(-1, node) for node in there.nodes], "reject")
        got = lock.acquire("k1", hold_id=7, ttl_s=LONG_S, wait_s=0)
        assert not isinstance(got, Granted)
    there.heal()
    eventually(lambda: all(there.serves(node, PROBE_S, 1) for node in there.nodes))
    with closing(lock_on(there, name)) as lock:
        taken_and_released(lock)


def no_secret(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]


def test_sentinels_send_to_our_own_ways(tmp_path: Path) -> None:
    with servers.sentinel(tmp_path) as foreign:
        with made(foreign.file(), tmp_path / "logs") as there:
            ways = list(there.addresses(1))
            asked = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "lockbench")
            assert items(ask_once(ways[2], LONG_S, *asked)) == [ways[0][0], str(ways[0][1])]
            assert isinstance(there, Replicated)
            assert (there.primary(), there.replicas()) == (1, [2])
            for name in ("redis-sentinel", "redis-sentinel-wait"):
                nobody_gets_past_the_links(there, name)
        no_secret(tmp_path / "logs")
        assert look(foreign.file("after.toml")).startswith("Redis 8.")
        is_refused(foreign)


def is_refused(foreign: Foreign) -> None:
    with pytest.raises(ClusterError, match="knows no master other"):
        look(foreign.file("other.toml", master='"other"'))
    two = foreign.lines["nodes"].replace("]", ', "127.0.0.1:1"]')
    with pytest.raises(Unfit, match=r"with 1 replica, and three\.toml names 2"):
        case(foreign.file("three.toml", nodes=two), "redis-sentinel-wait")


def test_nodes_of_a_cluster_send_to_our_own_ways(tmp_path: Path) -> None:
    with servers.redis_cluster(tmp_path) as foreign:
        with made(foreign.file(), tmp_path / "logs") as there:
            ways = list(there.addresses(1))
            moved = 0
            for way in ways:
                with Line(way, LONG_S) as line:
                    try:
                        ask(line, "GET", f"{PREFIX}k0")
                    except ProbeFailed as error:
                        host, _, port = str(error).split()[-1].rpartition(":")
                        assert (host, int(port)) in ways
                        moved += 1
                    listed = map(items, items(ask(line, "CLUSTER", "SLOTS")))
                    assert sorted(items(one[2])[:2] for one in listed) == sorted(map(list, ways))
            assert moved == len(ways) - 1
            nobody_gets_past_the_links(there, "redis-cluster")
        no_secret(tmp_path / "logs")
        assert look(foreign.file("after.toml")).startswith("Redis 8.")


@pytest.mark.parametrize(
    "start",
    [
        servers.redis,
        pytest.param(servers.sentinel, marks=pytest.mark.long),
        pytest.param(servers.redis_cluster, marks=pytest.mark.long),
    ],
)
def test_a_valkey_is_named(
    start: Callable[..., AbstractContextManager[Foreign]], tmp_path: Path
) -> None:
    with start(tmp_path, image="valkey") as foreign:
        assert look(foreign.file()).startswith("Valkey 8.")
