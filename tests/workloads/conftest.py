"""The loads of a session share one fork server, which ends with the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.workloads import playing


@pytest.fixture(scope="session", autouse=True)
def _fork_server() -> Iterator[None]:
    yield
    if playing.fork_server.cache_info().currsize:
        playing.fork_server().__exit__(None, None, None)
        playing.fork_server.cache_clear()
