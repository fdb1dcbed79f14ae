"""``lockbench sweep``."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Annotated

import typer

from lockbench.cli.options import RUNS, Json, Resume, Runs, Topology, words
from lockbench.report.console import err, out
from lockbench.results.errors import BadInput


def sweep(
    lock: Annotated[str, typer.Option(help="Locks by name, file or folder, separated by commas.")],
    rate: Annotated[
        str | None,
        typer.Option(
            help="Acquires per second, separated by commas; default: shares of what is "
            "carried, from 10 to 115 %."
        ),
    ] = None,
    clients: Annotated[
        str, typer.Option(help="How many clients take the lock, separated by commas.")
    ] = "32",
    keys: Annotated[
        str, typer.Option(help="How many keys the clients share, separated by commas; 0: one each.")
    ] = "0",
    hold: Annotated[
        str, typer.Option(help="How long a lock is held, in milliseconds, separated by commas.")
    ] = "0",
    network: Annotated[
        str, typer.Option(help="Networks, separated by commas: loopback, rack, az, region.")
    ] = "loopback",
    repeats: Annotated[int, typer.Option(help="Rounds, each on a cluster of its own.")] = 3,
    seconds: Annotated[float, typer.Option(help="Seconds for which each rate is measured.")] = 4.0,
    topology: Topology = None,
    seed: Annotated[int, typer.Option(help="Decides arrivals and the order of the rates.")] = 0,
    resume: Resume = None,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Measure how much load locks carry, and their latency at lower rates."""
    import psutil

    from lockbench.bench import plan, rates
    from lockbench.bench.suites import Suite
    from lockbench.cli.running import play

    locks = [each for name in words(lock) for each in plan.each_lock(name)]
    asked = () if rate is None else _numbers("--rate", rate)
    cases = rates.sweep(
        locks,
        seed=seed,
        topology=topology,
        rates=asked,
        clients=[_whole("--clients", number) for number in _numbers("--clients", clients)],
        keys=[_whole("--keys", number) for number in _numbers("--keys", keys)],
        holds_ms=_numbers("--hold", hold),
        networks=words(network),
        repeats=repeats,
        measured_s=seconds,
    )
    console = err if as_json else out
    planned = Suite("sweep", "", tuple(cases))
    console.print(f"sweep of {', '.join(locks)}: {planned.duration}")
    if doubt := rates.doubtful(asked, psutil.cpu_count() or 1):
        console.print(doubt)
    said = [f"lockbench sweep --lock {lock}"]
    said += [f"--rate {rate}"] if rate else []
    said += [
        f"--{name} {value}"
        for name, value, usual in (
            ("clients", clients, "32"),
            ("keys", keys, "0"),
            ("hold", hold, "0"),
            ("network", network, "loopback"),
            ("repeats", repeats, 3),
            ("seconds", seconds, 4.0),
            ("topology", topology, None),
            ("seed", seed, 0),
        )
        if value != usual
    ]
    name = "-".join(["sweep", *words(lock)])
    play(cases, name, as_json, command=" ".join(said), resume=resume, runs=runs or RUNS)


def _numbers(option: str, text: str) -> list[float]:
    with suppress(ValueError):
        found = [float(word) for word in text.split(",")]
        if all(map(math.isfinite, found)):
            return found
    raise BadInput(f"{option} is {text!r}; it is numbers separated by commas")


def _whole(option: str, number: float) -> int:
    if number != int(number):
        raise BadInput(f"{option} is {number:g}; it has to be a whole number")
    return int(number)
