"""Markdown of this repository as HTML: docstrings, and the pages of the track record.

Tags in it stay text (markdown-it with ``html`` off), and a link leads to a page of the site, to an
address, or is shown as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

_PARSER: Final = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
ADDRESS: Final = re.compile(r"https?://[^\s<>'\"]+[^\s<>'\".,:;)]")
# ``name``  what it is: as docstrings list things.
_LISTED: Final = re.compile(r"^(``[^`]+``(?:, ``[^`]+``)*)  +", re.MULTILINE)
Links = Callable[[str], str | None]  # where a link leads → where on the site; None: nowhere


def html(text: str, links: Links = lambda _: None) -> Markup:
    """Raises nothing: whatever is not Markdown is text."""
    tokens = _PARSER.parse(text)
    for token in _all(tokens):
        if token.type == "link_open":
            _lead(token, links)
    return Markup(_PARSER.renderer.render(tokens, _PARSER.options, {}))  # noqa: S704 - escaped there


def doc(text: str) -> Markup:
    """A docstring: what it lists is a list, and an address is a link."""
    return html(ADDRESS.sub(r"<\g<0>>", _LISTED.sub(r"- \1: ", text)))


def _all(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _all(token.children or ())


def _lead(token: Token, links: Links) -> None:
    target = str(token.attrs["href"])
    if target.startswith(("https://", "http://")):
        return
    found = links(target)
    token.attrs = {} if found is None else {"href": found}
