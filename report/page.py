"""The report as one HTML page that loads nothing, from anywhere.

Whatever comes from a run is escaped by the template. A policy in the page lets no script run but
the two that are written here, and nothing be loaded. Without scripts the page is all there, but
does not sort, download or change its theme.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined

from lockbench.checker.drawing import LEGEND, SCRIPT, STYLE
from lockbench.report.content import ALL, Content

Drawn = Mapping[tuple[int, str], str]


def to_html(content: Content, drawn: Drawn) -> str:
    """``drawn`` maps (number of the case or ``ALL``, name of the chart) → SVG on white paper."""
    script = asset("script.js")
    return rendered(
        "page.html.j2",
        c=content,
        all=ALL,
        # The paper is the page's own, which may be dark.
        drawn={place: without_paper(svg) for place, svg in drawn.items()},
        any_figures=any(section.figures for section in content.sections),
        legend=drawings_legend(),
        lanes_script=SCRIPT,
        script=script,
        style=drawings_style(),
        hashes=" ".join(policy(text) for text in (SCRIPT, script)),
    )


def without_paper(svg: str) -> str:
    """The picture without the rectangle behind it."""
    before, paper, after = svg.partition('fill="#ffffff"/>')
    return before[: before.rfind("<rect")] + after if paper else svg


def drawings_style() -> str:
    """The style of a page with drawings of the checker. Theirs is nested, so that what it says of
    its own page's body stays inside them."""
    return f"{asset('style.css')}.drawings{{{STYLE}}}{asset('lanes.css')}"


def drawings_legend() -> str:
    """What the checker's drawings show, on a page that scrolls over them."""
    wheel = "wheel to zoom"
    return LEGEND.replace(wheel, f"Ctrl and {wheel}")


def policy(script: str) -> str:
    """What a page's policy has for a script that may run."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def rendered(template: str, **values: Any) -> str:
    """A template of this folder, with whatever it is given escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(asset(template)).render(**values)


def asset(name: str) -> str:
    """The text of a file beside this one."""
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
