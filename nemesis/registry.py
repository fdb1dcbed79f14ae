"""Every fault there is: each module of ``lockbench.nemesis.faults`` with a ``FAULT``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from lockbench import declarations
from lockbench.nemesis import faults as package
from lockbench.nemesis.base import Fault

NONE = "none"  # the absence of a fault, named so that it can be asked for


@cache
def faults() -> Mapping[str, Fault]:
    """Every fault by name."""
    found = declarations.declared(package, "FAULT", Fault)  # type: ignore[type-abstract]
    if NONE in found:
        raise declarations.DeclarationError(f"no fault can be called {NONE!r}")
    return MappingProxyType(found)
