"""The conformance tests once more in a process whose sockets, threads and select are gevent's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.locks.conftest import NODES, Running, every_system

HERE = Path(__file__).resolve().parent
# They differ from another lock in what they send, not in how they wait or connect.
VARIANTS = {
    "redis-fence",
    "redis-reentrant",
    "redis-setnx",
    "redis-sentinel-wait",
    "redlock-fence",
    "zookeeper-herd",
    "postgres-for-update",
    # It waits and connects as its two parts.
    "hybrid-redis-confirmed-by-zookeeper",
    # Their libraries do not see gevent.
    "etcd-concurrency-is-owner",
    "etcd3gw-safe",
    "kazoo-safe",
    "redis-py-safe",
    "redisson-rlock-safe",
    "zookeeper-read-write",
    "zookeeper-semaphore:permits=1",
}
SCRIPT = """
from gevent import monkey
monkey.patch_all()
import sys, pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_same_under_gevent(running: Callable[[str], Running]) -> None:
    systems = [system for system in every_system() if system.name not in VARIANTS]
    topologies = {system.topologies[0] for system in systems}
    chosen = " or ".join(f"[{system.name}]" for system in systems)
    nodes = {topology: running(topology).nodes for topology in topologies}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT,
            str(HERE / "test_conformance.py"),
            "-q",
            "-p",
            "no:cacheprovider",
            # Their holder is a process of its own, without gevent; they have been run already.
            "-k",
            f"not frozen and not killed and ({chosen})",
        ],
        cwd=HERE.parent.parent,
        env={**os.environ, NODES: json.dumps(nodes)},
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
