"""Servers of somebody else that are cut from each other by commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from lockbench.bench import plan
from lockbench.clusters.base import ClusterError, CutByCommand, Edge, Led, Replicated
from lockbench.clusters.elsewhere.cluster import Elsewhere
from lockbench.clusters.elsewhere.site import Topology
from lockbench.results.errors import BadInput
from tests.elsewhere import servers
from tests.elsewhere.servers import Foreign
from tests.elsewhere.there import case, look, made
from tests.eventually import eventually

PROBE_S = 0.5
CUT = 'cut = "x {node} {peer-node}"\njoin = "y {node} {peer-node}"'
PAUSE = 'pause = "x {node}"\nresume = "y {node}"'
LOCKS: dict[Topology, str] = {
    "etcd": "etcd",
    "zookeeper": "zookeeper",
    "sentinel": "redis-sentinel",
    "redis-cluster": "redis-cluster",
    "postgres": "postgres-for-update",
    "redlock": "redlock",
}


def written(folder: Path, topology: Topology, hands: str, size: int = 5) -> Path:
    """A file of servers that nobody listens for."""
    nodes = [f'"127.0.0.1:{port}"' for port in range(1, size + 1)]
    sentinels = [f'"127.0.0.1:{port}"' for port in (11, 12, 13)]
    more = f'sentinels = [{", ".join(sentinels)}]\nmaster = "m"\n' if topology == "sentinel" else ""
    file = folder / f"{topology}-{size}-{len(hands)}.toml"
    file.write_text(
        f'topology = "{topology}"\nnodes = [{", ".join(nodes)}]\n{more}[hands]\n{hands}\n'
    )
    return file


def refusal(file: Path, topology: Topology, fault: str) -> str:
    """Why a fault does not apply there; empty: it does."""
    return str(plan.unfit(replace(case(file, LOCKS[topology]), fault=fault)) or "")


@pytest.mark.parametrize(
    ("topology", "size", "fault", "without", "with_cut"),
    [
        ("etcd", 5, "partition-drop", "", ""),
        ("etcd", 5, "partition-drop:shape=leader", "cannot be cut from each other; ", ""),
        ("etcd", 5, "partition-drop:shape=leader:way=out", "cannot be cut from each other; ", ""),
        ("etcd", 5, "partition-drop:shape=ring", "cannot be cut", "nothing would show a ring"),
        ("etcd", 5, "partition-stall:shape=leader", "cannot be cut", "only by partition-drop"),
        ("etcd", 5, "partition-stall", "", ""),
        ("etcd", 5, "partition-drop:shape=clients", "", ""),
        ("etcd", 5, "latency", "", ""),
        ("etcd", 5, "latency:on=servers", "only be cut or left alone", "only be cut or left alone"),
        ("etcd", 1, "partition-drop:shape=leader", "do not talk to", "do not talk to each other"),
        ("zookeeper", 5, "partition-drop:shape=majority", "", ""),
        ("zookeeper", 5, "partition-drop:shape=leader", "cannot be cut from each other; ", ""),
        ("zookeeper", 5, "partition-drop:shape=ring", "cannot be cut", "nothing would show a ring"),
        ("sentinel", 2, "partition-drop", "cannot be cut from each other; ", ""),
        ("sentinel", 2, "partition-reject", "cannot be cut", "only by partition-drop"),
        ("sentinel", 2, "failover", "replicas cannot be promoted", "replicas cannot be promoted"),
        ("redis-cluster", 6, "partition-drop", "cannot be cut from each other; ", ""),
        ("redis-cluster", 6, "partition-drop:shape=bridge", "cannot be cut", ""),
    ],
)
def test_shapes_between_servers_apply_where_there_is_a_cut(
    topology: Topology, size: int, fault: str, without: str, with_cut: str, tmp_path: Path
) -> None:
    for hands, said in ((PAUSE, without), (f"{PAUSE}\n{CUT}", with_cut)):
        found = refusal(written(tmp_path, topology, hands, size), topology, fault)
        assert said in found
        assert bool(said) is bool(found)


def test_what_is_refused_says_what_the_file_gives(tmp_path: Path) -> None:
    file = written(tmp_path, "etcd", f'{PAUSE}\nkill = "x"\nstart = "y"\n{CUT}')
    assert refusal(file, "etcd", "latency:on=servers").endswith(
        f"; {file.name} gives pause, kill and cut, and nothing else strikes those servers"
    )


@pytest.mark.parametrize("topology", ["postgres", "redlock"])
def test_what_nobody_takes_the_place_of_is_not_cut(topology: Topology, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"cut is for servers that elect .*not {topology}"):
        case(written(tmp_path, topology, CUT), LOCKS[topology])


def between(one: int, others: Sequence[int]) -> list[Edge]:
    """All that a node and others say to each other."""
    return [edge for other in others for edge in (Edge(one, other), Edge(other, one))]


def pairs(edges: Sequence[Edge]) -> set[frozenset[int]]:
    return {frozenset((edge.source, edge.target)) for edge in edges}


def serving(there: Elsewhere) -> bool:
    return all(there.serves(node, PROBE_S, 1) for node in there.nodes)


def is_whole(foreign: Foreign) -> bool:
    assert look(foreign.file("after.toml"))
    return not foreign.rules()


@pytest.mark.docker
@pytest.mark.slow
def test_a_leader_of_etcd_is_cut_off(tmp_path: Path) -> None:
    with servers.etcd(tmp_path, 3) as foreign:
        file = foreign.file(**{"[hands]": foreign.hands("cut")})
        with made(file, tmp_path / "logs") as there:
            assert isinstance(there, CutByCommand)
            assert isinstance(there, Led)
            leader = there.leader()
            assert leader is not None
            others = [node for node in there.nodes if node != leader]
            cut = between(leader, others)
            assert set(cut) <= set(there.edges())
            assert not there.sees_peers
            there.cut([*cut, Edge(-1, others[0])], "drop")
            by_word = [line for line in there.broken_links() if "the command for cut" in line]
            assert len(cut) == len(by_word) < len(there.broken_links())
            assert len(foreign.rules()) == len(cut)
            eventually(lambda: not there.serves(leader, PROBE_S))
            eventually(lambda: there.serves(others[0], PROBE_S))
            assert not there.serves(others[0], PROBE_S, 1)
            eventually(lambda: there.leader() not in {None, leader})
            there.heal()
            assert (there.broken_links(), foreign.rules()) == ([], [])
            eventually(lambda: serving(there))
            # One direction alone, which the end has to undo.
            there.cut_one_way([Edge(others[0], leader)], "drop")
            (rule,) = foreign.rules()
            with pytest.raises(ClusterError, match="as drop does, and not stall"):
                there.cut([Edge(others[0], leader)], "stall")
            assert foreign.rules() == [rule]
        assert is_whole(foreign)


@pytest.mark.docker
@pytest.mark.slow
def test_a_primary_is_cut_off_and_replicas_and_sentinels_say_so(tmp_path: Path) -> None:
    with servers.sentinel(tmp_path) as foreign:
        file = foreign.file(**{"[hands]": foreign.hands("cut")})
        with made(file, tmp_path / "logs") as there:
            assert isinstance(there, CutByCommand)
            assert isinstance(there, Replicated)
            assert there.primary() == 1
            others = [node for node in there.nodes if node != 1]
            cut = between(1, others)
            for _ in range(4):
                assert not there.apart(pairs(cut))
                assert there.deaf(pairs(cut)) == set()
            there.cut(cut, "drop")
            eventually(lambda: there.apart(pairs(cut)), "somebody does not say who is gone")
            assert not there.apart([frozenset(pair) for pair in permutations(others[1:], 2)])
            assert there.serves(1, PROBE_S), "a primary asks nobody"
            there.heal()
            eventually(lambda: serving(there))
        assert is_whole(foreign)


@pytest.mark.docker
@pytest.mark.slow
def test_nodes_of_a_redis_cluster_say_who_does_not_answer(tmp_path: Path) -> None:
    with servers.redis_cluster(tmp_path) as foreign:
        file = foreign.file(**{"[hands]": foreign.hands("cut")})
        with made(file, tmp_path / "logs") as there:
            assert isinstance(there, CutByCommand)
            cut = between(1, [2])
            assert not there.apart(pairs(cut))
            there.cut(cut, "drop")
            eventually(lambda: there.apart(pairs(cut)), "nobody misses an answer")
            assert not there.apart([frozenset((1, 3)), frozenset((2, 3))])
            there.heal()
            eventually(lambda: serving(there))
        assert is_whole(foreign)


@pytest.mark.docker
@pytest.mark.slow
def test_a_cut_that_fails_is_undone(tmp_path: Path) -> None:
    """By the heal of its fault, before the end."""
    with servers.etcd(tmp_path, 3) as foreign:
        table = foreign.hands("cut")
        hand = foreign.folder / "hand"
        (_, port) = foreign.nodes[2]
        broken = f'case $1-$2 in cut-{port}) echo "no rule today"; exit 4;; esac\nname='
        hand.write_text(hand.read_text().replace("name=", broken, 1))
        with made(foreign.file(**{"[hands]": table}), tmp_path / "logs") as there:
            assert isinstance(there, CutByCommand)
            with pytest.raises(ClusterError, match=r"failed \(exit 4\): no rule today"):
                there.cut(between(1, [2, 3]), "drop")
            assert foreign.rules()
            there.heal()
            assert foreign.rules() == []
            eventually(lambda: serving(there))
        assert is_whole(foreign)
