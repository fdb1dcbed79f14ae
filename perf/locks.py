"""What the recipes cost beside the commands that they consist of: part of ``make perf``.

- CPU of a cycle (acquire, release) of a free key, divided by the CPU of the bare commands
  (``perf.bare``), sent over the same client library in the same process, in turns.
- Redlock's acquire, beside the third of its five answers: what it adds to what it must wait for.
- The ways to wait between two polls, under contention.

``perf.recipe`` measures, in a process of its own that is gevent's, as a load is.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import psutil
from rich.table import Table

from lockbench.bench import interruption
from lockbench.locks.registry import find
from perf.bare import recipes
from perf.figures import Figure, console, running, show, told_by
from perf.recipe import CLIENTS, HOLD_S, TURN_S


def main(locks: Iterable[str] | None = None) -> None:
    """Every table, of these recipes (None: all)."""
    psutil.cpu_percent()
    measured = dict(_measured(recipes() if locks is None else locks))
    busy = f"the machine was {psutil.cpu_percent():.0f} % busy, this measurement included"
    show(
        f"Client's CPU of an acquire and release ÷ its bare commands, turns of {TURN_S} s",
        (_cost(lock, found) for lock, found in measured.items()),
        lambda: busy,
    )
    show(
        "Redlock's acquire",
        (figure for found in measured.values() if "third" in found for figure in _third(found)),
    )
    waiting = Table(
        "backoff", "grants/s", "tries per grant", "wait p50, ms", "wait p99, ms", "Jain"
    )
    waiting.title = f"{CLIENTS} clients, one key, holds of {HOLD_S * 1e3:g} ms, redis-token"
    for row in (row for found in measured.values() for row in found.get("waiting", ())):
        waiting.add_row(*row)
    if waiting.row_count:
        console().print(waiting)
    for recipe, others in recipes().items():
        for lock in others:
            console().print(
                f"{lock}: not measured, the recipe is {recipe}'s; only the servers are set up "
                "differently"
            )


def _measured(locks: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was measured of each; those of one topology share a cluster."""
    program = ("-m", "gevent.monkey", "--module", "perf.recipe")
    for topology, sharing in groupby(locks, key=lambda lock: find(lock).topologies[0]):
        with running(topology) as cluster:
            nodes = json.dumps(cluster.addresses(1))
            yield from ((lock, told_by(*program, lock, nodes)) for lock in sharing)


def _cost(lock: str, found: Mapping[str, Any]) -> Figure:
    bare_us, recipe_us = zip(*found["pairs"], strict=True)
    ratios = [recipe / bare for bare, recipe in found["pairs"]]
    return Figure(lock, "≤ 1.5", ratios, beside={"bare, µs": bare_us, "recipe, µs": recipe_us})


def _third(found: Mapping[str, Any]) -> Iterator[Figure]:
    yield Figure("acquire, ms", "", found["acquire"], 3)
    yield Figure("third answer to the same, ms", "", found["third"], 3)
    ratio = statistics.median(found["acquire"]) / statistics.median(found["third"])
    yield Figure("acquire ÷ third answer, of the medians", "≤ 1.3", [ratio])


if __name__ == "__main__":
    interruption.arm()
    main()
