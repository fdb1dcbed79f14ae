"""The pytest plugin: clusters as fixtures, for people who test their own service.

pytest loads it in every project of an environment in which Lockbench is installed. So nothing is
imported here but pytest, and nothing is done until a file of tests names a fixture: those stand in
``lockbench.api.fixtures``, which is loaded then. ``docs/pytest.md`` is the user's page.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from lockbench.api.cluster import Cluster

PREFIX: Final = "lockbench_"
MARK: Final = "lockbench"
SEED: Final = "lockbench_seed"
FIXTURES: Final = "lockbench.api.fixtures"

# The clusters of this session that are up, by the name of their fixture.
UP: Final = pytest.StashKey[dict[str, "Cluster"]]()
# How many faults each cluster of a test had met before it.
FAULTS_BEFORE: Final = pytest.StashKey[dict["Cluster", int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--lockbench-seed``."""
    parser.getgroup("lockbench").addoption(
        "--lockbench-seed",
        type=int,
        metavar="N",
        help="decides what the faults of a test draw; drawn, and shown, if it is not given",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The mark, and a seed."""
    config.addinivalue_line(
        "markers",
        "lockbench(topology, nodes=None, fault=None): the cluster of `lockbench_cluster` and the "
        "fault of `lockbench_fault`; a list of either makes a test for each",
    )
    config.stash[UP] = {}
    # Set here, so that the workers of xdist, who get the options, have the same.
    if config.getoption(SEED) is None:
        setattr(config.option, SEED, random.randrange(2**32))


def pytest_plugin_registered(plugin: object, manager: pytest.PytestPluginManager) -> None:
    """A conftest, or a plugin of the project, may name the fixtures."""
    name = getattr(plugin, "__name__", "")
    file = getattr(plugin, "__file__", None)
    if file and not name.startswith(("_pytest.", "lockbench.")):
        _offer(Path(file), manager)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> None:
    """So may a file of tests."""
    _offer(module_path, parent.config.pluginmanager)


def _offer(file: Path, manager: pytest.PytestPluginManager) -> None:
    """Loads the fixtures where a file names one of them."""
    if manager.has_plugin(FIXTURES):
        return
    try:
        named = PREFIX.encode() in file.read_bytes()
    except OSError:
        return
    if named:
        manager.import_plugin(FIXTURES)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """A test finds the session's clusters as new."""
    _prepare_all(item, empty=True)
    done = yield
    _prepare_all(item, empty=False)  # those that were started for this test
    return done


def _prepare_all(item: pytest.Item, *, empty: bool) -> None:
    names = getattr(item, "fixturenames", ())
    for name, cluster in item.config.stash[UP].items():
        if name in names:
            prepare(item, cluster, empty=empty)


def prepare(item: pytest.Item, cluster: Cluster, *, empty: bool) -> None:
    """Makes a cluster ready for a test."""
    before = item.stash.setdefault(FAULTS_BEFORE, {})
    if cluster in before:
        return
    if empty:
        cluster.empty()
    cluster.reseed(f"{item.config.getoption(SEED)} {item.nodeid}")
    before[cluster] = len(cluster.faults)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """What a test used goes into JUnit's report, and a fault that it asked for was met."""
    try:
        done = yield
        fault = getattr(item, "funcargs", {}).get("lockbench_fault")
        if fault is not None and getattr(fault, "entered", True) is False:
            pytest.fail(
                f"{fault.text} was never injected: write `with lockbench_fault:` around what is to "
                "meet it",
                pytrace=False,
            )
    finally:
        _note(item)
    return done


def _note(item: pytest.Item) -> None:
    before = item.stash.get(FAULTS_BEFORE, {})
    if not before:
        return
    noted = {"lockbench_seed": str(item.config.getoption(SEED))}
    for cluster, met in before.items():
        name = cluster.topology.name
        noted["lockbench_topology"] = f"{name} with {cluster.size} nodes"
        noted |= {f"lockbench_version_{of}": version for of, version in cluster.versions.items()}
        if faults := ", ".join(f"{f.name} of {', '.join(f.targets)}" for f in cluster.faults[met:]):
            noted["lockbench_fault"] = faults
    item.user_properties += noted.items()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows how to draw the same, and a broken promise as what it is."""
    report = yield
    if not report.failed:
        return report
    if FAULTS_BEFORE in item.stash:
        seed = item.config.getoption(SEED)
        report.sections.append(("lockbench", f"--lockbench-seed {seed} draws the same"))
    errors = sys.modules.get("lockbench.api.errors")
    raised = None if call.excinfo is None else call.excinfo.value
    if errors is not None and isinstance(raised, errors.BrokenPromise):
        report.longrepr = str(raised)
        report.sections.append(("drawing", _drawn(item, raised.drawing)))
    return report


def _drawn(item: pytest.Item, drawing: str) -> str:
    """Saves the page of a violation beside the test's other files; says where."""
    try:
        # What pytest's own fixture `tmp_path_factory` returns.
        factory: pytest.TempPathFactory = item.config._tmp_path_factory  # type: ignore[attr-defined] # noqa: SLF001
        path = factory.mktemp("drawing") / "drawing.html"
        path.write_text(drawing, encoding="utf-8")
    except (OSError, AttributeError) as error:
        return f"the drawing could not be saved: {error}"
    return str(path)
