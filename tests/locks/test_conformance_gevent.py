"""The conformance tests once more in a process whose sockets, threads and select are gevent's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockbench.bench.duties import DUTIES, Running
from lockbench.locks.base import System
from tests.locks.conftest import NODES, every_system

HERE = Path(__file__).resolve().parent
SCRIPT = """
from gevent import monkey
monkey.patch_all()
import sys, pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def ways_to_acquire() -> list[System]:
    """One lock for each ``acquire`` on each topology: gevent changes how it waits and connects, not
    what it sends. Libraries run in other processes, which do not see gevent."""
    found: dict[object, System] = {}
    for system in every_system():
        if system.prepare is None:
            plain: Any = getattr(system.connect, "func", system.connect)  # one with parameters
            found.setdefault((system.topologies[0], plain.acquire), system)
    return list(found.values())


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(520)
def test_the_same_under_gevent(running: Callable[[str], Running]) -> None:
    systems = ways_to_acquire()
    topologies = {system.topologies[0] for system in systems}
    # Their holder is a process of its own, without gevent; they have been run already.
    duties = [duty for duty in DUTIES if not re.search("frozen|killed", duty.name)]
    file = HERE / "test_conformance.py"
    nodes = {topology: running(topology).nodes for topology in topologies}
    done = subprocess.run(
        [
            *(sys.executable, "-c", SCRIPT, "-q", "-p", "no:cacheprovider"),
            *(
                f"{file}::test_it_is_owed[{system.name}/{duty.name}]"
                for system in systems
                for duty in duties
            ),
        ],
        cwd=HERE.parent.parent,
        env={**os.environ, NODES: json.dumps(nodes)},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
