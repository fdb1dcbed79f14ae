"""Runs cases one after the other into one run folder, and says how it ended.

``run_cases`` is the same for ``run``, ``suite`` and ``make bench``. Results are written after every
case, so an interrupted run keeps what it has. Images that are missing are built first; those of a
suite also beside its first cases (``lockbench.bench.turns``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from msgspec.structs import replace
from rich.console import Console

from lockbench.bench import clients, interruption
from lockbench.bench.plan import PUBLISHED, Case, ours_of, rates_of, refuse_namesakes, tries_of
from lockbench.bench.progress import shown_in
from lockbench.bench.resume import (
    Documents,
    ending_of,
    finished,
    planned,
    same_conditions,
    stopped,
    take_over,
)
from lockbench.bench.room import check_case_room, check_room, in_one_sentence
from lockbench.bench.run import Outcome, run_case
from lockbench.bench.turns import Turn, Turns, image_order
from lockbench.bench.usable import refused_case, why_unusable
from lockbench.clusters import images
from lockbench.clusters.builds import Builds
from lockbench.clusters.engine.docker import Engine, EngineError
from lockbench.clusters.engine.reaper import reap
from lockbench.clusters.engine.removal import remove_run
from lockbench.locks.registry import is_own, origin
from lockbench.locks.shared.library import Library, library_of
from lockbench.report import write
from lockbench.report.live import LiveView
from lockbench.results import documents, machine
from lockbench.results.baseline import Baselines
from lockbench.results.documents import Image, Own, RatesOf, Refused, Results, Try, Versions, made
from lockbench.results.errors import BadInput, Ending
from lockbench.results.judgements import DID_NOT_SHOW
from lockbench.results.rates import Block, pooled
from lockbench.results.store import NotARun, RunFolder, StoreError
from lockbench.results.stored import blocks_of, samples_ns
from lockbench.workloads.fleet import leftovers
from lockbench.workloads.fork_server import ForkServer
from lockbench.workloads.load import NOTHING, LocustsOwn

RUNS = Path("runs")


@dataclass(frozen=True)
class Finished:
    """A run as it ended."""

    ending: Ending
    folder: Path
    results: Results


def run_cases(
    cases: Sequence[Case],
    name: str,
    console: Console,
    *,
    locust: LocustsOwn = NOTHING,
    refused: Sequence[Refused] = (),
    command: str | None = None,
    resume: Path | None = None,
    try_of: Path | None = None,
    recorded: Callable[[Versions], Versions] = lambda versions: versions,
    runs: Path = RUNS,
) -> Finished:
    """``try_of`` is the run that is being shrunk. ``refused`` are shown beside the cases.
    ``recorded`` changes the versions of this tree into those that take part. ``runs`` gets a folder
    for the run.
    ``command`` is what a suite was asked for with; the run of such a one can be resumed. Raises
    BadInput before anything is started, KeyboardInterrupt or Failed after everything is cleared."""
    refuse_namesakes(cases)
    plan = planned(name, cases, refused, command)
    of = None if try_of is None else str(try_of)
    before = None if resume is None else stopped(resume, plan)
    builds, engine = begun(cases, console, runs)
    numbered = dict(enumerate(cases, 1))
    turns = Turns(numbered, builds, suite=command is not None and before is None)
    turns.await_first()
    all_built = builds.over  # asked before it is looked what is there
    try:
        versions = recorded(versions_of(cases, engine))
        run = before or RunFolder.create(runs, name, try_of=of)
    except (StoreError, EngineError) as error:
        raise BadInput(str(error)) from error
    gathered = _Gathered(run, name, len(cases) == 1, of)
    earlier: Documents = {}
    if before is not None:
        facts = machine.facts(run.path, engine=engine.version())
        same_conditions(run, facts, _as_known_to(versions, run))
        earlier = finished(run, cases)
        take_over(run, earlier)
        run.write_versions(versions)
        console.print(f"{len(earlier)} of {len(cases)} cases are done already", highlight=False)
    done = False
    run_id = uuid.uuid4().hex[:12]
    with in_one_sentence(run.path):
        try:
            if before is None:
                run.write_plan(replace(plan, try_of=of))
                run.write_machine(machine.facts(run.path, engine=engine.version()))
                run.write_versions(versions)
            for number, document in earlier.items():
                samples, blocks = samples_ns(run, document), blocks_of(run, document)
                gathered.add(number, numbered[number], Outcome(document, samples, blocks))
            turns.without(earlier)
            with ForkServer(run_id) as fork_server, LiveView(len(cases), console) as live:
                for turn in turns:
                    check_case_room(run.path)
                    if not all_built:
                        all_built = builds.over
                        versions = recorded(versions_of(cases, engine))
                        run.write_versions(versions)
                    outcome = _tries(turn, run, run_id, fork_server, live, locust=locust)
                    if _again(turn, outcome):
                        live.note("it is run again when nothing is built")
                        _set_aside(run, turn.number)
                        turns.again(turn)
                        continue
                    gathered.add(turn.number, turn.case, outcome)
                    gathered.save("running")
                    interruption.raise_if_asked()
            for number, one in enumerate(refused, len(cases) + 1):
                gathered.refuse(one, number)
            done = True
        finally:
            with interruption.held():
                left = remove_run(run_id)
                # Cut short, it failed; a violation that was found stays found.
                failed = [] if done and not left and not interruption.asked() else [Ending.BENCH]
                ending = Ending.worst([*gathered.endings, *failed])
                try:
                    results = gathered.save(ending.word)
                finally:
                    run.finish(ending.word)
    return Finished(ending, run.path, results)


class _Gathered:
    """What a run has found out so far."""

    def __init__(self, run: RunFolder, name: str, alone: bool, of: str | None) -> None:
        self._of = of
        self._run = run
        self._name = name
        self._alone = alone
        self._documents: dict[int, documents.CaseResult] = {}
        self._baselines = Baselines()
        self._blocks: dict[RatesOf, list[Block]] = {}
        self.endings: list[Ending] = []

    def add(self, number: int, case: Case, outcome: Outcome) -> None:
        """A case that is done. The published experiment decides nothing, unless it is alone."""
        document, before_ns = outcome.document, outcome.before_ns
        self._documents[number] = document
        published = case.workload == PUBLISHED
        if before_ns and document.numbers == "valid" and not published:
            self._baselines.add(document, before_ns)
        if outcome.blocks:
            self._blocks.setdefault(rates_of(case), []).extend(outcome.blocks)
        if not published or self._alone:
            self.endings.append(ending_of(document))

    def refuse(self, refused: Refused, number: int) -> None:
        """A case that could not be made."""
        folder = self._run.case(number, refused.lock, refused.fault)
        document = replace(
            refused_case(refused),
            folder=folder.path.name,
            run=str(self._run.path),
            tries=1,
            history_sha256={},
        )
        folder.write_case(document)
        self._documents[number] = document
        self.endings.append(ending_of(document))

    def save(self, ending: str) -> Results:
        """Writes and answers the object of ``results.json`` and of ``--json``."""
        results = Results(
            name=self._name,
            try_of=self._of,
            cases=tuple(self._documents[number] for number in sorted(self._documents)),
            undisturbed=self._baselines.locks(),
            rates=tuple(pooled(of, blocks) for of, blocks in self._blocks.items()),
            ending=ending,
        )
        self._run.write_results(results)
        if self._documents:
            for file, text in write.files(self._run, results).items():
                self._run.write_text(file, text)
        return results


def _again(turn: Turn, outcome: Outcome) -> bool:
    """Whether a case may end otherwise when nothing is built beside it."""
    return (
        turn.beside is not None
        and turn.unable is None
        and outcome.document.ending in {Ending.BENCH.word, Ending.INCONCLUSIVE.word}
    )


def _set_aside(run: RunFolder, number: int) -> None:
    for folder in run.cases():
        if folder.number == number:
            run.set_aside(folder)


def _tries(
    turn: Turn,
    run: RunFolder,
    run_id: str,
    fork_server: ForkServer,
    live: LiveView,
    *,
    locust: LocustsOwn,
) -> Outcome:
    """One case, repeated while a declared break did not show and tries are left."""
    case, number = turn.case, turn.number
    tries = tries_of(case)
    shown: frozenset[str] = frozenset()
    earlier: list[Try] = []
    attempt = 1
    while True:
        name = case.fault if case.workload != PUBLISHED else f"{case.fault}-{PUBLISHED}"
        again = "" if attempt == 1 else f"-try{attempt}"
        folder = run.case(number, case.system.name, name + again)
        live.case_started(number, case.system.name, name + again)
        outcome = run_case(
            case,
            folder.path,
            run_id=run_id,
            fork_server=fork_server,
            on_progress=shown_in(live, rest_s=turn.rest_s),
            locust=locust,
            shown_before=shown,
            unable=turn.unable,
            beside=turn.beside,
        )
        document = replace(
            outcome.document,
            run=str(run.path),
            tries=attempt,
            earlier_tries=tuple(earlier),
            history_sha256=folder.history_sha256(),
        )
        shown |= {v for v, result in document.observed.items() if result == "invalid"}
        folder.write_case(document)
        live.note(f"{case.system.name} under {name}{again}: {document.judgement} — {document.why}")
        if document.judgement != DID_NOT_SHOW or attempt >= tries:
            return Outcome(document, outcome.before_ns, outcome.blocks)
        earlier.append(Try(document.observed, document.exposed, folder.path.name))
        attempt += 1


def ready(cases: Sequence[Case], console: Console, runs: Path) -> Engine:
    """Makes sure of room, an engine, its images and the environments of libraries, and ends what
    dead benches left. Raises BadInput; for a client's image that cannot be built, its cases say
    so."""
    builds, engine = begun(cases, console, runs)
    builds.wait()
    if failure := builds.failure(ours_of(cases)):
        raise BadInput(str(failure)) from failure
    return engine


def begun(cases: Sequence[Case], console: Console, runs: Path) -> tuple[Builds, Engine]:
    """The same, but the images are still being built. Raises BadInput."""
    check_room(runs)

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)

    try:
        engine = Engine()
        reap(say, engine=engine)
        builds = images.begin(image_order(cases), engine=engine, say=say)
    except EngineError as error:
        raise BadInput(str(error)) from error
    for system in {case.lock: case.system for case in cases}.values():
        if isinstance(library_of(system), Library):
            why_unusable(system)  # each of its cases will say why
    for process in leftovers():
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return builds, engine


def versions_of(cases: Sequence[Case], engine: Engine) -> Versions:
    """The object of ``versions.json``; ``clients`` only where a lock lives beside its worker,
    ``own`` only where one comes from a file. Without images of ours that are not built."""
    ours = [name for name in ours_of(cases) if images.is_current(engine, name)]
    refs = sorted({*ours, *(ref for case in cases for _, ref in case.images)})
    described = images.describe(refs, engine=engine)
    beside = clients.recorded([case.system for case in cases], engine)
    own = {case.lock: made(Own, origin(case.lock)) for case in cases if is_own(case.lock)}
    return Versions(
        libraries=machine.versions(),
        images={name: made(Image, asdict(found)) for name, found in described.items()},
        engine=engine.version(),
        clients=beside or None,
        own=own or None,
    )


def _as_known_to(versions: Versions, run: RunFolder) -> Versions:
    try:
        return clients.as_known_to(versions, run.versions())
    except NotARun as error:
        raise BadInput(str(error)) from error
