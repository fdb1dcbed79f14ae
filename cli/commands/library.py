"""``lockbench library``: the requirements of lock libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockbench.cli.commands.new_lock import Into
from lockbench.cli.options import path
from lockbench.report.console import out

library = typer.Typer(help="Pin the requirements of lock libraries, with hashes.")


@library.command()
def add(
    name: Annotated[str, typer.Argument(help="A package on PyPI, with or without extras.")],
    version: Annotated[str | None, typer.Option(help="The version; default: the newest.")] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option("--with", help="A further requirement, for example 'redis<5'."),
    ] = None,
    into: Into = Path(),
) -> None:
    """Write the requirements of a library into its folder, and pin them."""
    from lockbench.bench.new_lock import add_library

    folder = add_library(name, into, version=version, beside=beside or [])
    _say(folder)


@library.command()
def lock(
    folders: Annotated[list[Path], typer.Argument(help="Folders of libraries.", parser=path)],
) -> None:
    """Pin what the requirements.in of each folder asks for."""
    from lockbench.bench.new_lock import lock as pin

    for folder in folders:
        pin(folder)
        _say(folder)


def _say(folder: Path) -> None:
    from lockbench.locks.shared import pins

    pinned = pins.requirements(folder / "requirements.txt")
    said = ", ".join(f"{name} {version}" for name, version in pinned.items())
    out.print(f"{folder}: {said}", soft_wrap=True)
