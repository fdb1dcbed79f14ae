"""A test on a real cluster that fails is run once more, and the summary names it (RERUN).

The engine, the servers and the other core's work decide when things happen there: a probe that came
too late says nothing about the product. What fails twice fails. Every other test has one try.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from lockbench.clusters.pods import toxiproxy
from lockbench.locks.shared import sidecar
from tests import command
from tests.budget import BUDGET, tries
from tests.leftovers import (  # noqa: F401 - hooks
    pytest_collection_finish,
    pytest_sessionfinish,
    pytest_sessionstart,
    pytest_terminal_summary,
)

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# On a busy machine the first draw of a strategy takes long, and so does any example.
settings.register_profile(
    "budget", max_examples=tries(25), deadline=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("budget")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("docker"):
            toxiproxy.CALL_TIMEOUT_S = 20.0  # a machine that stands still is no broken cluster
            item.add_marker(pytest.mark.flaky(reruns=1))
        if item.get_closest_marker("random") and BUDGET > 1:
            item.add_marker(pytest.mark.timeout(300 * BUDGET))


def pytest_configure() -> None:
    # A shell lets what it starts in the background ignore Ctrl-C, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_handler_is_left() -> Iterator[None]:
    """A command that a test calls in this process takes over the signals that end one. What a later
    test sends would be remembered as Ctrl-C, and end the whole run."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def _no_sidecar_is_left() -> Iterator[None]:
    yield
    sidecar.close_shared()
    command.end()
