"""``lockbench compare BASE NEW``: two stored runs, or two folders of runs, side by side.

Needs no Docker and changes nothing in the runs. What is not the same experiment on the same machine
with the same versions is refused, unless the caller asks for it anyway.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lockbench.history.text import write_named
from lockbench.report import comparison_text
from lockbench.report.console import say_json, warn
from lockbench.report.grid import drawn
from lockbench.results.comparison import Comparison, compare_stored
from lockbench.results.errors import BadInput, Ending, exit_code
from lockbench.results.store import NotARun
from lockbench.results.stored import Edited, countable, left_out, stored_set


def compare(
    base: Path, new: Path, *, anyway: bool, as_json: bool, junit: Path | None, out: Console
) -> int:
    """Returns the exit code. Raises BadInput."""
    try:
        sets = stored_set(base), stored_set(new)
        countable([*sets[0], *sets[1]])
        if both := {r.path.resolve() for r in sets[0]} & {r.path.resolve() for r in sets[1]}:
            raise BadInput(f"{min(both)} is on both sides: a run is not compared with itself")
        repeat = f"lockbench compare {shlex.quote(str(base))} {shlex.quote(str(new))}"
        repeat += " --anyway" if anyway else ""
        made, differs = compare_stored(*sets, anyway=anyway, repeat=repeat)
    except (NotARun, Edited) as error:
        raise BadInput(str(error)) from error
    if said := left_out([base, new]):
        warn(said)
    if differs and not anyway:
        raise BadInput(
            f"{base} and {new} are not comparable: {'; '.join(differs)[:600]}. "
            "Run both on the same machine with the same suite and versions, or say --anyway"
        )
    if as_json:
        say_json({"comparison": made.document(), "ending": made.ending, "endings": made.endings})
    else:
        show(made, out)
    if junit is not None:
        write_junit(made, junit)
    return exit_code(made.endings, [ending.word for ending in Ending])


def write_junit(made: Comparison, path: Path) -> None:
    """For CI. Raises BadInput where the file cannot be written."""
    try:
        write_named(path, comparison_text.junit(made))
    except OSError as error:
        raise BadInput(f"--junit {path} cannot be written: {error.strerror}") from error


def show(made: Comparison, out: Console) -> None:
    """For people; the same words as in Markdown."""
    out.print(Text.assemble("\n", (", ".join(made.endings), "bold"), f": {made.headline}."))
    out.print(f"base {made.base}; new {made.new}\n")
    for grid in comparison_text.grids(made):
        out.print(drawn(grid))
    for note in made.notes:
        out.print(note, style="dim")
    if made.repeat:
        out.print(f"repeat with: {made.repeat}", soft_wrap=True)
