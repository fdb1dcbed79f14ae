"""``make simulate-clocks``: simulates fleets of up to 1,000 machines, prints what each method makes
of their histories, and draws it. docs/clocks.md explains the tables.

Exit code 1 where a method that is called sound accuses wrongly, where lockbench misses what another
sound method finds or every stamp shows, or where the truth is outside the bounds.
"""

from __future__ import annotations

import resource
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

from rich.table import Table

from perf.clocks.delays import PLACES, round_trip_quantiles
from perf.clocks.experiment import (
    Outcome,
    accused_wrongly,
    called_valid,
    faults,
    found,
    run,
    settings,
    share,
    unknown,
)
from perf.clocks.methods import METHODS
from perf.clocks.pictures import draw
from perf.figures import console

PICTURES: Final = Path(__file__).parents[2] / "docs" / "pictures"
TOLD: Final = 10  # faults that are printed
NAMES: Final = [method.name for method in METHODS]
OURS: Final = NAMES.index("lockbench")

Group = dict[tuple[str, int, int], list[Outcome]]


def main() -> int:
    """Everything."""
    began = perf_counter()
    judged = run(settings())
    outcomes = list(judged.values())
    tables: dict[str, Group] = defaultdict(dict)
    for it in settings():
        key = it.row, it.world.overlap_ns, it.world.jump_ns
        tables[it.table][key] = [judged[it.world, seed] for seed in range(it.seeds)]
    delays()
    summary([it for it in outcomes if not it.world.jump_ns])
    overlaps(tables["overlap"])
    by_slower(tables["overlap"])
    machines(tables["machines"])
    recorded(tables["recorded"])
    jumps(tables["jumps"])
    draw(
        PICTURES,
        {(row, overlap): of for (row, overlap, _), of in tables["overlap"].items()},
        {
            of[0].world.machines: of
            for (_, overlap, _), of in tables["machines"].items()
            if not overlap
        },
    )
    wrong = faults(outcomes)
    moments = sum(it.moments for it in outcomes)
    outside = sum(it.outside for it in outcomes)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    console().print(
        f"{len(outcomes):,} histories; the truth was outside the bounds at {outside} of "
        f"{moments:,} moments; {sum(u.ru_utime + u.ru_stime for u in used):.0f} s of a processor, "
        f"{perf_counter() - began:.0f} s"
    )
    for sentence in wrong[:TOLD]:
        console().print(f"WRONG: {sentence}", highlight=False)
    return 1 if wrong else 0


def duration(ns: float) -> str:
    """In words; nothing for none."""
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= unit:
            return f"{ns / unit:.3g} {name}"
    return "none"


def delays() -> None:
    """What messages take."""
    table = Table("round trip", "least", "p50", "p99", "p99.9", title="Delays")
    for place in PLACES:
        table.add_row(place, *(duration(ns) for ns in round_trip_quantiles(place)))
    console().print(table)


def summary(outcomes: Sequence[Outcome]) -> None:
    """A line for each method, over all histories without jumps."""
    table = Table(
        "method", "sound", "accused wrongly", "wrong pair", "found", "broken, valid", "unknown",
        title="All histories without jumps, % [95 % interval]",
    )  # fmt: skip
    controls = [it for it in outcomes if not it.world.overlap_ns]
    broken = [it for it in outcomes if it.world.overlap_ns]
    for number, method in enumerate(METHODS):
        table.add_row(
            method.name,
            "yes" if method.sound else "no",
            str(share(controls, number, accused_wrongly)),
            str(share(broken, number, accused_wrongly)),
            str(share(broken, number, found)),
            str(share(broken, number, called_valid)),
            str(share(outcomes, number, unknown)),
        )
    table.caption = f"{len(controls):,} without an overlap, {len(broken):,} with one"
    console().print(table)


def overlaps(groups: Group) -> None:
    """What is found by how long it lasts."""
    title = "Found of 10 machines' overlaps, % [95 %]; without an overlap: accused wrongly"
    table = Table("fleet", "overlap", "n", *NAMES, title=title)
    for (row, overlap, _), of in groups.items():
        asked = found if overlap else accused_wrongly
        cells = (str(share(of, number, asked)) for number in range(len(METHODS)))
        table.add_row(
            row, duration(overlap), str(len(of)), *cells, end_section=_last(groups, row, of)
        )
    console().print(table)


def by_slower(groups: Group) -> None:
    """The mixed fleet by where the slower of the two machines is."""
    title = "Of these the mixed fleet, by the slower of the two machines"
    table = Table("slower", "overlap", "n", *NAMES, title=title)
    for place in PLACES:
        for (row, overlap, _), outcomes in groups.items():
            of = [it for it in outcomes if it.slower == place]
            if row == "mixed" and of:
                cells = (str(share(of, number, found)) for number in range(len(METHODS)))
                table.add_row(place, duration(overlap), str(len(of)), *cells)
        table.add_section()
    console().print(table)


def machines(groups: Group) -> None:
    """What many machines change."""
    title = "Mixed fleets, % [95 %]: accused wrongly without an overlap, found of 100 ms"
    table = Table("machines", "overlap", "n", *NAMES, title=title)
    cost = Table("machines", "operations", "n", *NAMES, title="Processor time, s: median (min–max)")
    for (row, overlap, _), of in groups.items():
        asked = found if overlap else accused_wrongly
        cells = (str(share(of, number, asked)) for number in range(len(METHODS)))
        table.add_row(
            row, duration(overlap), str(len(of)), *cells, end_section=_last(groups, row, of)
        )
        if not overlap:
            spent = (_spread([it.judged[n].seconds for it in of]) for n in range(len(METHODS)))
            operations = statistics.median(it.operations for it in of)
            cost.add_row(row, f"{operations:,.0f}", str(len(of)), *spent)
    console().print(table)
    console().print(cost)


def recorded(groups: Group) -> None:
    """What must be recorded."""
    shown = ("stamps alone", "bounds", "lockbench")
    columns = [f"{name}: {what}" for name in shown for what in ("found", "unknown")]
    title = "One zone, by where the uses are, % [95 %]; without an overlap: accused wrongly"
    table = Table("uses, machines", "overlap", "n", *columns, title=title)
    for (row, overlap, _), of in groups.items():
        asked = found if overlap else accused_wrongly
        cells = (
            str(share(of, NAMES.index(name), what)) for name in shown for what in (asked, unknown)
        )
        table.add_row(
            row, duration(overlap), str(len(of)), *cells, end_section=_last(groups, row, of)
        )
    console().print(table)


def jumps(groups: Group) -> None:
    """Clocks that jump."""
    shown = ("NTP midpoint", "one ε for all", "bounds", "lockbench")
    columns = [f"{name}: {what}" for name in shown for what in ("accused", "unknown")]
    title = "A third of 10 clocks jumps, nothing overlaps, % [95 %]"
    table = Table("fleet", "jump", "n", *columns, title=title)
    for (row, _, jump), of in groups.items():
        cells = (
            str(share(of, NAMES.index(name), what))
            for name in shown
            for what in (accused_wrongly, unknown)
        )
        table.add_row(row, duration(jump), str(len(of)), *cells)
    console().print(table)


def _last(groups: Group, row: str, of: list[Outcome]) -> bool:
    return [it for key, it in groups.items() if key[0] == row][-1] is of


def _spread(seconds: Sequence[float]) -> str:
    middle = statistics.median(seconds)
    return f"{middle:.3f} ({min(seconds):.3f}–{max(seconds):.3f})"


if __name__ == "__main__":
    sys.exit(main())
