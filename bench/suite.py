"""Runs cases one after the other into one run folder, and says how it ended.

``run_cases`` is the same for ``run``, ``suite`` and ``make bench``. Results are written after every
case, so an interrupted run keeps what it has.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from bench import interruption
from bench.errors import BadInput, Ending
from bench.plan import LINK_IMAGE, PUBLISHED, Case, expected_of, expected_s, topology_of
from bench.progress import Progress
from bench.run import Outcome, run_case
from clusters import images
from clusters.docker import Engine, EngineError
from clusters.reaper import reap
from locks.base import NAMED_VERDICTS
from results import machine, tables
from results.live import LiveView
from results.store import RunFolder, StoreError
from results.undisturbed import Undisturbed
from workloads.fleet import leftovers
from workloads.nursery import Nursery

RUNS = Path("runs")
DISK_FREE_MIN_BYTES = 2 * 2**30
MEMORY_FREE_MIN_BYTES = 2 * 2**30
UNDECIDED = Ending.INCONCLUSIVE


@dataclass(frozen=True)
class Finished:
    """A run as it ended."""

    ending: Ending
    folder: Path
    results: dict[str, Any]


def run_cases(
    cases: Sequence[Case], name: str, console: Console, *, web_port: int | None = None
) -> Finished:
    """Raises BadInput before anything is started, KeyboardInterrupt after everything is cleared."""
    engine = _ready(cases, console)
    try:
        versions = _versions(cases, engine)
        run = RunFolder.create(RUNS, name)
    except (StoreError, EngineError) as error:
        raise BadInput(str(error)) from error
    run_id = uuid.uuid4().hex[:12]
    documents: list[dict[str, Any]] = []
    endings: list[Ending] = []
    undisturbed = Undisturbed()
    done = False
    results: dict[str, Any] = {}
    try:
        run.write_plan({"name": name, "cases": [asdict(case) for case in cases]})
        run.write_machine(machine.facts(run.path, engine=engine.version()))
        run.write_versions(versions)
        with Nursery(run_id) as nursery, LiveView(len(cases), console) as live:
            for number, case in enumerate(cases, 1):
                rest_s = sum(expected_s(later) for later in cases[number:])
                outcome = _tries(
                    case,
                    number,
                    run,
                    run_id=run_id,
                    nursery=nursery,
                    live=live,
                    rest_s=rest_s,
                    web_port=web_port,
                )
                documents.append(outcome.document)
                if outcome.before_ns:
                    undisturbed.add(outcome.document, outcome.before_ns)
                if case.workload != PUBLISHED or len(cases) == 1:
                    endings.append(outcome.ending)
                _save(run, _results(name, documents, undisturbed, "running"))
                interruption.check()
        done = True
    finally:
        # Cut short, it failed; a violation that was found stays found.
        ending = Ending.worst(endings if done else [*endings, Ending.BENCH])
        try:
            results = _results(name, documents, undisturbed, ending.word)
            _save(run, results)
        finally:
            run.finish(ending.word)
    return Finished(ending, run.path, results)


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
    expected = expected_of(case)
    due = [e for v in NAMED_VERDICTS if (e := expected.of(v)).expected == "breaks"]
    tries = max((e.tries for e in due), default=1)
    shown: frozenset[str] = frozenset()
    earlier: list[dict[str, Any]] = []
    attempt = 1
    decided = True
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
            worst = outcome.ending if decided else Ending.worst([outcome.ending, UNDECIDED])
            return replace(outcome, ending=worst)
        decided = decided and "unknown" not in outcome.observed.values()
        earlier.append(
            {
                "observed": outcome.document["observed"],
                "exposed": outcome.document["exposed"],
                "folder": folder.path.name,
            }
        )
        attempt += 1


def _results(
    name: str, documents: Sequence[dict[str, Any]], undisturbed: Undisturbed, ending: str
) -> dict[str, Any]:
    """The object of ``results.json`` and of ``--json``."""
    return {
        "name": name,
        "cases": list(documents),
        "undisturbed": undisturbed.to_json(),
        "ending": ending,
    }


def _save(run: RunFolder, results: dict[str, Any]) -> None:
    run.write_results(results)
    if results["cases"]:
        for file, text in tables.files(run, results).items():
            run.write_text(file, text)


def _ready(cases: Sequence[Case], console: Console) -> Engine:
    """Everything that has to be there before the first case. Raises BadInput."""
    check_room(Path.cwd())

    def say(line: str) -> None:
        console.print(line, highlight=False)

    wanted = {topology_of(case).image for case in cases} | {LINK_IMAGE}
    replaced = {name for case in cases for name, _ in case.images}
    try:
        engine = Engine()
        reap(say, engine=engine)
        images.ensure(sorted(wanted - replaced), engine=engine, say=say)
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


def _versions(cases: Sequence[Case], engine: Engine) -> dict[str, Any]:
    replaced = {name: ref for case in cases for name, ref in case.images}
    names = {topology_of(case).image for case in cases} | {LINK_IMAGE}
    refs = sorted(replaced.get(name, name) for name in names)
    described = images.describe(refs, engine=engine)
    return {
        "libraries": machine.versions(),
        "images": {name: asdict(found) for name, found in described.items()},
        "engine": engine.version(),
    }
