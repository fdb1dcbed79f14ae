"""The scan, the names, and locks from elsewhere."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from lockbench.bench import clients
from lockbench.bench.duties import DUTIES
from lockbench.bench.judge import expectation
from lockbench.bench.plan import each_lock
from lockbench.checker.catalogue import OF_LOCKS
from lockbench.locks import registry
from lockbench.locks.base import ANY, Address, NoObserver, System
from lockbench.locks.redis.token import RedisToken
from lockbench.locks.registry import LockNotFoundError
from lockbench.locks.shared.client_programs import GO_CLIENTS, GO_IMAGE
from lockbench.locks.shared.library import Library, library_of

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
        assert set(verdicts) <= {*OF_LOCKS, ANY}
    assert (expectation(system, "none", "fence-order").expected == "n/a") == (system.fence is None)


def test_errors_are_declared_of_libraries_whose_errors_have_a_class() -> None:
    """A library of Go returns values; what it panics with ends its program."""
    declared: dict[str, set[bool]] = {}
    for system in registry.systems().values():
        if library := library_of(system):
            image = getattr(library, "image", "python")
            declared.setdefault(image, set()).add(system.raises is not None)
        else:
            assert system.raises is None, "in-process, its adapter maps what it knows"
        for name, source in (system.raises or {}).items():
            assert name.isidentifier()
            assert source.startswith("https://")
    assert declared.pop(GO_IMAGE) == {False}
    assert len(declared) == 4
    assert all(one == {True} for one in declared.values()), declared


def test_each_system_has_one_lock_for_the_comparison() -> None:
    """All by clients of one language behind one sidecar, so that these cost alike."""
    compared = [system for system in registry.systems().values() if system.client_family]
    assert {(system.topologies[0], system.client_family) for system in compared} == {
        (topology, GO_CLIENTS) for topology in ("redis", "redlock", "etcd", "zookeeper")
    }
    assert len(compared) == 4
    images = {getattr(library_of(system), "image", "none") for system in compared}
    assert images == {GO_IMAGE}


def test_what_is_derived_has_no_part_in_the_comparison() -> None:
    compared = registry.find("etcd-concurrency")
    assert compared.client_family
    assert not compared.derived(name="another").client_family


def test_what_is_derived_says_anew_what_it_writes() -> None:
    """It may write more, and then to servers of somebody else."""
    system = registry.find("redis-token")
    assert system.elsewhere
    assert not system.derived(name="another").elsewhere
    assert registry.find("redis-py-safe").elsewhere  # the same library


@pytest.mark.parametrize("system", registry.systems().values(), ids=lambda system: system.name)
def test_a_break_names_its_kind(system: System) -> None:
    for verdicts in system.expectations.values():
        for one in verdicts.values():
            assert (one.kind is None) == (one.expected in {"holds", "n/a"})


def test_what_is_not_owed_is_a_duty_of_the_conformance_tests() -> None:
    duties = {duty.name for duty in DUTIES}
    for system in registry.systems().values():
        assert system.not_owed.keys() <= duties, system.name
        assert all(reason.strip() for reason in system.not_owed.values())


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
        ("redis-token:backoff=none", "backoff=none: it is one of jitter, exponential, fixed"),
        ("redis-token:backoff", "'backoff' is not parameter=value"),
        ("etcd:backoff=fixed", "etcd has no parameter 'backoff'; its parameters: none"),
    ],
)
def test_wrong_parameters_are_one_sentence(spec: str, sentence: str) -> None:
    with pytest.raises(LockNotFoundError, match=sentence):
        registry.find(spec)


def test_a_class_from_outside_joins(outside: Path) -> None:
    system = registry.find(f"{outside}:Mine")
    assert system.topologies == ("redis", "valkey")
    assert expectation(system, "pause", "double-grant").expected == "undeclared"


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


LIBRARY = """
from dataclasses import replace
from lockbench.locks.base import System
from lockbench.locks.shared.library import Library, as_safe
_PLAIN = Library(__file__)
_SYSTEM = System(
    name="made", topologies=("redis",), family="redis", fence=None, waits_by="polling",
    source="https://example.org", connect=_PLAIN.connect, prepare=_PLAIN.prepare,
    outcomes={"anything": "Unknown"},
)
SYSTEMS = (_SYSTEM, as_safe(_SYSTEM))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a library with two locks."""
    made = tmp_path / "made"
    made.mkdir()
    (made / "lock.py").write_text(LIBRARY)
    (made / "adapter.py").write_text("import json\n")
    (made / "requirements.in").write_text("Made_Up[fast]\nother<5\n")
    (made / "requirements.txt").write_text("made-up==1.2 \\\nother==4.1 \\\nmore==7 \\\n")
    return made


def test_a_folder_from_outside_joins_with_every_lock_of_it(folder: Path) -> None:
    assert registry.each(str(folder)) == [f"{folder}:made", f"{folder}:made-safe"]
    system = registry.find(f"{folder}:made-safe")
    assert system.name == "made-safe"
    library = library_of(system)
    assert isinstance(library, Library)
    assert (library.folder, library.safe) == (folder, True)
    assert registry.find(f"{folder}:made").name == "made"
    with pytest.raises(LockNotFoundError, match=r"declares made, made-safe; say which, as in "):
        registry.find(str(folder))


def test_a_file_or_folder_with_one_lock_needs_no_name(folder: Path, tmp_path: Path) -> None:
    declared = LIBRARY.replace("SYSTEMS = ", "SYSTEM, _ = ")
    (folder / "lock.py").write_text(declared)
    (tmp_path / "one.py").write_text(declared)
    for spec in (str(folder), str(tmp_path / "one.py")):
        assert registry.each(spec) == [spec]
        assert registry.find(spec).name == "made"


def test_two_folders_are_two_libraries_though_their_files_are_called_alike(
    folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "made"
    other.parent.mkdir()
    shutil.copytree(folder, other)
    (other / "requirements.txt").write_text("made-up==1.3 \\\n")
    found = [library_of(registry.find(f"{one}:made")) for one in (folder, other)]
    names = {clients.name_of(library) for library in found if library is not None}
    assert names == {str(folder), str(other)}
    pinned = [clients.as_pinned(library)["pins"] for library in found if library is not None]
    assert [pins["made-up"] for pins in pinned] == ["1.2", "1.3"]


def test_a_name_without_a_class_is_explained(outside: Path, tmp_path: Path) -> None:
    with pytest.raises(LockNotFoundError, match=r"declares no SYSTEM; a class in it is named as"):
        registry.find(str(outside))
    with pytest.raises(LockNotFoundError, match=r"there is no lock\.py in "):
        registry.find(str(tmp_path))


@pytest.mark.parametrize(
    ("spec", "own"),
    [
        ("mine.py", True),
        ("mine.py:Mine", True),
        ("a/folder", True),
        ("./folder:made", True),
        (".", True),
        ("sherlock", False),
        ("redis-token:backoff=fixed", False),
        ("redis-token:a/b", False),
    ],
)
def test_a_path_is_told_from_a_name_by_its_letters(spec: str, own: bool) -> None:
    assert registry.is_own(spec) == own


def test_the_origin_of_a_library_can_be_checked_by_hand(folder: Path) -> None:
    found = registry.origin(f"{folder}:made")
    printed = subprocess.run(
        "sha256sum lock.py adapter.py requirements.txt | sha256sum",
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (found["file"], found["sha256"]) == (str(folder), printed.split()[0])
    assert found["libraries"] == {"made-up": "1.2", "other": "4.1"}
    (folder / "adapter.py").write_text("import sys\n")
    assert registry.origin(f"{folder}:made")["sha256"] != found["sha256"]


def test_the_origin_of_a_lock_of_ones_own_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "my lock.py"
    path.write_text(
        "import time\nimport redis.client\nfrom lockbench.locks.base import System\n"
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


def test_a_folder_that_is_asked_for_is_every_lock_of_it(folder: Path, tmp_path: Path) -> None:
    assert each_lock(str(folder)) == [f"{folder}:made", f"{folder}:made-safe"]
    assert each_lock("redis-token:backoff=fixed") == ["redis-token:backoff=fixed"]
    assert each_lock(f"{tmp_path}/absent") == [f"{tmp_path}/absent"], "left to be refused"
