"""Brings the list of columns in ``docs/report.md`` up to date: ``python -m tools.columns``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lockbench.report.exports import columns_markdown
from lockbench.results.store import write_atomically

PAGE: Final = Path(__file__).parents[1] / "docs" / "report.md"
MARK: Final = "not what follows. -->\n"


def main() -> None:
    """Replaces what stands below the mark."""
    kept, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    write_atomically(PAGE, f"{kept}{MARK}\n{columns_markdown()}\n")


if __name__ == "__main__":
    main()
