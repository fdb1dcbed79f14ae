"""The file of ``--machines``: which machines there are, and how one gets there.

A machine is a command that gives standard streams there (``ssh a``, ``kubectl exec -i pod --``).
``lockbench agent`` is put behind it. Who may log in is that command's business.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from lockbench.history.files import BadFile, read_toml
from lockbench.workloads.control import WORKERS_MAX

HERE: Final = "here"  # what the machine is called that the bench runs on
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
AGENT: Final = ("lockbench", "agent")


class MachinesError(Exception):
    """The file is wrong, or a machine cannot be used: one sentence, with the remedy."""


class _Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    run: str
    workers: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 2


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    machine: Annotated[list[_Machine], msgspec.Meta(min_length=1)]


@dataclass(frozen=True)
class Machine:
    """``command`` starts the agent there; ``workers`` are the numbers of its workers."""

    name: str
    command: tuple[str, ...]
    workers: tuple[int, ...]


def read(file: Path, first: int) -> Sequence[Machine]:
    """The machines of a file; their workers are numbered from ``first`` on. Raises
    MachinesError."""
    try:
        said = msgspec.convert(read_toml(file), _File).machine
    except BadFile as error:
        raise MachinesError(str(error)) from error
    except msgspec.ValidationError as error:
        raise MachinesError(f"{file}: {str(error).replace('`', '')}") from error
    twice = [name for name, times in Counter(one.name for one in said).items() if times > 1]
    if twice:
        raise MachinesError(f"{file} names {twice[0]} twice")
    machines = []
    for one in said:
        if NAME.fullmatch(one.name) is None or one.name == HERE:
            raise MachinesError(
                f"{file}: {one.name!r} is no name for a machine; it has letters and digits, and"
                f" {HERE} is the one that the bench runs on"
            )
        workers = tuple(range(first, first + one.workers))
        machines.append(Machine(one.name, (*_words(file, one), *AGENT), workers))
        first += one.workers
    if first > WORKERS_MAX:
        raise MachinesError(
            f"{file} asks for {first - 1} workers, those here counted, and there may be"
            f" {WORKERS_MAX - 1}"
        )
    return machines


def _words(file: Path, one: _Machine) -> list[str]:
    try:
        words = shlex.split(one.run)
    except ValueError as error:
        raise MachinesError(f"{file}: the command of machine {one.name}: {error}") from error
    if not words:
        raise MachinesError(f"{file}: machine {one.name} has no command (run) that leads there")
    return words
