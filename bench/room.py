"""Room on the disk and in memory: looked at before a run and before each of its cases.

A run that fills the disk ends with one sentence, and what it has recorded stays readable
(``lockbench.results.store`` reserves what is needed to say so).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from lockbench.results.errors import BadInput, Failed
from lockbench.results.store import NO_ROOM, RESERVE_BYTES

DISK_FREE_MIN_BYTES = 2 * 2**30
MEMORY_FREE_MIN_BYTES = 2 * 2**30
# A case of the largest suites takes some ten megabytes; one is not begun with less than this.
CASE_FREE_MIN_BYTES = 256 * 2**20
# Less is none: what was reserved may have been given up already.
FULL_BYTES = 4 * RESERVE_BYTES


def check_room(runs: Path) -> None:
    """Raises BadInput where no run can be written, or disk or memory are too small for one.
    ``runs`` need not exist yet. Images are built before a run begins, and nobody shall wait for
    that in vain."""
    parent = existing(runs)
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        raise BadInput(
            f"runs cannot be written to {runs.resolve()}: go to a folder that you can write to, or"
            " name one with --runs"
        )
    free = free_bytes(runs)
    if free < DISK_FREE_MIN_BYTES:
        raise BadInput(
            f"{free / 2**30:.1f} GiB are free where runs are written ({runs.resolve()}); "
            f"at least {DISK_FREE_MIN_BYTES / 2**30:.0f} are needed: remove old runs or images"
        )
    memory = psutil.virtual_memory().available
    if memory < MEMORY_FREE_MIN_BYTES:
        raise BadInput(
            f"{memory / 2**30:.1f} GiB of memory are available; "
            f"at least {MEMORY_FREE_MIN_BYTES / 2**30:.0f} are needed: end other programs"
        )


def check_case_room(run: Path) -> None:
    """Raises Failed when there is too little room for another case of this run."""
    free = free_bytes(run)
    if free < CASE_FREE_MIN_BYTES:
        raise Failed(
            f"{free / 2**20:.0f} MiB are left where the run is written ({run.resolve()}), too "
            "little for the next case: make room, then run it again, or resume a suite (--resume)"
        )


def full(run: Path, error: BaseException | None = None) -> str | None:
    """A sentence where no room is left for a run, or where the error says so; None elsewhere."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return f"no space is left where the run is written ({run.resolve()})"
    free = free_bytes(run)
    if free < FULL_BYTES:
        return f"{free / 2**20:.0f} MiB are left where the run is written ({run.resolve()})"
    return None


@contextmanager
def in_one_sentence(run: Path) -> Iterator[None]:
    """Whatever fails in the writing of a run because its disk is full becomes Failed."""
    try:
        yield
    except Failed:
        raise
    except Exception as error:
        if why := full(run, error):
            raise Failed(f"{why}; the run has ended, what it recorded is kept") from error
        raise


def free_bytes(path: Path) -> int:
    """Where it is, or where it will be made."""
    return int(psutil.disk_usage(str(existing(path))).free)


def existing(path: Path) -> Path:
    """The path, or of those above it the nearest that is there."""
    while not path.exists():
        path = path.absolute().parent
    return path
