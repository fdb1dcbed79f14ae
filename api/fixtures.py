"""The fixtures of the plugin: two for each topology that is declared, and two for the mark.

``lockbench_redis``        one cluster for the session, emptied before every test that uses it
``lockbench_redis_fresh``  one for the test alone
``lockbench_cluster``      a cluster of the mark's topology: the session's, where no size is asked
``lockbench_fault``        the mark's fault on it, a context manager

A machine that cannot have a cluster skips the test with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import pytest

from lockbench.api import faults
from lockbench.api.cluster import Cluster
from lockbench.api.errors import Unavailable
from lockbench.api.pytest_plugin import MARK, PREFIX, UP, prepare
from lockbench.clusters.registry import topologies
from lockbench.nemesis.registry import NONE
from lockbench.nemesis.schedule import ScheduleError, parse
from lockbench.results.errors import BadInput

CLUSTER: Final = "lockbench_cluster"
FAULT: Final = "lockbench_fault"
WORDS: Final = ("topology", "nodes", "fault")  # of the mark


def name_of(topology: str) -> str:
    """The fixture that is a topology's cluster for the session."""
    return PREFIX + topology.replace("-", "_")


@contextmanager
def _up(config: pytest.Config, topology: str, nodes: int | None = None) -> Iterator[Cluster]:
    cluster = Cluster(topology, nodes=nodes, say=lambda line: _say(config, line))
    try:
        cluster.start()
    except Unavailable as error:
        pytest.skip(f"no {topology}: {error}")
    try:
        yield cluster
    finally:
        cluster.stop()


def _say(config: pytest.Config, line: str) -> None:
    """Building an image takes minutes, so whoever waits is told. Workers of xdist have no
    terminal."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    if terminal is not None and capture is not None:
        with capture.global_and_fixture_disabled():
            terminal.ensure_newline()
            terminal.write_line(f"lockbench: {line}")


def _of_the_session(topology: str) -> Any:
    name = name_of(topology)

    @pytest.fixture(scope="session", name=name)
    def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
        with _up(pytestconfig, topology) as made:
            up = pytestconfig.stash[UP]
            up[name] = made
            yield made
            del up[name]

    cluster.__doc__ = f"A cluster {topology} for the session, emptied before every test."
    return cluster


def _of_the_test(topology: str) -> Any:
    @pytest.fixture(name=f"{name_of(topology)}_fresh")
    def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
        with _up(request.config, topology) as made:
            prepare(request.node, made, empty=False)
            yield made

    cluster.__doc__ = f"A cluster {topology} for this test alone."
    return cluster


for _topology in topologies():
    globals()[name_of(_topology)] = _of_the_session(_topology)
    globals()[f"{name_of(_topology)}_fresh"] = _of_the_test(_topology)


@pytest.fixture(name=CLUSTER)
def lockbench_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster that the test's mark asks for."""
    topology, nodes = request.param
    if nodes is not None:
        with _up(request.config, topology, nodes) as made:
            prepare(request.node, made, empty=False)
            yield made
        return
    name = name_of(topology)
    used_before = name in request.config.stash[UP]
    cluster: Cluster = request.getfixturevalue(name)
    prepare(request.node, cluster, empty=used_before)
    yield cluster


@pytest.fixture(name=FAULT)
def lockbench_fault(
    request: pytest.FixtureRequest, lockbench_cluster: Cluster
) -> AbstractContextManager[object]:
    """The fault that the test's mark asks for, to be entered while the service is at work."""
    if request.param == NONE:
        return nullcontext()
    return faults.inject(lockbench_cluster, request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for every topology and fault of its mark."""
    asked = metafunc.definition.get_closest_marker(MARK)
    words = {} if asked is None else asked.kwargs
    try:
        if asked is not None:
            _refuse_idle(metafunc, asked)
        if CLUSTER not in metafunc.fixturenames:
            return
        clusters = [(name, words.get("nodes")) for name in _several(words, "topology")]
        for name, nodes in clusters:
            Cluster(name, nodes=nodes)
        metafunc.parametrize(CLUSTER, clusters, indirect=True, ids=[name for name, _ in clusters])
        if FAULT in metafunc.fixturenames:
            named = _several(words, "fault")
            for name in named:
                parse(name)
            metafunc.parametrize(FAULT, named, indirect=True)
    except (BadInput, ScheduleError) as error:
        where = metafunc.definition.nodeid
        raise pytest.Collector.CollectError(f"{where}: {error}") from error


def _refuse_idle(metafunc: pytest.Metafunc, mark: pytest.Mark) -> None:
    """What a mark says and has no effect. That of a class or file may be for others. Raises
    BadInput."""
    strange = [*map(repr, mark.args), *(word for word in mark.kwargs if word not in WORDS)]
    if strange:
        raise BadInput(f"the mark takes {', '.join(WORDS)}, and not {', '.join(strange)}")
    if mark not in metafunc.definition.own_markers:
        return
    for word, fixture in (("topology", CLUSTER), ("nodes", CLUSTER), ("fault", FAULT)):
        if word in mark.kwargs and fixture not in metafunc.fixturenames:
            raise BadInput(
                f"its mark has {word}=, which only {fixture} takes: it uses no such fixture"
            )


def _several(words: Mapping[str, Any], what: str) -> list[str]:
    found = words.get(what)
    if not found:
        raise BadInput(
            f"it uses lockbench_cluster or lockbench_fault, so mark it with "
            f"@pytest.mark.lockbench({what}=…)"
        )
    return [found] if isinstance(found, str) else list(found)
