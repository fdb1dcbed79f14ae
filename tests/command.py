"""The command line in a fork of the test's own process: its exit code and what it prints, without
the seconds that a new Python takes to import everything.

For tests in which the start itself is what is tested (imports, the interpreter's end, a terminal) a
process of its own is started instead.
"""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

LIMIT_S: Final = 120.0
# Imported once, so that a run costs a fork. The command line imports them where it needs them.
WARM: Final = (
    "bench.replay",
    "bench.suite",
    "checker.drawing",
    "cli.adr",
    "cli.alerts",
    "cli.main",
    "docker",  # urllib3 binds a socket on import, to see whether there is IPv6
    "evidence.bugreport",
    "evidence.check",
    "evidence.compare",
    "evidence.regress",
    "evidence.systems",
    "report.commands",
    "report.exports",
    "report.write",
)


def lockbench(
    *words: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs ``lockbench`` with these words in the current folder, with nothing to read."""
    warm()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        child = os.fork()
        if child == 0:
            _run(folder, words, env)
        code = _code(child)
        out, err = ((folder / name).read_text("utf-8", "replace") for name in ("out", "err"))
    return subprocess.CompletedProcess(words, code, out, err)


@cache
def warm() -> None:
    """Imports what a command may need."""
    for name in WARM:
        importlib.import_module(name)


def _run(folder: Path, words: tuple[str, ...], env: Mapping[str, str] | None) -> None:
    """In the child; never returns."""
    code = 1
    try:
        gc.freeze()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), number)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        sys.argv = ["lockbench", *words]
        from cli.main import main

        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _code(child: int) -> int:
    end = time.monotonic() + LIMIT_S
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, 9)
        time.sleep(0.005)
