"""Machines that are namespaces of this one: a network and a clock of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache, reduce
from pathlib import Path

BIN = str(Path(sys.executable).parent)
SCRIPT = """#!/bin/sh
# OFFSET_S COMMAND…: with a clock that is so far ahead, and a loopback of its own
offset=$1
shift
exec unshare --net --mount --time --monotonic "$offset" --boottime "$offset" --fork --kill-child \
    sh -c 'ip link set lo up && {disk} && exec "$@"' \
    sh env "PATH={bin}:$PATH" "TMPDIR={folder}" "$@"
"""


@cache
def why_not() -> str | None:
    """Why there can be no namespaces here, or None."""
    if os.geteuid() != 0:
        return "network and time namespaces need root"
    tried = subprocess.run(
        ["unshare", "--net", "--time", "--monotonic", "1", "--fork", "ip", "link", "show", "lo"],
        capture_output=True,
        check=False,
    )
    return f"no namespaces: {tried.stderr.decode().strip()}" if tried.returncode else None


def machines_file(folder: Path, disk: str = "", **machines: tuple[int, int]) -> Path:
    """Names of machines → (how many seconds their clocks are ahead, how many workers). ``disk``:
    how large each of their disks is, such as ``300k``; without it, as this machine's."""
    script = folder / "on"
    own = f"mount -t tmpfs -o size={disk} none {folder}" if disk else ":"
    words = {"{bin}": BIN, "{folder}": str(folder), "{disk}": own}
    script.write_text(reduce(lambda text, word: text.replace(*word), words.items(), SCRIPT))
    script.chmod(0o755)
    return written(folder, {name: (f"{script} {at}", n) for name, (at, n) in machines.items()})


def written(folder: Path, machines: dict[str, tuple[str, int]]) -> Path:
    """Names → (command, how many workers)."""
    file = folder / "m.toml"
    file.write_text(
        "".join(
            f"[[machine]]\nname = {name!r}\nrun = {json.dumps(run)}\nworkers = {workers}\n\n"
            for name, (run, workers) in machines.items()
        )
    )
    return file
