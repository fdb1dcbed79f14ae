"""A warm process that runs the real command line in a fork of its own for every input, and tells
what became of it.

Guarantees for each run: at most ``CPU_S`` of computing, ``BLOCKED_S`` of waiting for nothing and
``DATA_BYTES`` of memory; no program is started, nothing is connected to and no signal is sent,
since the interpreter's audit hook ends the run first and says so. What it opened for writing
outside its folder, what it opened below ``outside`` and what code of the folder it executed is
noted. Does not see what a library of C opens by itself; the folder is therefore compared as well.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from lockbench.bench.pressure import scheduled_s
from tests.command import warm

ROOT: Final = Path(__file__).resolve().parents[2]
CPU_S: Final = 10
# Since it last used the processor: a busy machine is slow, and waits for nothing.
BLOCKED_S: Final = 10.0
WALL_S: Final = 120.0
RSS_BYTES: Final = 2 << 30
# Ends what takes memory without end, before the machine suffers. What is judged is the peak.
DATA_BYTES: Final = 3 << 30
STOPPED: Final = 99
STARTS: Final = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn")
ACTS: Final = ("os.kill", "os.killpg", "signal.pthread_kill", "socket.bind", "socket.sendto")
CHANGES: Final = (
    "os.chmod",
    "os.chown",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
    "os.utime",
    "shutil.rmtree",
)


@dataclass(frozen=True)
class Ended:
    """``code``: of the process, minus the signal's number. ``noted``: what the hook saw."""

    code: int
    wall_s: float
    cpu_s: float
    rss_bytes: int
    blocked: bool
    noted: tuple[str, ...]
    out: str
    err: str


class Warm:
    """The process that forks. Use it in a ``with`` block."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.server"],
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(
        self,
        folder: Path,
        argv: Sequence[str],
        entry: str = "lockbench.cli.main:main",
        *,
        out: str = "stdout",
        encoding: str = "utf-8",
        cpu_s: int = CPU_S,
        blocked_s: float = BLOCKED_S,
    ) -> Ended:
        """Runs a command in ``folder``/work. ``out``: where its standard output goes, ``closed`` or
        ``unread``. Raises EOFError if the warm process is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {
            "folder": str(folder),
            "argv": list(argv),
            "entry": entry,
            "out": out,
            "encoding": encoding,
            "cpu_s": cpu_s,
            "blocked_s": blocked_s,
        }
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise EOFError("the fork server is gone")
        told: dict[str, Any] = json.loads(line)
        noted = (folder / "noted").read_text(errors="replace").splitlines()
        out, err = (_tail(folder / name) for name in ("stdout", "stderr"))
        return Ended(**told, noted=tuple(dict.fromkeys(noted)), out=out, err=err)


def _tail(path: Path, most: int = 200_000) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read().decode("utf-8", "replace")


def serve() -> None:
    """Reads orders from standard input, one JSON object a line, and answers each with another."""
    warm()
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(_one(json.loads(line))) + "\n")
        answers.flush()


def _one(order: dict[str, Any]) -> dict[str, Any]:
    folder = Path(order["folder"])
    for name in ("stdout", "stderr", "noted"):
        (folder / name).write_bytes(b"")
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _run(folder, order)
    blocked = _wait(child, order["blocked_s"])
    # Whatever it started is in its session and ends with it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "wall_s": time.monotonic() - began,
        "cpu_s": used.ru_utime + used.ru_stime,
        "rss_bytes": used.ru_maxrss * 1024,
        "blocked": blocked,
    }


def _wait(child: int, blocked_s: float) -> bool:
    """Until it has ended, or waits for nothing: true then."""
    descriptor = os.pidfd_open(child)
    try:
        began = moved = time.monotonic()
        used = 0
        while not select.select([descriptor], [], [], 0.25)[0]:
            now = time.monotonic()
            state, ticks = _scheduled(child)
            # On a busy machine it waits for a processor or the disk, which is not its fault.
            if ticks != used or state in "RD":
                used, moved = ticks, now
            if now - moved > blocked_s or now - began - (scheduled_s(child)[1] or 0.0) > WALL_S:
                return True
        return False
    finally:
        os.close(descriptor)


def _scheduled(child: int) -> tuple[str, int]:
    """The state of a process, and the ticks that it has computed for."""
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[11]) + int(fields[12])


def _streams(folder: Path, out: str, encoding: str) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(folder / "stderr", os.O_WRONLY | os.O_TRUNC), 2)
    sys.stderr = open(2, "w", 1, encoding=encoding, closefd=False)  # noqa: SIM115
    if out == "closed":
        os.close(1)
        sys.stdout = None
        return
    if out == "unread":
        ends = os.pipe()
        os.close(ends[0])
        os.dup2(ends[1], 1)
    else:
        os.dup2(os.open(folder / out, os.O_WRONLY | os.O_TRUNC), 1)
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115


def _run(folder: Path, order: dict[str, Any]) -> None:
    """In the child; never returns."""
    os.setsid()
    sys.dont_write_bytecode = True  # what is imported here for the first time is not its doing
    os.environ |= {
        "DOCKER_HOST": f"unix://{folder}/nobody",
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "XDG_RUNTIME_DIR": str(folder / "tmp"),
    }
    import tempfile

    tempfile.tempdir = None
    os.chdir(folder / "work")
    sys.argv = ["lockbench", *order["argv"]]
    resource.setrlimit(resource.RLIMIT_CPU, (order["cpu_s"], order["cpu_s"] + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_Hook(folder))
    _streams(folder, order["out"], order["encoding"])
    code = 0
    try:
        module, _, name = order["entry"].partition(":")
        getattr(importlib.import_module(module), name)()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        code = 1
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except Exception:  # noqa: BLE001 - as the interpreter does
        code = 120
    os._exit(code & 0xFF)


class _Hook:
    """Notes what a run does beyond its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder)
        self._outside = os.path.join(self._folder, "outside")  # noqa: PTH118 - called very often
        self._noted = os.open(folder / "noted", os.O_WRONLY | os.O_APPEND)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            self._opened(args)
        elif event == "exec":
            name = str(getattr(args[0], "co_filename", ""))
            if not name.startswith("<") and self._real(name).startswith(self._folder):
                if self._is_asked_lock(name):
                    os._exit(STOPPED)
                self._stop(f"executed {name}")
        elif event in STARTS or event in ACTS:
            self._stop(f"{event} {str(args[:2])[:300]}")
        elif event == "socket.connect":
            if not str(args[1]).startswith(self._folder):
                self._stop(f"connected to {args[1]!r}"[:300])
        elif (
            event in CHANGES
            and isinstance(args[0], str | bytes | os.PathLike)
            # It is told before it is tried: what is there is not made.
            and not (event == "os.mkdir" and os.path.lexists(args[0]))
        ):
            self._wrote(event, os.fspath(args[0]))

    def _is_asked_lock(self, name: str) -> bool:
        """Whether the user's own words name this file as a lock: it may run."""
        places = [
            word.partition(":")[0]
            for option, word in zip(sys.argv, sys.argv[1:], strict=False)
            if option == "--lock"
        ]
        return self._real(name) in [self._real(place) for place in places if place]

    def _opened(self, args: tuple[Any, ...]) -> None:
        path, _, flags = args
        if not isinstance(path, str | bytes | os.PathLike):
            return
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            self._wrote("open", os.fspath(path))
        # What the user names may be a link, and so may what is where he stands; what is in a folder
        # may not lead out.
        elif self._real(os.fspath(path)).startswith(self._outside) and (
            path not in sys.argv
            and os.path.dirname(path)  # noqa: PTH120 - called very often
            and not any(
                os.path.islink(word) and os.fsdecode(path).startswith(f"{word}/")  # noqa: PTH114
                for word in sys.argv
            )
        ):
            self._note(f"followed a link to {os.fspath(path)!r}")

    def _wrote(self, how: str, path: str | bytes) -> None:
        real = self._real(path)
        if not real.startswith((self._folder, "/dev/", "/proc/")) or real.startswith(self._outside):
            self._note(f"changed {real!r} ({how})")

    @staticmethod
    def _real(path: str | bytes) -> str:
        try:
            return os.path.realpath(os.fsdecode(path))
        except (OSError, ValueError):
            return ""

    def _note(self, text: str) -> None:
        os.write(self._noted, text.encode("utf-8", "backslashreplace").replace(b"\n", b" ") + b"\n")

    def _stop(self, text: str) -> None:
        self._note(text)
        os._exit(STOPPED)


if __name__ == "__main__":
    serve()
