"""Explores several locks, some of them at once, each by a command in a process of its own.

Guarantees: a lock that cannot be explored is named by its own process and stops none of the others.
When this is interrupted, or what it tells cannot be written, every process is interrupted, and has
cleared away what it started before this returns.

Does not guarantee in which order they end; they begin in the one that is given.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final

import psutil

PROGRAM: Final = (sys.executable, "-m", "lockbench.cli.main")

MEMORY: Final = "LOCKBENCH_MEMORY"  # in the environment of each: how many bytes it may take

Arguments = Callable[[], Sequence[str] | None]


def at_once() -> int:
    """How many locks: a library of a JVM takes a core, most others less than half of one."""
    return 2 * (psutil.cpu_count() or 1)


def memory_bytes() -> int:
    """How much this exploration may take: what is free, and no more than its share of what was free
    before it and others began."""
    free: int = psutil.virtual_memory().available
    return min(free, int(os.environ.get(MEMORY, free)))


def explore_several(
    commands: Mapping[str, Arguments], told: Callable[[str], None]
) -> dict[str, int]:
    """Lock → the exit code of its command, for those that were begun. ``commands``: lock → what
    gives the arguments of ``lockbench`` when its turn has come, or None where no time is left.
    ``told`` hears each line that a process writes, with the lock in front."""
    share = memory_bytes() // max(1, min(at_once(), len(commands)))
    running: set[subprocess.Popen[str]] = set()
    stopping = threading.Event()
    ended: dict[str, int] = {}

    def run(lock: str, arguments: Sequence[str]) -> None:
        with subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {MEMORY: str(share)},
            text=True,
        ) as process:
            running.add(process)
            if stopping.is_set():
                process.terminate()
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    told(f"{lock}: {line.rstrip()}")
            except BaseException:
                process.terminate()
                raise
        running.discard(process)
        ended[lock] = process.returncode

    def take_turn(lock: str, command: Arguments) -> None:
        arguments = command()
        if arguments is not None and not stopping.is_set():
            run(lock, arguments)

    with ThreadPoolExecutor(at_once()) as pool:
        turns = [pool.submit(take_turn, lock, command) for lock, command in commands.items()]
        try:
            for turn in wait(turns, return_when=FIRST_EXCEPTION).done:
                turn.result()
        except BaseException:
            stopping.set()
            for process in [*running]:
                process.terminate()
            raise
    return ended
