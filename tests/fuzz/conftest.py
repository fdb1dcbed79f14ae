from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.server import Warm
from tests.fuzz.trying import bases, folders


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    with Warm() as process:
        yield process


@pytest.fixture(scope="session")
def made_bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bases(tmp_path_factory.mktemp("bases"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folders(tmp_path / "place")
    return tmp_path / "place"
