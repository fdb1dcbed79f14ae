"""Finds every fault: each module of this package with a ``FAULT``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from nemesis.base import Fault

NONE = "none"  # the absence of a fault, named so that it can be asked for


@cache
def faults() -> dict[str, Fault]:
    """Every fault by name. Two of the same name are a mistake that fails here."""
    found: dict[str, Fault] = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        fault = getattr(importlib.import_module(f"nemesis.{module.name}"), "FAULT", None)
        if fault is None:
            continue
        if not isinstance(fault, Fault) or fault.name in found or fault.name == NONE:
            raise TypeError(f"nemesis/{module.name}.py declares {fault!r}: not a fault of its own")
        found[fault.name] = fault
    return found
