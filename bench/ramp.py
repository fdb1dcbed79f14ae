"""``--ramp``: the highest rate of arrivals at which the p99 stays within a bound, for every lock.

Each step is a case of its own under an open load, with its own cluster and verdicts: the rate is
doubled until a step does not keep the bound, and then halved into, until the step between the last
rate that was kept and the first that was not is small. Times are from the intended start, so that
whoever waits in front of busy clients is counted. A step whose numbers are void, because jobs that
were due were never begun or because the load generator was the bottleneck, is not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from rich.console import Console

from bench.plan import FLOOR_S, OWN_SHARE, Case, find_workload, resolve
from bench.suite import Finished
from nemesis.registry import NONE
from report.grid import drawn, texts
from results import documents
from results.errors import BadInput, Ending
from results.judgements import NOT_AS_ASKED
from results.quantiles import EMPTY, P99, needed

FIRST_RATE: Final = 100.0
RATE_MIN: Final = 10.0
RATE_MAX: Final = 6_400.0
# The last kept rate is within this factor of the first that was not.
CLOSE: Final = 1.1
CONTENDED_S_MIN: Final = 8.0
# A few more than a p99 needs: arrivals are random.
SAMPLES: Final = 1.15 * needed(P99)
CLIENTS: Final = 32
Runner = Callable[[list[Case], str], Finished]


@dataclass(frozen=True, slots=True)
class Step:
    """One rate. ``why`` it was not kept, or nothing."""

    rate: float
    p99_ms: float | None
    why: str
    run: str

    @property
    def kept(self) -> bool:
        return not self.why


@dataclass(frozen=True, slots=True)
class Ramp:
    """``rate``: the highest that was kept, None if none was. ``limit``: what stopped it above, at
    ``limit_rate``, the lowest that was not kept; None if no higher rate was tried."""

    lock: str
    workload: str
    bound_ms: float
    rate: float | None
    p99_ms: float | None
    limit: str
    limit_rate: float | None
    steps: tuple[Step, ...]
    clients: int
    keys: int
    hold_ms: float


def refuse_impossible(case: Case) -> None:
    """Raises BadInput for a case that cannot be ramped."""
    asked = find_workload(case.workload)
    if "rate" not in asked.workload.parameters:
        raise BadInput(f"the workload {asked.workload.name} has no rate that --ramp could raise")
    if asked.options["rate"]:
        raise BadInput(f"--ramp finds the rate; leave it out of {case.workload}")
    if case.fault != NONE:
        raise BadInput("--ramp measures without a fault; leave --fault out")


def at_rate(case: Case, rate: float) -> Case:
    """The case under an open load, long enough for a p99."""
    contended_s = max(CONTENDED_S_MIN, SAMPLES / rate)
    limit_s = round((contended_s + FLOOR_S) / (1 - OWN_SHARE), 1)
    return resolve(
        replace(
            case,
            workload=f"{case.workload}:rate={rate:g}",
            clients=max(case.clients, CLIENTS),
            time_limit_s=limit_s,
        )
    )


def ramp(
    case: Case, bound_ms: float, run: Runner, tell: Callable[[Step], None]
) -> tuple[Ramp, list[Finished]]:
    """Plays step after step, and tells each."""
    done: list[Finished] = []
    steps: list[Step] = []

    def kept(rate: float) -> bool:
        finished = run([at_rate(case, rate)], f"ramp-{case.system.name}-{rate:g}")
        done.append(finished)
        steps.append(step_of(rate, bound_ms, finished.results.cases[0]))
        tell(steps[-1])
        return steps[-1].kept

    rate = FIRST_RATE
    if kept(rate):
        while rate < RATE_MAX and kept(2 * rate):
            rate *= 2
        low, high = rate, 2 * rate
    else:
        while rate > RATE_MIN and not kept(rate / 2):
            rate /= 2
        low, high = rate / 2, rate
    good = {step.rate for step in steps if step.kept}
    while good and low in good and high < 2 * RATE_MAX and high / low > CLOSE:
        between = round((low * high) ** 0.5, 1)
        low, high = (between, high) if kept(between) else (low, between)
        good = {step.rate for step in steps if step.kept}
    best = max((step for step in steps if step.kept), key=lambda step: step.rate, default=None)
    above = [s for s in steps if not s.kept and (best is None or s.rate > best.rate)]
    first = min(above, key=lambda step: step.rate, default=None)
    found = Ramp(
        lock=case.system.name,
        workload=case.workload,
        bound_ms=bound_ms,
        rate=None if best is None else best.rate,
        p99_ms=None if best is None else best.p99_ms,
        limit="no higher rate was tried" if first is None else first.why,
        limit_rate=None if first is None else first.rate,
        steps=tuple(steps),
        clients=at_rate(case, FIRST_RATE).clients,
        keys=case.keys,
        hold_ms=1e3 * case.pace.hold_s,
    )
    return found, done


def step_of(rate: float, bound_ms: float, document: documents.CaseResult) -> Step:
    """What a case says about its rate."""
    before = {kind: by.get("before", EMPTY) for kind, by in (document.response_ms or {}).items()}
    kind = "wait" if before.get("wait", EMPTY).count else "job"
    p99 = before.get(kind, EMPTY).p99
    if document.judgement in {"failed", "could not run"}:
        why = str(document.why)
    elif document.numbers != "valid":
        told = document.generator.why if document.generator else ("its numbers are void",)
        why = "; ".join(told)
    elif p99 is None:
        why = "too few were granted for a p99"
    else:
        why = f"p99 {p99:.3g} ms" if p99 > bound_ms else ""
    return Step(rate, p99, why, str(document.run))


def results(ramps: list[Ramp], done: list[Finished]) -> dict[str, Any]:
    """The object of ``--json``: the ramps, and every case that was played."""
    return {
        "ramps": [asdict(found) for found in ramps],
        "cases": [case for finished in done for case in finished.results.cases],
        "ending": ending_of(done).word,
    }


def ending_of(done: list[Finished]) -> Ending:
    """The worst of all steps. That some rate was more than could be served is what a ramp is for;
    if every rate was, nothing was found."""
    return Ending.worst(
        [
            finished.ending
            for finished in done
            if finished.results.cases[0].judgement != NOT_AS_ASKED
        ]
    )


def say_step(case: Case, step: Step, console: Console) -> None:
    """One line, as soon as it is known."""
    p99 = "no p99" if step.p99_ms is None else f"p99 {step.p99_ms:.3g} ms"
    how = f"kept, {p99}" if step.kept else f"not kept: {step.why}"
    console.print(f"{case.system.name} at {_per_s(step.rate)}: {how}", highlight=False)


def say(ramps: list[Ramp], console: Console) -> None:
    """One line a lock."""
    load = ramps[0]
    rows = [
        (
            found.lock,
            "none was kept" if found.rate is None else _per_s(found.rate),
            "" if found.p99_ms is None else f"{found.p99_ms:.3g} ms",
            "" if found.limit_rate is None else _per_s(found.limit_rate),
            found.limit,
        )
        for found in ramps
    ]
    grid = texts(
        "ramp",
        f"Arrivals per second with a p99 of at most {load.bound_ms:g} ms",
        ("lock", "highest rate", "p99 there", "stopped at", "by"),
        rows,
        f"{load.clients} clients share {load.keys} keys, each held for {load.hold_ms:g} ms: with "
        "more --keys there is less to wait for. "
        "p99 of the time from a job's intended start to its grant (of a job without a lock: to its "
        "end). Every step is a run of its own.",
    )
    console.print(drawn(grid))


def _per_s(rate: float) -> str:
    return f"{rate:,.0f}/s"
