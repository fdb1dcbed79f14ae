"""Writes the tables of a run into its folder, and draws them again from there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeGuard

from results.cases import Case
from results.store import NotARun, RunFolder
from results.tables import Tables, csv_files, report_markdown, tables

REPORT: Final = "report.md"


def write_report(run: RunFolder, made: Tables) -> Path:
    """``report.md`` and the CSV files; returns where the report is."""
    for name, text in csv_files(made).items():
        run.write_text(name, text)
    return run.write_text(REPORT, report_markdown(made, title=f"Lockbench: {run.path.name}"))


def stored_tables(run: RunFolder) -> Tables:
    """The tables of a finished run, from its files alone. Raises NotARun."""
    cases = run.results().get("cases")
    if not _are_cases(cases):
        raise NotARun(f"{run.path / 'results.json'} holds no list of cases; run it again")
    return tables(cases, machine=run.machine(), versions=run.versions())


def _are_cases(value: object) -> TypeGuard[Sequence[Case]]:
    return isinstance(value, list) and all(isinstance(case, dict) for case in value)
