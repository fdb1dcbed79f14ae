"""Runs cases one after the other into one run folder, and says how it ended.

``run_cases`` is the same for ``run``, ``suite`` and ``make bench``. Results are written after every
case, so an interrupted run keeps what it has.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from rich.console import Console

from bench import clients, interruption
from bench.errors import BadInput, Ending
from bench.plan import PUBLISHED, Case, expected_s, ours_of, tries_of
from bench.progress import Progress
from bench.resume import (
    Documents,
    ending_of,
    finished,
    planned,
    same_conditions,
    stopped,
    take_over,
)
from bench.run import Outcome, run_case
from bench.usable import Refused
from clusters import images
from clusters.docker import Engine, EngineError
from clusters.reaper import reap
from locks.registry import is_own, origin
from results import machine, tables
from results.evidence import samples_ns
from results.live import LiveView
from results.store import TRY_OF, NotARun, RunFolder, StoreError
from results.undisturbed import Undisturbed
from workloads.fleet import leftovers
from workloads.nursery import Nursery

RUNS = Path("runs")
DISK_FREE_MIN_BYTES = 2 * 2**30
MEMORY_FREE_MIN_BYTES = 2 * 2**30


@dataclass(frozen=True)
class Finished:
    """A run as it ended."""

    ending: Ending
    folder: Path
    results: dict[str, Any]


def run_cases(
    cases: Sequence[Case],
    name: str,
    console: Console,
    *,
    web_port: int | None = None,
    refused: Sequence[Refused] = (),
    command: str | None = None,
    resume: Path | None = None,
    try_of: Path | None = None,
) -> Finished:
    """``try_of`` is the run that is being shrunk. ``refused`` are shown beside the cases.
    ``command`` is what a suite was asked for with; the run of such a one can be resumed. Raises
    BadInput before anything is started, KeyboardInterrupt after everything is cleared."""
    plan = planned(name, cases, refused, command)
    of = {} if try_of is None else {TRY_OF: str(try_of)}
    before = None if resume is None else stopped(resume, plan)
    engine = _ready(cases, console)
    try:
        versions = versions_of(cases, engine, lambda line: console.print(line, highlight=False))
        run = before or RunFolder.create(RUNS, name, **of)
    except (StoreError, EngineError) as error:
        raise BadInput(str(error)) from error
    gathered = _Gathered(run, name, len(cases) == 1, of)
    kept: Documents = {}
    if before is not None:
        facts = machine.facts(run.path, engine=engine.version())
        same_conditions(run, facts, _as_known_to(versions, run))
        kept = finished(run, cases)
        take_over(run, kept)
        run.write_versions(versions)
        console.print(f"{len(kept)} of {len(cases)} cases are done already", highlight=False)
    done = False
    try:
        if before is None:
            run.write_plan(plan | of)
            run.write_machine(machine.facts(run.path, engine=engine.version()))
            run.write_versions(versions)
        run_id = uuid.uuid4().hex[:12]
        with Nursery(run_id) as nursery, LiveView(len(cases), console) as live:
            for number, case in enumerate(cases, 1):
                if number in kept:
                    gathered.add(case, kept[number], samples_ns(run, kept[number]))
                    continue
                later = (c for n, c in enumerate(cases[number:], number + 1) if n not in kept)
                outcome = _tries(
                    case,
                    number,
                    run,
                    run_id=run_id,
                    nursery=nursery,
                    live=live,
                    rest_s=sum(expected_s(c) for c in later),
                    web_port=web_port,
                )
                gathered.add(case, outcome.document, outcome.before_ns)
                gathered.save("running")
                interruption.check()
        for number, one in enumerate(refused, len(cases) + 1):
            gathered.refuse(one, number)
        done = True
    finally:
        # Cut short, it failed; a violation that was found stays found.
        ending = Ending.worst([*gathered.endings, *([] if done else [Ending.BENCH])])
        try:
            results = gathered.save(ending.word)
        finally:
            run.finish(ending.word)
    return Finished(ending, run.path, results)


class _Gathered:
    """What a run has found out so far."""

    def __init__(self, run: RunFolder, name: str, alone: bool, of: Mapping[str, str]) -> None:
        self._of = of
        self._run = run
        self._name = name
        self._alone = alone
        self._documents: list[dict[str, Any]] = []
        self._undisturbed = Undisturbed()
        self.endings: list[Ending] = []

    def add(
        self, case: Case, document: dict[str, Any], before_ns: Mapping[str, NDArray[np.int64]]
    ) -> None:
        """A case that is done. The published experiment decides nothing, unless it is alone."""
        self._documents.append(document)
        published = case.workload == PUBLISHED
        if before_ns and document["numbers"] == "valid" and not published:
            self._undisturbed.add(document, before_ns)
        if not published or self._alone:
            self.endings.append(ending_of(document))

    def refuse(self, refused: Refused, number: int) -> None:
        """A case that could not be made."""
        folder = self._run.case(number, refused.lock, refused.fault)
        document = {
            **refused.document(),
            "folder": folder.path.name,
            "run": str(self._run.path),
            "tries": 1,
            "earlier_tries": [],
            "history_sha256": {},
        }
        folder.write_case(document)
        self._documents.append(document)
        self.endings.append(ending_of(document))

    def save(self, ending: str) -> dict[str, Any]:
        """Writes and answers the object of ``results.json`` and of ``--json``."""
        results = {
            "name": self._name,
            **self._of,
            "cases": list(self._documents),
            "undisturbed": self._undisturbed.to_json(),
            "ending": ending,
        }
        self._run.write_results(results)
        if self._documents:
            for file, text in tables.files(self._run, results).items():
                self._run.write_text(file, text)
        return results


def _tries(
    case: Case,
    number: int,
    run: RunFolder,
    *,
    run_id: str,
    nursery: Nursery,
    live: LiveView,
    rest_s: float,
    web_port: int | None,
) -> Outcome:
    """One case, repeated while a declared break did not show and tries are left."""
    tries = tries_of(case)
    shown: frozenset[str] = frozenset()
    earlier: list[dict[str, Any]] = []
    attempt = 1
    while True:
        name = case.fault if case.workload != PUBLISHED else f"{case.fault}-{PUBLISHED}"
        again = "" if attempt == 1 else f"-try{attempt}"
        folder = run.case(number, case.system.name, name + again)
        live.case_started(number, case.system.name, name + again)

        def on_progress(progress: Progress) -> None:
            seen = progress.seen
            live.update(
                phase=seen.phase,
                faults_on=progress.faults,
                cycles_per_s=seen.cycles_per_s,
                errors=seen.errors,
                seconds_left=None if seen.left_s is None else seen.left_s + rest_s,
            )

        outcome = run_case(
            case,
            folder.path,
            run_id=run_id,
            nursery=nursery,
            on_progress=on_progress,
            web_port=web_port,
            shown_before=shown,
        )
        shown |= {v for v, result in outcome.observed.items() if result == "invalid"}
        outcome.document |= {
            "run": str(run.path),
            "tries": attempt,
            "earlier_tries": earlier,
            "history_sha256": folder.history_sha256(),
        }
        folder.write_case(outcome.document)
        live.note(
            f"{case.system.name} under {name}{again}: {outcome.document['judgement']} — "
            f"{outcome.document['why']}"
        )
        if outcome.document["judgement"] != "did not show" or attempt >= tries:
            return outcome
        earlier.append(
            {
                "observed": outcome.document["observed"],
                "exposed": outcome.document["exposed"],
                "folder": folder.path.name,
            }
        )
        attempt += 1


def _ready(cases: Sequence[Case], console: Console) -> Engine:
    """Everything that has to be there before the first case. Raises BadInput."""
    check_room(Path.cwd())

    def say(line: str) -> None:
        console.print(line, highlight=False)

    try:
        engine = Engine()
        reap(say, engine=engine)
        images.ensure(ours_of(cases), engine=engine, say=say)
    except EngineError as error:
        raise BadInput(str(error)) from error
    for process in leftovers():
        process.kill()
    return engine


def check_room(folder: Path) -> None:
    """Raises BadInput when disk or memory are too small for a run."""
    free = psutil.disk_usage(str(folder)).free
    if free < DISK_FREE_MIN_BYTES:
        raise BadInput(
            f"{free / 2**30:.1f} GiB are free where runs are written ({folder}); "
            f"at least {DISK_FREE_MIN_BYTES / 2**30:.0f} are needed: remove old runs or images"
        )
    memory = psutil.virtual_memory().available
    if memory < MEMORY_FREE_MIN_BYTES:
        raise BadInput(
            f"{memory / 2**30:.1f} GiB of memory are available; "
            f"at least {MEMORY_FREE_MIN_BYTES / 2**30:.0f} are needed: end other programs"
        )


def versions_of(
    cases: Sequence[Case], engine: Engine, say: Callable[[str], None]
) -> dict[str, Any]:
    """The object of ``versions.json``; ``clients`` only where a lock lives beside its worker,
    ``own`` only where one comes from a file."""
    refs = sorted({*ours_of(cases), *(ref for case in cases for _, ref in case.images)})
    described = images.describe(refs, engine=engine)
    found = {
        "libraries": machine.versions(),
        "images": {name: asdict(found) for name, found in described.items()},
        "engine": engine.version(),
    }
    beside = clients.recorded([case.system for case in cases], engine, say)
    own = {case.lock: origin(case.lock) for case in cases if is_own(case.lock)}
    return found | ({"clients": beside} if beside else {}) | ({"own": own} if own else {})


def _as_known_to(versions: Mapping[str, Any], run: RunFolder) -> Mapping[str, Any]:
    try:
        return clients.as_known_to(versions, run.versions())
    except NotARun as error:
        raise BadInput(str(error)) from error
