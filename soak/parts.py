"""The processes of a bench, by what they are, as the kernel tells them from outside.

The fork server is known by its command, and what it forked by the log that it writes. Guarantees:
no process is named that does not descend from the bench. Who is just being forked is not named yet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil

BENCH: Final = "bench"
FORK_SERVER: Final = "fork server"


def parts(bench: int) -> dict[str, psutil.Process]:
    """Name → process: the bench, its fork server, ``master``, ``worker-N`` and ``resource``. Empty
    when the bench is gone."""
    found: dict[str, psutil.Process] = {}
    try:
        found[BENCH] = psutil.Process(bench)
        descendants = found[BENCH].children(recursive=True)
    except psutil.Error:
        return {}
    for process in descendants:
        try:
            output = Path(f"/proc/{process.pid}/fd/1").readlink()
            if output.suffix == ".log":
                found[output.stem] = process
            elif process.ppid() == bench and "lockbench.workloads.fork_server" in process.cmdline():
                found[FORK_SERVER] = process
        except (psutil.Error, OSError):
            continue
    return found


def anonymous_bytes(process: psutil.Process) -> int | None:
    """The memory of a process that no file backs (a recording is mapped, and grows by design);
    None when it is gone."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return None
