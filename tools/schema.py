"""Writes the JSON Schema of ``results.json``: ``python -m tools.schema``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lockbench.results.documents import schema

FILE: Final = Path(__file__).parents[1] / "docs" / "results.schema.json"

if __name__ == "__main__":
    FILE.write_text(schema(), encoding="utf-8")
