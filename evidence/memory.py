"""Keeps a command within the memory of the machine: a MemoryError instead of the kernel's kill.

A process that takes more than there is gets killed from outside, without a word. Inside ``bounded``
the allocation fails instead, and the caller can say so. Only Linux can do it; elsewhere nothing is
bounded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

USED_AT_MOST: Final = 0.9  # of what is available now; other processes need some of it
GROUP: Final = Path("/sys/fs/cgroup")  # inside a container the limit is the group's


@contextmanager
def bounded() -> Iterator[None]:
    """Limits the data of this process to what it has and what is available now."""
    if sys.platform != "linux":
        yield
        return
    import resource

    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [psutil.Process().memory_info().data + int(available() * USED_AT_MOST), before, most]
    limit = min(limit for limit in limits if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


def available() -> int:
    """Bytes that this process could still take."""
    machine: int = psutil.virtual_memory().available
    try:
        most = int((GROUP / "memory.max").read_text(encoding="ascii"))
        used = int((GROUP / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no group, or one without a limit ("max")
        return machine
    return max(0, min(machine, most - used))
