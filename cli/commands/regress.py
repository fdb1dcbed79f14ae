"""``lockbench regress``."""

from __future__ import annotations

from typing import Annotated

import typer

from lockbench.cli.options import RUNS, Done, Json, Junit, Runs, words
from lockbench.report.console import err, out
from lockbench.results.errors import Ending, endings_named

FAIL_ON = ",".join(ending.word for ending in Ending if ending is not Ending.OK)


def regress(
    base: Annotated[
        str,
        typer.Option(
            help="The old side: current, baseline, an image (redis=redis:7.4), a library "
            "(redis==8.0.1, git+URL@REV, a source tree, a wheel, go:MODULE@VERSION, "
            "maven:GROUP:ARTIFACT:VERSION, npm:NAME@VERSION), topology:NAME, path.py:Class or "
            "a lock."
        ),
    ],
    new: Annotated[str, typer.Option(help="The new side, written in the same way.")],
    lock: Annotated[str | None, typer.Option(help="Locks, separated by commas.")] = None,
    fault: Annotated[str, typer.Option(help="Faults, separated by commas.")] = "none",
    workload: Annotated[
        str, typer.Option(help="What the clients do; numbers are judged only for mutex.")
    ] = "mutex",
    pairs: Annotated[
        int | None, typer.Option(help="How often each side runs each case; default: 10 or more.")
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds under load of each run.")] = 8.0,
    seed: Annotated[int, typer.Option(help="Decides the order of the runs and the faults.")] = 0,
    fail_on: Annotated[
        str, typer.Option(help="Endings that fail the command, separated by commas.")
    ] = FAIL_ON,
    junit: Junit = None,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Measure both sides of a change in turn, and judge what got worse."""
    from lockbench.evidence.regress import command
    from lockbench.evidence.regress_plan import order

    failing = endings_named(fail_on)
    asked = order(
        base,
        new,
        locks=words(lock) if lock else [],
        faults=words(fault),
        workload=workload,
        pairs=pairs,
        time_limit_s=time_limit,
        seed=seed,
    )
    raise Done(
        command(
            asked,
            fail_on=failing,
            as_json=as_json,
            junit=junit,
            runs=runs or RUNS,
            out=out,
            err=err,
        )
    )
