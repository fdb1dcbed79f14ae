"""The tree of questions of a decision record, walked with the reader's own answers.

Guarantees: an answer is "yes" or "no" only where a measurement says so, else "not shown"; no lock
is called safe, only what was tried and did not break; a control is never chosen. Knows no costs, no
skills and nothing else outside the runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from evidence.adr import NOT_OF_THE_LOCK, STALE, Option, k_of_n
from results.statistics import share

Needs = Literal["correctness", "efficiency"]
Found = Literal["yes", "no", "not shown"]


@dataclass(frozen=True, slots=True)
class Answers:
    """What the reader needs; None: not answered."""

    needs: Needs | None = None
    p99_ms: float | None = None
    ops_per_second: float | None = None
    already_have: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A question of the tree, and per option what was found and why."""

    question: str
    answer: str
    found: Mapping[str, tuple[Found, str]]


@dataclass(frozen=True)
class Decision:
    """``chosen`` is None where no option is shown to meet every need, or an answer is missing."""

    answers: Answers
    steps: Sequence[Step]
    chosen: Option | None
    why: str


def decide(options_: Sequence[Option], answers: Answers) -> Decision:
    """Walks the tree: each step asks only those that the steps before left."""
    left = [option for option in options_ if not option.control]
    steps = [_step_needs(left, answers), _step_p99(left, answers), _step_rate(left, answers)]
    open_ = [name for name, value in (("--needs", answers.needs),) if value is None]
    met = [
        o for o in left if all(step.found.get(o.name, ("yes", ""))[0] == "yes" for step in steps)
    ]
    had = [o for o in met if _is_had(o, answers)]
    steps.append(_step_had(left, answers))
    if open_:
        return Decision(answers, steps, None, f"the answer to {open_[0]} is missing")
    if not met:
        return Decision(answers, steps, None, _nearest(left, steps))
    chosen = min(had or met, key=lambda o: o.acquire_ms.get("p50") or float("inf"))
    why = "it alone is shown to meet every need"
    if len(met) > 1:
        why = f"of {len(met)} options shown to meet every need it has the fastest acquire"
        if had:
            why = "it is shown to meet every need and its servers are already there"
    return Decision(answers, steps, chosen, why)


def _found(step: Step, option: Option) -> Found:
    """A question that was not asked rules nobody out."""
    return step.found.get(option.name, ("yes", ""))[0]


def _step_needs(left: Sequence[Option], answers: Answers) -> Step:
    question = "Is a rare double grant a nuisance (efficiency) or a disaster (correctness)?"
    words = {
        None: "not answered",
        "efficiency": "a nuisance: some work is done twice",
        "correctness": "a disaster: data is lost or wrong",
    }[answers.needs]
    judge = _correct if answers.needs == "correctness" else _efficient
    found = {o.name: judge(o) for o in left} if answers.needs else {}
    return Step(question, words, found)


def _correct(option: Option) -> tuple[Found, str]:
    broke = option.broke_itself()
    if broke:
        return "no", "; ".join(f"{t.verdict} under {t.fault}, {k_of_n(t.share)}" for t in broke)
    if option.fence is None:
        return "no", "offers no fence, so the resource cannot refuse a holder whose time is over"
    vague = [t for t in option.tried if t.undecided]
    if vague:
        return "not shown", f"{vague[0].verdict} under {vague[0].fault} is undecided"
    paused = [t for t in option.tried if t.verdict == STALE and "pause" in t.fault and t.share.n]
    if not paused:
        return "not shown", "no exposed pause of a holder was tried"
    if option.fence_checked is None or option.fence_checked[0]:
        return "not shown", "its fence was not seen to stop a stale holder"
    faulty = [t for t in option.tried if t.verdict not in NOT_OF_THE_LOCK and t.share.n]
    tries = sum(max(t.share.n for t in faulty if t.fault == f) for f in {t.fault for t in faulty})
    return "yes", (
        f"its promise broke in {k_of_n(share(0, tries))} tries, and its fence, checked at the "
        f"resource, let {k_of_n(share(*option.fence_checked))} stale holders write; the resource "
        "has to check it"
    )


def _efficient(option: Option) -> tuple[Found, str]:
    quiet = [t for t in option.broke() if t.fault == "none"]
    if quiet:
        return "no", f"{quiet[0].verdict} without any fault, {k_of_n(quiet[0].share)}"
    calm = [t for t in option.tried if t.fault == "none" and t.share.n]
    if not calm:
        return "not shown", "it was not run without a fault"
    return "yes", "broke nothing without a fault; what breaks under one is a nuisance here"


def _step_p99(left: Sequence[Option], answers: Answers) -> Step:
    limit = answers.p99_ms
    found: dict[str, tuple[Found, str]] = {}
    for option in left if limit is not None else ():
        assert limit is not None
        p99, count = option.acquire_ms.get("p99"), option.acquire_ms.get("count") or 0
        if p99 is None:
            found[option.name] = "not shown", f"n = {count:.0f} carries no p99 (1,000 are needed)"
        else:
            words = f"acquire p99 {p99:.1f} ms, n = {count:,.0f}"
            found[option.name] = ("yes" if p99 <= limit else "no"), words
    answer = "not answered" if limit is None else f"at most {limit:g} ms"
    return Step("How long may an uncontended acquire take, p99, without a fault?", answer, found)


def _step_rate(left: Sequence[Option], answers: Answers) -> Step:
    asked = answers.ops_per_second
    found: dict[str, tuple[Found, str]] = {}
    for option in left if asked is not None else ():
        assert asked is not None
        rate = option.cycles_per_s
        if rate is None:
            found[option.name] = "not shown", "no rate was measured"
        else:
            # A closed loop with pauses shows what was reached, never what could not be.
            words = f"{rate:,.0f} cycles/s were reached under the declared load; more was not tried"
            found[option.name] = ("yes" if rate >= asked else "not shown"), words
    answer = "not answered" if asked is None else f"{asked:g} per second"
    return Step("How many locks per second, over all keys?", answer, found)


def _step_had(left: Sequence[Option], answers: Answers) -> Step:
    found: dict[str, tuple[Found, str]] = {
        o.name: ("yes", f"{o.topology} is there")
        if _is_had(o, answers)
        else ("no", f"{o.topology} would have to be run")
        for o in left
        if answers.already_have
    }
    answer = ", ".join(answers.already_have) or "not answered"
    return Step("What do you run already? (decides between what is left)", answer, found)


def _is_had(option: Option, answers: Answers) -> bool:
    names = {option.name, option.family, option.topology}
    return not names.isdisjoint(answers.already_have)


def _nearest(left: Sequence[Option], steps: Sequence[Step]) -> str:
    if not left:
        return "no option was measured: the runs hold only controls"
    reasons = []
    for option in left:
        failed = [
            f"{found[0]}: {found[1]}"
            for step in steps[:3]
            if (found := step.found.get(option.name)) and found[0] != "yes"
        ]
        reasons.append(f"{option.name} ({'; '.join(failed)})")
    return f"no option is shown to meet every need: {'; '.join(reasons)}"
