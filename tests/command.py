"""The command line in a fork of a process that has imported everything: its exit code and what it
prints, without the seconds that a new Python takes.

For tests in which the start itself is what is tested (imports, the interpreter's end, a terminal) a
process of its own is started instead.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

LIMIT_S: Final = 120.0
# Imported once, so that a run costs a fork. The command line imports them where it needs them.
WARM: Final = (
    "lockbench.bench.replay",
    "lockbench.bench.suite",
    "lockbench.checker.drawing",
    "lockbench.cli.adr",
    "lockbench.cli.alerts",
    "lockbench.cli.main",
    "docker",  # urllib3 binds a socket on import, to see whether there is IPv6
    "lockbench.evidence.bugreport",
    "lockbench.evidence.check",
    "lockbench.evidence.compare",
    "lockbench.evidence.regress",
    "lockbench.evidence.systems",
    "lockbench.report.commands",
    "lockbench.report.exports",
    "lockbench.report.write",
)


def lockbench(
    *words: str, env: Mapping[str, str] | None = None, planted: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs ``lockbench`` with these words in the current folder, with nothing to read. ``planted``:
    Python that is run before, for what is wrong with a machine."""
    with tempfile.TemporaryDirectory() as folder:
        given = dict(os.environ if env is None else env)
        order = {
            "folder": folder, "cwd": str(Path.cwd()), "words": list(words), "env": given,
            "planted": planted,
        }  # fmt: skip
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        out, err = ((Path(folder) / name).read_text("utf-8", "replace") for name in ("out", "err"))
    return subprocess.CompletedProcess(words, code, out, err)


@cache
def _server() -> subprocess.Popen[str]:
    """Forks for every order. Not the test's own process: libraries with threads of their own, as
    the one that draws charts has, do not survive a fork once they were used."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.command"],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def end() -> None:
    """Ends the server, if there was need of one."""
    if _server.cache_info().currsize:
        _server().kill()
        _server().communicate()
        _server.cache_clear()


def serve() -> None:
    """Reads an order a line from standard input, and answers each with an exit code."""
    warm()
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(**order)
        print(_code(child), flush=True)  # noqa: T201 - the answer


def warm() -> None:
    """Imports what a command may need."""
    for name in WARM:
        importlib.import_module(name)


def _run(folder: str, cwd: str, words: Sequence[str], env: Mapping[str, str], planted: str) -> None:
    """In the child; never returns."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT), number)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = ["lockbench", *words]
        exec(planted, {})
        from lockbench.cli.main import main

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


if __name__ == "__main__":
    serve()
