"""A cluster over three hosts: namespaces of this machine with a Docker engine each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lockbench.bench import plan as plans
from lockbench.cli.hosts import clean, look
from lockbench.clusters import images
from lockbench.clusters.base import ClusterPlan, Edge, Host
from lockbench.clusters.engine import owner, removal
from lockbench.clusters.engine.docker import Engine, EngineError
from lockbench.clusters.etcd.cluster import EtcdCluster
from lockbench.declarations import program
from lockbench.results.errors import BadInput, Failed
from tests import command
from tests.clusters import engines
from tests.clusters.engines import Engines
from tests.eventually import eventually

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(600),
    pytest.mark.skipif(engines.why_not() is not None, reason=engines.why_not() or ""),
]

ROOT = Path(__file__).parents[2]
RUN = f"hosts-{os.getpid()}"
# As `ssh -L` does, for a socket of this machine.
FORWARD = """
import sys, threading
from pathlib import Path
from soak.engine_link import EngineLink
EngineLink(Path(sys.argv[1]), sys.argv[2]).restore()
threading.Event().wait()
"""
# A bench, up to where a server is frozen and its leader cut off.
BENCH = """
import sys, time
from pathlib import Path
from lockbench.clusters.base import ClusterPlan
from lockbench.clusters.etcd.cluster import EtcdCluster
from lockbench.clusters.hosts import read
plan = ClusterPlan("etcd", 3, 1, "killed", 3.0, sys.argv[2], hosts=read(Path(sys.argv[1])))
cluster = EtcdCluster(plan)
cluster.start()
cluster.pause([1])
cluster.cut(cluster.edges(), "drop")
print("broken", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def three() -> Iterator[Engines]:
    with Engines() as made:
        yield made


@pytest.fixture(scope="module")
def five() -> Iterator[Engines]:
    with Engines("abcde") as made:
        yield made


def forwarded(host: Host, folder: Path) -> Host:
    """The same host behind a command, as behind ssh."""
    script = folder / "forward.py"
    script.write_text(FORWARD)
    there = host.engine.removeprefix("unix://")
    python = f"env PYTHONPATH={ROOT} {sys.executable} {script}"
    return replace(host, engine=f"{python} {{socket}} {there}")


def etcd(hosts: tuple[Host, ...], logs: Path) -> EtcdCluster:
    return EtcdCluster(ClusterPlan("etcd", 3, 1, RUN, 3.0, str(logs), hosts=hosts))


def there(engine: Engine) -> set[str]:
    """What is ours on an engine."""
    ours = {owner.OURS: "1"}
    return {c.name for c in engine.containers(ours)} | {n.name for n in engine.networks(ours)}


def test_a_leader_is_cut_off_frozen_and_killed(three: Engines, tmp_path: Path) -> None:
    hosts = (forwarded(three.hosts[0], tmp_path), *three.hosts[1:])
    ref = images.recipes()["etcd"].ref
    with Engine() as here:
        wanted = here.image(ref)
    assert wanted is not None
    with etcd(hosts, tmp_path / "logs") as cluster:
        for node in cluster.nodes:
            engine = three.engine(node - 1)
            found = engine.image(ref)
            assert found is not None
            assert found.id == wanted.id
            assert {name.rpartition("-etcd-")[2] for name in there(engine)} >= {
                f"{node}",
                f"{node}-link",
            }
        assert [at for at, _ in cluster.addresses(1)] == [host.address for host in hosts]
        assert [name for name, _ in cluster.attendants()] == ["forward-a"]
        leader = cluster.leader()
        assert leader is not None
        others = [node for node in cluster.nodes if node != leader]
        cluster.cut([e for n in others for e in (Edge(leader, n), Edge(n, leader))], "drop")
        eventually(lambda: cluster.leader() in others)
        assert not cluster.serves(leader, 1.0)
        assert cluster.broken_links()
        cluster.heal()
        cluster.verify()
        assert not cluster.broken_links()
        cluster.cut([Edge(-1, 2)], "reject")
        assert not cluster.serves(2, 1.0, group=1)
        assert cluster.serves(2, 5.0)
        cluster.heal()
        cluster.pause([1])
        assert cluster.frozen(1)
        assert not cluster.serves(1, 1.0)
        cluster.unpause([1])
        cluster.kill([2])
        assert not cluster.serves(2, 1.0)
        cluster.restart([2])
        cluster.verify()
        assert cluster.server_logs()[0].changes
    assert [there(three.engine(number)) for number in range(3)] == [set()] * 3


def test_this_machine_may_be_one_of_the_hosts(three: Engines, tmp_path: Path) -> None:
    """What is done to its node is then not taken for somebody else's doing."""
    with etcd((*three.hosts[:2], three.home), tmp_path / "logs") as cluster:
        with Engine() as here:
            mine = {name for name in there(here) if cluster.id in name}
            assert {f"lockbench-{cluster.id}-etcd-3", f"lockbench-{cluster.id}-net"} < mine
        assert {engine.host for engine in cluster.engines_elsewhere()} == {"a", "b"}
        others = [e for n in (1, 2) for e in (Edge(3, n), Edge(n, 3))]
        cluster.cut(others, "drop")
        assert not cluster.serves(3, 1.0)
        eventually(lambda: cluster.serves(1, 1.0))
        cluster.heal()
        cluster.verify()
        cluster.pause([3])
        assert not cluster.serves(3, 1.0)
        cluster.unpause([3])
        cluster.kill([3])
        cluster.restart([3])
        cluster.verify()
        assert {act.host for act in cluster.acts() if "pause" in act.actions} == {""}
    with Engine() as here:
        assert not [name for name in there(here) if cluster.id in name]


@pytest.mark.long
@pytest.mark.parametrize(
    ("lock", "topology", "letters", "faults"),
    [
        ("etcd", "etcd", "abc", "partition-drop"),
        ("etcd", "etcd", "abcde", "kill,partition-drop"),
        ("etcd", "etcd", "ab-", "partition-drop,kill"),
        ("zookeeper", "zookeeper", "abc", "pause,partition-drop"),
        ("redlock", "redlock", "abcde", "pause,partition-drop"),
        ("redis-token", "redis", "a", "reply-lost,kill"),
    ],
)
def test_cases(
    five: Engines, lock: str, topology: str, letters: str, faults: str, tmp_path: Path
) -> None:
    """``-``: this machine."""
    named = {host.name: host for host in five.hosts} | {"-": five.home}
    file = five.file(tmp_path, [named[letter] for letter in letters])
    words = ("--lock", lock, "--topology", topology, "--fault", faults, "--hosts", str(file))
    ended = command.lockbench("run", *words, "--runs", str(tmp_path / "runs"), "--json")
    assert ended.stdout, ended.stderr
    cases = json.loads(ended.stdout)["cases"]
    assert len(cases) == len(faults.split(","))
    for case in cases:
        assert (case["topology"], case["size"]) == (f"{topology}-over-hosts", len(letters))
        assert "outside" not in case, case["outside"]
        assert case["judgement"] == "as expected", case["why"]
    assert ended.returncode == 0, ended.stderr
    assert [there(five.engine(number)) for number in range(5)] == [set()] * 5


def test_what_a_killed_bench_has_left_is_removed(
    three: Engines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = (forwarded(three.hosts[0], tmp_path), *three.hosts[1:])
    file = three.file(tmp_path, hosts)
    bench = subprocess.Popen(
        [sys.executable, "-P", "-c", BENCH, str(file), str(tmp_path / "logs")],
        env=program.environment(),
        stdout=subprocess.PIPE,
    )
    assert bench.stdout is not None
    with bench:
        assert bench.stdout.readline() == b"broken\n"
        bench.kill()
    assert all(there(three.engine(number)) for number in range(3))
    three.kill("b")
    with pytest.raises(Failed, match="no Docker engine of host b answers"):
        clean(file)
    assert [bool(there(three.engine(number))) for number in (0, 2)] == [False, False]
    three.begin("b")
    eventually(lambda: three.is_up(1))
    clean(file)
    said = capsys.readouterr().out
    assert "host a: removed lockbench-killed-" in said
    assert "host b: removed lockbench-killed-" in said
    assert said.endswith("host c: nothing is left there\n")
    assert not there(three.engine(1))


def test_an_engine_that_goes_away(
    three: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "CLEARING_S", 1.0)
    cluster = etcd(three.hosts, tmp_path / "logs")
    cluster.start()
    three.kill("b")
    with pytest.raises(EngineError, match=r"cannot pause container .* on host b"):
        cluster.pause([2])
    left = cluster.stop()
    assert any(name.endswith("-etcd-2 on host b") for name in left)
    assert all(name.endswith(" on host b") for name in left)
    case = plans.make_case("etcd", "none", seed=0, hosts=str(three.file(tmp_path)))
    with pytest.raises(BadInput, match="no Docker engine of host b answers"):
        look([case])
    three.begin("b")
    eventually(lambda: three.is_up(1))
    with etcd(three.hosts, tmp_path / "logs") as again:  # of the same run, which clears it away
        assert len(there(three.engine(1))) == 3
        assert again.leader() is not None
    assert not there(three.engine(1))
