"""A writer of a recording that is really killed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Final

BEGIN: Final = """
import sys
from pathlib import Path
from lockbench.history.op import F, Type
from lockbench.history.recorder import Recorder
recorder = Recorder(Path(sys.argv[1]), 1)
"""
END: Final = """
print("written", flush=True)
sys.stdin.read()
"""


def record_and_die(folder: Path, statements: str) -> None:
    """Runs these statements, which use ``recorder`` (of worker 1), in a process that is then killed
    with all that it has open."""
    script = BEGIN + textwrap.dedent(statements) + END
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        writer.kill()
