"""How a module of ours is started as a program of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Where the package is: the checkout, or what it was installed into.
ROOT = Path(__file__).parents[2]


def command(module: str, *words: str) -> list[str]:
    """Without ``-P`` Python would look for modules in the working folder first, which may be a
    stranger's run folder. To be started with ``environment``."""
    return [sys.executable, "-P", "-m", module, *words]


def environment() -> dict[str, str]:
    """This process' own, in which this tree is found, installed or not."""
    paths = [os.environ.get("PYTHONPATH", ""), str(ROOT)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
