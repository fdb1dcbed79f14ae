"""A ZooKeeper of somebody else, with TLS, client certificates and a node for one user alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from lockbench.clusters.base import HARNESS, ClusterError, Cuttable, Edge, Led
from tests.elsewhere import servers
from tests.elsewhere.servers import PASSWORD, Foreign
from tests.elsewhere.there import lock_on, look, made, taken_and_released
from tests.eventually import eventually

pytestmark = [pytest.mark.docker, pytest.mark.slow]
PROBE_S = 0.5


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    with servers.zookeeper(tmp_path_factory.mktemp("zookeeper")) as foreign:
        yield foreign


@pytest.fixture
def outside(zookeeper: Foreign) -> Iterator[KazooClient]:
    """A client past the relay, as the user."""
    with servers.kazoo(zookeeper.folder, zookeeper.nodes[0]) as client:
        yield client


def test_clients_see_nothing_but_what_is_below_the_prefix(
    zookeeper: Foreign, outside: KazooClient, tmp_path: Path
) -> None:
    with made(zookeeper.file(), tmp_path) as there:
        host, port = there.address(1, 1)
        client = KazooClient(f"{host}:{port}")
        client.start()
        assert client.get_children("/") == ["lockbench-claim"]
        assert client.create("/a/b", b"data", makepath=True) == "/a/b"
        assert client.create("/a/b-", ephemeral=True, sequence=True) == "/a/b-0000000001"
        told: list[Any] = []
        assert client.exists("/a/c", watch=told.append) is None
        transaction = client.transaction()
        transaction.create("/a/c", b"x")
        transaction.set_data("/a/b", b"changed")
        assert transaction.commit()[0] == "/a/c"
        eventually(lambda: bool(told), "a watch was not told")
        assert told[0].path == "/a/c"
        assert client.sync("/a") == "/a"
        assert sorted(client.get_children("/a")) == ["b", "b-0000000001", "c"]
        assert sorted(outside.get_children("/team-a/a")) == ["b", "b-0000000001", "c"]
        assert outside.get("/team-a/a/b")[0] == b"changed"
        assert sorted(outside.get_children("/")) == ["team-a", "zookeeper"]
        client.stop()
        client.close()
    assert outside.get_children("/team-a") == []


def test_it_is_cut_and_left_as_it_was(zookeeper: Foreign, tmp_path: Path) -> None:
    with made(zookeeper.file("cut.toml"), tmp_path) as there:
        for name in ("zookeeper", "zookeeper-read-write"):
            with closing(lock_on(there, name)) as lock:
                taken_and_released(lock)
        serves = partial(there.serves, 1, PROBE_S)
        assert isinstance(there, Cuttable)
        there.cut([Edge(-1, 1)], "drop")
        assert not serves(1)
        eventually(lambda: serves(HARNESS))
        there.heal()
        eventually(lambda: serves(1))
        assert isinstance(there, Led)
        assert there.leader() == 1
        second = made(zookeeper.file("second.toml"), tmp_path / "second")
        with pytest.raises(ClusterError, match="is in use under '/team-a' by the bench"):
            second.start()
    assert look(zookeeper.file("after.toml")).startswith("ZooKeeper 3.")
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes()


def test_a_prefix_that_is_not_there_is_made_and_removed(
    zookeeper: Foreign, outside: KazooClient, tmp_path: Path
) -> None:
    with made(zookeeper.file("new.toml", prefix='"/team-a/below"'), tmp_path):
        assert outside.exists("/team-a/below/lockbench-claim")
    assert outside.get_children("/team-a") == []
    odd = made(zookeeper.file("odd.toml", prefix='"/team-a/not/there"'), tmp_path)
    with pytest.raises(ClusterError, match="/team-a/not is not there: make it first"):
        odd.start()
    with pytest.raises(NoNodeError):
        outside.get_children("/team-a/not")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"user": None, "password-env": None}, "not everybody may read and write under /team-a"),
        ({"user": '"other"'}, "the user other may not read and write under /team-a"),
        ({"[tls]": 'ca = "ca.pem"'}, "does not agree on TLS"),
        ({"[tls]": None}, "speaks TLS: give"),
    ],
)
def test_who_may_not_is_refused(
    zookeeper: Foreign, changed: dict[str, str | None], said: str
) -> None:
    with pytest.raises(ClusterError, match=said):
        look(zookeeper.file(f"refused-{abs(hash(said))}.toml", **changed))


def test_a_server_alone_is_not_taken_for_one_of_an_ensemble(zookeeper: Foreign) -> None:
    """It numbers its sessions as the first of an ensemble does."""
    (_, port) = zookeeper.nodes[0]
    nodes = f'["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}"]'
    with pytest.raises(ClusterError, match=f"{port} is in no ensemble, and several.toml names"):
        look(zookeeper.file("several.toml", nodes=nodes))


def test_what_is_below_is_nobodys_to_remove(zookeeper: Foreign, outside: KazooClient) -> None:
    outside.create("/team-a/theirs")
    with pytest.raises(ClusterError, match="already has a key under '/team-a'"):
        look(zookeeper.file("used.toml"))
    outside.delete("/team-a/theirs")


@pytest.mark.long
def test_an_ensemble_is_more_than_its_parts(tmp_path: Path) -> None:
    with servers.zookeeper(tmp_path, 3) as foreign:
        with made(foreign.file(), tmp_path / "logs") as there:
            assert isinstance(there, Led)
            assert there.leader()
            for name in ("zookeeper", "zookeeper-semaphore", "kazoo", "tooz"):
                with closing(lock_on(there, name)) as lock:
                    taken_and_released(lock)
        (_, first), (_, second), *_ = foreign.nodes
        for nodes, said in (
            (f'["127.0.0.1:{first}"]', "has 3 servers, and one.toml names 1"),
            (f'["127.0.0.1:{first}", "localhost:{first}", "127.0.0.1:{second}"]', "one and the"),
        ):
            with pytest.raises(ClusterError, match=said):
                look(foreign.file("one.toml" if "names 1" in said else "twice.toml", nodes=nodes))
