"""Who owns a container: the labels that everything of ours carries, and whether the owner lives.

A process is named by its number, its start time in clock ticks since boot (numbers are used again),
and the place where that number means something: host name with the machine's identity, boot,
process namespace. A start time in ticks does not move when the wall clock is set.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

OURS = "lockbench"
RUN = "lockbench.run"
OWNER = "lockbench.owner"
CLUSTER = "lockbench.cluster"
CLIENTS = "clients"  # in the place of a cluster, for client containers
# In the environment of our processes: the run, and after an @ its owner.
RUN_ENVIRONMENT = "LOCKBENCH_RUN"

_PR_SET_PDEATHSIG = 1
# Of the time namespace that a machine starts with (PROC_TIME_INIT_INO of the kernel).
_USUAL_TIME = "time:[4026531834]"
_MACHINE_ID = Path("/etc/machine-id")
_MACHINE_CHARS = 12
_libc = ctypes.CDLL(None, use_errno=True)

# In /proc/<pid>/stat, counted after the command in brackets: state and start time.
_STATE = 0
_START_TIME = 19


def labels(run_id: str, cluster: str) -> dict[str, str]:
    """Return what marks an object as this process' own."""
    return {OURS: "1", RUN: run_id, CLUSTER: cluster, OWNER: me()}


def me() -> str:
    """Name this process as ``pid:start:place``."""
    pid = os.getpid()
    return f"{pid}:{start_ticks(pid)}:{place()}"


def place() -> str:
    """Name what process numbers and their start times are valid in: ``host/boot/namespace``. The
    kernel tells start times by the clock of who asks, so a time namespace belongs to it. Several
    machines may have one host name: behind it, after a ``+``, stands their identity, if any."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    pids, times = (str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("pid", "time"))
    offset = "" if times == _USUAL_TIME else f".{times.strip('time:[]')}"
    return f"{socket.gethostname()}{_machine()}/{boot}/{pids.strip('pid:[]')}{offset}"


def _machine() -> str:
    try:
        found = _MACHINE_ID.read_text(encoding="ascii").strip()[:_MACHINE_CHARS]
    except (OSError, ValueError):
        return ""
    return f"+{found}" if found else ""


def start_ticks(pid: int) -> int | None:
    """Return when a process started; None when there is none, or when it is a zombie."""
    fields = _stat(pid)
    return None if fields is None else int(fields[_START_TIME])


def is_stopped(pid: int) -> bool | None:
    """Tell whether a signal has stopped a process; None when it has ended."""
    fields = _stat(pid)
    return None if fields is None else fields[_STATE] == "T"


def _stat(pid: int) -> list[str] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE] in "ZX" else fields


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that made it ends, however that ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def is_dead(owner: str) -> bool:
    """Tell whether the owner has certainly ended. When that cannot be known from here, it lives."""
    pid, _, rest = owner.partition(":")
    start, _, where = rest.partition(":")
    if not (pid.isdigit() and start.isdigit() and where.count("/") == 2):
        return False
    host, boot, namespace = where.split("/")
    my_host, my_boot, my_namespace = place().split("/")
    if host != my_host:
        return False
    if boot != my_boot:  # of this machine, or of another one with its name
        return "+" in host
    return namespace == my_namespace and start_ticks(int(pid)) != int(start)


def kill(owner: str) -> None:
    """SIGKILL, and nobody else gets it who has the number by now. Nothing is done, and no error,
    where the owner has ended or is named as elsewhere."""
    with suppress(OSError, ValueError):
        held = os.pidfd_open(int(owner.partition(":")[0]))
        try:
            if owner.endswith(f":{place()}") and not is_dead(owner):
                signal.pidfd_send_signal(held, signal.SIGKILL)
        finally:
            os.close(held)


def orphaned(labels_: Mapping[str, str]) -> bool:
    """Tell whether an object is ours and its owner has certainly ended."""
    return labels_.get(OURS) == "1" and is_dead(labels_.get(OWNER, ""))
