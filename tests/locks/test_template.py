"""A template forks sidecars that share nothing, or says that it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from lockbench.locks.base import Address, Denied
from lockbench.locks.shared.library import python_path
from lockbench.locks.shared.sidecar import Sidecar, SidecarError, SidecarLock
from lockbench.locks.shared.template import Template
from tests.eventually import eventually
from tests.locks.asking import Told

# Says how many acquires its process has seen, and which process it is.
COUNTS = """
import os
from lockbench_sidecar import Client, Denied, serve
seen = []
class Library(Client):
    def __init__(self, setup): pass
    def acquire(self, key, hold, ttl_s, wait_s):
        seen.append(key)
        return Denied(f"held: {len(seen)} {os.getpid()}")
    def release(self, hold, lock): pass
    def close(self): pass
"""
SERVES = 'serve("pip", Library)\n'
THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"


@contextmanager
def template(program: str) -> Iterator[Template]:
    command = [sys.executable, "-P", "-c", program]
    with Template(command, os.environ | {"PYTHONPATH": python_path()}) as made:
        yield made


def forked(of: Template) -> Sidecar:
    assert of.path is not None
    return Sidecar("it", ["never", "run"], template=of.path)


def asked(sidecar: Sidecar) -> str:
    """What its library says to the first acquire of a new client."""
    lock = SidecarLock(
        sidecar, [Address("127.0.0.1", 9)], timeout_s=1, ttl_s=3, observer=Told(), safe=False
    )
    said = lock.acquire("k", hold_id=1, ttl_s=3, wait_s=0)
    lock.close()
    assert isinstance(said, Denied)
    return said.reason


def test_each_sidecar_is_a_process_of_its_own_in_the_group_of_who_asked() -> None:
    with template(COUNTS + SERVES) as made:
        one, other = forked(made), forked(made)
        assert asked(one) == f"held: 1 {one.pid}"
        assert asked(other) == f"held: 1 {other.pid}"
        assert asked(one) == f"held: 2 {one.pid}"
        assert os.getpgid(one.pid) == os.getpgid(other.pid) == os.getpgrp()
        one.close()
        assert asked(other) == f"held: 2 {other.pid}"
        other.close()


def test_a_sidecar_that_is_closed_is_gone_and_leaves_no_descriptor() -> None:
    with template(COUNTS + SERVES) as made:
        before = psutil.Process().num_fds()
        one = forked(made)
        one.close()
        with pytest.raises(ProcessLookupError):
            os.kill(one.pid, 0)
        one.close()
        eventually(lambda: psutil.Process().num_fds() <= before)


# Asks for a sidecar, says which process that is, and is gone.
LEAVES = """
import os, sys
from lockbench.locks.shared.sidecar import Sidecar
print(Sidecar("it", [], template=sys.argv[1]).pid, flush=True)
os._exit(0)
"""


def test_a_sidecar_ends_when_who_asked_is_gone() -> None:
    with template(COUNTS + SERVES) as made:
        assert made.path is not None
        left = subprocess.check_output([sys.executable, "-c", LEAVES, made.path])
        eventually(lambda: not psutil.pid_exists(int(left)))


@pytest.mark.parametrize(
    "program", [THREAD + COUNTS + SERVES, "raise SystemExit(1)", 'print("hello")']
)
def test_what_cannot_fork_says_so(program: str) -> None:
    with template(program) as made:
        assert made.path is None


def test_a_template_that_has_ended_is_named() -> None:
    with template(COUNTS + SERVES) as made:
        pass
    with pytest.raises(SidecarError, match="cannot be reached"):
        forked(made)
