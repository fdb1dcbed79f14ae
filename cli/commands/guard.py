"""``lockbench guard``."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from lockbench.cli.options import Done, Json
from lockbench.report.console import err, out, say_json
from lockbench.results.errors import BadInput


def guard(
    resource: Annotated[
        str, typer.Argument(help="A store: postgres, redis, etcd, …, or name:on=…")
    ],
    rate: Annotated[float, typer.Option(help="Writes a second at which the price is taken.")] = 50,
    seconds: Annotated[float, typer.Option(help="How long each guard is measured a round.")] = 4,
    rounds: Annotated[int, typer.Option(help="How often each guard has its turn.")] = 6,
    as_json: Json = False,
) -> None:
    """Try every guard of a store on its real servers, without a lock: is it right, what does it
    cost?"""
    from lockbench.bench import trial
    from lockbench.results.errors import Ending
    from lockbench.stores.registry import StoreError, find

    if not (0 < rate <= trial.RATE_MAX and 0 < seconds < math.inf and rounds > 0):
        raise BadInput(
            f"--rate is more than 0 and at most {trial.RATE_MAX}, the others more than 0 and finite"
        )
    try:
        store = find(resource)
    except StoreError as error:
        raise BadInput(str(error)) from error
    console = err if as_json else out
    console.print(f"{store.store.name}{f' on {store.topology}' if store.topology else ''}")
    found = trial.try_all(
        store,
        rate=rate,
        seconds=seconds,
        rounds=rounds,
        say=lambda line: console.print(line, soft_wrap=True),
    )
    invalid = any(one.verdict.result == "invalid" for one in found.checks)
    unknown = any(one.verdict.result == "unknown" for one in found.checks)
    last = Ending.SAFETY if invalid else Ending.INCONCLUSIVE if unknown else Ending.OK
    if as_json:
        say_json({"store": store.store.name, **found.as_json(), "ending": last.word})
    raise Done(last.code)
