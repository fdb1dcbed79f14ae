"""The locks in one small table, ``docs/systems.md``; the rest is on the site
(``lockbench.evidence.site``).

    python -m lockbench.evidence.systems [RUN ...]      make systems RUNS="runs/a runs/b"

Adds what the runs show to ``docs/observed`` and writes the table from the declarations and that
folder. Guarantees: nothing in it comes from anywhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from lockbench.evidence.cells import CANONICAL, cells_of, far, language
from lockbench.evidence.observations import (
    DOCS,
    FOLDER,
    Histories,
    Observations,
    add,
    histories_in,
    history_showing,
    load,
    save,
)
from lockbench.evidence.provenance import recent
from lockbench.evidence.templates import rendered
from lockbench.evidence.track import BadPage, Page, pages
from lockbench.history.lines import UnreadableHistory
from lockbench.locks.base import System
from lockbench.locks.registry import systems
from lockbench.report.grid import Markdown, markdown_table
from lockbench.results.errors import BAD_INPUT, BadInput
from lockbench.results.store import write_atomically
from lockbench.results.wording import NONE as NONE_WORD
from lockbench.results.wording import printable

PAGE: Final = DOCS / "systems.md"


def render(observations: Observations) -> str:
    """The page."""
    rows = [_row(system, observations) for system in systems().values()]
    every = [cell for s in systems().values() for cell in cells_of(s, observations).values()]
    headings = ("lock", "family", "client in", "cases run", "cases with three tries", "broke under")
    return rendered(
        "systems.md.j2",
        locks=markdown_table(headings, rows),
        faults=len(CANONICAL) - 1,
        dash=NONE_WORD,
        far=far(every),
        recent=recent(every, observations),
    )


def _row(system: System, observations: Observations) -> list[str]:
    cells = [cell for cell in cells_of(system, observations).values() if cell.applies]
    ran, filled = sum(cell.due and cell.observed is not None for cell in cells), far(cells)
    broke = dict.fromkeys(cell.key.fault for cell in cells if cell.kind in {"broke", "worse"})
    name = f"[{system.name}]({FOLDER.name}/{system.name})"
    seen = any(key.lock == system.name for key in observations.cases)
    control = " (control)" if "control" in system.kinds_expected else ""
    return [
        Markdown(name + control) if seen else system.name + control,
        system.family,
        language(system),
        f"{ran} of {filled.due}",
        f"{filled.enough} of {filled.due}",
        ", ".join(broke) or (NONE_WORD if ran else "not run"),
    ]


def unshown(observations: Observations, found: Sequence[Page], histories: Histories) -> list[str]:
    """A sentence for every observed break that leads nowhere, unless it follows from another."""
    said = []
    for system in systems().values():
        for key, cell in cells_of(system, observations).items():
            explained = [page for page in found if page.explains(key.lock, key.fault)]
            said += [
                f"{key}: neither a page nor a saved history shows {verdict}"
                for verdict in cell.broke
                if not any(verdict in page.verdicts for page in explained)
                and history_showing(histories, key.lock, key.fault, verdict) is None
            ]
    return said


def current() -> str:
    """The page as it has to be now."""
    return render(load())


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def write(
    runs: Annotated[list[Path] | None, typer.Argument(help="Run folders to add.")] = None,
) -> None:
    """Add runs to the observations, and write the page."""
    if runs:
        observations, said = add(load(), runs)
        for sentence in said:
            print(printable(sentence))
        save(observations)
    for sentence in unshown(load(), pages(), histories_in()):
        print(printable(sentence))
    write_atomically(PAGE, current())


def main() -> None:
    """Bad input ends with 254 and one sentence."""
    try:
        app(standalone_mode=False)
    except (BadInput, BadPage, UnreadableHistory) as error:
        print(printable(f"systems: {error}"), file=sys.stderr)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
