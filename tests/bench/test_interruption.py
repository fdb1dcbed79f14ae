"""Ctrl-C, SIGTERM and SIGHUP interrupt alike, once; what is held is not cut off, nothing is
forgotten."""

from __future__ import annotations

import ast
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from lockbench.bench import interruption

START = """
import os, signal, sys, time
from bench import interruption
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever these tests run under
"""

SWALLOWED = """
interruption.arm()
try:
    interruption.raise_if_asked()  # nothing was asked yet

    class Dropped:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):
                pass

    Dropped()
    print("dropped")
    interruption.raise_if_asked()
except KeyboardInterrupt:
    print("interrupted")
"""

AGAIN = """
interruption.arm()
number = getattr(signal, sys.argv[1])
try:
    os.kill(os.getpid(), number)
    print("went on")
except KeyboardInterrupt:
    for again in (number, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), again)
    print("cleared away")
"""

HELD = """
interruption.arm()
try:
    with interruption.held():
        with interruption.held():
            os.kill(os.getpid(), signal.SIGTERM)
            print("inner")
        print("outer")
    print("went on")
except KeyboardInterrupt:
    print("interrupted")
"""

HELD_AND_FAILED = """
interruption.arm()
try:
    with interruption.held():
        os.kill(os.getpid(), signal.SIGTERM)
        raise ValueError
except ValueError:
    print("its own error")
try:
    interruption.raise_if_asked()
except KeyboardInterrupt:
    print("interrupted")
"""

OVER = """
interruption.arm()
assert interruption.cleared() is None
interruption.raise_if_asked()  # nothing was asked
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    os.kill(os.getpid(), number)

class Last:
    def __del__(self, kill=os.kill, me=os.getpid(), number=signal.SIGINT):
        kill(me, number)

kept = sys.modules["kept until the end"] = Last()
print("went on")
"""

IGNORED = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
interruption.arm()
os.kill(os.getpid(), signal.SIGHUP)
interruption.raise_if_asked()
print("went on")
"""

CLOSED = """
interruption.arm()
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    for stream in (sys.stdout, sys.stderr):
        print("nobody reads this", file=stream, flush=True)
    open(sys.argv[1], "w").write("cleared away")
"""


@pytest.mark.parametrize(
    ("program", "words", "lines"),
    [
        # An interruption inside a finalizer still interrupts.
        (SWALLOWED, (), ["dropped", "interrupted"]),
        # All three signals interrupt once.
        *((AGAIN, (name,), ["cleared away"]) for name in ("SIGINT", "SIGTERM", "SIGHUP")),
        # What is held comes to its end first.
        (HELD, (), ["inner", "outer", "interrupted"]),
        # An error in what is held is not hidden, and the signal is not forgotten.
        (HELD_AND_FAILED, (), ["its own error", "interrupted"]),
        # A program that has cleared away ends as it was going to.
        (OVER, (), ["went on"]),
        # nohup is heeded.
        (IGNORED, (), ["went on"]),
    ],
    ids=["finalizer", "int", "term", "hup", "held", "held and failed", "over", "nohup"],
)
def test_an_interruption_comes_once_and_cuts_nothing_off(
    program: str, words: tuple[str, ...], lines: list[str]
) -> None:
    command = [sys.executable, "-c", START + program, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == lines


def test_a_closed_terminal_does_not_stop_the_clearing_away(tmp_path: Path) -> None:
    """The kernel sends SIGHUP, and what is written to the terminal from then on is an error."""
    ours, its = pty.openpty()
    done = tmp_path / "done"
    child = subprocess.Popen(
        [sys.executable, "-c", START + CLOSED, str(done)],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        preexec_fn=_take_terminal,  # noqa: PLW1509 - no other thread forks here
    )
    os.close(its)
    assert os.read(ours, 100).startswith(b"ready")
    os.close(ours)
    assert child.wait(timeout=60) == 0
    assert done.read_text() == "cleared away"


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


PROGRAMS = ("bench", "cli", "evidence", "perf", "soak", "tools")
STARTERS = ("Fleet", "ForkServer", "run_case", "run_cases", "make", "regress")


def starts_something(module: ast.Module) -> bool:
    names = {n.id for n in ast.walk(module) if isinstance(n, ast.Name)}
    names |= {n.attr for n in ast.walk(module) if isinstance(n, ast.Attribute)}
    return bool(names & set(STARTERS))


def test_every_program_that_starts_something_is_armed() -> None:
    found = []
    root = Path(interruption.__file__).resolve().parents[1]
    for path in sorted(path for part in PROGRAMS for path in (root / part).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "__main__" in source and starts_something(ast.parse(source)):
            found.append(str(path.relative_to(root)))
            assert "interruption.arm()" in source, f"{path}: a signal would leave what it started"
    assert {"cli/main.py", "evidence/nightly.py", "soak/run.py", "perf/run.py"} <= set(found)
