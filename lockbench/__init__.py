"""A benchmark for distributed locks on real clusters, and a library to test what uses them.

What ``__all__`` names is stable, and stands in ``lockbench.api``. It is imported when it is first
asked for, so ``import lockbench`` costs nothing. Each link beside this file is a folder of the
repository.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockbench.api import faults
    from lockbench.api.cluster import Cluster
    from lockbench.api.errors import (
        BadInput,
        BrokenPromise,
        ClusterError,
        NotHealed,
        NotProven,
        Unavailable,
        Undecided,
    )
    from lockbench.api.judging import exclusive, judge
    from lockbench.api.recording import Recording, record

__all__ = [
    "BadInput", "BrokenPromise", "Cluster", "ClusterError", "NotHealed", "NotProven", "Recording",
    "Unavailable", "Undecided", "exclusive", "faults", "judge", "record",
]  # fmt: skip

_HOMES = {
    "errors": [
        "BadInput", "BrokenPromise", "ClusterError", "NotHealed", "NotProven", "Unavailable",
        "Undecided",
    ],
    "cluster": ["Cluster"],
    "judging": ["exclusive", "judge"],
    "recording": ["Recording", "record"],
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "faults":
        return importlib.import_module("lockbench.api.faults")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"lockbench.api.{home}"), name)
    raise AttributeError(f"module 'lockbench' has no attribute {name!r}")
