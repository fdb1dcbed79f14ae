"""What ``run`` and ``suite`` do once their cases are planned: run them, and show the results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import typer

from lockbench.bench import replay
from lockbench.bench.plan import Case
from lockbench.bench.suite import Finished, run_cases
from lockbench.cli.options import Done
from lockbench.report import tables
from lockbench.report.commands import report_after
from lockbench.report.console import err, out, say_json
from lockbench.results.documents import Refused, Versions
from lockbench.results.errors import BadInput
from lockbench.results.store import open_run
from lockbench.workloads.load import NOTHING, LocustsOwn


def play(
    cases: list[Case],
    name: str,
    as_json: bool,
    *,
    locust: LocustsOwn = NOTHING,
    refused: Sequence[Refused] = (),
    command: str | None = None,
    resume: Path | None = None,
    recorded: Callable[[Versions], Versions] = lambda versions: versions,
    runs: Path,
) -> NoReturn:
    """Runs cases into one folder and ends the command as they ended."""
    console = err if as_json else out
    if locust.web_port is not None:
        console.print(f"Locust's page: http://127.0.0.1:{locust.web_port}/ while the load runs")
    began = time.monotonic()
    finished = run_cases(
        cases,
        name,
        console,
        locust=locust,
        refused=refused,
        command=command,
        resume=resume,
        recorded=recorded,
        runs=runs,
    )
    _show(finished, len(finished.results.cases), time.monotonic() - began, as_json)
    raise Done(finished.ending.code)


def play_again(
    folder: Path, times: int, shrink: bool, as_json: bool, trust_plan: bool, *, runs: Path
) -> NoReturn:
    """``--replay``: the cases of a stored run once more."""
    console = err if as_json else out
    trusted = _agreed(folder, replay.foreign(folder), trust_plan)

    def player(cases: list[Case], name: str) -> Finished:
        of = replay.where(folder) if shrink else None
        return run_cases(cases, name, console, try_of=of, runs=runs)

    began = time.monotonic()
    if shrink:
        finished, case = replay.shrink(folder, player, console, trusted=trusted)
        _show(finished, 1, time.monotonic() - began, as_json)
        console.print(
            f"what is left of the schedule: --fault '{replay.schedule_words(case)}'",
            soft_wrap=True,
        )
        raise Done(finished.ending.code)
    finished = replay.replay(folder, times, player, trusted=trusted)
    _show(finished, len(finished.results.cases), time.monotonic() - began, as_json)
    if finished.results.replay is not None:
        replay.say(finished.results.replay, console)
    raise Done(finished.ending.code)


def _agreed(folder: Path, foreign: Sequence[str], said: bool) -> bool:
    """Tells what a stored plan chose to run, and asks for it unless it was ``said`` already. Raises
    BadInput where nobody can be asked and where the answer is no."""
    if not foreign:
        return False
    lines = "\n".join(f"  {sentence}" for sentence in foreign)
    err.print(f"the plan in {folder} runs\n{lines}", soft_wrap=True)
    if said:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadInput("nothing was run: look at the plan, and give --trust-plan if you trust it")
    if not typer.confirm("Do you trust this plan, and want to run it?", err=True):
        raise BadInput("nothing was run")
    return True


def _show(finished: Finished, cases: int, took_s: float, as_json: bool) -> None:
    if as_json:
        say_json(finished.results)
    else:
        tables.show(open_run(finished.folder), finished.results, out)
        count = f"{cases} case{'s' * (cases != 1)}"
        out.print(
            f"\n{finished.ending.word}: {count} in {took_s / 60:.1f} minutes, "
            f"saved in {finished.folder} (report.md, results.json, *.csv)",
        )
    console = err if as_json else out
    undeclared = [case for case in finished.results.cases if case.declare]
    for case in undeclared[:1]:
        console.print(
            f"\nIf a source says what {case.lock} does under {case.fault}, declare it in "
            "the lock's file, with that source:\n" + "\n".join(case.declare),
            soft_wrap=True,
        )
    if len(undeclared) > 1:
        console.print(f"results.json has such lines for {len(undeclared) - 1} more cases (declare)")
    console.print(report_after(finished.folder), soft_wrap=True)
