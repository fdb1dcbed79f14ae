"""The map of an exploration: one page that needs no server and loads nothing."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from lockbench.checker.check import check
from lockbench.checker.drawing import SCRIPT, figure
from lockbench.explore.mapped import map_of
from lockbench.history.recording import read_recording
from lockbench.report import messages
from lockbench.report.page import drawings_legend, drawings_style, policy
from lockbench.results.documents.exploration import Exploration, Finding
from lockbench.results.store import write_atomically

PAGE = "map.html"


def write(folder: Path, document: Exploration) -> Path:
    """``map.html`` in the folder of an exploration. Raises OSError, UnreadableHistory."""
    mapped = map_of(document)
    drawn = [_drawn(folder, finding) for finding in document.findings]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    text = (resources.files(__package__) / "page.html.j2").read_text(encoding="utf-8")
    page = environment.from_string(text).render(
        doc=mapped,
        lines=messages.summary(mapped),
        # Our own, and what was recorded is escaped in them.
        tables=Markup(messages.tables(mapped, drawn=drawn)),  # noqa: S704
        style=Markup(drawings_style() + messages.style()),  # noqa: S704
        script=Markup(SCRIPT),  # noqa: S704
        legend=Markup(drawings_legend()),  # noqa: S704
        hash=policy(SCRIPT),
    )
    write_atomically(folder / PAGE, page)
    return folder / PAGE


def _drawn(folder: Path, finding: Finding) -> str:
    history = read_recording(folder / finding.recording)
    verdicts = check(history).verdicts
    return "".join(
        figure(history, name, verdicts[name]) for name in finding.verdicts if name in verdicts
    )
