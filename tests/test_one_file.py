"""A lock, a library, a fault, a workload and a topology are added to a copy of the tree, each as a
file or folder of its own, and are found everywhere that they have to be. Nothing else is edited.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = (
    *(path.name for path in (ROOT / "lockbench").iterdir() if path.is_symlink()),
    "perf",
    "tests",
)
ADDED = {
    "locks/redis/one_lock.py": """
from lockbench.locks.redis import token
class OneLock(token.RedisToken):
    ...
SYSTEM = token.SYSTEM.derived(
    name="one-lock", connect=OneLock, topologies=("redis", "one-topology"), variant=True,
    suites={"nightly": ("one-fault",)},
)
""",
    "locks/libraries/one_library/lock.py": """
from lockbench.locks.base import System
from lockbench.locks.shared.library import Library, as_safe
_PLAIN = Library(__file__)
_SYSTEM = System(
    name="one-library", topologies=("redis",), family="redis", fence=None, waits_by="polling",
    source="https://example.org", connect=_PLAIN.connect, prepare=_PLAIN.prepare,
    outcomes={"raised anything": "Unknown", "returned": "Granted", "left": "Released"},
    not_owed={"fences_grow": "it counts nothing"},
)
SYSTEMS = (_SYSTEM, as_safe(_SYSTEM))
""",
    "locks/libraries/one_library/adapter.py": "import one_library  # in its environment\n",
    "locks/libraries/one_library/requirements.in": "one-library==1.2.3\n",
    "locks/libraries/one_library/requirements.txt": "one-library==1.2.3 \\\n    --hash=sha256:00\n",
    "locks/libraries/one_go_library/lock.py": """
from dataclasses import replace
from lockbench.locks.libraries.bsm_redislock import lock
from lockbench.locks.shared.library import library_of
_LIBRARY = replace(library_of(lock.SYSTEMS[0]), lock="one-go-library")
SYSTEM = replace(
    lock.SYSTEMS[0],
    name="one-go-library", connect=_LIBRARY.connect, prepare=_LIBRARY.prepare,
)
""",
    "locks/libraries/one_go_library/one_go_library.go": "package main\n",
    "locks/libraries/one_go_library/requirements.mod": "example.org/one-go v1.2.3\n",
    "locks/libraries/one_java_library/lock.py": """
from dataclasses import replace
from lockbench.locks.libraries.jetcd import lock
from lockbench.locks.shared.library import library_of
_LIBRARY = replace(library_of(lock.SYSTEM), lock="one-java-library")
SYSTEM = replace(
    lock.SYSTEM,
    name="one-java-library", connect=_LIBRARY.connect, prepare=_LIBRARY.prepare,
)
""",
    "locks/libraries/one_java_library/OneJavaLibrary.java": """package lockbench;
public final class OneJavaLibrary implements Library {}
""",
    "locks/libraries/one_java_library/requirements.maven": "org.example:one-java:1.2.3\n",
    "locks/libraries/one_node_library/lock.py": """
from dataclasses import replace
from lockbench.locks.libraries.node_redlock import lock
from lockbench.locks.shared.library import library_of
_LIBRARY = replace(library_of(lock.SYSTEMS[0]), lock="one-node-library")
SYSTEM = replace(
    lock.SYSTEMS[0],
    name="one-node-library", connect=_LIBRARY.connect, prepare=_LIBRARY.prepare,
)
""",
    "locks/libraries/one_node_library/one_node_library.js": "exports.kinds = {};\n",
    "locks/libraries/one_node_library/requirements.npm": "@example/one-node@1.2.3\n",
    "locks/libraries/one_php_library/lock.py": """
from dataclasses import replace
from lockbench.locks.libraries.symfony_lock import lock
from lockbench.locks.shared.library import library_of
_LIBRARY = replace(library_of(lock.SYSTEMS[0]), lock="one-php-library")
SYSTEM = replace(
    lock.SYSTEMS[-1],
    name="one-php-library", connect=_LIBRARY.connect, prepare=_LIBRARY.prepare,
)
""",
    "locks/libraries/one_php_library/one_php_library.php": "<?php return [];\n",
    "locks/libraries/one_php_library/requirements.debian": "php-one\n",
    "nemesis/faults/one_fault.py": """
from lockbench.nemesis.faults.pause import Pause
class OneFault(Pause):
    name = "one-fault"
    summary = "as a pause"
    rules = (*Pause.rules, "no-such-rule")
    ends_servers = True
    suites = frozenset({"nightly"})
FAULT = OneFault()
""",
    "workloads/jobs/one_workload.py": """
from dataclasses import replace
from lockbench.workloads.jobs.herd import WORKLOAD as HERD
WORKLOAD = replace(HERD, name="one-workload")
""",
    "clusters/redis/one_topology.py": """
from dataclasses import replace
from lockbench.clusters.redis import nodes
TOPOLOGY = replace(nodes.TOPOLOGIES[0], name="one-topology")
""",
}
# Runs in the copy; what is asked of it is in the tests.
PROBE = """
import json
from lockbench.bench import clients, suites
from lockbench.bench.plan import make_case
from lockbench.checker.rules import RULES
from lockbench.clusters.recipes import CLIENTS, recipes as images
from lockbench.locks.registry import systems
from lockbench.nemesis.registry import faults
from perf.bare import recipes
from tests.locks.conftest import every_system, more_systems, why_untested
from tests.locks.test_libraries import LIBRARIES
def texts(files):
    return {name: content.decode() for name, content in files.items()}
def unlocked(recipe):
    recipe.check()
    try:
        recipe.check_locks(recipe.context())
    except ValueError as error:
        return str(error)
print(json.dumps({
    "suites": {
        name: [(c.lock, c.topology, c.fault) for c in suites.suite(name, seed=0).cases]
        for name in ("quick", "nightly", "full", "exhaustive")
    },
    "conformance": [system.name for system in every_system()],
    "long conformance": [system.name for system in more_systems()],
    "untested": {name: why for name, s in systems().items() if (why := why_untested(s))},
    "pins": clients.as_pinned(clients.declared("one-library-safe"))["pins"],
    "pinned libraries": LIBRARIES,
    "programs": {name: texts(images()[name].context()) for name in CLIENTS},
    "unlocked": {name: unlocked(images()[name]) for name in CLIENTS},
    "bare": recipes(),
    "ends servers": faults()["one-fault"].ends_servers,
    "no rule": [r for r in faults()["one-fault"].rules if r not in RULES],
    "workload": make_case("one-lock", "one-fault", seed=0, workload="one-workload").name,
}))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree, and what is added to it."""
    copied = tmp_path_factory.mktemp("copy")
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "corpus", "histories")
        shutil.copytree(ROOT / package, copied / package, ignore=ignored)
    shutil.copytree(ROOT / "lockbench", copied / "lockbench", symlinks=True, ignore=ignored)
    for name, text in ADDED.items():
        path = copied / name
        assert not path.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return copied


@pytest.fixture(scope="module")
def found(copy: Path) -> dict[str, Any]:
    """What ``PROBE`` says, and under ``list`` what the command lists."""
    told: dict[str, Any] = json.loads(run(copy, "-c", PROBE))
    return told | {"list": json.loads(run(copy, "-m", "lockbench.cli.main", "list", "--json"))}


def run(copy: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_each_is_listed(found: dict[str, Any]) -> None:
    def named(kind: str) -> set[str]:
        return {thing["name"] for thing in found["list"][kind]}

    others = {f"one-{language}-library" for language in ("go", "java", "node", "php")}
    assert {"one-lock", "one-library", "one-library-safe", *others} <= named("locks")
    assert "one-fault" in named("faults")
    assert "one-topology" in named("topologies")
    assert "one-workload" in named("workloads")
    (fault,) = (one for one in found["list"]["faults"] if one["name"] == "one-fault")
    assert "one-topology" in fault["applies_to"]
    assert found["workload"] == "one-lock-one-fault-one-workload"


def test_the_suites_have_them(found: dict[str, Any]) -> None:
    quick, nightly, full, exhaustive = (
        {tuple(case) for case in found["suites"][name]}
        for name in ("quick", "nightly", "full", "exhaustive")
    )
    assert {("one-lock", "redis", "one-fault"), ("etcd", "etcd", "one-fault")} <= nightly
    assert not any("one-" in word for case in quick for word in case)
    assert ("one-library", "redis", "kill") in full
    assert ("one-lock", "redis", "failover") not in full  # one Redis has nothing to fail over to
    assert ("one-lock", "redis", "partition-drop") in full
    assert ("one-lock", "redis", "kill") not in full  # a variant
    assert {("one-lock", "one-topology", "one-fault"), ("etcd", "etcd", "one-fault")} <= exhaustive


def test_the_conformance_tests_have_them_or_say_why_not(found: dict[str, Any]) -> None:
    assert "one-lock" in found["conformance"]
    others = {f"one-{language}-library" for language in ("go", "java", "node", "php")}
    libraries = {"one-library-safe", *others}
    assert libraries <= set(found["long conformance"])
    assert "tested is one-library-safe" in found["untested"]["one-library"]


def test_what_belongs_to_one_kind_is_found(found: dict[str, Any]) -> None:
    assert found["pins"] == {"one-library": "1.2.3"}
    assert "one_library" in found["pinned libraries"]
    assert "one-lock" in found["bare"]
    assert "one-lock" not in found["untested"]
    assert found["ends servers"] is True
    assert found["no rule"] == ["no-such-rule"]


def test_the_programs_of_other_languages_are_built_with_a_library_s_folder(
    found: dict[str, Any],
) -> None:
    """Its image then wants its locks resolved again, and says so."""
    go, java, node, php = (
        found["programs"][f"{name}-sidecar"] for name in ("go", "jvm", "node", "php")
    )
    assert {"one_go_library.go", "redsync.go", "main.go"} < go.keys()
    assert "example.org/one-go v1.2.3\n" in go["requirements.mod"]
    assert {"OneJavaLibrary.java", "JetcdLibrary.java", "Locks.java"} < java.keys()
    assert "lockbench.OneJavaLibrary\n" in java["lockbench.Library"]
    assert "<artifactId>one-java</artifactId>\n      <version>1.2.3</version>" in java["pom.xml"]
    assert {"one_node_library.js", "node_redlock.js", "main.js"} < node.keys()
    assert json.loads(node["package.json"])["dependencies"]["@example/one-node"] == "1.2.3"
    assert {"one_php_library.php", "symfony_lock.php", "main.php"} < php.keys()
    assert "php-one\n" in php["requirements.debian"]
    assert found["unlocked"]["php-sidecar"] is None  # Debian's mirror has one version
    assert "asks for @example/one-node 1.2.3" in found["unlocked"]["node-sidecar"]
    assert "asks for example.org/one-go v1.2.3" in found["unlocked"]["go-sidecar"]
    assert "asks for org.example:one-java 1.2.3" in found["unlocked"]["jvm-sidecar"]
