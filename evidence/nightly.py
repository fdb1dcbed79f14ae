"""The nightly job: ``make nightly``, or ``python -m evidence.nightly`` in any CI.

One night is a suite, one retry of each case that was inconclusive, and a comparison of what is new
with a baseline, both sides in turn in this same job. It ends in one of four ways besides ok, told
apart in the headline and in ``runs/latest/ending``: safety, regression, inconclusive, bench.

The exit code is that of the ending where ``--fail-on`` names it (safety and regression unless
said), and after three nights in a row that decided nothing; else 0. Numbers of other nights are
shown as trends (``runs/trends.html``) and gate nothing. 254: bad input. 255 also: it crashed.

Base and new are REFs of ``lockbench regress``. Without them, each server image is compared with its
tag ``baseline``, which the first night makes and only a person moves: a baseline that follows would
hide a slow drift.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench import interruption, plan, suites
from bench.suite import RUNS, run_cases
from clusters import images
from clusters.engine.docker import Engine, EngineError
from evidence.regress import regress
from evidence.regress_plan import Order, order
from report.comparison_text import markdown
from report.trends import night_of, page
from results.cases import command_of, lock_of
from results.comparison import Comparison, worst
from results.documents import CaseResult, Results
from results.errors import BAD_INPUT, BadInput, Ending, Failed
from results.store import RunFolder, write_atomically
from results.wording import escape_markdown

MINUTES_MAX: Final = 90.0
FAIL_ON: Final = ("safety", "regression")
OPEN: Final = frozenset({"inconclusive", "bench"})
OPEN_NIGHTS_MAX: Final = 3
NIGHTS: Final = "nights.jsonl"  # in RUNS, one line a night; CI has to keep it
BASELINE: Final = "baseline"


@dataclass
class Night:
    """What is known so far. ``cases`` are the last tries, in the order of the suite."""

    began: float
    cases: list[CaseResult] = field(default_factory=list)
    planned: list[plan.Case] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)  # comparisons that no time was left for

    def minutes_left(self) -> float:
        """Until the time is over that a night may take."""
        return MINUTES_MAX - (time.monotonic() - self.began) / 60

    @property
    def ending(self) -> str:
        """Of cases and comparisons together."""
        judged = [str(c.ending) for c in self.cases if c.workload != plan.PUBLISHED]
        if self.undone or not judged:
            judged.append("inconclusive")
        return worst([*judged, *(made.ending for made in self.comparisons)])

    def failures(self) -> list[tuple[str, str, str]]:
        """(ending, what happened, the one command that repeats it) for everything not ok."""
        found = []
        for case, planned in zip(self.cases, self.planned, strict=True):
            if case.ending not in {"ok", None} and case.workload != plan.PUBLISHED:
                what = f"{lock_of(case)} under {case.fault}: {case.why}"
                found.append((str(case.ending), what, command_of(case, planned.images)))
        found += [("inconclusive", "no time was left to compare", again) for again in self.undone]
        found += [
            (m.ending, m.headline.removeprefix(f"{m.ending.capitalize()}: "), m.repeat)
            for m in self.comparisons
            if m.ending != "ok"
        ]
        return found

    @property
    def headline(self) -> str:
        """One sentence that begins with the kind of ending."""
        ending = self.ending
        what = next((what for kind, what, _ in self.failures() if kind == ending), "")
        return {
            "ok": f"ok: {len(self.cases)} cases as expected, nothing slower",
            "safety": f"safety: a promise was broken: {what}",
            "regression": f"regression: {what}",
            "inconclusive": f"inconclusive: nothing is proven either way: {what}",
            "bench": f"bench: our own failure, not a lock's: {what}",
        }[ending]


def exit_code(ending: str, fail_on: Sequence[str], earlier: Sequence[str]) -> int:
    """``earlier`` are the endings of the nights before, the last one last."""
    code = Ending[ending.upper()].code
    if ending in fail_on:
        return code
    streak = [ending, *reversed(earlier)][:OPEN_NIGHTS_MAX]
    if len(streak) == OPEN_NIGHTS_MAX and all(word in OPEN for word in streak):
        return code
    return 0


def run_night(
    *, base: str | None, new: str | None, locks: Sequence[str], seed: int, console: Console
) -> Night:
    """Everything but the report. Raises BadInput before anything is started."""
    declared = suites.suite("nightly", seed)
    compared = _orders(base, new, locks, seed)
    expected = (declared.expected_s + sum(asked.expected_s for asked in compared)) / 60
    if expected > MINUTES_MAX:
        raise BadInput(f"this night would take {expected:.0f} minutes; name fewer locks")
    console.print(f"nightly: suite nightly, about {expected:.0f} minutes", highlight=False)
    night = Night(time.monotonic())
    finished = run_cases(declared.cases, "nightly-suite", console)
    night.cases = list(finished.results.cases)
    # A suite that was cut short has fewer cases than were planned.
    night.planned = list(declared.cases[: len(night.cases)])
    night.parts.append(str(finished.folder))
    _retry(night, console)
    for asked in compared:
        if asked.expected_s / 60 > night.minutes_left():
            night.undone.append(asked.repeat)
            continue
        finished, made = regress(asked, console)
        night.comparisons.append(made)
        night.parts.append(str(finished.folder))
    return night


def _retry(night: Night, console: Console) -> None:
    """Once, with the next seed; a violation that the retry finds counts like any other."""
    again = [n for n, case in enumerate(night.cases) if case.ending == "inconclusive"]
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
    finished = run_cases(cases, "nightly-retry", console)
    night.parts.append(str(finished.folder))
    for n, case, document in zip(again, cases, finished.results.cases, strict=False):
        night.cases[n], night.planned[n] = document, case
    night.notes.append(f"{len(again)} inconclusive cases were repeated once")


def _orders(base: str | None, new: str | None, locks: Sequence[str], seed: int) -> list[Order]:
    if base is None and new is None:
        pairs = [(f"{name}={ref}", "current", of) for name, ref, of in _baselines(locks)]
    elif base is not None and new is not None:
        pairs = [(base, new, list(locks))]
    else:
        raise BadInput("--base and --new come together, or not at all")
    return [
        order(old, now, locks=of, faults=["none"], pairs=None, time_limit_s=8.0, seed=seed)
        for old, now, of in pairs
    ]


def _baselines(locks: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """(image, baseline reference, locks on it) of images that are not their baseline. Makes the
    baselines that are missing."""
    of_image: dict[str, list[str]] = {}
    for lock in locks:
        for image in plan.topology_of(plan.make_case(lock, "none", seed=0)).images:
            of_image.setdefault(image, []).append(lock)
    found = []
    try:
        with Engine() as engine:
            images.ensure(sorted(of_image), engine=engine)
            for name, of in of_image.items():
                current = images.recipes()[name].ref
                baseline = f"{current.rpartition(':')[0]}:{BASELINE}"
                old, now = engine.image(baseline), engine.image(current)
                if old is None:
                    engine.tag(current, baseline)
                elif now is not None and old.id != now.id:
                    found.append((name, baseline, of))
    except EngineError as error:
        raise BadInput(str(error)) from error
    return found


def report(night: Night, *, earlier: Sequence[str], code: int) -> str:
    """Markdown: the headline, every failure with its command, the comparisons."""
    parts = [f"# {escape_markdown(night.headline)}"]
    for kind, what, command in night.failures():
        parts.append(f"**{kind}**: {escape_markdown(what)}\n\n    {command}")
    open_before = [word in OPEN for word in reversed(earlier)]
    nights = 1 + (open_before.index(False) if False in open_before else len(open_before))
    if night.ending in OPEN:
        parts.append(f"{nights} nights in a row decided nothing; {OPEN_NIGHTS_MAX} are a failure.")
    parts += [markdown(made) for made in night.comparisons]
    if not night.comparisons and not night.undone:
        parts.append("No image differs from its baseline: nothing to compare in turn.")
    parts += [escape_markdown(note) + "." for note in night.notes]
    parts.append("Runs: " + ", ".join(night.parts) + f". Exit code {code}.")
    return "\n\n".join(parts) + "\n"


def finish(night: Night, fail_on: Sequence[str]) -> tuple[RunFolder, int]:
    """Writes the night's own run folder, which ``runs/latest`` then names, and the trends."""
    run = RunFolder.create(RUNS, "nightly")
    endings = [str(line["ending"]) for line in read_nights(RUNS / NIGHTS)]
    code = exit_code(night.ending, fail_on, endings)
    results = Results(
        name="nightly",
        cases=tuple(night.cases),
        comparisons=tuple(made.document() for made in night.comparisons),
        ending=night.ending,
        headline=night.headline,
        parts=tuple(night.parts),
    )
    run.write_results(results)
    run.write_text("report.md", report(night, earlier=endings, code=code))
    _remember(night_of(night.cases, date=run.path.name[:10], ending=night.ending))
    run.finish(night.ending)
    return run, code


def read_nights(path: Path) -> list[dict[str, Any]]:
    """The nights before; a line that cannot be read is left out. No file: the first night."""
    if not path.exists():
        return []
    found = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and "ending" in line:
            found.append(line)
    return found


def _crashed(why: str) -> int:
    """The last part may have ended well; the night did not."""
    run = RunFolder.create(RUNS, "nightly")
    _remember({"date": run.path.name[:10], "ending": Ending.BENCH.word})
    run.write_text("report.md", f"# bench: {escape_markdown(why)}\n")
    run.finish(Ending.BENCH.word)
    print(f"nightly: bench: {why}", file=sys.stderr)
    return Ending.BENCH.code


def _remember(night: Mapping[str, Any]) -> None:
    """Adds a line to the nights, and draws the trends anew."""
    nights = [*read_nights(RUNS / NIGHTS), night]
    write_atomically(RUNS / NIGHTS, "".join(json.dumps(one) + "\n" for one in nights))
    write_atomically(RUNS / "trends.html", page(nights))


def _endings(text: str) -> list[str]:
    known = [ending.word for ending in Ending]
    found = [word.strip() for word in text.split(",") if word.strip()]
    for word in found:
        if word not in known:
            raise plan.unknown("ending", word, known)
    return found


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m evidence.nightly", exit_on_error=False)
    parser.add_argument("--base", help="a REF of lockbench regress; default: the image's baseline")
    parser.add_argument("--new", help="the same, of what is new")
    parser.add_argument("--lock", default=",".join(suites.sampled()), help="compared in turn")
    parser.add_argument("--fail-on", default=",".join(FAIL_ON), help="endings that fail the job")
    parser.add_argument("--seed", type=int, help="default: the day's number, so nights differ")
    given, rest = parser.parse_known_args(words)
    if rest:
        raise BadInput(f"{rest[0]} is no option; --help lists them")
    return given


def main(words: Sequence[str]) -> int:
    """Returns the exit code; see the module."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        given = _arguments(words)
        fail_on = _endings(given.fail_on)
        seed = datetime.now(UTC).toordinal() if given.seed is None else given.seed
        locks = [word.strip() for word in given.lock.split(",") if word.strip()]
        night = run_night(base=given.base, new=given.new, locks=locks, seed=seed, console=console)
        run, code = finish(night, fail_on)
    except (BadInput, argparse.ArgumentError) as error:
        print(f"nightly: {error}", file=sys.stderr)
        return BAD_INPUT
    except Failed as error:
        return _crashed(str(error))
    except KeyboardInterrupt:
        return _crashed("interrupted")
    except Exception as error:  # noqa: BLE001 - our own failure must not look like a lock's
        traceback.print_exc()
        return _crashed(f"it crashed: {type(error).__name__}: {error}")
    console.print(f"\n{night.headline}", markup=False, highlight=False)
    for kind, what, command in night.failures():
        console.print(f"{kind}: {what}\n  {command}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"saved in {run.path}; trends in {RUNS}/trends.html", highlight=False)
    return code


if __name__ == "__main__":
    interruption.arm()
    ended = main(sys.argv[1:])
    if left := interruption.cleared():
        print(f"nightly: {left}", file=sys.stderr)
        ended = ended or Ending.BENCH.code
    sys.exit(ended)
