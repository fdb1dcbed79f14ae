"""``lockbench doctor`` and ``lockbench clean``: what is missing here, and what was left behind."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import psutil
from rich.console import Console

from lockbench.clusters import images
from lockbench.clusters.engine.docker import Engine, EngineError
from lockbench.clusters.engine.reaper import reap
from lockbench.results.errors import BAD_INPUT, BadInput
from lockbench.workloads.fleet import leftovers

PYTHON_MIN = (3, 11)
DISK_FREE_MIN_GB = 5
MEMORY_MIN_GB = 4


def doctor(console: Console) -> int:
    """Prints one line per need; returns 0 when nothing is missing, else 254. An image that is not
    built yet is not missing."""
    checks = [_python(), _machine(), *_engine()]
    for good, line in checks:
        console.print(f"{'ok     ' if good else 'missing'}  {line}", soft_wrap=True)
    return 0 if all(good for good, _ in checks) else BAD_INPUT


def clean(console: Console, *, old_images: bool = False) -> None:
    """Removes whatever has no living owner, and on demand those of our images that today's recipes
    do not give; says what it was. Raises BadInput without an engine."""
    processes = leftovers()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
        console.print(f"ended process {process.pid}")
    try:
        removed = reap(must=True)
        if old_images:
            removed += [f"removed image {ref}" for ref in images.remove_old(Engine())]
    except EngineError as error:
        raise BadInput(str(error)) from error
    for line in removed:
        console.print(line)
    if not processes and not removed:
        console.print("nothing was left behind")


def _python() -> tuple[bool, str]:
    version = ".".join(map(str, sys.version_info[:3]))
    return sys.version_info >= PYTHON_MIN, f"Python {version} (3.11 or newer is needed)"


def _machine() -> tuple[bool, str]:
    free = psutil.disk_usage(str(Path.cwd())).free / 2**30
    memory = psutil.virtual_memory().total / 2**30
    good = free >= DISK_FREE_MIN_GB and memory >= MEMORY_MIN_GB
    return good, (
        f"{free:.0f} GiB of disk free ({DISK_FREE_MIN_GB} needed), "
        f"{memory:.0f} GiB of memory ({MEMORY_MIN_GB} needed), {psutil.cpu_count()} cores"
    )


def _engine() -> list[tuple[bool, str]]:
    try:
        engine = Engine()
        lines = [(True, f"Docker engine {engine.version()}")]
        for name in images.server_names():
            built = images.is_current(engine, name)
            todo = "" if built else ": the first case that needs it builds it"
            lines.append((True, f"image {name}{todo}"))
    except EngineError as error:
        return [(False, str(error))]
    return lines
