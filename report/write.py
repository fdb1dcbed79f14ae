"""The report of a run: ``report.html``, which loads nothing, and ``report.md`` with its pictures.

``write`` makes both from the run folder alone and touches no other file. Everything is read, judged
again and drawn before the first file is written, and each file appears whole or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lockbench.report.content import ALL, compose, preview
from lockbench.report.exports import files as csv_files
from lockbench.report.markdown import IMAGES, to_markdown
from lockbench.report.page import to_html
from lockbench.report.source import read
from lockbench.report.tables import stored
from lockbench.results.documents import Results
from lockbench.results.store import RunFolder, write_atomically


@dataclass(frozen=True, slots=True)
class Written:
    """Where the report is."""

    html: Path
    markdown: Path
    images: int


def files(run: RunFolder, results: Results) -> dict[str, str]:
    """File name → text of what a run keeps beside its results while it goes on: ``report.md``
    without its cases, and the tables as CSV. Raises NotARun."""
    made = stored(run, results)
    text, _ = to_markdown(preview(made, run.path.name, str(results.ending)), {})
    return {"report.md": text, **csv_files(made.cases, results.rates)}


def write(run: RunFolder) -> Written:
    """Raises NotARun for a run that is not finished or was changed, OSError where the folder cannot
    be written."""
    found = compose(read(run))
    of_cases = [(section.number, chart) for section in found.sections for chart in section.charts]
    of_all = [(ALL, chart) for chart in found.pictures]
    drawn = {(number, chart.name): chart.svg() for number, chart in (*of_all, *of_cases)}
    page = to_html(found, drawn)
    text, images = to_markdown(found, drawn)
    folder = run.make_folder(IMAGES)
    for stale in folder.glob("*.svg"):
        if stale.name not in images:
            stale.unlink()
    for name, svg in images.items():
        write_atomically(folder / name, svg, inside=run.path)
    return Written(
        run.write_text("report.html", page), run.write_text("report.md", text), len(images)
    )
