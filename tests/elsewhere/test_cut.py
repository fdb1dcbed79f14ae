"""Servers of somebody else that are cut from each other by commands."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from itertools import count, permutations
from pathlib import Path

import pytest

from lockbench.bench import plan
from lockbench.clusters.base import ClusterError, CutByCommand, Edge, Led, Replicated
from lockbench.clusters.elsewhere.cluster import Elsewhere
from lockbench.clusters.elsewhere.site import Topology
from lockbench.locks.base import Granted, Released, new_hold_id
from lockbench.results.errors import BadInput
from tests import command
from tests.elsewhere import servers
from tests.elsewhere.servers import PASSWORD, VARIABLE, Foreign
from tests.elsewhere.there import LONG_S, case, lock_on, look, made
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


@contextmanager
def going_on(there: Elsewhere, name: str) -> Iterator[list[str]]:
    """A client that takes one key after the other, which are in the list once it has let go."""
    over, done = threading.Event(), list[str]()

    def take() -> None:
        with closing(lock_on(there, name)) as lock:
            for number in count():
                if over.is_set():
                    return
                got = lock.acquire(f"k{number}", hold_id=new_hold_id(), ttl_s=LONG_S, wait_s=0)
                if isinstance(got, Granted) and isinstance(lock.release(got.hold), Released):
                    done.append(got.hold.key)

    client = threading.Thread(target=take, daemon=True)
    client.start()
    try:
        yield done
    finally:
        over.set()
        client.join(LONG_S)
    assert not client.is_alive()


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "lock"), [(servers.etcd, "etcd"), (servers.zookeeper, "zookeeper")]
)
def test_a_client_goes_on_with_the_majority(
    start: Callable[..., AbstractContextManager[Foreign]], lock: str, tmp_path: Path
) -> None:
    """Once it has elected another leader, and again when the old one is back."""
    with start(tmp_path, 3) as foreign:
        file = foreign.file(**{"[hands]": foreign.hands("cut")})
        with made(file, tmp_path / "logs") as there, going_on(there, lock) as done:
            assert isinstance(there, CutByCommand)
            assert isinstance(there, Led)

            def takes_more() -> None:
                before = len(done)
                eventually(lambda: len(done) > before, "the client gets nothing")

            takes_more()
            leader = there.leader()
            assert leader is not None
            there.cut(between(leader, [n for n in there.nodes if n != leader]), "drop")
            assert len(foreign.rules()) == 4
            eventually(lambda: there.leader() not in {None, leader})
            eventually(lambda: not there.serves(leader, PROBE_S))
            takes_more()
            there.heal()
            eventually(lambda: serving(there))
            takes_more()
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


def spoil(foreign: Foreign, how: str) -> int:
    """What the command does in the place of a cut of one server: its port."""
    hand = foreign.folder / "hand"
    (_, port) = foreign.nodes[2]
    hand.write_text(
        hand.read_text().replace("name=", f"case $1-$2 in cut-{port}) {how};; esac\nname=", 1)
    )
    return port


@pytest.mark.docker
@pytest.mark.slow
def test_a_cut_that_fails_is_undone(tmp_path: Path) -> None:
    """By the heal of its fault, before the end."""
    with servers.etcd(tmp_path, 3) as foreign:
        table = foreign.hands("cut")
        spoil(foreign, 'echo "no rule today"; exit 4')
        with made(foreign.file(**{"[hands]": table}), tmp_path / "logs") as there:
            assert isinstance(there, CutByCommand)
            with pytest.raises(ClusterError, match=r"failed \(exit 4\): no rule today"):
                there.cut(between(1, [2, 3]), "drop")
            assert foreign.rules()
            there.heal()
            assert foreign.rules() == []
            eventually(lambda: serving(there))
        assert is_whole(foreign)


@pytest.mark.docker
@pytest.mark.slow
def test_a_cut_that_hangs_fails_the_case_and_is_healed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with servers.etcd(tmp_path, 3) as foreign:
        table = foreign.hands("cut") + "\nlimit-s = 3"
        port = spoil(foreign, "sleep 600")
        file = foreign.file(**{"[hands]": table})
        os.environ[VARIABLE] = PASSWORD
        words = ["--lock", "etcd", "--fault", "partition-drop", "--cluster", str(file)]
        done = command.lockbench("run", *words, "--yes", "--brief", "--json")
        assert done.returncode == 255, done.stderr
        (case,) = json.loads(done.stdout)["cases"]
        assert case["ending"] == "bench"
        said = f"the command for cut of 127.0.0.1:{port} and 127.0.0.1:"
        assert said in case["why"]
        assert "did not end within 3 s" in case["why"]
        assert said in done.stderr
        assert is_whole(foreign)
        asked = [
            line.split(maxsplit=1)
            for line in (foreign.folder / "hands.log").read_text().splitlines()
        ]
        cut, joined = ({ends for verb, ends in asked if verb == it} for it in ("cut", "join"))
        assert cut == joined
