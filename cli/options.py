"""What several commands share: kinds of options, and how a command ends.

A command's file declares its options and imports what does the work when it runs, so that help and
a refused word cost nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from lockbench.results.errors import BadInput

NAME_CHARS_MAX: Final = 80


class Done(Exception):
    """A command ended with this exit code. Not SystemExit, which the parser uses for its own."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def path(text: str) -> Path:
    """A file or folder that a command reads or makes. What is not there is left to the command."""
    try:
        Path(text).lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # ValueError: a null in the name
        shown = text if len(text) <= NAME_CHARS_MAX else text[:NAME_CHARS_MAX] + "…"
        raise BadInput(f"{shown}: {getattr(error, 'strerror', None) or error}") from error
    return Path(text)


def target(text: str) -> Path:
    """A file that a command writes."""
    file = path(text)
    if file.is_dir():
        raise BadInput(f"{file} is a folder; name a file to write")
    if not file.parent.is_dir():
        raise BadInput(f"{file} cannot be written: there is no folder {file.parent}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise BadInput(f"{file} cannot be written: Permission denied")
    return file


def words(text: str) -> list[str]:
    """Names that are separated by commas. Raises BadInput where there is none."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise BadInput("name at least one lock and one fault")
    return found


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Topology = Annotated[
    str | None, typer.Option(help="The cluster, if the lock runs on several kinds.")
]
With = Annotated[
    str | None,
    typer.Option(
        "--with",
        metavar="REF",
        help="Use another version of a library, a server or the recipes; REF as for regress.",
    ),
]
Cluster = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Run on your own servers, which this file describes.",
        parser=path,
    ),
]
Machines = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Let clients work on the machines that this file names, beside this one.",
        parser=path,
    ),
]
Hosts = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Put each node of the cluster on a Docker engine of its own, which this file names.",
        parser=path,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before putting load on your servers.")]
Junit = Annotated[Path | None, typer.Option(help="Write JUnit XML into this file.", parser=target)]
Resume = Annotated[
    Path | None,
    typer.Option(help="Continue this run; give the same arguments again.", parser=path),
]
RUNS: Final = Path("runs")
Runs = Annotated[
    Path | None,
    typer.Option(
        "--runs",
        metavar="DIR",
        help="The folder that runs are saved in; default: runs.",
        parser=path,
    ),
]
Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a finished run.", parser=path)
]
