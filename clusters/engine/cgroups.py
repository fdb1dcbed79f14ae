"""What a container takes and has used, from the kernel's own counters of its control group.

Read from the files of cgroups v1 or v2, because Docker's own API answers such questions once a
second. Guarantees: the numbers are those of this container, or None. They are None where the
engine runs on another machine or the control groups are hidden from this process.
https://docs.kernel.org/admin-guide/cgroup-v2.html, .../cgroup-v1/cpuacct.html, .../memory.html,
https://docs.kernel.org/accounting/psi.html
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

GROUPS: Final = Path("/sys/fs/cgroup")
PROCESSES: Final = Path("/proc")


def cpu_ns(pid: int, container: str, *, groups: Path = GROUPS, of: Path = PROCESSES) -> int | None:
    """CPU time of every process that was ever in the container's group, user and system."""
    path = _groups(pid, container, of)
    try:
        if "cpuacct" in path:
            return int((groups / "cpuacct" / path["cpuacct"] / "cpuacct.usage").read_text())
        return 1000 * _fields(groups / path[""] / "cpu.stat")["usage_usec"]
    except (OSError, KeyError, ValueError):
        return None


def memory_bytes(
    pid: int, container: str, *, groups: Path = GROUPS, of: Path = PROCESSES
) -> int | None:
    """Memory of the group without file pages that the kernel would drop first, as ``docker stats``
    counts it."""
    path = _groups(pid, container, of)
    try:
        if "memory" in path:
            folder = groups / "memory" / path["memory"]
            used, droppable = "memory.usage_in_bytes", "total_inactive_file"
        else:
            folder = groups / path[""]
            used, droppable = "memory.current", "inactive_file"
        return int((folder / used).read_text()) - _fields(folder / "memory.stat")[droppable]
    except (OSError, KeyError, ValueError):
        return None


def pressure_s(
    pid: int, container: str, resource: str, *, groups: Path = GROUPS, of: Path = PROCESSES
) -> float | None:
    """How long some thread of the group waited for a resource (PSI: cpu, io, memory). Groups of v2
    have it, also where they stand beside those of v1."""
    path = _groups(pid, container, of).get("")
    if path is None:
        return None
    beside = (mount / path / f"{resource}.pressure" for mount in (groups, groups / "unified"))
    return next((found for file in beside if (found := some_s(file)) is not None), None)


def some_s(file: Path) -> float | None:
    """The sum of the line ``some`` of a file of PSI, in seconds."""
    try:
        some = file.read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return None


def threads(pid: int, container: str) -> tuple[int, ...]:
    """The numbers of all threads in the group; none where they cannot be read."""
    path = _groups(pid, container, PROCESSES)
    try:
        if "cpuacct" in path:
            said = (GROUPS / "cpuacct" / path["cpuacct"] / "tasks").read_text()
        else:
            said = (GROUPS / path[""] / "cgroup.threads").read_text()
        return tuple(map(int, said.split()))
    except (OSError, KeyError, ValueError):
        return ()


def _groups(pid: int, container: str, processes: Path) -> dict[str, str]:
    """Controller → path below its mount, of a process that is in this container; "" is v2."""
    try:
        lines = (processes / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if container in path:
            found |= {name: path.lstrip("/") for name in controllers.split(",")}
    return found


def _fields(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {name: int(value) for name, value in lines}
