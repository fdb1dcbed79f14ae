"""What was done under the locks of a run, and without them: correctness, latency, throughput,
conflicts, and what a check at the resource is worth.

For every workload but the plain ``mutex``, which the other tables are about. Latency is of a whole
job on a contended key, from its start to its confirmed end, and those are counted as done; what was
not done is counted on own keys too, but not on the aimed one, where a fault makes rivals wait. What
went wrong and what was stale is of the whole case. A verdict that was not decided is never
``nothing``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from lockbench.report.columns import Column, Context, Slot, Table, at
from lockbench.report.facts import (
    CASE,
    CYCLES,
    FAULT,
    LOCK,
    NUMBERS_VALID,
    PHASE,
    STALE_ATTEMPTED,
    WORKLOAD,
)
from lockbench.results import wording
from lockbench.results.cases import (
    MUTEX,
    PUBLISHED,
    broken,
    came_to_nothing,
    has_numbers,
    phases_of,
    quantile_ms,
    undecided,
)
from lockbench.results.documents import CaseResult, JobNumbers, PerGrant, Scoring

TITLE: Final = "Jobs: correctness, latency, throughput, conflicts"
CAPTION: Final = (
    "A job: a whole piece of work on a shared key, ms, p50 / p99, from its start (closed load) or "
    "its arrival (open load). Done: on shared keys; not done: the lock was not granted in time, on "
    "any key but that of the victim; unknown: mostly those who still waited as the load ended. "
    "Whom a fault met counts as during, whenever the job ended. Per s: grants of shared keys by "
    "when they came (two of them a job of two locks); without a lock, jobs. "
    "Conflicts: tries that met somebody who was first; a lock has none, it waits. Of the whole "
    "case, the victim included, and in its first row: wrong, stale, tries."
)
WORTH_TITLE: Final = "What a check at the resource is worth"
WORTH_CAPTION: Final = (
    "Stale: reads, writes and effects of a holder whose time was over, with somebody else's grant "
    "after it. The resource applied all of them; beside it what each check would have refused, and "
    "what it would have lost or done again all the same. A random token needs no order of grants: "
    "a write is applied while the token that its holder left at its read is still there. Rightful "
    "refused: holders in time, whose numbers were out of order or whose token was overwritten."
)


def wrong(case: CaseResult) -> str:
    """What came of it that must not: ``1 charged again, 2 updates lost``."""
    found = _measured(case)
    said = [words(found) for verdict, words in WRONG.items() if verdict in broken(case)]
    if "lost-update" in broken(case):
        lost = _unfenced(case).lost_updates
        said.append(wording.times(lost, "update") + " lost" if lost else "updates lost")
    said += [f"? {verdict}" for verdict in undecided(case) if verdict in {*WRONG, "lost-update"}]
    return ", ".join(said) or "nothing"


def seen(case: CaseResult) -> list[str]:
    """What a workload is there to show, beside what went wrong."""
    show = SEEN.get(_workload(case))
    lines = show(case, _measured(case)) if show is not None else []
    return lines if has_numbers(case) or not lines else ["(numbers void)", *lines]


def _herd(case: CaseResult, _: JobNumbers) -> list[str]:
    """Of everything that the servers did while all waited for one key."""
    span = (case.footprint and case.footprint.contended) or PerGrant()
    requests, cpu = span.commands_per_grant, span.cpu_us_per_grant
    handover = wording.pair(*(quantile_ms(case, "handover", "before", q) for q in ("p50", "p99")))
    fair = case.measurements.fairness
    unserved = None if fair is None else fair.unserved
    return [
        f"{case.clients} clients",
        *([] if requests is None else [f"{requests:,.1f} requests a grant"]),
        *([] if cpu is None else [f"server CPU {wording.micros(cpu)} a grant"]),
        f"hand-over {handover} ms",
        *([f"{unserved} of {fair.clients} not served"] if fair and unserved is not None else []),
    ]


def _fairness(_: CaseResult, found: JobNumbers) -> list[str]:
    lines = []
    for kind, mine in (("fast", found.fast), ("slow", found.slow)):
        if mine:
            clients = wording.times(mine.clients, "client")
            lines += [
                f"{kind}: {mine.jobs:,} of {clients}",
                f"  {wording.ms(mine.p50_ms)} ms, at most {wording.ms(mine.max_ms)}",
            ]
    return lines


def _two_locks(_: CaseResult, found: JobNumbers) -> list[str]:
    if found.deadlocks is None:
        return []
    if not found.deadlocks:
        return ["no deadlock"]
    return [
        f"{wording.times(found.deadlocks, 'deadlock')}, longest {wording.seconds(found.longest_s)}",
        f"{found.broken_by_expiry or 0} ended by a grant",
        f"{found.broken_by_giving_up or 0} by giving up",
    ]


def _leader(_: CaseResult, found: JobNumbers) -> list[str]:
    if not found.terms:
        return []
    return [
        f"{found.terms:,} terms, led {wording.percent(100 * (found.led_fraction or 0))}",
        f"longest without {wording.seconds(found.longest_without_s)}",
    ]


def _long_hold(case: CaseResult, _: JobNumbers) -> list[str]:
    by_phase = (case.counts or {}).get("extend", {}).values()
    done, refused = (sum(n.get(kind, 0) for n in by_phase) for kind in ("ok", "fail"))
    return [f"{done:,} extended", f"{refused:,} not extended"] if done or refused else []


def _rate_limit(_: CaseResult, found: JobNumbers) -> list[str]:
    most = found.most_in_a_window
    return [] if most is None else [f"at most {most} calls in a window"]


def _gate(_: CaseResult, found: JobNumbers) -> list[str]:
    return [] if found.most_inside is None else [f"at most {found.most_inside} inside"]


def _payment(_: CaseResult, found: JobNumbers) -> list[str]:
    already = found.refused_as_done
    return [f"{already:,} refused as done"] if already else []


SEEN: Final[Mapping[str, Callable[[CaseResult, JobNumbers], list[str]]]] = {
    "herd": _herd,
    "fairness": _fairness,
    "two-locks": _two_locks,
    "leader": _leader,
    "long-hold": _long_hold,
    "rate-limit": _rate_limit,
    "semaphore": _gate,
    "payment": _payment,
}


def _number(count: int | None) -> str:
    """Of what is known to have happened."""
    return f"{count:,}" if count else "?"


# Verdict of a job → what was wrong, in words.
WRONG: Final[Mapping[str, Callable[[JobNumbers], str]]] = {
    "oversold": lambda found: f"{_number(found.oversold)} sold twice",
    "charged-twice": lambda found: f"{_number(found.repeated)} charged again",
    "lost-charge": lambda found: f"{_number(found.lost)} charges lost",
    "ran-twice": lambda found: f"{_number(found.repeated)} started again",
    "two-leaders": lambda _: "two leaders",
    "rate-exceeded": lambda _: "calls above the bound",
    "over-capacity": lambda _: "more inside than permitted",
}


def _harm(score: Scoring) -> str:
    """What a policy let through all the same, and whom it refused wrongly."""
    counts = {
        "lost": score.lost_updates,
        "done again": score.repeated_effects,
        "rightful refused": score.valid_refused,
    }
    return ", ".join(f"{n:,} {words}" for words, n in counts.items() if n) or "none lost"


def _measured(case: CaseResult) -> JobNumbers:
    """The numbers of the one job that all keys of a case have."""
    return next(iter((case.measurements.jobs or {}).values()), JobNumbers())


def _unfenced(case: CaseResult) -> Scoring:
    return (case.measurements.fencing or {}).get("unfenced", Scoring())


def _workload(case: CaseResult) -> str:
    """Its name without parameters."""
    return (case.workload or MUTEX).partition(":")[0]


def _jobs(case: CaseResult) -> Iterator[Context]:
    """A row a phase; none for the plain ``mutex``."""
    if _workload(case) in {MUTEX, PUBLISHED} or came_to_nothing(case):
        return
    counts = case.counts or {}
    for phase in phases_of(case):
        yield {
            "phase": phase,
            # A job that is not recorded as a whole is done when its lock was granted.
            "jobs": (counts.get("job") or counts.get("acquire", {})).get(phase),
            "kind": "job" if "job" in counts else "wait",
            "rate": at(case, f"cycles_per_second_by_phase.{phase}"),
            "tried": None if "acquire" in counts else _measured(case),
            "measured": _measured(case),
        }


def _done(r: Context) -> int | None:
    found = quantile_ms(r["case"], r["kind"], r["phase"], "count")
    return None if found is None else int(found)


def _latency(statistic: str) -> Callable[[Context], float | None]:
    """From the arrival where there is one."""

    def found(r: Context) -> float | None:
        for basis in ("response", "service"):
            if quantile_ms(r["case"], "job", r["phase"], "count", basis):
                return quantile_ms(r["case"], "job", r["phase"], statistic, basis)
        return None

    return found


def _by_comma(text: str) -> str:
    return text.replace(", ", ",\n")


def _some(words: str) -> Callable[[str], str]:
    return lambda text: "" if text == "0" else f", {text} {words}"


JOBS: Final = Table("jobs", "a phase of a case with jobs", (
    CASE,
    LOCK.at(LOCK.of, slot=Slot("lock, job", once=True)),
    FAULT.at(FAULT.of, slot=Slot("", once=True)),
    WORKLOAD.at(
        WORKLOAD.of,
        slot=Slot("lock, job", lambda text: f"\n{text}".replace(":", "\n:"), once=True),
    ),
    Column("wrong", "what came of the jobs that must not, in words, whole case",
           lambda r: wrong(r["case"]), Slot("wrong", _by_comma), once=True),
    STALE_ATTEMPTED.at(lambda r: _unfenced(r["case"]).stale_attempted, once=True),
    PHASE.at("phase", slot=Slot("phase")),
    Column("job_p50_ms",
           "whole job on a contended key, from its start or its arrival, median, milliseconds",
           _latency("p50"), Slot("ms"), load=True),
    Column("job_p99_ms", "whole job on a contended key, 99th percentile, milliseconds",
           _latency("p99"), Slot("ms", " / {text}"), load=True),
    CYCLES.at("rate", slot=Slot("per s")),
    Column("done", "jobs that were done on contended keys", _done, Slot("done")),
    Column("not_done", "jobs that were not done for certain, aimed keys left out",
           "jobs.fail", Slot("done", _some("not done"), optional=True)),
    Column("outcome_unknown", "jobs of which nobody knows, aimed keys left out",
           "jobs.info", Slot("done", _some("unknown"), optional=True)),
    Column("conflicts", "without a lock: tries that met somebody who was first, whole case",
           "tried.conflicts", Slot("conflicts", "{text} of ", optional=True), once=True),
    Column("tries", "without a lock: effects that were tried, whole case", "tried.tries",
           Slot("conflicts", optional=True), once=True),
    Column("refused_as_done",
           "effects that were refused because they had been done, whole case",
           "measured.refused_as_done", once=True),
    NUMBERS_VALID,
    Column("seen", "what the workload is there to show, in words",
           lambda r: "; ".join(seen(r["case"])),
           Slot("seen", lambda text: text.replace("; ", "\n"), optional=True), once=True),
), _jobs, TITLE, CAPTION)  # fmt: skip


def _worth(case: CaseResult) -> Iterator[Context]:
    """At most one: only where something stale was attempted is a check worth anything."""
    if _unfenced(case).stale_attempted:
        yield {"scored": case.measurements.fencing, "unfenced": _unfenced(case)}


def _refused(policy: str) -> Callable[[Context], str]:
    def found(r: Context) -> str:
        score = r["scored"].get(policy)
        if score is None:
            return "no fence"
        return f"{score.stale_refused or 0:,} refused, {_harm(score)}"

    return found


WORTH: Final = Table("worth", "a case in which something stale was attempted", (
    CASE,
    LOCK.at(LOCK.of, slot=Slot("lock")),
    FAULT.at(FAULT.of, slot=Slot("")),
    WORKLOAD.at(lambda r: r["case"].workload or MUTEX, slot=Slot("workload")),
    Column("stale_operations", "operations of holders whose time was over, whole case",
           lambda r: f"{r['unfenced'].stale_attempted:,} attempted",
           Slot("stale operations")),
    Column(
        "no_check",
        "what a resource that checks nothing lost or did again",
        lambda r: f"{r['unfenced'].stale_applied or 0:,} applied, {_harm(r['unfenced'])}",
        Slot("no check", _by_comma),
    ),
    *(
        Column(heading.replace(" ", "_"), meaning, _refused(policy), Slot(heading, _by_comma))
        for policy, heading, meaning in (
            (
                "fence-on-write",
                "fence on write",
                "what a fence checked on writes and effects would have refused, and lost",
            ),
            (
                "fence-on-read-and-write",
                "fence on read and write",
                "the same for a fence checked on reads too",
            ),
            (
                "random-token-cas",
                "random token",
                "the same for a compare-and-set on the token that a holder left at its read",
            ),
        )
    ),
), _worth, WORTH_TITLE, WORTH_CAPTION)  # fmt: skip
