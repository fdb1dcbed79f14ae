"""``lockbench explore``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockbench.cli.options import Done, Json, Topology, With, path, words
from lockbench.report.console import err, out, say_json


def explore(
    lock: Annotated[
        str, typer.Option(help="Locks by name, file or folder, separated by commas; or all.")
    ],
    scenario: Annotated[
        str | None, typer.Option(help="Only these scripts, separated by commas.")
    ] = None,
    depth: Annotated[int, typer.Option(help="1: each fault alone; 2: also pairs of faults.")] = 1,
    strike: Annotated[
        str | None,
        typer.Option(
            help="Only this fault, such as reply-lost@reply:2; two with a comma are a pair."
        ),
    ] = None,
    topology: Topology = None,
    with_: With = None,
    seed: Annotated[int, typer.Option(help="Decides what the bench itself draws.")] = 0,
    output: Annotated[
        Path, typer.Option(help="The folder that gets a folder for each lock.", parser=path)
    ] = Path("runs/explore"),
    anew: Annotated[
        bool, typer.Option("--anew", help="Start again, even if there are results to continue.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Inject every fault that applies at every message of a lock's calls."""
    from dataclasses import replace

    from msgspec import to_builtins

    from lockbench.bench import plan
    from lockbench.evidence.sides import CURRENT, instead, parse
    from lockbench.explore.asked import asked
    from lockbench.explore.command import beforehand, ending, every_lock, explore_into
    from lockbench.explore.mapped import map_of
    from lockbench.report.messages import summary
    from lockbench.results.errors import Ending, Failed, Unfit

    console = err if as_json else out

    def told(line: str) -> None:
        console.print(line, soft_wrap=True)

    side = parse(with_ or CURRENT)
    names = [each for name in words(lock) for each in plan.each_lock(name)]
    if names == ["all"]:
        names = every_lock()
    chosen = words(scenario) if scenario else []
    strikes = words(strike) if strike else []
    all_asked, found, endings = [], [], []

    def refused(name: str, error: Exception) -> None:
        """One of several that cannot be explored stops none of the others."""
        if len(names) == 1:
            raise error
        told(f"{name} could not be explored: {error}\n")
        endings.append(Ending.BENCH)

    for name in names:
        try:
            what = asked(
                name,
                seed=seed,
                topology=side.topology or topology,
                scenarios=chosen,
                depth=depth,
                strikes=strikes,
            )
        except Unfit as error:
            refused(name, error)
            continue
        all_asked.append(replace(what, case=side.apply(what.case)))
    if len(all_asked) > 1:
        told(beforehand(all_asked))
    with instead(side, [what.case for what in all_asked]) as installed:
        for what in all_asked:
            try:
                document, page = explore_into(what, output, installed, told, anew=anew)
            except (Unfit, Failed) as error:
                refused(what.case.lock, error)
                continue
            found.append(document)
            endings.append(ending(document))
            told("")
            for line in summary(map_of(document)):
                told(line)
            told(f"{page}\n")
    if as_json:
        say_json({"explorations": [to_builtins(document) for document in found]})
    raise Done(Ending.worst(endings).code)
