"""The processes of this machine, by what their environment says.

Not by ``psutil.process_iter``: it keeps what it found under a number, and a process that has the
number of one that ended would be taken for that one, and could be given no signal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lockbench.declarations.lazy import lazy

if TYPE_CHECKING:
    import psutil
else:
    psutil = lazy("psutil")


def marked(variable: str) -> Iterator[tuple[psutil.Process, str]]:
    """Each process that was started with this variable, and its value. Those that end meanwhile,
    and those whose environment this user may not read, are left out."""
    for pid in psutil.pids():
        try:
            process = psutil.Process(pid)
            value = process.environ().get(variable)
        except (psutil.Error, OSError):
            continue
        if value:
            yield process, value
