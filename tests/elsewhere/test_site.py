"""The file that names a cluster of somebody else, and the secret in it."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest

from lockbench.clusters.elsewhere.site import Node, Secret, SiteError, read

PLANTED = "planted-secret"
GOOD = 'topology = "redis"\nnodes = ["db1.example:6379"]\n'
HANDS = GOOD + "[hands]\n"
MEMBERS = 'topology = "etcd"\nnodes = ["a:1", "b:2", "c:3"]\n[hands]\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "cluster.toml"
    path.write_text(text)
    return path


def test_what_is_not_said_has_a_default(tmp_path: Path) -> None:
    site = read(written(tmp_path, GOOD))
    assert site.nodes == (Node("db1.example", 6379),)
    assert (site.prefix, site.key_prefix) == ("lockbench:", "lockbench:")
    assert (site.password, site.context()) == (None, None)
    assert not site.hands.verbs


def test_what_a_recipe_puts_before_its_keys_belongs_to_the_prefix(tmp_path: Path) -> None:
    etcd = 'topology = "etcd"\nnodes = ["[::1]:2379"]\nprefix = "lockbench/team-a/"\n'
    site = read(written(tmp_path, etcd))
    assert (site.prefix, site.key_prefix) == ("lockbench/team-a/", "team-a/")
    assert str(site.nodes[0]) == "[::1]:2379"


def test_a_zookeeper_keeps_clients_under_the_prefix_itself(tmp_path: Path) -> None:
    site = read(written(tmp_path, 'topology = "zookeeper"\nnodes = ["a:1"]\n'))
    assert (site.prefix, site.key_prefix) == ("/lockbench", "")


def test_sentinels_are_the_last_nodes(tmp_path: Path) -> None:
    text = 'topology = "sentinel"\nnodes = ["a:1"]\nsentinels = ["b:2"]\nmaster = "m"\n'
    site = read(written(tmp_path, text))
    assert (site.nodes, site.sentinels) == ((Node("a", 1), Node("b", 2)), 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topology = 1", "topology"),
        ("topology =", "Invalid value"),
        ('topology = "mysql"\nnodes = ["a:1"]', "Invalid enum value 'mysql'"),
        ('topology = "redis"', "missing required field `nodes`"),
        (GOOD + 'passwort-env = "P"', "unknown field `passwort-env`"),
        (GOOD + 'password = "planted-secret"', "does not belong in this file"),
        (GOOD + 'password-env = "NOT_SET_ANYWHERE"', "NOT_SET_ANYWHERE, which is empty"),
        (GOOD + 'password-file = "gone.txt"', "its password-file"),
        (GOOD + 'password-file = "empty.txt"', "its password-file empty.txt is empty"),
        (GOOD + 'password-env = "A"\npassword-file = "B"', "both say where the password is"),
        (GOOD + 'user = "bench"', "the user bench has no password-env"),
        ('topology = "redis"\nnodes = ["db1.example"]', "a node is written HOST:PORT"),
        ('topology = "redis"\nnodes = ["a:70000"]', "a node is written HOST:PORT"),
        ('topology = "redis"\nnodes = ["-oProxyCommand=x:1"]', "a node is written HOST:PORT"),
        ('topology = "redlock"\nnodes = ["a:1", "a:1"]', "a node is named twice"),
        ('topology = "etcd"\nnodes = ["a:1"]\nprefix = "x/"', "keep their keys under lockbench/"),
        (GOOD + 'prefix = "a\\nb"', "has odd ones in it"),
        ('topology = "zookeeper"\nnodes = ["a:1"]\nprefix = "/"', "is the path of a node"),
        ('topology = "zookeeper"\nnodes = ["a:1"]\nprefix = "a/b"', "is the path of a node"),
        ('topology = "zookeeper"\nnodes = ["a:1"]\npassword-env = "HOME"', "has no user"),
        ('topology = "sentinel"\nnodes = ["a:1"]', "topology sentinel needs sentinels"),
        (GOOD + 'master = "m"', "master is for topology sentinel, and not redis"),
        (GOOD + '[tls]\nkey = "client.key"', "has a key and no certificate"),
        (HANDS + 'pause = "x {host}"', "has pause without resume, its opposite"),
        (HANDS + 'start = "x"', "has start without kill, its opposite"),
        (HANDS + 'pause = "x {hots}"\nresume = "x"', "names {hots}; it may name {host}"),
        (HANDS + 'pause = "x {host.__class__}"\nresume = "x"', "names {host.__class__}"),
        (HANDS + 'pause = "x \'y"\nresume = "x"', "No closing quotation"),
        (HANDS + 'pause = "x {peer-host}"\nresume = "x"', "names {peer-host}; it may name {host}"),
        (HANDS + 'cut = "x {peer-host}"\njoin = "x {peer-host}"', "and not redis"),
        (MEMBERS + 'cut = "x {peer-host}"', "has cut without join, its opposite"),
        (MEMBERS + 'cut = "x {peer-host}"\njoin = "x {host}"', "join is run for two servers"),
        (MEMBERS + 'cut = "x {peer}"\njoin = "x {peer-host}"', "names {peer}; it may name"),
        (HANDS + "limit-s = 0", "limit-s is 0"),
        (HANDS + "limit-s = 1e9", "limit-s is 1e+09"),
    ],
)
def test_a_file_is_refused_in_one_sentence_that_says_why(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(SiteError, match=r"cluster\.toml") as caught:
        read(written(tmp_path, text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert PLANTED not in str(caught.value)


@pytest.mark.parametrize("name", ["ca", "certificate"])
def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "odd.pem").write_text("no certificate")
    for file in ("gone.pem", "odd.pem", "null\\u0000.pem"):
        site = read(written(tmp_path, f'{GOOD}[tls]\n{name} = "{file}"'))
        with pytest.raises(SiteError, match=r"\.pem cannot be read"):
            site.context()


def test_a_password_comes_from_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", PLANTED)
    (tmp_path / "password.txt").write_text(PLANTED + "\n")
    for line in ('password-env = "REDIS_PASSWORD"', 'password-file = "password.txt"'):
        site = read(written(tmp_path, GOOD + line))
        assert site.password is not None
        assert site.password.reveal() == PLANTED
        assert PLANTED not in repr(site)
        assert site.hidden(f"WRONGPASS {PLANTED}") == "WRONGPASS ***"


def test_a_secret_is_shown_nowhere_by_accident() -> None:
    secret = Secret(PLANTED)
    assert PLANTED not in f"{secret} {secret!r} {[secret]} {secret:}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)


def test_words_of_a_command_are_filled_in_and_not_read_by_a_shell(tmp_path: Path) -> None:
    text = HANDS + 'pause = "ssh {host} \'kill -STOP; $X\' {port} {name} {node}"\nresume = "y"'
    site = read(written(tmp_path, text))
    said = ["ssh", "db1.example", "kill -STOP; $X", "6379", "redis-1", "1"]
    assert site.words("pause", 1) == said
    assert list(site.hands.verbs) == ["pause"]
    assert site.everybody("pause") == [1]


def test_a_cut_is_of_a_node_and_its_peer(tmp_path: Path) -> None:
    words = "{host} {port} {name} {node} {peer-host} {peer-port} {peer-name} {peer-node}"
    site = read(written(tmp_path, f'{MEMBERS}cut = "x {words}"\njoin = "y {{peer-node}}"\n'))
    assert site.words("cut", (2, 3)) == ["x", "b", "2", "etcd-2", "2", "c", "3", "etcd-3", "3"]
    assert site.words("join", (3, 1)) == ["y", "1"]
    assert site.called((2, 3)) == "b:2 and c:3"
    every = [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)]
    assert site.everybody("cut") == site.everybody("join") == every
