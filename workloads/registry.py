"""Every workload there is: each module of ``workloads.jobs`` with a ``WORKLOAD``.

A workload is found under ``name:parameter=value:…``. Nothing here imports Locust.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import workloads.jobs
from workloads.base import Options, Parameter, Workload


class WorkloadError(Exception):
    """No such workload or parameter; the message is one sentence that names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A workload with every parameter decided."""

    workload: Workload
    options: Options


@cache
def declared() -> Mapping[str, Workload]:
    """Name → workload, in alphabetical order. Two of one name are an error."""
    found: dict[str, Workload] = {}
    for module in pkgutil.iter_modules(workloads.jobs.__path__):
        workload = importlib.import_module(f"workloads.jobs.{module.name}").WORKLOAD
        if not isinstance(workload, Workload) or workload.name in found:
            raise TypeError(f"workloads/jobs/{module.name}.py declares no workload of its own")
        found[workload.name] = workload
    return dict(sorted(found.items()))


@cache
def find(spec: str) -> Asked:
    """A workload by its name, with or without parameters. Raises WorkloadError."""
    name, *settings = spec.split(":")
    workload = declared().get(name)
    if workload is None:
        raise WorkloadError(f"no workload is called {name!r}; there are {', '.join(declared())}")
    options = {key: parameter.default for key, parameter in workload.parameters.items()}
    for setting in settings:
        key, _, value = setting.partition("=")
        parameter = workload.parameters.get(key)
        if parameter is None:
            known = ", ".join(workload.parameters) or "none"
            raise WorkloadError(
                f"workload {spec!r}: {name} has no parameter {key!r}; its parameters: {known}"
            )
        options[key] = _value(spec, key, parameter, value)
    return Asked(workload, options)


def _value(spec: str, key: str, parameter: Parameter, value: str) -> float | str:
    if parameter.choices:
        if value not in parameter.choices:
            raise WorkloadError(
                f"workload {spec!r}: {key} is one of {', '.join(parameter.choices)}"
            )
        return value
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not parameter.least <= number <= parameter.most or number == float("inf"):
        to = "on" if parameter.most == float("inf") else f"to {parameter.most:,.0f}"
        raise WorkloadError(f"workload {spec!r}: {key} is a number from {parameter.least:g} {to}")
    return number
