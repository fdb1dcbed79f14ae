"""A test on a real cluster that fails is run once more, and the summary names it (RERUN).

The engine, the servers and the other core's work decide when things happen there: a probe that came
too late says nothing about the product. What fails twice fails. Every other test has one try.
"""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("docker"):
            item.add_marker(pytest.mark.flaky(reruns=1))
