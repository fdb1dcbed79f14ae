"""The guarded resource applies everything in order and keeps a log of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lockbench.history.op import NULL, F
from lockbench.history.recording import records_of
from lockbench.workloads.resource import Resource


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, int]]:
    port_file = tmp_path / "port"
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "lockbench.workloads.resource_server",
            str(port_file),
            str(tmp_path / "log"),
        ]
    ) as process:
        end = time.monotonic() + 20
        while not port_file.exists() and time.monotonic() < end:
            time.sleep(0.01)
        yield "127.0.0.1", int(port_file.read_text())
        process.terminate()


def test_versions_grow_by_one_with_every_write_and_stale_ones_are_applied(
    server: tuple[str, int], tmp_path: Path
) -> None:
    with closing(Resource(server)) as a, closing(Resource(server)) as b:
        assert a.read("k0", 1)[0] == 0
        assert b.read("k0", 2)[0] == 0
        assert b.write("k0", 2, 0, 18)[0] == 1
        made, applied_ns = a.write("k0", 1, 0, None)
        assert made == 2
        assert abs(time.monotonic_ns() - applied_ns) < 10e9
        assert a.read("other", 1)[0] == 0
    log = records_of(tmp_path / "log" / "2000.0.ops", 0)
    assert log["f"].tolist() == [F.READ, F.READ, F.WRITE, F.WRITE, F.READ]
    assert log["hold"].tolist() == [1, 2, 2, 1, 1]
    assert log["fence"].tolist() == [NULL, NULL, 18, NULL, NULL]
    assert (log["applied_ns"][1:] >= log["applied_ns"][:-1]).all()
