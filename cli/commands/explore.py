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
    clients: Annotated[int, typer.Option(help="How many may want the key at once: 2 or 3.")] = 3,
    topology: Topology = None,
    with_: With = None,
    seed: Annotated[int, typer.Option(help="Decides what the bench itself draws.")] = 0,
    output: Annotated[
        Path, typer.Option(help="The folder that gets a folder for each lock.", parser=path)
    ] = Path("runs/explore"),
    anew: Annotated[
        bool, typer.Option("--anew", help="Start again, even if there are results to continue.")
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(help="Begin nothing that would not end by then; the same command goes on."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Inject every fault that applies at every message of a lock's calls."""
    import math
    import time
    from dataclasses import replace

    from msgspec import to_builtins

    from lockbench.bench import plan
    from lockbench.evidence.sides import instead, parse
    from lockbench.explore.asked import asked
    from lockbench.explore.command import beforehand, ending, every_lock, explore_each, explore_one
    from lockbench.results.documents import CURRENT
    from lockbench.results.errors import BadInput, Ending, Unfit

    console = err if as_json else out

    def told(line: str) -> None:
        console.print(line, soft_wrap=True)

    side = parse(with_ or CURRENT)
    names = [each for name in words(lock) for each in plan.each_lock(name)]
    if names == ["all"]:
        names = every_lock()
    chosen = words(scenario) if scenario else []
    strikes = words(strike) if strike else []
    all_asked, endings = {}, []
    for name in names:
        try:
            what = asked(
                name,
                seed=seed,
                topology=side.topology or topology,
                scenarios=chosen,
                depth=depth,
                strikes=strikes,
                clients=clients,
            )
        except Unfit as error:
            if len(names) == 1:
                raise
            told(f"{name} could not be explored: {error}\n")
            endings.append(Ending.BENCH)
            continue
        all_asked[name] = replace(what, case=side.apply(what.case))
    if minutes is not None and not 0 < minutes < math.inf:
        raise BadInput("--minutes is more than 0")
    until_s = math.inf if minutes is None else time.monotonic() + 60 * minutes
    if len(names) == 1:
        (what,) = all_asked.values()
        with instead(side, [what.case]) as installed:
            found = [explore_one(what, output, installed, told, anew=anew, until_s=until_s)]
        endings.append(ending(found[0]))
    else:
        given = {
            "--scenario": scenario,
            "--depth": depth,
            "--strike": strike,
            "--clients": clients,
            "--topology": topology,
            "--with": with_,
            "--seed": seed,
        }
        arguments = [str(a) for item in given.items() if item[1] is not None for a in item]
        arguments += ["--anew"] if anew else []
        ref = None if side.ref == CURRENT else side.ref
        told(beforehand([*all_asked.values()], output, ref))
        found, ends = explore_each(all_asked, output, arguments, told, ref=ref, until_s=until_s)
        endings += ends
        if time.monotonic() > until_s:
            told(f"no time is left: {beforehand([*all_asked.values()], output, ref)}")
    if as_json:
        say_json({"explorations": [to_builtins(document) for document in found]})
    raise Done(Ending.worst(endings).code)
