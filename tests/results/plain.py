"""Documents written as plain values, for tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lockbench.results.documents import CaseResult, Machine, Part, Plan, Results, Versions, made
from lockbench.results.store import CaseFolder, RunFolder

R = TypeVar("R")
Plain = Mapping[str, Any] | Part


def typed(value: Any) -> Any:
    """The value, with a ``CaseResult`` for every object in it that has a lock and a fault."""
    if isinstance(value, dict):
        if {"lock", "fault"} <= value.keys():
            return made(CaseResult, value)
        return {name: typed(one) for name, one in value.items()}
    return type(value)(map(typed, value)) if isinstance(value, list | tuple) else value


def plainly(function: Callable[..., R]) -> Callable[..., R]:
    """The function, taking plain values for cases."""
    return lambda *args, **named: function(*typed(args), **typed(named))


def plain(part: object) -> Any:
    return json.loads(msgspec.json.encode(part))


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def write_case(folder: CaseFolder, case: Plain) -> None:
    folder.write_case(made(CaseResult, case))


def write_plan(run: RunFolder, plan: Plain) -> None:
    run.write_plan(made(Plan, plan))


def write_machine(run: RunFolder, facts: Plain) -> None:
    run.write_machine(made(Machine, facts))


def write_versions(run: RunFolder, versions: Plain) -> None:
    run.write_versions(made(Versions, versions))


def write_results(run: RunFolder, results: Plain) -> None:
    run.write_results(made(Results, results))
