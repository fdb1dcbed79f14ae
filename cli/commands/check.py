"""``lockbench check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockbench.cli.options import Done, Json, path, target


def check(
    files: Annotated[
        list[Path],
        typer.Argument(help="Run folders, or histories as JSON Lines or Jepsen EDN.", parser=path),
    ],
    model: Annotated[str | None, typer.Option(help="Judge every key by this model.")] = None,
    permits: Annotated[int | None, typer.Option(help="How many permits a semaphore has.")] = None,
    initial: Annotated[str | None, typer.Option(help="The first value of a register.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Draw the violations into this file.", parser=target)
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(help="Save the history as this .edn or .jsonl file.", parser=target),
    ] = None,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge", help="Judge the files as one history; each is from another machine."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Judge saved histories. Needs no Docker."""
    from lockbench.evidence.check import check_files

    raise Done(
        check_files(
            files,
            model=model,
            permits=permits,
            initial=initial,
            json=as_json,
            html=html,
            write=write,
            merge=merge,
        )
    )
