"""``lockbench compare BASE NEW``: two stored runs, or two folders of runs, side by side.

Needs no Docker and changes nothing in the runs. What is not the same experiment on the same machine
with the same versions is refused, unless the caller asks for it anyway.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from bench.errors import BadInput, Ending
from results import comparison_text
from results.comparison import Comparison, compare_stored
from results.evidence import Edited, countable, left_out, stored_set
from results.store import NotARun, write_atomically


def compare(
    base: Path, new: Path, *, anyway: bool, as_json: bool, junit: Path | None, out: Console
) -> int:
    """Returns the exit code. Raises BadInput."""
    try:
        sets = stored_set(base), stored_set(new)
        countable([*sets[0], *sets[1]])
    except (NotARun, Edited) as error:
        raise BadInput(str(error)) from error
    if said := left_out([base, new]):
        print(f"lockbench: {said}", file=sys.stderr)
    repeat = f"lockbench compare {shlex.quote(str(base))} {shlex.quote(str(new))}"
    repeat += " --anyway" if anyway else ""
    made, differs = compare_stored(*sets, anyway=anyway, repeat=repeat)
    if differs and not anyway:
        raise BadInput(
            f"{base} and {new} are not comparable: {'; '.join(differs)[:600]}. "
            "Run both on the same machine with the same suite and versions, or say --anyway"
        )
    if as_json:
        print(json.dumps({"comparison": made.to_json(), "ending": made.ending}, indent=1))
    else:
        show(made, out)
    if junit is not None:
        write_junit(made, junit)
    return Ending[made.ending.upper()].code


def write_junit(made: Comparison, path: Path) -> None:
    """For CI. Raises BadInput where the file cannot be written."""
    try:
        write_atomically(path, comparison_text.junit(made))
    except OSError as error:
        raise BadInput(f"--junit {path} cannot be written: {error.strerror}") from error


def show(made: Comparison, out: Console) -> None:
    """For people; the same words as in Markdown."""
    out.print(f"\n[bold]{made.ending}[/bold]: {escape(made.headline)}.", highlight=False)
    out.print(f"base {escape(made.base)}; new {escape(made.new)}\n", highlight=False)
    for table in comparison_text.drawn(made):
        out.print(table)
    for note in made.notes:
        out.print(escape(note), style="dim", highlight=False)
    if made.repeat:
        out.print(f"repeat with: {escape(made.repeat)}", highlight=False, soft_wrap=True)
