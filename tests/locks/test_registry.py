"""The scan, the names, and locks from elsewhere."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from locks import registry
from locks.base import NAMED_VERDICTS, Address, NoObserver, System
from locks.redis_token import RedisToken
from locks.registry import LockNotFoundError

OUTSIDE = """
class Mine:
    topologies = ("redis",)
    def __init__(self, nodes, *, timeout_s, ttl_s, observer): ...
    def acquire(self, key, *, hold_id, ttl_s, wait_s): ...
    def release(self, hold): ...
    def close(self): ...

class Half:
    topologies = ("redis",)

number = 7
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(OUTSIDE)
    return path


def test_the_scan_finds_the_locks_of_the_first_suite() -> None:
    first = {"redis-token", "redis-no-owner", "redlock", "zookeeper", "etcd"}
    assert first <= set(registry.systems())


@pytest.mark.parametrize("system", registry.systems().values(), ids=lambda system: system.name)
def test_every_declaration_is_complete(system: System) -> None:
    assert system.topologies
    assert system.outcomes
    assert system.source
    assert set(system.outcomes.values()) >= {"Unknown"}
    for verdicts in system.expectations.values():
        assert set(verdicts) <= {*NAMED_VERDICTS, "linearizable"}
    assert (system.expectation("none", "fence-order").expected == "n/a") == (system.fence is None)


@pytest.mark.parametrize("system", registry.systems().values(), ids=lambda system: system.name)
def test_a_break_names_its_kind(system: System) -> None:
    for verdicts in system.expectations.values():
        for expectation in verdicts.values():
            assert (expectation.kind is None) == (expectation.expected in {"holds", "n/a"})


def test_parameters_stand_behind_the_name() -> None:
    system = registry.find("redis-token:backoff=fixed")
    assert system.name == "redis-token:backoff=fixed"
    assert registry.find("redis-token").name == "redis-token"
    lock = system.connect([Address("127.0.0.1", 9)], timeout_s=1, ttl_s=1, observer=NoObserver())
    assert isinstance(lock, RedisToken)
    assert lock._backoff == "fixed"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("redis-token:pause=1", "redis-token has no parameter 'pause'; its parameters: backoff"),
        ("redis-token:backoff=none", "backoff is one of jitter, exponential, fixed"),
        ("redis-token:backoff", "backoff is one of jitter, exponential, fixed"),
        ("etcd:backoff=fixed", "etcd has no parameter 'backoff'; its parameters: none"),
    ],
)
def test_wrong_parameters_are_one_sentence(spec: str, sentence: str) -> None:
    with pytest.raises(LockNotFoundError, match=sentence):
        registry.find(spec)


def test_two_locks_of_one_name_are_an_error() -> None:
    modules = [ModuleType("one"), ModuleType("two")]
    for module in modules:
        module.SYSTEM = registry.find("redis-token")  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="two locks are called 'redis-token': in one and two"):
        registry.collected(modules)


def test_one_module_may_declare_several() -> None:
    module = ModuleType("several")
    both = [registry.find("redis-token"), registry.find("redis-no-owner")]
    module.SYSTEMS = both  # type: ignore[attr-defined]
    assert list(registry.collected([module])) == ["redis-no-owner", "redis-token"]


def test_a_class_from_outside_joins(outside: Path) -> None:
    system = registry.find(f"{outside}:Mine")
    assert system.topologies == ("redis",)
    assert system.expectation("pause", "double-grant").expected == "holds"


@pytest.mark.parametrize(
    ("attribute", "sentence"),
    [
        ("Half", "the class lacks acquire, release, close"),
        ("number", "has no class or System 'number'"),
        ("Missing", "has no class or System 'Missing'"),
    ],
)
def test_what_does_not_fit_is_named(outside: Path, attribute: str, sentence: str) -> None:
    with pytest.raises(LockNotFoundError, match=sentence):
        registry.find(f"{outside}:{attribute}")


def test_unknown_names_and_files_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        LockNotFoundError, match=r"unknown lock 'nope': the locks are .*redis-token"
    ):
        registry.find("nope")
    with pytest.raises(LockNotFoundError, match="there is no file"):
        registry.find(f"{tmp_path / 'absent.py'}:Mine")
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_this_name")
    with pytest.raises(LockNotFoundError, match="cannot be imported: ModuleNotFoundError"):
        registry.find(f"{broken}:Mine")


def test_the_origin_of_a_lock_of_ones_own_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "my lock.py"
    path.write_text(
        "import time\nimport redis.client\nfrom locks.base import System\n"
        "def late():\n    from kazoo.client import KazooClient\n"
    )
    spec = f"{path}:Mine"
    assert registry.is_own(spec)
    assert not registry.is_own("redis-token")
    assert not registry.is_own("redis-token:backoff=fixed")
    found = registry.origin(spec)
    assert (found["spec"], found["file"]) == (spec, str(path))
    assert found["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found["libraries"] == {"kazoo": version("kazoo"), "redis": version("redis")}
