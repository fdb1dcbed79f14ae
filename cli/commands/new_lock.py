"""``lockbench new-lock``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockbench.cli.options import path
from lockbench.report.console import out

Into = Annotated[Path, typer.Option("--into", help="The folder to write into.", parser=path)]


def new_lock(
    name: Annotated[str, typer.Argument(help="The name of the lock, for example my-lock.")],
    library: Annotated[
        bool,
        typer.Option("--library", help="Wrap the package of this name on PyPI."),
    ] = False,
    into: Into = Path(),
) -> None:
    """Write a lock to start from: a whole recipe, or with --library a library's folder."""
    from lockbench.bench.new_lock import write_library, write_recipe

    made = write_library(name, into) if library else write_recipe(name, into)
    word = made if "/" in str(made) or not library else f"./{made}"
    kind = "say in adapter.py and lock.py how the library is used" if library else "make it yours"
    out.print(
        f"{word} is written; {kind}, then\n"
        f"  lockbench conform {word}\n"
        f"  lockbench run --lock {word} --fault none,client-pause",
        soft_wrap=True,
    )
