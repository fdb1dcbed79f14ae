"""The pytest plugin in projects of others: small folders of tests that pytest runs.

In this process where that shows the same, because everything has been imported here.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockbench.api import judging, pytest_plugin
from lockbench.api.fixtures import name_of
from lockbench.clusters.engine.docker import EngineError
from lockbench.clusters.registry import topologies

assert judging  # imported here, for the projects that run in this process

pytest_plugins = ["pytester"]

BROKEN = """
from lockbench import exclusive
def test_it():
    with exclusive() as section:
        with section.inside("orders", "a"), section.inside("orders", "b"):
            pass
"""
KEPT = BROKEN.replace('"a"), section', '"a"):\n            pass\n        with section')


def run(
    pytester: pytest.Pytester, files: dict[str, str], *words: str, apart: bool = False
) -> tuple[pytest.RunResult, str]:
    """Runs pytest on a project of these files; ``apart``: in a process of its own."""
    for name, text in files.items():
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    start = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
    result = start("-p", "no:cacheprovider", "-rA", *words)
    return result, result.stdout.str() + result.stderr.str()


def test_it_does_nothing_in_a_project_that_does_not_use_it(pytester: pytest.Pytester) -> None:
    project = """
import sys
def test_it(request):
    loaded = {name for name in sys.modules if name.startswith("lockbench.")}
    assert loaded == {"lockbench.api", "lockbench.api.pytest_plugin"}
    assert not {"docker", "numpy", "gevent", "locust.main"} & set(sys.modules)
    assert "pytest_plugin" in str(request.config.pluginmanager.list_name_plugin())
"""
    result, said = run(pytester, {"test_a.py": project}, "--strict-markers", apart=True)
    result.assert_outcomes(passed=1)
    assert "lockbench:" not in said


def test_a_broken_promise_fails_with_its_drawing(pytester: pytest.Pytester) -> None:
    result, said = run(pytester, {"test_a.py": BROKEN, "test_b.py": KEPT})
    result.assert_outcomes(passed=1, failed=1)
    assert "more than one holder inside at once: client a was promised orders" in said
    assert "█" in said
    assert "Traceback" not in said
    drawing = next(line for line in said.splitlines() if line.endswith("drawing.html"))
    assert "<svg" in Path(drawing).read_text()


def test_a_section_that_nobody_entered_fails(pytester: pytest.Pytester) -> None:
    project = (
        "from lockbench import exclusive\ndef test_it():\n    with exclusive():\n        pass\n"
    )
    result, said = run(pytester, {"test_a.py": project})
    result.assert_outcomes(failed=1)
    assert "nothing was recorded: nobody entered the section" in said


def test_a_drawing_that_cannot_be_saved_is_a_sentence() -> None:
    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    item = SimpleNamespace(config=SimpleNamespace(_tmp_path_factory=SimpleNamespace(mktemp=full)))
    said = pytest_plugin._drawn(item, "")  # type: ignore[arg-type]
    assert "could not be saved: [Errno 28] No space left" in said


def test_a_project_may_have_modules_of_the_same_names(pytester: pytest.Pytester) -> None:
    ours = {f"{name}.py": "mine = True\n" for name in ("checker", "results", "history")}
    names = f"import checker, results, history\n{KEPT}    assert checker.mine and results.mine\n"
    result, _ = run(pytester, {**ours, "clusters/__init__.py": "", "test_a.py": names}, apart=True)
    result.assert_outcomes(passed=1)


MARKED = """
import pytest
@pytest.mark.lockbench({})
def test_it(lockbench_cluster, lockbench_fault):
    pass
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('topology="redsi", fault="pause"', "no topology is called 'redsi'; did you mean redis?"),
        ('topology="etcd", nodes=4, fault="pause"', "etcd is made of 3 or 5 nodes, not of 4"),
        ('topology="etcd", fault="pausee"', "did you mean pause"),
        ('topology="etcd"', "mark it with @pytest.mark.lockbench(fault=…)"),
        ("", "mark it with @pytest.mark.lockbench(topology=…)"),
    ],
)
def test_a_mark_that_cannot_be_is_one_sentence(
    pytester: pytest.Pytester, words: str, said: str
) -> None:
    result, output = run(pytester, {"test_a.py": MARKED.format(words)})
    result.assert_outcomes(errors=1)
    assert f"test_it: {said}" in output or said in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("mark", "fixtures", "said"),
    [
        ('topology="redis", fault="pause"', "lockbench_cluster", "only lockbench_fault takes"),
        ('topology="redis"', "lockbench_redis", "only lockbench_cluster takes"),
        ('topology="redis", node=3', "lockbench_cluster", "topology, nodes, fault, and not node"),
        ('"redis"', "lockbench_cluster", "and not 'redis'"),
    ],
)
def test_what_a_mark_says_without_effect_is_one_sentence(
    pytester: pytest.Pytester, mark: str, fixtures: str, said: str
) -> None:
    text = f"import pytest\n@pytest.mark.lockbench({mark})\ndef test_it({fixtures}): pass\n"
    result, output = run(pytester, {"test_a.py": text})
    result.assert_outcomes(errors=1)
    assert said in output
    assert "Traceback" not in output


def test_the_mark_of_a_file_may_be_for_some_of_its_tests(pytester: pytest.Pytester) -> None:
    text = "import pytest\npytestmark = pytest.mark.lockbench(topology='redis', fault='pause')\n"
    result, _ = run(pytester, {"test_a.py": f"{text}def test_it(): pass\n"})
    result.assert_outcomes(passed=1)


def test_every_topology_has_its_fixtures(pytester: pytest.Pytester) -> None:
    names = [f"{name_of(name)}{more}" for name in topologies() for more in ("", "_fresh")]
    asked = {"test_a.py": f"def test_it({', '.join(names)}):\n    pass\n"}
    result, said = run(pytester, asked, "--setup-plan")
    assert result.ret == 0, said


def test_without_docker_it_is_skipped_with_the_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    project = {
        "test_a.py": "def test_it(service):\n    assert service\n",
        # Named in a conftest alone.
        "conftest.py": (
            "import pytest\n@pytest.fixture\ndef service(lockbench_redis):\n    return 1\n"
        ),
    }
    result, said = run(pytester, project)
    result.assert_outcomes(skipped=1)
    assert "no redis: no Docker engine answers" in said
    assert "start Docker, or set DOCKER_HOST" in said


@pytest.mark.docker
def test_who_waits_for_an_image_is_told_and_without_it_the_test_is_skipped(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(names: Sequence[str], *, say: Callable[[str], None], **_: object) -> None:
        say(f"to build: {', '.join(names)}")
        raise EngineError("building images needs 3 GB free where Docker keeps its data")

    monkeypatch.setattr("lockbench.clusters.images.ensure", full)
    result, said = run(pytester, {"test_a.py": "def test_it(lockbench_redis_fresh):\n    pass\n"})
    result.assert_outcomes(skipped=1)
    assert "\nlockbench: to build: redis, toxiproxy\n" in said
    assert "no redis: building images needs 3 GB free" in said


SERVICE = """
import pytest, redis
from lockbench import exclusive, faults

def client(cluster):
    return redis.Redis(*cluster.addresses[0])

@pytest.mark.parametrize("n", range(2))
def test_finds_it_empty(lockbench_redis, n):
    assert client(lockbench_redis).dbsize() == 0
    client(lockbench_redis).set("x", n)

def test_has_one_of_its_own(lockbench_redis_fresh, lockbench_redis):
    assert lockbench_redis_fresh.addresses != lockbench_redis.addresses

@pytest.mark.lockbench(topology=["redis"], fault=["none", "pause"])
def test_under_a_fault(lockbench_cluster, lockbench_fault):
    assert client(lockbench_cluster).dbsize() == 0
    client(lockbench_cluster).set("x", 1)
    with lockbench_fault:
        pass

@pytest.mark.lockbench(topology="redis", fault="pause")
def test_that_forgets_its_fault(lockbench_cluster, lockbench_fault):
    pass

def test_that_goes_wrong(lockbench_redis):
    assert client(lockbench_redis).dbsize() == 1
"""


def properties(path: Path, test: str) -> dict[str, str]:
    found = {
        case.attrib["name"]: {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
        for case in ET.parse(path).iter("testcase")
    }
    return found[test]


@pytest.mark.docker
@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_tests_of_a_service(pytester: pytest.Pytester, more: Sequence[str]) -> None:
    words = ("--junitxml=j.xml", "--strict-markers", "--lockbench-seed=7", *more)
    result, said = run(pytester, {"test_a.py": SERVICE}, *words)
    result.assert_outcomes(passed=5, failed=2)
    assert "pause was never injected: write `with lockbench_fault:`" in said
    assert "--lockbench-seed 7 draws the same" in said
    noted = properties(pytester.path / "j.xml", "test_under_a_fault[redis-pause]")
    assert noted["lockbench_seed"] == "7"
    assert noted["lockbench_topology"] == "redis with 1 nodes"
    assert noted["lockbench_fault"] == "pause of redis-1"
    assert "8." in noted["lockbench_version_redis-server"]
    assert "lockbench_fault" not in properties(
        pytester.path / "j.xml", "test_under_a_fault[redis-none]"
    )
