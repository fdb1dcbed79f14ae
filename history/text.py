"""Text that can always be written as UTF-8, and files of it that are whole.

What a server or a client answers may hold half of a surrogate pair (bytes decoded with
``surrogateescape``), which no UTF-8 file and no JSON reader takes. One such answer must not lose a
run, so whatever writes recordings spells it out: ``\\udcff`` as six characters.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

HALF = re.compile("[\ud800-\udfff]")


def writable(text: str) -> str:
    """The text, with every half of a surrogate pair spelled out."""
    return HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def json_text(value: object, *, indent: int | None = None) -> str:
    """A value as JSON in which every text is writable."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return HALF.sub(lambda half: f"\\\\u{ord(half[0]):04x}", text)


def write_whole(path: Path, text: str) -> None:
    """Written beside and renamed: what is there is whole, also when the disk fills up. Raises
    OSError."""
    beside = path.with_name(f".{path.name}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
