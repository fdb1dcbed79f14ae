"""The questions of a decision record, answered from what was measured.

Guarantees: an answer is "yes" or "no" only where measurements say so, else "not shown". "Does not
break" takes ``TRIES`` exposed tries of every required fault. These are the same for all options:
one is excused only from a fault that it has nothing to lose by. What the bench cannot do to an
option is not shown, unless the reader accepts the fault for all of them (``Answers.without``). A
limit is met or missed only if a repeated run is expected to say the same. A control is never
chosen. Options that differ by less than a margin are not told apart by it. What the reader was
asked for and did not say decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from lockbench.bench.suites import faults_of
from lockbench.checker.catalogue import OF_JOBS
from lockbench.evidence.adr import AIMED, TRIES, Option, k_of_n, same_servers, share
from lockbench.nemesis.registry import NONE
from lockbench.results.cases import fault_names
from lockbench.results.documents import Bounds, PooledRate, Statistic
from lockbench.results.knee import GRANTED_MIN
from lockbench.results.statistics import Share
from lockbench.results.wording import ms, words

Needs = Literal["correctness", "efficiency"]
Found = Literal["yes", "no", "not shown"]
# Two medians are told apart if the range of one is faster than that of the other by more.
MARGIN: Final = 1.25
WIDE: Final = f"{100 * (MARGIN - 1):.0f} %"
UNMEASURED: Final = "no sweep measured it"
# A rate counts as the one that was asked for.
SAME_RATE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Answers:
    """What the reader needs and has; None or empty: not answered. ``costs`` are per lock, family or
    topology, in any unit. ``without`` are faults that the reader accepts, whatever they do to any
    option."""

    needs: Needs | None = None
    p99_ms: float | None = None
    ops_per_second: float | None = None
    already_have: tuple[str, ...] = ()
    costs: tuple[tuple[str, float], ...] = ()
    skills: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def accepts(self, fault: str) -> bool:
        """Whether one of the faults of a case, which may have parameters, is accepted."""
        return any(name in self.without for name in fault_names(fault))


@dataclass(frozen=True, slots=True)
class Step:
    """A question, and per option what was found and why."""

    question: str
    answer: str
    found: Mapping[str, tuple[Found, str]]


@dataclass(frozen=True)
class Decision:
    """``chosen`` is None where no option is shown to meet every need, where several are and nothing
    tells them apart, or where an answer is missing. ``met``: all that are shown to. ``open_``:
    those that are not ruled out and would be chosen if they were shown to. ``beside``: those that
    are not ruled out either, but that nothing which the reader said prefers."""

    answers: Answers
    steps: Sequence[Step]
    chosen: Option | None
    why: str
    met: Sequence[Option] = ()
    open_: Sequence[Option] = ()
    beside: Sequence[Option] = ()


@dataclass(frozen=True, slots=True)
class Speed:
    """Acquire at a rate, over all sweeps: where that of a repeated run is expected, in milliseconds
    from when it was due. ``why`` it says nothing."""

    rate_per_s: float
    count: int
    p50_ms: tuple[float, float]
    p99_ms: tuple[float, float]
    rounds: int
    why: str = ""


def required(answers: Answers) -> tuple[str, ...]:
    """The faults that every option has to be exposed to."""
    if answers.needs != "correctness":
        return (NONE,)
    return (NONE, *(fault for fault in faults_of("full") if fault not in answers.without))


def unreachable(option: Option, answers: Answers) -> list[str]:
    """The required faults that the bench cannot do to it."""
    return [fault for fault in required(answers) if fault in option.out_of_reach]


def missing(option: Option, answers: Answers) -> dict[str, int]:
    """Required fault → how many exposed tries are missing."""
    found = {fault: TRIES - option.exposed(fault).n for fault in _asked(option, answers)}
    if answers.needs == "correctness" and option.fence is not None:
        found[AIMED] = max(found.get(AIMED, 0), TRIES - _stopped(option).n)
    return {fault: tries for fault, tries in found.items() if tries > 0}


def speed(option: Option, rate_per_s: float | None) -> Speed | None:
    """At the rate that was asked for; without one, at the lowest of each sweep."""
    if rate_per_s is None:
        found = [min(one.rates, key=_offered) for one in option.rates if one.rates]
    else:
        found = [
            rate
            for one in option.rates
            for rate in one.rates
            if abs(_offered(rate) / rate_per_s - 1) <= SAME_RATE
        ]
    if not found:
        return None
    good = [rate for rate in found if not rate.why and rate.response_ms.p99 is not None]
    # Where the lock itself fell short, nobody knows how slow the rest would have been.
    of = [*good, *(rate for rate in found if _fell_short(rate))] if good else found
    p99s = [_censored(rate, "p99", rate.p99_ms_range) for rate in of]
    p50s = [_censored(rate, "p50", rate.p50_ms_range) for rate in of]
    why = next((why for rate in of for why in rate.why), "")
    few = next((rate for rate in of if rate.response_ms.p99 is None), None)
    if not why and few is not None:
        why = f"n = {few.response_ms.count:,} carries no p99 (1,000 are needed)"
    return Speed(
        max(map(_offered, of)),
        sum(rate.response_ms.count for rate in of),
        (min(low for low, _ in p50s), max(high for _, high in p50s)),
        (min(low for low, _ in p99s), max(high for _, high in p99s)),
        sum(rate.blocks for rate in of),
        why,
    )


def _offered(rate: PooledRate) -> float:
    return rate.offered_per_s.median or 0.0


def _fell_short(rate: PooledRate) -> bool:
    """By the lock's own doing: nothing else makes its rounds void."""
    return len(rate.why) == 1 and rate.granted < GRANTED_MIN * rate.due


def _censored(rate: PooledRate, quantile: Statistic, bounds: Bounds | None) -> tuple[float, float]:
    """What was given up took longer than it is known to have taken."""
    if bounds is None:
        return 0.0, math.inf
    if _fell_short(rate):
        return bounds.min, math.inf
    return bounds.min, math.inf if quantile in rate.response_ms.above else bounds.max


def decide(options_: Sequence[Option], answers: Answers) -> Decision:
    """What is chosen of these options, and why."""
    left = [option for option in options_ if not option.control]
    steps = [_step_needs(left, answers), _step_p99(left, answers), _step_rate(left, answers)]
    steps.append(_step_had(left, answers))
    if answers.needs is None:
        return Decision(answers, steps, None, "the answer to --needs is missing")
    found = {o.name: {step.found.get(o.name, ("yes", ""))[0] for step in steps[:3]} for o in left}
    met = [o for o in left if found[o.name] == {"yes"}]
    unknown = [o for o in left if "no" not in found[o.name] and o not in met]
    first, why = _best(met, answers)
    chosen = first[0] if len(first) == 1 else None
    open_ = [o for o in unknown if not met or _said([*first, o], answers)[0] == [o]]
    beside = [o for o in unknown if o not in open_]
    if not met:
        why = "no option is shown to meet every need"
        if not unknown:
            why = "every option is ruled out" if left else "there is no option but controls"
    elif chosen is None:
        names = words([o.name for o in first])
        why = (
            f"{names} are shown to meet every need, and nothing that was answered tells them apart"
        )
    return Decision(answers, steps, chosen, why, met, open_, beside)


def _best(met: Sequence[Option], answers: Answers) -> tuple[Sequence[Option], str]:
    """Those that nothing tells apart, and what decided. A need that is met is met: a better figure
    decides only where nothing that the reader said does."""
    if len(met) < 2:
        return met, "it alone is shown to meet every need"
    left, decided = _said(met, answers)
    speeds = {o.name: speed(o, answers.ops_per_second) for o in met}
    fastest = [o for o in left if not any(_faster(speeds[p.name], speeds[o.name]) for p in left)]
    if 0 < len(fastest) < len(left):
        left, decided = fastest, [*decided, f"it is faster by more than {WIDE}"]
    if len(left) > 1:
        return left, ""
    others = [o for o in met if o not in left]
    return left, "; ".join([*decided, *(_beside(left[0], o, speeds) for o in others)])


def _said(met: Sequence[Option], answers: Answers) -> tuple[list[Option], list[str]]:
    """Those that are best by what the reader said, and by what."""
    left = list(met)
    decided: list[str] = []

    def keep(reason: str, keeps: Callable[[Option], bool]) -> None:
        nonlocal left
        kept = [o for o in left if keeps(o)]
        if 0 < len(kept) < len(left):
            left = kept
            decided.append(reason)

    keep("its servers are there already", lambda o: is_had(o, answers.already_have))
    # Only among those that are left, and whose cost was not said stays beside the cheapest: else
    # an option that is not chosen would decide between the others.
    costs = {o.name: cost_of(o, answers) for o in left}
    least = min((cost for cost in costs.values() if cost is not None), default=None)
    known = None not in costs.values()
    keep(
        "it costs least" if known else "no other is known to cost less",
        lambda o: costs[o.name] in {least, None},
    )
    keep("your people know it", lambda o: is_known(o, answers.skills))
    return left, decided


def _beside(chosen: Option, other: Option, speeds: Mapping[str, Speed | None]) -> str:
    one, two = speeds[chosen.name], speeds[other.name]
    if one is None or two is None:
        return f"{other.name} meets every need too"
    if _faster(two, one):
        return f"{other.name} meets every need too, and is faster by more than {WIDE}"
    if _faster(one, two):
        return f"{other.name} meets every need too, and is slower by more than {WIDE}"
    return f"it ties with {other.name}: their acquires are not told apart by more than {WIDE}"


def preference(option: Option, answers: Answers) -> tuple[bool, float, bool]:
    """What the reader prefers sorts first."""
    cost = cost_of(option, answers)
    return (
        not is_had(option, answers.already_have),
        math.inf if cost is None else cost,
        not is_known(option, answers.skills),
    )


def _faster(one: Speed | None, other: Speed | None) -> bool:
    if one is None or other is None or one.why or other.why:
        return False
    return one.p50_ms[1] * MARGIN < other.p50_ms[0]


def is_had(option: Option, names: Sequence[str]) -> bool:
    """Whether it needs no other servers than these, but for their settings."""
    return option.lock in names or any(option.topology in same_servers(name) for name in names)


def is_known(option: Option, names: Sequence[str]) -> bool:
    """Whether one of the names is that of the lock, its family or its topology."""
    return not {option.lock, option.family, option.topology}.isdisjoint(names)


def cost_of(option: Option, answers: Answers) -> float | None:
    """What the reader said that it costs, by its most special name."""
    said = dict(answers.costs)
    names = (option.lock, option.topology, option.family)
    return next((said[name] for name in names if name in said), None)


def _step_needs(left: Sequence[Option], answers: Answers) -> Step:
    question = "Is a rare double grant a nuisance (efficiency) or a disaster (correctness)?"
    said = {
        None: "not answered",
        "efficiency": "a nuisance: some work is done twice",
        "correctness": "a disaster: data is lost or wrong",
    }[answers.needs]
    judge = _correct if answers.needs == "correctness" else _efficient
    return Step(question, said, {o.name: judge(o, answers) for o in left} if answers.needs else {})


def _correct(option: Option, answers: Answers) -> tuple[Found, str]:
    if broke := [t for t in option.broke_itself() if not answers.accepts(t.fault)]:
        return "no", "; ".join(f"{t.verdict} under {t.fault}, {k_of_n(t.share)}" for t in broke)
    if option.fence is None:
        return "no", "offers no fence, so the resource cannot refuse a holder whose time is over"
    for fault, let in option.fence_checked.items():
        if let.k and not answers.accepts(fault):
            said = f"its fence, checked on reads and writes, let stale holders write under {fault}"
            return "no", f"{said}, {k_of_n(let)}"
    if not_yet := _not_yet(option, answers):
        return "not shown", not_yet
    return "yes", (
        f"{_kept(option, answers)}; its fence, checked on reads and writes, let "
        f"{k_of_n(_stopped(option))} stale holders write"
    )


def _efficient(option: Option, answers: Answers) -> tuple[Found, str]:
    # What it cost a job is told by what broke beside it.
    quiet = [t for t in option.broke() if t.fault == NONE and t.verdict not in OF_JOBS]
    if quiet:
        return "no", f"{quiet[0].verdict} without any fault, {k_of_n(quiet[0].share)}"
    if not_yet := _not_yet(option, answers):
        return "not shown", not_yet
    return "yes", f"{_kept(option, answers)}; what breaks under a fault is a nuisance here"


def _not_yet(option: Option, answers: Answers) -> str:
    """Why its promises are not shown to be kept."""
    vague = [t for f in required(answers) for t in option.of_fault(f) if t.undecided]
    if vague:
        return f"{vague[0].verdict} under {vague[0].fault} is undecided"
    if beyond := unreachable(option, answers):
        why = "; ".join(option.out_of_reach[fault] for fault in beyond)
        return f"{why}; --without {','.join(beyond)} would accept that for every option"
    few = missing(option, answers)
    if not few:
        return ""
    asked = _asked(option, answers)
    if few == dict.fromkeys(asked, TRIES):
        return "it was not tried" + (" without a fault" if asked == [NONE] else "")
    tries = ", ".join(
        f"{'without a fault' if fault == NONE else fault} {TRIES - n}" for fault, n in few.items()
    )
    return f"a claim takes {TRIES} exposed tries of each fault, and there were: {tries}"


def _asked(option: Option, answers: Answers) -> list[str]:
    """The required faults that it has something to lose by."""
    return [fault for fault in required(answers) if fault not in option.impossible]


def _kept(option: Option, answers: Answers) -> str:
    faults = _asked(option, answers)
    fewest = min((option.exposed(fault) for fault in faults), key=lambda one: one.n)
    under = words(["no fault" if fault == NONE else fault for fault in faults])
    return (
        f"under {under} it kept its promises in each of at least {fewest.n} exposed tries "
        f"(broken in at most {fewest.at_most_percent} %)"
    )


def _stopped(option: Option) -> Share:
    return option.fence_checked.get(AIMED, share(0, 0))


def _step_p99(left: Sequence[Option], answers: Answers) -> Step:
    limit = answers.p99_ms
    found = {o.name: _in_time(o, limit, answers.ops_per_second) for o in left if limit is not None}
    answer = "not answered" if limit is None else f"at most {limit:g} ms"
    return Step("How long may an acquire on a free key take, p99, without a fault?", answer, found)


def _in_time(option: Option, limit_ms: float, rate_per_s: float | None) -> tuple[Found, str]:
    found = speed(option, rate_per_s)
    if found is None:
        at = "" if rate_per_s is None or not option.rates else f" at {rate_per_s:g} per second"
        return "not shown", f"{UNMEASURED}{at}"
    if found.why:
        return "not shown", f"the figure is void: {found.why}"
    low, high = found.p99_ms
    said = (
        f"p99 {ms(low)} to {ms(high)} ms at {found.rate_per_s:,.0f} per second "
        f"({found.rounds} rounds, n = {found.count:,})"
    )
    if high <= limit_ms:
        return "yes", said
    if low > limit_ms:
        return "no", said
    return "not shown", f"{said}: another run may be on the other side of the limit"


def _step_rate(left: Sequence[Option], answers: Answers) -> Step:
    asked = answers.ops_per_second
    found = {o.name: _carries(o, asked) for o in left if asked is not None}
    answer = "not answered" if asked is None else f"{asked:g} per second"
    return Step("How many locks per second, over all keys?", answer, found)


def _carries(option: Option, asked: float) -> tuple[Found, str]:
    carried = [one.carried_range_per_s for one in option.rates if one.carried_range_per_s]
    if not carried:
        return "not shown", UNMEASURED
    low = min(one.min for one in carried)
    high = max(one.max for one in carried)
    said = f"{low:,.0f} to {high:,.0f} per second were carried"
    bends = [one.knee for one in option.rates if one.knee is not None]
    if bends:
        below = min(knee.low_per_s for knee in bends)
        said += f", with flat latency up to {below:,.0f} at least"
    limits = [why for one in option.rates for why in one.why]
    if high < asked:
        if limits:
            return "not shown", f"{said}, and the lock was not the limit: {limits[0]}"
        return "no", said
    if low < asked:
        return "not shown", f"{said}: another run may be on the other side of the limit"
    tried = [
        rate
        for one in option.rates
        for rate in one.rates
        if _offered(rate) >= asked * (1 - SAME_RATE) and not rate.why
    ]
    if not tried:
        return "not shown", f"{said}, but nothing was measured at {asked:g} per second"
    return "yes", said


def _step_had(left: Sequence[Option], answers: Answers) -> Step:
    found: dict[str, tuple[Found, str]] = {
        o.name: ("yes", "its servers are there")
        if is_had(o, answers.already_have)
        else ("no", f"{o.topology} would have to be run")
        for o in left
        if answers.already_have
    }
    answer = ", ".join(answers.already_have) or "not answered"
    return Step("What do you run already? (decides between what is left)", answer, found)
