"""Facts of the machine and of the installed libraries: what a number is worth depends on them.

Nothing here identifies the machine or its owner: no host name, no addresses, no paths.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import time
from importlib import metadata
from pathlib import Path
from typing import Final

import numpy as np
import psutil

from lockbench.results.documents import Machine, Quantiles
from lockbench.results.quantiles import quantiles

FSYNC_WRITES: Final = 1000  # p99 needs as many
FSYNC_WRITES_MIN: Final = 200
FSYNC_SECONDS_MAX: Final = 4.0
FSYNC_BYTES: Final = 512
LOOPS: Final = 100
LOOP_STEPS: Final = 100_000
PACKAGE: Final = "lockbench"
# What Docker, Podman and systemd-nspawn leave for a process to see.
CONTAINER_MARKS: Final = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")


def facts(folder: Path, *, engine: str | None = None) -> Machine:
    """Everything about the machine that decides numbers; takes up to four seconds of fsync, and
    less than one of computing.

    ``folder`` is where the run is stored; the disk below it is measured. ``engine`` is the version
    of the container engine, which only ``clusters`` may ask for.
    """
    memory = psutil.virtual_memory()
    return Machine(
        cpu=cpu_model(),
        cores=psutil.cpu_count(logical=True),
        cores_usable=len(os.sched_getaffinity(0)),
        cores_limit=_cpu_limit(),
        memory_bytes=memory.total,
        memory_available_bytes=memory.available,
        kernel=platform.release(),
        architecture=platform.machine(),
        os=_os_name(),
        python=platform.python_version(),
        engine=engine,
        load_average=os.getloadavg(),
        virtual=tuple(virtualization()),
        fsync_ms=fsync_ms(folder),
        loop_ms=loop_ms(),
    )


def versions() -> dict[str, str | None]:
    """Library → installed version, of those that Lockbench pins (None: pinned, not installed)."""
    found: dict[str, str | None] = {}
    with contextlib.suppress(metadata.PackageNotFoundError):
        for requirement in metadata.requires(PACKAGE) or ():
            if "extra ==" in requirement:
                continue
            name = re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0]
            found[name] = _version_of(name)
        found[PACKAGE] = _version_of(PACKAGE)
    return dict(sorted(found.items()))


def fsync_ms(folder: Path) -> Quantiles:
    """Quantiles in ms of a 512-byte append and fdatasync, what a consensus log does for each entry.

    1,000 of them so that p99 means something; a disk so slow that this would take more than four
    seconds gets fewer, at least 200, and then no p99 but a maximum.
    """
    path = folder / f".fsync.{os.getpid()}.tmp"
    block = b"\0" * FSYNC_BYTES
    took: list[int] = []
    begun = time.monotonic()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        while len(took) < FSYNC_WRITES and (
            len(took) < FSYNC_WRITES_MIN or time.monotonic() - begun < FSYNC_SECONDS_MAX
        ):
            at = time.perf_counter_ns()
            os.write(file, block)
            os.fdatasync(file)
            took.append(time.perf_counter_ns() - at)
    finally:
        os.close(file)
        path.unlink()
    return quantiles(np.array(took, np.int64), 1e6)


def loop_ms() -> Quantiles:
    """Quantiles in ms of a loop of 100,000 additions, a hundred times. A virtual machine may be
    half as fast as another that says the same of itself, or as itself on another day."""
    took: list[int] = []
    for _ in range(LOOPS):
        at = time.perf_counter_ns()
        sum(range(LOOP_STEPS))
        took.append(time.perf_counter_ns() - at)
    return quantiles(np.array(took, np.int64), 1e6)


def cpu_model() -> str:
    """As the kernel names it; the architecture where it does not (arm64)."""
    for line in _lines(Path("/proc/cpuinfo")):
        name, _, value = line.partition(":")
        if name.strip() in {"model name", "Model"}:
            return " ".join(value.split())
    return platform.machine()


def virtualization() -> list[str]:
    """``vm`` and ``container`` as far as a process can tell cheaply; both share their cores."""
    found = []
    cpu = _lines(Path("/proc/cpuinfo"))
    if any(line.startswith("flags") and " hypervisor" in line for line in cpu):
        found.append("vm")
    if any(Path(mark).exists() for mark in CONTAINER_MARKS):
        found.append("container")
    return found


def describe(machine: Machine) -> str:
    """The machine in one line, for under a table."""
    fsync, loop = (found or Quantiles() for found in (machine.fsync_ms, machine.loop_ms))
    disk = f"fsync p99 {fsync.p99:.1f} ms" if fsync.p99 is not None else None
    if disk is None and fsync.max is not None:
        disk = f"fsync max {fsync.max:.1f} ms of {fsync.count}"
    cores, limit = machine.cores_usable, machine.cores_limit
    parts = [
        machine.cpu,
        None if cores is None else f"{cores} cores" + (f" (limit {limit:g})" if limit else ""),
        f"{machine.memory_bytes / 2**30:.0f} GiB" if machine.memory_bytes else None,
        machine.os,
        f"kernel {machine.kernel}" if machine.kernel else None,
        " in ".join(reversed(machine.virtual or ())) or None,
        f"Docker {machine.engine}" if machine.engine else None,
        disk,
        f"loop p50 {loop.p50:.2f} ms" if loop.p50 is not None else None,
    ]
    return ", ".join(str(part) for part in parts if part)


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu_limit() -> float | None:
    """Cores that the control group allows, None without a limit."""
    for line in _lines(Path("/sys/fs/cgroup/cpu.max")):
        quota, _, period = line.partition(" ")
        if quota.isdigit() and period.strip().isdigit():
            return int(quota) / int(period)
    return None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
