"""Goes on with a run where it was stopped.

Guarantees: the plan is the one that the run was made with, the machine and every version too; a
case counts as finished only if its document is there, its history is the recorded one and today's
checker says of it what the document says. Everything else is run anew, and what was recorded of it
is moved to ``cut/``. Nothing is moved before all of this is known.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from lockbench.bench.plan import Case, tries_of
from lockbench.results import documents
from lockbench.results.cases import came_to_nothing
from lockbench.results.documents import Machine, Plan, Refused, Versions, made
from lockbench.results.errors import BadInput, Ending
from lockbench.results.judgements import DID_NOT_SHOW
from lockbench.results.store import ENDINGS, CaseFolder, NotARun, RunFolder, StoreError, open_run
from lockbench.results.stored import Edited, verify

# Of a machine, what numbers depend on and what does not change by itself.
MACHINE = ("cpu", "cores_usable", "memory_bytes", "kernel", "python", "engine")
Documents = Mapping[int, documents.CaseResult]


def planned(
    name: str, cases: Sequence[Case], refused: Sequence[Refused] = (), command: str | None = None
) -> Plan:
    """The object of ``plan.json``. ``command`` is how a suite was asked for."""
    return Plan(
        name=name,
        command=command,
        cases=tuple(made(documents.Planned, asdict(case)) for case in cases),
        refused=tuple(refused),
    )


def stopped(folder: Path, plan: Plan) -> RunFolder:
    """A run of just this plan that nobody is writing. Raises BadInput."""
    try:
        run = open_run(folder)
        stored = run.plan()
    except NotARun as error:
        raise BadInput(str(error)) from error
    if run.is_alive():
        raise BadInput(f"{folder}: its bench is still at work; wait for it, or end it")
    if stored.command is None:
        raise BadInput(f"{folder} is not the run of a suite: only those can be resumed")
    if stored.cases != plan.cases:
        raise BadInput(
            f"{folder} has another plan than the requested one: it was started with "
            f"`{stored.command}`; resume it with these arguments and the same declarations"
        )
    # As everywhere in the results, the path is relative to where the command was called.
    return RunFolder(Path(os.path.relpath(run.path)))


def same_conditions(run: RunFolder, machine: Machine, versions: Versions) -> None:
    """Raises BadInput where the run was made on another machine or with other versions: cases of
    both would stand beside each other as if they were comparable."""
    try:
        was = run.machine()
        differs = [name for name in MACHINE if getattr(was, name) != getattr(machine, name)]
        if differs:
            raise BadInput(
                f"{run.path} was made on another machine ({', '.join(differs)} differ); "
                "start a new run"
            )
        if run.versions() != versions:
            raise BadInput(f"{run.path} was made with other versions or images; start a new run")
    except NotARun as error:
        raise BadInput(str(error)) from error


def finished(run: RunFolder, cases: Sequence[Case]) -> Documents:
    """Number → document of every case that is done. Raises BadInput where one was changed since."""
    folders: dict[int, list[CaseFolder]] = defaultdict(list)
    for folder in run.cases():
        folders[folder.number].append(folder)
    done: dict[int, documents.CaseResult] = {}
    try:
        for number, case in enumerate(cases, 1):
            document = _last_try(folders[number])
            if document is not None and _is_final(document, case):
                verify(run, document)
                done[number] = document
    except (NotARun, Edited) as error:
        raise BadInput(f"{error}; or remove that case's folder to run it again") from error
    if len(done) == len(cases):
        raise BadInput(f"{run.path} is complete: all of its {len(cases)} cases are done")
    return done


def take_over(run: RunFolder, done: Documents) -> None:
    """Makes the run ours, and moves away what was recorded of cases that are not done. Raises
    BadInput when somebody else was faster."""
    try:
        run.take_over()
    except StoreError as error:
        raise BadInput(str(error)) from error
    for folder in run.cases():
        if folder.number not in done:
            run.set_aside(folder)


def ending_of(document: documents.CaseResult) -> Ending:
    """How a case ended, all its tries taken together: one that was undecided stays so."""
    ending = Ending[str(document.ending).upper()]
    if any("unknown" in before.observed.values() for before in document.earlier_tries):
        return Ending.worst([ending, Ending.INCONCLUSIVE])
    return ending


def _last_try(folders: Sequence[CaseFolder]) -> documents.CaseResult | None:
    tries = [d for folder in folders if (d := folder.read_case()) is not None]
    return max(tries, key=lambda document: document.tries or 1, default=None)


def _is_final(document: documents.CaseResult, case: Case) -> bool:
    """A lock that could not run may be able to now, and what disturbed a case or made it fail (a
    full disk) may be over. What does not say how it ended is not."""
    word = document.judgement
    if word == DID_NOT_SHOW:
        return (document.tries or 1) >= tries_of(case)
    return word is not None and not came_to_nothing(document) and document.ending in ENDINGS
