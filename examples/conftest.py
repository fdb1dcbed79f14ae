"""What the examples share: ``start`` starts a program of the example's folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from examples.software import Program, Version


class Start(Protocol):
    """``start("beat.py", "A", …, pipe)``: the words are the program's, and so is the last."""

    def __call__(self, program: str, *words: object, supervised: bool = False) -> Program: ...


@pytest.fixture
def start(request: pytest.FixtureRequest, version: str) -> Iterator[Start]:
    """Programs of the version under test; what they said is shown where a test fails."""
    here, running = Path(request.path).parent, []

    def started(program: str, *words: object, supervised: bool = False) -> Program:
        installed = Version(str(here / version / "lock.py"), program=here / program)
        installed.prepare()
        python = str(installed.environment / "bin" / "python")
        command = [python, "-u", str(here / program), *map(str, words)]
        running.append(made := Program(command, int(str(words[-1])), supervised=supervised))
        return made

    yield started
    for made in running:
        print(made.log)
        made.kill()
