"""How numbers and names are written for people, the same in every table."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Final

NONE: Final = "–"
# Whatever Markdown or HTML inside it could read as more than a letter.
MARKDOWN_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~!$])")


def ms(value: float | None) -> str:
    """Milliseconds with about three digits; a missing one is a dash."""
    if value is None or is_missing(value):
        return NONE
    size = abs(value)
    if size < 0.1:
        return f"{value:.3f}"
    if size < 10:
        return f"{value:.2f}"
    return f"{value:.1f}" if size < 100 else f"{value:,.0f}"


def listed(words: Sequence[str]) -> str:
    """``a, b and c``; empty for none."""
    *first, last = words or [""]
    return f"{', '.join(first)} and {last}" if first else last


def pair(p50: float | None, p99: float | None) -> str:
    """``p50 / p99``; one dash when there is neither."""
    if is_missing(p50) and is_missing(p99):
        return NONE
    return f"{ms(p50)} / {ms(p99)}"


def rate(value: float | None) -> str:
    """Cycles per second: whole above ten."""
    if value is None or is_missing(value):
        return NONE
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def percent(value: float | None) -> str:
    """One decimal, and never rounded up to a hundred."""
    if value is None or is_missing(value):
        return NONE
    return f"{min(value, 99.9) if value < 100 else value:.1f} %"


def seconds(value: float | None) -> str:
    """One decimal above a second, two below."""
    if value is None or is_missing(value):
        return NONE
    return f"{value:.1f} s" if value >= 1 else f"{value:.2f} s"


def micros(value: float | None) -> str:
    """Whole microseconds."""
    return NONE if is_missing(value) else f"{value:,.0f} µs"


def is_missing(value: Any) -> bool:
    """None or NaN, which is how a data frame writes None."""
    return value is None or value != value  # noqa: PLR0124 - NaN is unequal to itself


def words(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def times(count: int, noun: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def tries(n: int) -> str:
    """``one try``, ``two tries``, ``3 tries``."""
    return {1: "one try", 2: "two tries"}.get(n, f"{n} tries")


def printable(text: str, *, keep: str = "\n\t") -> str:
    """Text as it may be written anywhere: what acts on a terminal, turns the direction of text, is
    half of a character or has no shape is written as ``\\x1b``. What is in ``keep`` stays."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep or unicodedata.category(c) == "Zs" else ascii(c)[1:-1]
        for c in text
    )


def escape_markdown(text: str) -> str:
    """Text that stays text inside a Markdown table: one line per ``<br>``, no markup."""
    escaped = MARKDOWN_SPECIAL.sub(r"\\\1", printable(text).replace("&", "&amp;"))
    # An HTML entity, because some renderers do not unescape these inside a table.
    escaped = escaped.replace("\\|", "&#124;").replace("\\<", "&lt;").replace("\\>", "&gt;")
    return escaped.replace("\n", "<br>")
