"""``lockbench regress``: both sides of a change, measured in turn in one job, and the gate.

The runs of a lock alternate in blocks of two pairs, base-new-new-base or the reverse, by a coin
from the seed: a drift of the machine hits both sides alike. Every run has processes of its own,
forked by a server of its own: what the layout of one process in memory costs is then noise between
runs, and no bias between the sides. A lock that looks slower, or is too noisy to tell, is measured
again with as many pairs before anything is said of it (``lockbench.results.gate``).
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace as evolved
from rich.console import Console

from lockbench.bench import interruption, plan
from lockbench.bench.plan import Case
from lockbench.bench.progress import shown_in
from lockbench.bench.room import check_case_room, in_one_sentence
from lockbench.bench.run import run_case
from lockbench.bench.suite import RUNS, Finished, ready, versions_of
from lockbench.clusters.engine.docker import Engine, EngineError
from lockbench.clusters.engine.removal import remove_run
from lockbench.evidence.compare import show, write_junit
from lockbench.evidence.regress_plan import BASE, NEW, SIDES, Key, Order, of_pair, short, turns
from lockbench.evidence.sides import install, library_path
from lockbench.report import comparison_text
from lockbench.report.commands import report_after
from lockbench.report.console import say_json
from lockbench.report.live import LiveView
from lockbench.results import documents, machine
from lockbench.results.cases import has_numbers
from lockbench.results.comparison import (
    Comparison,
    endings_of_verdicts,
    sentences,
    verdict_changes,
)
from lockbench.results.documents import Results
from lockbench.results.errors import BadInput, Ending, exit_code, worst_first
from lockbench.results.gate import TOLERATED, UNDECIDED, Cell, judge_pairs, not_carried, suspects
from lockbench.results.store import RunFolder, StoreError
from lockbench.workloads.fork_server import ForkServer


def regress(asked: Order, console: Console, runs: Path = RUNS) -> tuple[Finished, Comparison]:
    """Runs everything into a folder in ``runs`` and judges it. Raises BadInput before anything is
    started."""
    with ExitStack() as stack:
        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockbench-")))
            for _ in SIDES
        ]
        engine, versions = _ready(asked, folders, console, runs)
        try:
            run = RunFolder.create(runs, "regress-" + "-".join(lock for lock, _ in asked.cases))
        except StoreError as error:
            raise BadInput(str(error)) from error
        stack.enter_context(in_one_sentence(run.path))
        job = _Job(asked, run, uuid.uuid4().hex[:12], folders)
        try:
            run.write_plan(_plan(asked))
            run.write_machine(machine.facts(run.path, engine=engine.version()))
            run.write_versions(versions)
            _measure(job, console)
            made = _judged(job)
        except BaseException:
            with interruption.held():
                remove_run(job.run_id)
                # Cut short, it failed; a violation that was found stays found.
                news = [str(case.ending) for case in job.cases if case.side == "new"]
                cut = worst_first(["bench", *news])[0]
                try:
                    job.save(cut, None)
                finally:
                    run.finish(cut)
            raise
        with interruption.held():
            results = job.save(made.ending, made)
            run.finish(made.ending)
    return Finished(Ending[made.ending.upper()], run.path, results), made


@dataclass
class _Job:
    asked: Order
    run: RunFolder
    run_id: str
    folders: Sequence[Path]  # of base, of new: where a side's library is
    pairs: dict[Key, dict[int, list[documents.CaseResult | None]]] = field(default_factory=dict)
    cases: list[documents.CaseResult] = field(default_factory=list)

    def whole(self) -> dict[Key, list[tuple[documents.CaseResult, documents.CaseResult]]]:
        """The pairs of which both runs are there."""
        return {
            key: [(base, new) for base, new in of.values() if base and new]
            for key, of in self.pairs.items()
        }

    def sides(self) -> dict[Key, tuple[list[documents.CaseResult], list[documents.CaseResult]]]:
        """(lock, fault) → all cases of base, all of new."""
        return {key: ([b for b, _ in of], [n for _, n in of]) for key, of in self.whole().items()}

    def save(self, ending: str, made: Comparison | None) -> Results:
        # Nothing is taken together over two sides.
        results = Results(
            name="regress",
            cases=tuple(self.cases),
            comparison=None if made is None else made.document(),
            ending=ending,
            endings=() if made is None else tuple(made.endings),
        )
        self.run.write_results(results)
        if made is not None:
            self.run.write_text("comparison.md", comparison_text.markdown(made))
            self.run.write_text("comparison.csv", comparison_text.csv(made))
        return results


def _measure(job: _Job, console: Console) -> None:
    """The declared pairs of every lock, once more those that are void, then as many again of what
    looks slower or is too noisy."""
    pairs = job.asked.pairs
    _stage(job, dict.fromkeys(job.asked.cases, pairs), console)
    if not job.asked.numbers:
        return
    void = {key: n for key, of in job.whole().items() if (n := sum(map(_is_void, of)))}
    if void:
        console.print(f"{sum(void.values())} pairs are void and measured again")
        _stage(job, void, console)
    found = suspects(judge_pairs(job.whole(), pairs))
    if found:
        names = ", ".join(f"{lock} under {fault}" for lock, fault in found)
        line = f"{names}: slower at first sight, or too noisy; {pairs} more pairs decide"
        console.print(line)
        _stage(job, dict.fromkeys(found, pairs), console)


def _is_void(pair: tuple[documents.CaseResult, documents.CaseResult]) -> bool:
    return not all(map(has_numbers, pair))


def _stage(job: _Job, counts: Mapping[Key, int], console: Console) -> None:
    """So many more pairs of each case."""
    asked, done = job.asked, len(job.cases)
    with LiveView(2 * sum(counts.values()), console) as live:
        for key, count in counts.items():
            of = job.pairs.setdefault(key, {})
            first = len(of)
            for turn, at in turns(count, asked.seed + first):
                pair = first + turn
                # Each pair meets a schedule of its own, the same for both of its runs.
                case = of_pair(asked.cases[key][at], asked.seed, pair)
                name = f"{SIDES[at]} ({short(asked.sides[at].ref)}) {short(case.lock)}"
                live.case_started(len(job.cases) - done + 1, name, case.fault)
                document = _one(job, plan.resolve(case), at=at, pair=pair, live=live)
                live.note(f"pair {pair + 1}, {name} under {case.fault}: {document.judgement}")
                of.setdefault(pair, [None, None])[at] = document
                job.cases.append(document)
                job.save("running", None)
                interruption.raise_if_asked()


def _one(job: _Job, case: Case, *, at: int, pair: int, live: LiveView) -> documents.CaseResult:
    number = len(job.cases) + 1
    check_case_room(job.run.path)
    folder = job.run.case(number, SIDES[at], f"{short(case.lock)}-{case.fault}")
    side = job.asked.sides[at]
    with library_path(side, job.folders[at]):
        fresh = ForkServer(job.run_id)
    with fresh as fork_server:
        outcome = run_case(
            case,
            folder.path,
            run_id=job.run_id,
            fork_server=fork_server,
            on_progress=shown_in(live),
        )
    document = evolved(
        outcome.document,
        side=SIDES[at],
        ref=side.ref,
        pair=pair + 1,
        run=str(job.run.path),
        tries=1,
        history_sha256=folder.history_sha256(),
    )
    folder.write_case(document)
    return document


def _judged(job: _Job) -> Comparison:
    asked = job.asked
    sides = job.sides()
    cells = judge_pairs(job.whole(), asked.pairs) if asked.numbers else []
    changes = verdict_changes(sides)
    endings = worst_first([*endings_of_verdicts(sides), *_endings(cells)])
    return Comparison(
        kind="regress",
        base=asked.sides[BASE].ref,
        new=asked.sides[NEW].ref,
        endings=endings,
        sentences=sentences(endings, changes, cells, sides),
        changes=changes,
        cells=cells,
        notes=_notes(job, cells),
        repeat=asked.repeat,
    )


def _endings(cells: Sequence[Cell]) -> Iterator[str]:
    for cell in cells:
        if cell.word == "worse":
            yield "regression"
        elif cell.word in UNDECIDED:
            yield "inconclusive"


def _notes(job: _Job, cells: Sequence[Cell]) -> list[str]:
    notes = [
        f"{2 * len(of)} runs of {lock} under {fault}, base and new in turn (ABBA), "
        f"{job.asked.cases[lock, fault][BASE].time_limit_s:g} s each"
        for (lock, fault), of in job.whole().items()
    ]
    void = [str(case.side) for case in job.cases if case.numbers != "valid"]
    if void:
        sides = ", ".join(f"{side} {void.count(side)}" for side in SIDES)
        notes.append(f"the numbers of {len(void)} of {len(job.cases)} runs are void ({sides})")
    if job.asked.numbers and (missing := not_carried(job.whole())):
        notes.append(f"not judged: {', '.join(missing)}")
    if any(cell.word == "no difference shown" for cell in cells):
        notes.append(
            f"no difference shown rules out a slowdown of {TOLERATED:.0%}, or of twice the floor; "
            "it is no proof that there is none: read the intervals"
        )
    return notes


def _plan(asked: Order) -> documents.Plan:
    return documents.Plan(
        name="regress",
        base=asked.sides[BASE].ref,
        new=asked.sides[NEW].ref,
        pairs=asked.pairs,
        seed=asked.seed,
        repeat=asked.repeat,
        cases=tuple(
            documents.made(documents.Planned, {"side": side} | asdict(case))
            for both in asked.cases.values()
            for side, case in zip(SIDES, both, strict=True)
        ),
    )


def _ready(
    asked: Order, folders: Sequence[Path], console: Console, runs: Path
) -> tuple[Engine, documents.Versions]:
    """Everything that has to be there before the first run. Raises BadInput."""
    cases = [case for both in asked.cases.values() for case in both]
    engine = ready(cases, console, runs)
    try:
        versions = versions_of(cases, engine)
    except EngineError as error:
        raise BadInput(str(error)) from error
    installed = [
        install(side, folder, [both[at] for both in asked.cases.values()])
        for at, (side, folder) in enumerate(zip(asked.sides, folders, strict=True))
    ]
    # What this tree pins is not what a side has whose library is another.
    other = any(installed) or any(side.pinned for side in asked.sides)
    sides = {
        name: side.described(libraries)
        for name, side, libraries in zip(SIDES, asked.sides, installed, strict=True)
    }
    known = evolved(versions, sides=sides, clients=None if other else versions.clients)
    return engine, known


def command(
    asked: Order,
    *,
    fail_on: Sequence[str],
    as_json: bool,
    junit: Path | None,
    runs: Path,
    out: Console,
    err: Console,
) -> int:
    """The whole command; returns the exit code."""
    console = err if as_json else out
    more = f", more for what looks slower or is noisy; numbers may need {asked.needed} pairs"
    console.print(
        f"{asked.pairs} pairs of {len(asked.cases)} cases, about {asked.expected_s / 60:.0f} "
        f"minutes{more if asked.numbers else ', verdicts alone'}",
    )
    if asked.pairs < asked.needed:
        console.print("fewer pairs than numbers may need: then they end inconclusive")
    finished, made = regress(asked, console, runs)
    if as_json:
        found = msgspec.to_builtins(finished.results)
        say_json({**found, "run": str(finished.folder)})
    else:
        show(made, out)
        out.print(f"saved in {finished.folder} (comparison.md, results.json)")
        out.print(report_after(finished.folder), soft_wrap=True)
    if junit is not None:
        write_junit(made, junit)
    return exit_code(made.endings, fail_on)
