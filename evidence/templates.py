"""Markdown from the templates beside this file (``*.md.j2``).

Whatever a template is given is text and is escaped, unless it is ``Markdown`` already.
"""

from __future__ import annotations

import re
from importlib import resources

from jinja2 import Environment, StrictUndefined

from lockbench.report.grid import Markdown, as_markdown
from lockbench.results import wording
from lockbench.results.wording import escape_markdown


def rendered(template: str, **given: object) -> str:
    """The template of this name. Raises jinja2.UndefinedError for what it was not given."""
    environment = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=as_markdown,
        autoescape=False,  # noqa: S701 - as_markdown escapes; HTML's rules are not Markdown's
    )
    environment.globals |= {
        "md": Markdown,
        "marked": marked,
        "quote": quote,
        "code": code,
        "wording": wording,
    }
    text = (resources.files(__package__) / template).read_text(encoding="utf-8")
    return environment.from_string(text).render(given)


def marked(text: str) -> Markdown:
    """A docstring's sentence: its code stays code, everything else is text."""
    parts = re.split(r"``([^`]+)``", text)
    return Markdown("".join(f"`{p}`" if i % 2 else escape_markdown(p) for i, p in enumerate(parts)))


def quote(text: str) -> Markdown:
    """A block quotation; addresses stay addresses, everything else is text."""
    parts = re.split(r"(https?://\S+)", " ".join(text.split()))
    return Markdown("> " + "".join(p if i % 2 else escape_markdown(p) for i, p in enumerate(parts)))


def code(text: str) -> Markdown:
    """A block of code that nothing in it can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markdown(f"{fence}\n{text}\n{fence}")
