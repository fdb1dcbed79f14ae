"""The nightly job: ``make nightly``, or ``python -m lockbench.evidence.nightly`` in any CI.

One night is a suite, one retry of each case that was inconclusive, two controls of the gate, and a
comparison of what is checked out with the baseline that is pinned in git
(``lockbench.evidence.baseline``), both sides in turn in this same job: recipes, client libraries
and servers all count. Numbers of all comparisons are corrected together. Which lock is measured in
runs that are long enough for a p99, and which one has to recover from which fault, is drawn from
the seed.

The controls: one lock against itself, which must not differ, and one against itself with a quarter
planted (``lockbench.evidence.planted``), which must be found. A night whose control fails is void:
none of its numbers counts, and it fails.

What occurred is a set of endings: safety, regression, bench, inconclusive; ok where it is empty.
The headline tells each, and ``runs/latest/ending`` has the worst. The exit code is that of the
worst ending that ``--fail-on`` names (safety and regression unless said), that of bench for a void
night and for one that was cut short, and that of the night after three nights in a row that decided
nothing; else 0. 254: the night was refused. What a night found before it was cut short is told and
kept, and a night that was refused has its line with the reason.

``--history DIR`` (``runs`` unless said) keeps one line a night (``nights.jsonl``) and the trends
(``trends.html``), which gate nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from lockbench.bench import interruption, plan, suites
from lockbench.bench.resume import ending_of
from lockbench.bench.suite import RUNS, run_cases
from lockbench.evidence import planted
from lockbench.evidence.baseline import checked_out
from lockbench.evidence.regress import regress
from lockbench.evidence.regress_plan import BASE, PAIRS, SCHEDULES, Order, of_pair, order
from lockbench.evidence.sides import BASELINE, install, known_locks, parse
from lockbench.history.files import BadFile, MissingFile, read_text
from lockbench.locks.registry import systems
from lockbench.locks.shared.library import library_of
from lockbench.nemesis.registry import NONE
from lockbench.report.comparison_text import markdown
from lockbench.report.console import out
from lockbench.report.trends import figures_of, machine_in, page, versions_in
from lockbench.results import documents
from lockbench.results.cases import command_of, in_order, lock_of
from lockbench.results.comparison import Comparison, rejudged
from lockbench.results.documents import CURRENT, CaseResult, Results
from lockbench.results.errors import (
    BAD_INPUT,
    BadInput,
    Ending,
    Failed,
    endings_named,
    exit_code,
    worst_first,
)
from lockbench.results.gate import change_words, metrics_of
from lockbench.results.statistics import needed_pairs
from lockbench.results.store import (
    CaseFolder,
    NotARun,
    RunFolder,
    StoreError,
    open_run,
    write_atomically,
)
from lockbench.results.wording import escape_markdown

MINUTES_MAX: Final = 90.0
FAIL_ON: Final = ("safety", "regression")
OPEN: Final = frozenset({"inconclusive", "bench"})
OPEN_NIGHTS_MAX: Final = 3
NIGHTS: Final = "nights.jsonl"
AGAIN: Final = "make nightly"  # what repeats a night
# How long a lock takes to serve again is compared for one lock under one of these: a server that
# dies, one that is frozen, one that is cut off.
RECOVERS_FROM: Final = ("kill", "pause", "partition-drop")
FOUND: Final = "acquire-p50"  # the number that the planted slowdown slows by just so much
LIMIT_S: Final = 8.0
# A p99 needs 1,000 acquires of own keys. Ten clients ask every 0.15 s, for a fifth of the time.
LONG_S: Final = 78.0
# As few pairs as can decide: long runs take a fifth of the night.
LONG_PAIRS: Final = needed_pairs(len(metrics_of(NONE)))


@dataclass
class Night:
    """What is known so far. ``cases`` are the last tries, in the order of the suite."""

    began: float
    cases: list[CaseResult] = field(default_factory=list)
    planned: list[plan.Case] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    # (ending, what happened, the command that repeats it), of no case above and no comparison.
    beside: list[tuple[str, str, str]] = field(default_factory=list)
    same: Comparison | None = None  # the control that compares a lock with itself
    slower: Comparison | None = None  # the control with the planted slowdown
    baseline: str | None = None  # its commit
    parts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)  # comparisons that no time was left for
    cut_short: str | None = None  # why it ended before its end

    def minutes_left(self) -> float:
        """Until the time is over that a night may take."""
        return MINUTES_MAX - (time.monotonic() - self.began) / 60

    @property
    def failed_controls(self) -> list[tuple[str, str]]:
        """(what is wrong, the one command that repeats it) of each: no number of this night
        counts."""
        found = []
        if self.same is not None:
            differ = [change_words(c) for c in self.same.cells if c.word in {"worse", "improved"}]
            if differ:
                why = f"a lock differs from itself: {'; '.join(differ)}"
                found.append((why, self.same.repeat))
        if self.slower is not None:
            word = next((c.words for c in self.slower.cells if c.metric == FOUND), "not measured")
            if word != "worse":
                why = f"the planted slowdown of {planted.SLOWDOWN:.0%} was not found: {word}"
                found.append((why, self.slower.repeat))
        return found

    @property
    def void(self) -> list[str]:
        """Why its numbers must not be used."""
        return [why for why, _ in self.failed_controls]

    @property
    def failed(self) -> list[str]:
        """Why the night itself failed, whatever the locks did."""
        return [*([self.cut_short] if self.cut_short else []), *self.void]

    def _told(self) -> list[tuple[str, Comparison]]:
        """(ending, comparison) of all that counts: no slowdown of a void night and of the controls,
        for which ``void`` speaks, and of the planted one only what has nothing to do with it."""
        found = []
        slowdown = set() if self.void else {"regression"}
        for made, counts in (
            (self.same, {"safety", "bench", "inconclusive"}),
            (self.slower, {"safety", "bench"}),
            *((one, {"safety", "bench", "inconclusive", *slowdown}) for one in self.comparisons),
        ):
            found += [(e, made) for e in made.endings if e in counts] if made else []
        return found

    @property
    def endings(self) -> tuple[str, ...]:
        """All that occurred, the worst first."""
        found = {ending_of(c).word for c in self.cases if c.workload != plan.PUBLISHED}
        if self.undone or not found:
            found.add("inconclusive")
        found |= {ending for ending, _, _ in self.beside}
        found |= {ending for ending, _ in self._told()}
        return worst_first(found | {"bench"} if self.failed else found)

    @property
    def ending(self) -> str:
        return self.endings[0]

    def failures(self) -> list[tuple[str, str, str]]:
        """(ending, what happened, the one command that repeats it) for everything not ok."""
        found = []
        for case, planned in zip(self.cases, self.planned, strict=True):
            ending = ending_of(case)
            if ending is not Ending.OK and case.workload != plan.PUBLISHED:
                what = f"{lock_of(case)} under {case.fault}: {_why(case)}"
                found.append((ending.word, what, command_of(case, planned.images)))
        found += self.beside
        if self.cut_short:
            found.append(("bench", f"cut short: {self.cut_short}", AGAIN))
        found += [("inconclusive", "no time was left to compare", again) for again in self.undone]
        found += [("bench", f"void, {why}", again) for why, again in self.failed_controls]
        found += [(ending, made.sentences[ending], made.repeat) for ending, made in self._told()]
        return found

    @property
    def headline(self) -> str:
        """A sentence for each ending that occurred, which begins with it; the worst first."""
        failures = self.failures()
        return ". ".join(
            self._sentence(ending, [what for kind, what, _ in failures if kind == ending])
            for ending in self.endings
        )

    def _sentence(self, ending: str, failures: Sequence[str]) -> str:
        what = failures[0] if failures else "nothing was measured"
        judged = sum(case.workload != plan.PUBLISHED for case in self.cases)
        more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        return {
            "ok": f"ok: {judged} cases as expected, no slowdown shown",
            "safety": f"safety: a promise was broken: {what}{more}",
            "regression": f"regression: {what}{more}",
            "inconclusive": f"inconclusive: nothing is proven either way: {what}{more}",
            "bench": f"bench: our own failure, not a lock's: {what}{more}",
        }[ending]


def _why(case: CaseResult) -> str:
    if ending_of(case).word == case.ending:
        return str(case.why)
    tries = (before.observed.items() for before in case.earlier_tries)
    unknown = in_order(verdict for of in tries for verdict, result in of if result == "unknown")
    return f"{', '.join(unknown)}: undecided in an earlier try"


def code_of(
    endings: Sequence[str], fail_on: Sequence[str], earlier: Sequence[str], *, failed: bool = False
) -> int:
    """The exit code of a night. ``earlier`` are the worst endings of the nights before, the last
    one last."""
    if code := exit_code(endings, fail_on):
        return code
    if failed:
        return Ending.BENCH.code
    streak = [endings[0], *reversed(earlier)][:OPEN_NIGHTS_MAX]
    if len(streak) == OPEN_NIGHTS_MAX and all(word in OPEN for word in streak):
        return Ending[endings[0].upper()].code
    return 0


def run_night(
    night: Night, *, base: str, new: str, locks: Sequence[str], seed: int, console: Console
) -> None:
    """Everything but the report. Without ``locks`` those of ``usual``. Raises BadInput before
    anything is started; Failed where the night cannot be had here and today."""
    declared = suites.suite("nightly", seed)
    if not locks:
        locks, unknown = _usual(base, new, seed)
        if unknown:
            night.notes.append(f"not compared, unknown to base: {', '.join(unknown)}")
    compared = _orders(base, new, locks, seed)
    same, slower = _controls(seed)
    # A slowdown is measured twice, and one is planted.
    apart_s = sum(one.expected_s for one in (*compared, same, slower, slower))
    expected = (declared.expected_s + apart_s) / 60
    if expected > MINUTES_MAX:
        raise BadInput(f"this night would take {expected:.0f} minutes; name fewer locks")
    console.print(f"nightly: suite nightly, about {expected:.0f} minutes")
    night.notes += [f"compared: {_told(asked)}" for asked in compared]
    if (pinned := compared[0].sides[BASE].pinned) is not None:
        night.baseline = pinned.commit
    _install(compared)
    _suite(night, declared.cases, console)
    _retry(night, console)
    night.same = _compared(night, same, console)
    night.slower = _compared(night, slower, console)
    if night.same is None or night.slower is None:
        # Nothing says whether the gate would see a slowdown in this night.
        night.undone += [asked.repeat for asked in compared]
        return
    made: list[Comparison] = []
    try:
        made.extend(filter(None, (_compared(night, asked, console) for asked in compared)))
    finally:
        night.comparisons = made  # if anything is wrong with what follows, it is told as it was
        night.comparisons = rejudged(made)


def _told(asked: Order) -> str:
    cases = [f"{lock} under {fault}" for lock, fault in asked.cases]
    (limit_s,) = {both[BASE].time_limit_s for both in asked.cases.values()}
    return f"{', '.join(cases)}, {asked.pairs} pairs of {limit_s:g} s"


def _install(compared: Sequence[Order]) -> None:
    """Whether both sides can be had, before the suite spends its time. Raises Failed."""
    every = [both for asked in compared for both in asked.cases.values()]
    for at, side in enumerate(compared[0].sides):
        with tempfile.TemporaryDirectory(prefix="lockbench-") as folder:
            try:
                install(side, Path(folder), [both[at] for both in every])
            except BadInput as error:
                raise Failed(str(error)) from error


def _compared(night: Night, asked: Order, console: Console) -> Comparison | None:
    """None where no time was left. The violations of a comparison that is cut short are kept."""
    if asked.expected_s / 60 > night.minutes_left():
        night.undone.append(asked.repeat)
        return None

    def keep(_n: int, case: CaseResult) -> None:
        if case.side == "new" and case.ending == Ending.SAFETY.word:
            what = f"{lock_of(case)} under {case.fault}: {case.why}"
            night.beside.append((Ending.SAFETY.word, what, asked.repeat))

    try:
        with _kept_if_cut(night, keep):
            finished, made = regress(asked, console)
    except BadInput as error:  # it is not "before anything was started" any more
        raise Failed(str(error)) from error
    night.parts.append(str(finished.folder))
    return made


def _suite(night: Night, cases: Sequence[plan.Case], console: Console) -> None:
    def keep(n: int, document: CaseResult) -> None:
        night.cases.append(document)
        night.planned.append(cases[n])

    _run(night, cases, "nightly-suite", keep, console)


def _run(
    night: Night,
    cases: Sequence[plan.Case],
    name: str,
    keep: Callable[[int, CaseResult], None],
    console: Console,
) -> None:
    """Runs cases, and hands the place and the document of each to ``keep``."""
    with _kept_if_cut(night, keep):
        finished = run_cases(cases, name, console)
    night.parts.append(str(finished.folder))
    for n, document in enumerate(finished.results.cases):
        keep(n, document)
    judged = [case for case in finished.results.cases if case.workload != plan.PUBLISHED]
    failed = any(ending_of(case) is Ending.BENCH for case in judged)
    if finished.ending is Ending.BENCH and not failed:
        what = f"{finished.folder} failed, and no case of it: what it made could not be removed"
        night.beside.append((Ending.BENCH.word, what, AGAIN))


@contextlib.contextmanager
def _kept_if_cut(night: Night, keep: Callable[[int, CaseResult], None]) -> Iterator[None]:
    """What a run has found before it is cut short is handed to ``keep`` (the case's place from 0,
    its document) before its exception goes on."""
    before = _folders()
    try:
        yield
    except BaseException:
        for path in filter(_is_ours, sorted(_folders() - before)):
            night.parts.append(str(path))
            try:
                found = open_run(path).results().cases
            except NotARun as error:
                night.notes.append(str(error))
                continue
            for n, document in enumerate(found, 1):
                keep((CaseFolder(Path(document.folder or "")).number or n) - 1, document)
        raise


def _folders() -> set[Path]:
    """All runs that are there."""
    return {path.parent for path in RUNS.glob("*/ending") if not path.parent.is_symlink()}


def _is_ours(run: Path) -> bool:
    """Whether this process made it: another bench may begin one in the same folder meanwhile."""
    try:
        return read_text(run / "owner", inside=run).strip() == str(os.getpid())
    except BadFile:
        return False


def _retry(night: Night, console: Console) -> None:
    """Once, with the next seed; a violation that the retry finds counts like any other."""
    again = [n for n, c in enumerate(night.cases) if ending_of(c) is Ending.INCONCLUSIVE]
    again = [n for n in again if night.cases[n].workload != plan.PUBLISHED]
    if not again:
        return
    cases = [
        plan.resolve(plan.with_time_for_faults(replace(case, seed=case.seed + 1, injections=())))
        for case in (night.planned[n] for n in again)
    ]
    minutes = sum(plan.expected_s(case) for case in cases) / 60
    if minutes > night.minutes_left():
        night.notes.append(f"no time was left to repeat {len(cases)} inconclusive cases")
        return

    def keep(n: int, document: CaseResult) -> None:
        night.cases[again[n]], night.planned[again[n]] = document, cases[n]

    try:
        _run(night, cases, "nightly-retry", keep, console)
    except BadInput as error:  # what the suite found counts
        raise Failed(str(error)) from error
    night.notes.append(f"{len(again)} inconclusive cases were repeated once")


def _usual(base: str, new: str, seed: int) -> tuple[list[str], list[str]]:
    """See ``usual``. Raises BadInput for a side that is not there, Failed for one that cannot be
    read."""
    sides = parse(base), parse(new)
    try:
        return usual(seed, set.intersection(*map(known_locks, sides)))
    except BadInput as error:
        raise Failed(str(error)) from error


def usual(seed: int, known: Collection[str]) -> tuple[list[str], list[str]]:
    """The locks that a night compares unless it is told: one recipe of each system, and of the
    libraries that are adapted another one each night; and those that are left out, because they are
    not ``known`` on both sides."""
    adapted = [
        name
        for name, system in systems().items()
        if (library := library_of(system)) is not None and library.safe
    ]
    both = [name for name in adapted if name in known]
    chosen = [name for name in suites.sampled() if name in known]
    chosen += [both[seed % len(both)]] if both else []
    return chosen, [name for name in (*suites.sampled(), *adapted) if name not in known]


def _orders(base: str, new: str, locks: Sequence[str], seed: int) -> list[Order]:
    """All locks without a fault, one of them in runs that carry a p99; and one under a fault that
    it has to recover from. The longest is the last, should no time be left."""
    drawn = random.Random(f"{seed} compared")
    made = partial(order, base, new, seed=seed)
    long = drawn.choice(locks)
    found = []
    if others := [lock for lock in locks if lock != long]:
        found.append(made(locks=others, faults=[NONE], pairs=None, time_limit_s=LIMIT_S))
    struck = [
        replace(plan.make_case(lock, fault, seed=seed), time_limit_s=LIMIT_S)
        for lock in locks
        for fault in RECOVERS_FROM
    ]
    if able := [case for case in struck if plan.applies(case)]:
        case = drawn.choice(able)
        pairs = [of_pair(case, seed, pair) for pair in range(SCHEDULES * PAIRS)]
        limit_s = max(plan.with_time_for_faults(one).time_limit_s for one in pairs)
        found.append(made(locks=[case.lock], faults=[case.fault], pairs=None, time_limit_s=limit_s))
    return [*found, made(locks=[long], faults=[NONE], pairs=LONG_PAIRS, time_limit_s=LONG_S)]


def _controls(seed: int) -> tuple[Order, Order]:
    plain, slower = planted.OF, f"{planted.__file__}:{planted.SYSTEM.name}"
    made = partial(order, faults=[NONE], pairs=None, time_limit_s=LIMIT_S, seed=seed)
    return made(CURRENT, CURRENT, locks=[plain]), made(plain, slower, locks=[])


def report(night: Night, *, earlier: Sequence[str], code: int) -> str:
    """Markdown: the headline, every failure with its command, the comparisons."""
    parts = [f"# {escape_markdown(night.headline)}"]
    for kind, what, command in night.failures():
        parts.append(f"**{kind}**: {escape_markdown(what)}\n\n    {command}")
    open_before = [word in OPEN for word in reversed(earlier)]
    nights = 1 + (open_before.index(False) if False in open_before else len(open_before))
    if night.ending in OPEN:
        parts.append(f"{nights} nights in a row decided nothing; {OPEN_NIGHTS_MAX} are a failure.")
    if night.void:
        parts.append("The night is void: no number below counts.")
    parts += [markdown(made) for made in night.comparisons]
    for made, what in (
        (night.same, "Control: a lock against itself"),
        (night.slower, f"Control: {planted.SLOWDOWN:.0%} planted"),
    ):
        parts += [] if made is None else [f"## {what}", markdown(made)]
    parts += [escape_markdown(note) + "." for note in night.notes]
    parts.append("Runs: " + ", ".join(night.parts) + f". Exit code {code}.")
    return "\n\n".join(parts) + "\n"


def finish(
    night: Night, fail_on: Sequence[str], history: Path, earlier: Sequence[documents.Night]
) -> tuple[RunFolder, int]:
    """Writes the night's line in the history and the trends, and its own run folder, which
    ``runs/latest`` then names. Raises OSError, StoreError where one of them cannot be written; the
    other is written all the same."""
    endings = [one.endings[0] for one in earlier]
    code = code_of(night.endings, fail_on, endings, failed=bool(night.failed))
    try:
        _remember(_line(night), history)
    finally:
        run = _folder_of(night, endings, code)
    return run, code


def _folder_of(night: Night, earlier: Sequence[str], code: int) -> RunFolder:
    run = RunFolder.create(RUNS, "nightly")
    results = Results(
        name="nightly",
        cases=tuple(night.cases),
        comparisons=tuple(made.document() for made in night.comparisons),
        ending=night.ending,
        endings=night.endings,
        headline=night.headline,
        parts=tuple(night.parts),
    )
    run.write_results(results)
    run.write_text("report.md", report(night, earlier=earlier, code=code))
    run.finish(night.ending)
    return run


def _line(night: Night) -> documents.Night:
    machine, versions = {}, {}
    try:
        for part in night.parts[:1]:
            suite = open_run(Path(part))
            machine, versions = machine_in(suite.machine()), versions_in(suite.versions())
    except NotARun as error:
        night.notes.append(str(error))
    return documents.Night(
        date=_today(),
        endings=night.endings,
        void=tuple(night.failed),
        commit=checked_out(),
        baseline=night.baseline,
        machine=machine,
        versions=versions,
        figures={} if night.void else figures_of(night.cases),
    )


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def read_nights(history: Path) -> list[documents.Night]:
    """The nights before; no file: this is the first. Raises BadInput for a line that cannot be
    read."""
    try:
        return documents.read_lines(history / NIGHTS, documents.Night, inside=history)
    except MissingFile:
        return []
    except BadFile as error:
        raise BadInput(f"{error}; put it right, or move the file away") from error


def _remember(night: documents.Night, history: Path) -> None:
    """Adds a line to those that are there now, and draws the trends anew, unless a line cannot be
    read that was added meanwhile. Raises OSError, StoreError."""
    history.mkdir(parents=True, exist_ok=True)
    with _alone(history):
        try:
            there = read_text(history / NIGHTS, inside=history)
        except MissingFile:
            there = ""
        except BadFile as error:
            raise StoreError(str(error)) from error
        between = "" if there.endswith("\n") or not there else "\n"
        write_atomically(history / NIGHTS, there + between + documents.line_of(night))
        with contextlib.suppress(BadInput):
            write_atomically(history / "trends.html", page(read_nights(history)))


@contextlib.contextmanager
def _alone(history: Path) -> Iterator[None]:
    """No other night writes there meanwhile. The folder itself is locked, so that no file of ours
    is left in it."""
    folder = os.open(history, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a network's file system may lock no folder
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lockbench.evidence.nightly", exit_on_error=False
    )
    parser.add_argument("--base", default=BASELINE, help="a REF of lockbench regress")
    parser.add_argument("--new", default=CURRENT, help="the same, of what is new")
    parser.add_argument("--lock", help="default: one of each system, and a library")
    parser.add_argument("--fail-on", default=",".join(FAIL_ON), help="endings that fail the job")
    parser.add_argument("--seed", type=int, help="default: the day's number, so nights differ")
    parser.add_argument("--history", type=Path, default=RUNS, help="keeps a line a night")
    given, rest = parser.parse_known_args(words)
    if rest:
        raise BadInput(f"{rest[0]} is no option; --help lists them")
    return given


def main(words: Sequence[str]) -> int:
    """Returns the exit code; see the module."""
    try:
        given = _arguments(words)
        fail_on = endings_named(given.fail_on)
        seed = datetime.now(UTC).toordinal() if given.seed is None else given.seed
        locks = [word.strip() for word in (given.lock or "").split(",") if word.strip()]
        earlier = read_nights(given.history)
    except (BadInput, argparse.ArgumentError) as error:
        return _refused(error)
    night = Night(time.monotonic())
    try:
        run_night(night, base=given.base, new=given.new, locks=locks, seed=seed, console=out)
    except BadInput as error:
        _remember(_refused_night(night, error), given.history)
        return _refused(error)
    except Failed as error:
        night.cut_short = str(error)
    except KeyboardInterrupt:
        night.cut_short = "interrupted"
    except Exception as error:  # noqa: BLE001 - our own failure must not look like a lock's
        traceback.print_exc()
        night.cut_short = f"it crashed: {type(error).__name__}: {error}"
    try:
        run, code = finish(night, fail_on, given.history, earlier)
        saved = f"saved in {run.path}; trends in {given.history}/trends.html"
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - 1 would be a broken promise
        if not isinstance(error, OSError | StoreError):
            traceback.print_exc()
        saved = f"the night cannot be kept: {error or type(error).__name__}"
        night.cut_short = "; ".join(filter(None, (night.cut_short, saved)))
        code = code_of(night.endings, fail_on, (), failed=True)
    out.print(f"\n{night.headline}")
    for kind, what, command in night.failures():
        out.print(f"{kind}: {what}\n  {command}", soft_wrap=True)
    out.print(saved)
    if night.failed or (not code and night.ending != Ending.OK.word):
        word = "failed" if night.failed else "warning"
        print(f"nightly: {word}: {night.headline}", file=sys.stderr)
    return code


def _refused_night(night: Night, error: BadInput) -> documents.Night:
    return documents.Night(
        date=_today(),
        endings=(Ending.BENCH.word,),
        void=(f"refused: {error}",),
        commit=checked_out(),
        baseline=night.baseline,
    )


def _refused(error: Exception) -> int:
    print(f"nightly: {error}", file=sys.stderr)
    return BAD_INPUT


if __name__ == "__main__":
    interruption.arm()
    try:
        ended = main(sys.argv[1:])
    except (OSError, StoreError) as error:
        print(f"nightly: the night cannot be kept: {error}", file=sys.stderr)
        ended = Ending.BENCH.code
    if left := interruption.cleared():
        print(f"nightly: {left}", file=sys.stderr)
        ended = ended or Ending.BENCH.code
    sys.exit(ended)
