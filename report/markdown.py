"""The report as Markdown with pictures beside it, for places that show no HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from lockbench.checker.drawing import STYLE
from lockbench.report.charts import Chart
from lockbench.report.content import ALL, Content, Section
from lockbench.report.grid import markdown
from lockbench.results.wording import escape_markdown

IMAGES: Final = "report"
SVG: Final = re.compile(r"<svg .*?</svg>", re.DOTALL)


def to_markdown(
    content: Content, drawn: Mapping[tuple[int, str], str]
) -> tuple[str, dict[str, str]]:
    """The text, and file name → SVG of what it shows from the folder ``IMAGES``."""
    images: dict[str, str] = {}
    parts = [
        f"# {escape_markdown(f'Lockbench: {content.name}')}",
        f"Ended: **{content.ending}** ({content.ending_words}).",
        *(f"**{escape_markdown(line)}**" for line in content.lines),
        *(f"> **Look here:** {escape_markdown(warning)}" for warning in content.warnings),
    ]
    for grid in (*content.comparison, content.matrix):
        parts += markdown(grid)
    for chart in content.pictures:
        parts += _chart(ALL, chart, drawn, images)
    parts += ["## By lock", *_list(content.by_lock)] if content.by_lock else []
    parts += _list(content.notes.verdicts)
    parts += ["## Numbers"] if content.numbers else []
    for grid in content.numbers:
        parts += markdown(grid, "###")
    parts += _list([*content.notes.void, *content.notes.figures])
    if content.sections:
        parts += ["## Case by case", escape_markdown(content.how_to_read)]
    for section in content.sections:
        parts += _section(section, drawn, images)
    parts += markdown(content.verdicts)
    parts += ["## How it was run", *_list(content.notes.run)] if content.notes.run else []
    return "\n\n".join(part for part in parts if part) + "\n", images


def _list(sentences: Sequence[str]) -> list[str]:
    """One paragraph; none for no sentence."""
    lines = "\n".join(f"- {escape_markdown(sentence)}" for sentence in sentences)
    return [lines] if lines else []


def _section(
    section: Section, drawn: Mapping[tuple[int, str], str], images: dict[str, str]
) -> Iterator[str]:
    title = f"{section.title}: {section.words}"
    yield f"### {section.number}. {escape_markdown(title)}"
    exposed = f" {section.exposed}." if section.exposed else ""
    yield escape_markdown(f"{section.why}.{exposed}")
    for note in section.notes:
        yield f"> {escape_markdown(note)}"
    for verdict, figure in section.figures.items():
        name, title = f"lanes-{verdict}", f"hold lanes: {verdict}"
        yield _image(section.number, name, title, _alone(figure), images)
    for chart in section.charts:
        yield from _chart(section.number, chart, drawn, images)
    for grid in section.grids:
        yield from markdown(grid, "####")
    yield f"Again: `{section.command.replace('`', '')}`"
    if section.history:
        yield (
            f"History `{section.history}` (SHA-256 of the sha256sum lines of "
            f"{escape_markdown(section.folder)}/history)"
        )
    if section.locust:
        yield f"[Locust's own report]({section.locust})"


def _chart(
    number: int, chart: Chart, drawn: Mapping[tuple[int, str], str], images: dict[str, str]
) -> Iterator[str]:
    yield _image(number, chart.name, chart.title, drawn[number, chart.name], images)
    yield escape_markdown(chart.caption)


def _image(number: int, name: str, title: str, svg: str, images: dict[str, str]) -> str:
    file = f"{number:02d}-{name}.svg"
    images[file] = svg
    return f"![{escape_markdown(title)}]({IMAGES}/{file})"


def _alone(figure: str) -> str:
    """The checker's drawing as a file of its own, with its style in it."""
    found = SVG.search(figure)
    if found is None:
        return ""
    head, body = found[0].split(">", 1)
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', head)
    width, height = (size[1], size[2]) if size else ("1130", "400")
    return (
        f'{head} xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
        f'<style>{STYLE}</style><rect width="{width}" height="{height}" fill="#fff"/>{body}'
    )
