"""Every workload there is: each module of ``lockbench.workloads.jobs`` with a ``WORKLOAD``.

A workload is found under ``name:parameter=value:…``. Nothing here imports Locust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import lockbench.workloads.jobs
from lockbench import declarations
from lockbench.declarations.parameters import ParameterError, decided, split
from lockbench.workloads.base import Options, Workload


class WorkloadError(Exception):
    """No such workload or parameter; the message is one sentence that names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A workload with every parameter decided."""

    workload: Workload
    options: Options

    @property
    def leases(self) -> float:
        """How many leases a hold lasts at least; 0 where it lasts as long as the pace says."""
        return self.workload.leases(self.options)

    @property
    def outlasts(self) -> bool:
        """Whether the work may last longer than its lease."""
        return self.workload.outlasts(self.options)


@cache
def declared() -> Mapping[str, Workload]:
    """Name → workload, in alphabetical order."""
    return MappingProxyType(declarations.declared(lockbench.workloads.jobs, "WORKLOAD", Workload))


@cache
def find(spec: str) -> Asked:
    """A workload by its name, with or without parameters. Raises WorkloadError."""
    name = spec.partition(":")[0]
    workload = declared().get(name)
    if workload is None:
        raise WorkloadError(f"no workload is called {name!r}; there are {', '.join(declared())}")
    try:
        return Asked(workload, decided(name, workload.parameters, split(spec)[1]))
    except ParameterError as error:
        raise WorkloadError(str(error)) from error
