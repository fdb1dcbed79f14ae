"""Over several hosts: what is refused before anything is started, and the way to an engine."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from lockbench.bench import plan
from lockbench.cli.hosts import clean, look
from lockbench.clusters.base import ClusterPlan, Host
from lockbench.clusters.engine import ledger
from lockbench.clusters.engine.connection import EngineUnreachable
from lockbench.clusters.engine.docker import _event
from lockbench.clusters.engine.forward import FOLDER, OWNER, Forward, remove_left
from lockbench.clusters.engine.owner import me, place
from lockbench.clusters.engine.removal import left_behind
from lockbench.clusters.etcd.cluster import EtcdCluster
from lockbench.clusters.hosts import OVER_HOSTS, HostsError, read
from lockbench.clusters.registry import topologies
from lockbench.results import cases
from lockbench.results.documents import CaseResult
from lockbench.results.errors import BadInput, Failed, Unfit
from tests import command

A = "[[host]]\nname = 'a'\nengine = 'unix:///a'\naddress = '10.0.0.1'\n"
NOWHERE = tuple(
    Host(name, f"unix:///nowhere/{name}", f"10.0.0.{i}") for i, name in enumerate("abc")
)


def written(folder: Path, *hosts: Host) -> Path:
    file = folder / "hosts.toml"
    file.write_text(
        "".join(
            f"[[host]]\nname = {json.dumps(one.name)}\nengine = {json.dumps(one.engine)}\n"
            f"address = {json.dumps(one.address)}\n"
            for one in hosts or NOWHERE
        )
    )
    return file


def by(text: str) -> Host:
    """A host whose command is a shell's."""
    return Host("b", f"sh -c {json.dumps(text + ' # {socket}')}", "10.0.0.2")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "host"),
        ("[[host]]\nname = 'a'\n", "engine"),
        (A + "port = 1\n", "port"),
        (A.replace("'a'", "'../a'"), "no name for a host"),
        (A.replace("unix:///a", "ssh a"), "neither begins with unix:// nor"),
        (A.replace("'unix:///a'", '"ssh \'a {socket}"'), "No closing quotation"),
        (A.replace("10.0.0.1", "a.example"), "is no IPv4 address"),
        (A.replace("10.0.0.1", "127.0.0.1"), "no other machine reaches it"),
        (A.replace("10.0.0.1", "0.0.0.0"), "no other machine reaches it"),
        (A + A.replace("'a'", "'b'").replace("///a", "///b"), "says 10.0.0.1 of two hosts"),
        (A + A.replace("'a'", "'b'").replace("0.1", "0.2"), "says unix:///a of two hosts"),
        (A + A.replace("///a", "///b").replace("0.1", "0.2"), "says a of two hosts"),
        ("[[host]\n", "Expected"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(text)
    with pytest.raises(HostsError, match=why) as refused:
        read(file)
    assert str(refused.value).startswith(str(file))


def test_a_file_is_read(tmp_path: Path) -> None:
    assert read(written(tmp_path)) == NOWHERE


def test_the_file_of_the_page_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "hosts.md").read_text()
    file = tmp_path / "hosts.toml"
    file.write_text(page.split("```toml\n")[1].split("```")[0])
    assert [host.name for host in read(file)] == ["a", "b", "c"]


def test_a_case_has_a_node_on_each_host(tmp_path: Path) -> None:
    file = str(written(tmp_path))
    case = plan.make_case("etcd", "partition-drop", seed=0, hosts=file)
    assert (case.topology, case.size) == ("etcd-over-hosts", 3)
    made = plan.topology_of(case).make(plan.cluster_plan_of(case, "test", tmp_path))
    assert isinstance(made, EtcdCluster)
    assert made.plan.hosts == NOWHERE
    assert plan.resolve(case).injections


@pytest.mark.parametrize(
    ("lock", "hosts", "why"),
    [
        ("etcd", 2, "etcd is not offered with 2 nodes, one for each host of the file"),
        ("redis-sentinel", 3, "sentinel is not run over several hosts"),
        ("postgres-advisory", 3, "postgres is not run over several hosts"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, lock: str, hosts: int, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        plan.make_case(lock, "none", seed=0, hosts=str(written(tmp_path, *NOWHERE[:hosts])))


def test_no_server_of_a_topology_over_hosts_is_met_at_the_port_of_clients() -> None:
    """Clients would be sent to addresses that are none here."""
    for name, one in topologies().items():
        if one.over_hosts:
            cluster = one.make(ClusterPlan(name, one.sizes[0], 1, "test", 3.0, "/nowhere"))
            assert not any(port.of_clients for port in cluster.peers)  # type: ignore[attr-defined]
    assert sum(one.over_hosts for one in topologies().values()) > 2


@pytest.mark.parametrize("more", [["--machines", "m"], ["--nodes", "3"], ["--cluster", "c"]])
def test_what_does_not_go_with_hosts(tmp_path: Path, more: list[str]) -> None:
    ended = command.lockbench("run", "--lock", "etcd", "--hosts", str(written(tmp_path)), *more)
    assert ended.returncode == 254
    assert "leave --cluster, --machines, --nodes and --with out" in " ".join(ended.stderr.split())


def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    file = written(tmp_path)
    case = plan.make_case("etcd", "none", seed=0, hosts=str(file))
    with pytest.raises(BadInput, match="no Docker engine of host a answers at unix:///nowhere/a"):
        look([case])
    with pytest.raises(Failed, match=r"host a .*host b .*host c "):
        clean(file)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (Host("b", "/no/such/ssh {socket}", ""), "/no/such/ssh: No such file or directory"),
        (by("echo Permission denied >&2; exit 255"), r"ended with 255 \(Permission denied\)"),
        # There is no terminal, and nothing to read.
        (by("printf password: >&2; read word </dev/tty"), r"its command ended with \d+ \("),
        (by("read word"), "its command ended with 1"),
    ],
)
def test_a_command_that_leads_nowhere(host: Host, why: str, tmp_path: Path) -> None:
    def reach() -> None:
        way = Forward(host, tmp_path / "log")
        try:
            way.engine()
        finally:
            way.close()

    with pytest.raises(EngineUnreachable, match=f"host b cannot be reached: .*{why}"):
        reach()


def test_a_command_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    way = Forward(by("sleep 600 & sleep 600"), tmp_path / "log")
    assert way.pid is not None
    command_ = psutil.Process(way.pid)
    while not (started := command_.children()):
        assert command_.is_running()
    way.close()
    way.close()
    assert not command_.is_running()
    psutil.wait_procs(started, timeout=10)
    assert not any(one.is_running() for one in started)


def test_folders_of_those_that_were_killed_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name, whose in (("dead", f"1:1:{place()}"), ("mine", me())):
        (tmp_path / f"{FOLDER}{name}").mkdir()
        (tmp_path / f"{FOLDER}{name}" / OWNER).write_text(whose)
    assert remove_left() == [str(tmp_path / f"{FOLDER}dead")]
    assert [one.name for one in tmp_path.iterdir()] == [f"{FOLDER}mine"]


def test_a_result_says_how_it_is_had_again() -> None:
    assert cases.OVER_HOSTS == OVER_HOSTS
    case = CaseResult(lock="redlock", topology="redlock-over-hosts", size=5, fault="kill", seed=7)
    words = shlex.split(cases.command_of(case))
    assert ("--hosts", "FILE") in pairwise(words)
    assert ("--topology", "redlock") in pairwise(words)
    assert "--nodes" not in words


def test_what_is_left_is_named_with_its_host() -> None:
    ledger.made("lockbench-x-etcd-1", "a")
    assert ledger.names("lockbench-x") == []
    assert ledger.names("lockbench-x", "a") == ["lockbench-x-etcd-1"]
    ledger.gone("lockbench-x-etcd-1")
    assert ledger.names("lockbench-x", "a")
    ledger.gone("lockbench-x-etcd-1", "a")
    assert not ledger.names("lockbench-x", "a")
    said = left_behind(["lockbench-x-etcd-1 on host a"])
    assert said.startswith("lockbench-x-etcd-1 on host a could not be removed")
    assert "clean --hosts FILE" in said


def test_an_event_has_the_time_of_this_machine() -> None:
    """An act of ours is noted before the event that it makes, whatever the clock there shows."""
    event = _event({"Action": "die", "timeNano": 5_000, "Actor": {"ID": "x"}}, ahead_ns=-2_000)
    assert event.at_ns == 7_000
