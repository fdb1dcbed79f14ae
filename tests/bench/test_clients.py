"""What is recorded of locks that live beside their workers, and when a resumed run is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockbench.bench import clients, resume, suite
from lockbench.bench.plan import make_case
from lockbench.clusters import images
from lockbench.clusters.engine.docker import Engine
from lockbench.locks.registry import find
from lockbench.locks.shared.library import library_of
from lockbench.results.documents import Machine, Versions, made
from lockbench.results.errors import BadInput
from lockbench.results.store import RunFolder
from tests.bench.test_resume import MACHINE
from tests.results.plain import plain, write_machine, write_versions

JVM, GO = "jvm-sidecar", "go-sidecar"


@dataclass
class Images:
    """An engine that has these images, built by today's recipes."""

    names: set[str]

    def image(self, ref: str) -> Any:
        name, _, _ = ref.removeprefix("lockbench-").partition(":")
        if name not in self.names:
            return None
        inside = json.dumps({"redisson": "4.7.0"} if name == JVM else {})
        labels = {images.FINGERPRINT: images.fingerprint(name), images.VERSIONS: inside}
        return SimpleNamespace(id="1", digest=None, labels=labels)

    def version(self) -> str:
        return "20"


def versions(engine: Images, *locks: str) -> Any:
    cases = [make_case(lock, "none", seed=0) for lock in locks]
    return plain(suite.versions_of(cases, cast("Engine", engine)))


def test_a_lock_on_two_systems_has_the_images_of_both() -> None:
    engine = Images({"redis", "zookeeper", "toxiproxy"})
    found = versions(engine, "hybrid-redis-confirmed-by-zookeeper")["images"]
    assert list(found) == ["redis", "toxiproxy", "zookeeper"]


def test_a_client_image_is_recorded_with_what_is_pinned_in_it() -> None:
    engine = Images({"redis", "toxiproxy", JVM})
    found = versions(engine, "redisson-rlock", "redis-token", "redisson-fair")["clients"]
    assert list(found) == [JVM]
    assert found[JVM]["locks"] == ["redisson-fair", "redisson-rlock"]
    assert found[JVM]["id"] == "1"
    assert found[JVM]["fingerprint"] == images.fingerprint(JVM)
    assert found[JVM]["versions"] == {"redisson": "4.7.0"}
    assert found[JVM]["pins"]["org.redisson:redisson"] == "4.7.0"
    assert found[JVM]["pins"]["netty-transport"]


def test_a_library_of_python_is_recorded_with_its_own_pins() -> None:
    (entry,) = versions(Images({"redis", "toxiproxy"}), "redis-py-safe")["clients"].values()
    assert entry["locks"] == ["redis-py-safe"]
    assert entry["versions"].keys() == {"redis"}
    assert entry["versions"].items() <= entry["pins"].items()
    assert "id" not in entry


def test_a_run_without_libraries_records_none() -> None:
    assert "clients" not in versions(Images({"redis", "toxiproxy"}), "redis-token")


def test_an_image_that_is_not_built_leaves_the_others() -> None:
    found = versions(Images({"toxiproxy", GO}), "redisson-rlock", "bsm-redislock")
    assert list(found["images"]) == ["toxiproxy"]
    assert "id" not in found["clients"][JVM]
    assert found["clients"][GO]["id"] == "1"


def resumed(folder: Path, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Asks whether a run that recorded ``was`` may go on. Raises BadInput."""
    run = RunFolder.create(folder, "full")
    write_machine(run, MACHINE)
    write_versions(run, was)
    known = suite._as_known_to(made(Versions, now), run)
    resume.same_conditions(run, made(Machine, MACHINE), known)


@pytest.mark.parametrize("lock", ["redisson-rlock", "redis-py"])
@pytest.mark.parametrize(
    "change",
    [
        {"id": "2"},
        {"fingerprint": "other"},
        {"pins": {"other": "1"}},
        None,
    ],
    ids=["image", "fingerprint", "pins", "none"],
)
def test_other_clients_are_not_resumed_with(
    tmp_path: Path, lock: str, change: dict[str, Any] | None
) -> None:
    now = versions(Images({"redis", "toxiproxy", JVM}), lock)
    resumed(tmp_path, now, now)
    was = json.loads(json.dumps(now))
    if change is None:
        del was["clients"]
    else:
        (entry,) = was["clients"].values()
        entry |= change
    with pytest.raises(BadInput, match="other versions or images"):
        resumed(tmp_path, was, now)


def test_an_image_that_could_not_be_built_then_may_be_there_now(tmp_path: Path) -> None:
    """Its locks could not run, and so will be run anew."""
    engine = Images({"redis", "toxiproxy"})
    was = versions(engine, "redisson-rlock")
    engine.names.add(JVM)
    resumed(tmp_path, was, versions(engine, "redisson-rlock"))


def test_every_library_says_what_it_is() -> None:
    assert clients.declared("redis-token") is None
    assert clients.declared("no-such-lock") is None
    library = clients.declared("redsync-safe")
    assert library is not None
    assert clients.name_of(library) == GO
    assert library_of(find("kazoo")) == clients.declared("kazoo")
