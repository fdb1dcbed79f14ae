"""What was done under the locks of a run, and without them: correctness, latency, throughput,
conflicts, and what a check at the resource is worth.

For every workload but the plain ``mutex``, which the other tables are about. Latency is of a whole
job on a contended key, from its start to its confirmed end, and those are counted as done; what was
not done is counted on own keys too, but not on the aimed one, where a fault makes rivals wait. What
went wrong and what was stale is of the whole case. A verdict that was not decided is never
``nothing``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from results import wording
from results.cases import (
    Case,
    broken,
    came_to_nothing,
    fault_of,
    has_numbers,
    lock_of,
    mapping,
    number,
    phases_of,
    quantile_ms,
    undecided,
)
from results.wording import NONE

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
PLAIN: Final = frozenset({"mutex", "published"})
POLICIES: Final = {
    "fence-on-write": "fence on write",
    "fence-on-read-and-write": "fence on read and write",
    "random-token-cas": "random token",
}
COLUMNS: Final = (
    "workload", "wrong", "stale_attempted", "phase", "job_p50_ms", "job_p99_ms", "cycles_per_s",
    "done", "not_done", "outcome_unknown", "tries", "conflicts", "refused_as_done",
    "numbers_valid", "seen",
)  # fmt: skip
WORTH_COLUMNS: Final = (
    "workload", "stale_operations", "no_check", "fence_on_write", "fence_on_read_and_write",
    "random_token",
)  # fmt: skip


def job_rows(case: Case) -> Iterator[dict[str, Any]]:
    """One row a phase, with the columns above; what is of the whole case stands in the first. None
    for the plain ``mutex``."""
    workload = str(case.get("workload", "mutex"))
    if _name(workload) in PLAIN or came_to_nothing(case):
        return
    measured = _measured(case)
    rates = mapping(case.get("cycles_per_second_by_phase"))
    counts = mapping(case.get("counts"))
    # A job that is not recorded as a whole is done when its lock was granted.
    jobs = mapping(counts.get("job") or counts.get("acquire"))
    kind = "job" if "job" in counts else "wait"
    for n, phase in enumerate(phases_of(case)):
        mine = mapping(jobs.get(phase))
        row: dict[str, Any] = {
            "workload": workload,
            "phase": phase,
            **{f"job_{q}_ms": _latency(case, phase, q) for q in ("p50", "p99")},
            "cycles_per_s": number(rates.get(phase)),
            "done": quantile_ms(case, kind, phase, "count"),
            "not_done": mine.get("fail"),
            "outcome_unknown": mine.get("info"),
        }
        if n == 0:
            if "acquire" not in counts:
                row |= {"tries": measured.get("tries"), "conflicts": measured.get("conflicts")}
            row |= {
                "numbers_valid": has_numbers(case),
                "refused_as_done": measured.get("refused_as_done"),
                "wrong": wrong(case),
                "stale_attempted": _unfenced(case).get("stale_attempted"),
                "seen": "; ".join(seen(case)),
            }
        yield row


def worth_rows(case: Case) -> Iterator[dict[str, str]]:
    """At most one: only where something stale was attempted is a check worth anything."""
    scored, unfenced = _scored(case), _unfenced(case)
    if not unfenced.get("stale_attempted"):
        return
    yield {
        "workload": str(case.get("workload", "mutex")),
        "stale_operations": f"{unfenced['stale_attempted']:,} attempted",
        "no_check": f"{unfenced.get('stale_applied', 0):,} applied, {_harm(unfenced)}",
        **{
            words.replace(" ", "_"): f"{mapping(scored[policy])['stale_refused']:,} refused, "
            f"{_harm(mapping(scored[policy]))}"
            if policy in scored
            else "no fence"
            for policy, words in POLICIES.items()
        },
    }


def jobs_grid(cases: Sequence[Case]) -> pd.DataFrame | None:
    """For a terminal: a row a case, the phases one below the other. None where there is none."""
    rows = [_narrow(case, made) for case in cases if (made := list(job_rows(case)))]
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    return frame.drop(columns=[name for name in ("conflicts", "seen") if not any(frame[name])])


def worth_grid(cases: Sequence[Case]) -> pd.DataFrame | None:
    """None where nothing stale was attempted."""
    rows = [
        {
            "fault": fault_of(case),
            "lock": lock_of(case),
            **{name.replace("_", " "): _lines(text) for name, text in row.items()},
        }
        for case in cases
        for row in worth_rows(case)
    ]
    return pd.DataFrame(rows) if rows else None


def wrong(case: Case) -> str:
    """What came of it that must not: ``1 charged again, 2 updates lost``."""
    measured, bad = _measured(case), broken(case)
    found = [words(measured) for verdict, words in WRONG.items() if verdict in bad]
    if "lost-update" in bad:
        lost = _unfenced(case).get("lost_updates")
        found.append(wording.times(lost, "update") + " lost" if lost else "updates lost")
    found += [f"? {verdict}" for verdict in undecided(case) if verdict in {*WRONG, "lost-update"}]
    return ", ".join(found) or "nothing"


def seen(case: Case) -> list[str]:
    """What a workload is there to show, beside what went wrong."""
    name = _name(str(case.get("workload", "")))
    show = SEEN.get(name)
    lines = show(case, _measured(case)) if show is not None else []
    return lines if has_numbers(case) or not lines else ["(numbers void)", *lines]


def _herd(case: Case, _: Mapping[str, Any]) -> list[str]:
    """Of everything that the servers did while all waited for one key."""
    span = mapping(mapping(case.get("footprint")).get("contended"))
    requests = number(span.get("commands_per_grant"))
    cpu = number(span.get("cpu_us_per_grant"))
    handover = wording.pair(*(quantile_ms(case, "handover", "before", q) for q in ("p50", "p99")))
    fair = mapping(mapping(case.get("measurements")).get("fairness"))
    return [
        f"{case.get('clients')} clients",
        *([] if requests is None else [f"{requests:,.1f} requests a grant"]),
        *([] if cpu is None else [f"server CPU {wording.micros(cpu)} a grant"]),
        f"hand-over {handover} ms",
        *([f"{fair['unserved']} of {fair['clients']} not served"] if "unserved" in fair else []),
    ]


def _fairness(_: Case, found: Mapping[str, Any]) -> list[str]:
    lines = []
    for kind in ("fast", "slow"):
        mine = mapping(found.get(kind))
        if mine:
            p50, worst = (wording.ms(number(mine.get(f"{q}_ms"))) for q in ("p50", "max"))
            clients = wording.times(mine["clients"], "client")
            lines += [f"{kind}: {mine['jobs']:,} of {clients}", f"  {p50} ms, at most {worst}"]
    return lines


def _two_locks(_: Case, found: Mapping[str, Any]) -> list[str]:
    if not found.get("deadlocks"):
        return ["no deadlock"]
    return [
        f"{wording.times(found['deadlocks'], 'deadlock')}, longest {found['longest_s']:.1f} s",
        f"{found['broken_by_expiry']} ended by a grant",
        f"{found['broken_by_giving_up']} by giving up",
    ]


def _leader(_: Case, found: Mapping[str, Any]) -> list[str]:
    if not found.get("terms"):
        return []
    return [
        f"{found['terms']:,} terms, led {wording.percent(100 * (found.get('led_fraction') or 0))}",
        f"longest without {wording.seconds(found['longest_without_s'])}",
    ]


def _long_hold(case: Case, _: Mapping[str, Any]) -> list[str]:
    by_phase = mapping(mapping(case.get("counts")).get("extend")).values()
    kept, refused = (sum(mapping(n).get(kind, 0) for n in by_phase) for kind in ("ok", "fail"))
    return [f"{kept:,} extended", f"{refused:,} not extended"] if kept or refused else []


def _rate_limit(_: Case, found: Mapping[str, Any]) -> list[str]:
    return (
        [f"at most {found['most_in_a_window']} calls in a window"]
        if "most_in_a_window" in found
        else []
    )


def _gate(_: Case, found: Mapping[str, Any]) -> list[str]:
    return [f"at most {found['most_inside']} inside"] if "most_inside" in found else []


def _payment(_: Case, found: Mapping[str, Any]) -> list[str]:
    already = found.get("refused_as_done")
    return [f"{already:,} refused as done"] if already else []


SEEN: Final[Mapping[str, Callable[[Case, Mapping[str, Any]], list[str]]]] = {
    "herd": _herd,
    "fairness": _fairness,
    "two-locks": _two_locks,
    "leader": _leader,
    "long-hold": _long_hold,
    "rate-limit": _rate_limit,
    "semaphore": _gate,
    "payment": _payment,
}
# Verdict of a job → what was wrong, in words.
WRONG: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "oversold": lambda found: f"{found.get('oversold', 0):,} sold twice",
    "charged-twice": lambda found: f"{found.get('repeated', 0):,} charged again",
    "lost-charge": lambda found: f"{found.get('lost') or '?'} charges lost",
    "ran-twice": lambda found: f"{found.get('repeated', 0):,} started again",
    "two-leaders": lambda _: "two leaders",
    "rate-exceeded": lambda _: "calls above the bound",
    "over-capacity": lambda _: "more inside than permitted",
}


def _narrow(case: Case, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    first = rows[0]
    tries, conflicts = first.get("tries"), first.get("conflicts")
    return {
        "fault": fault_of(case),
        "lock, job": f"{lock_of(case)}\n{first['workload']}".replace(":", "\n:"),
        "phase": "\n".join(str(row["phase"]) for row in rows),
        "ms": "\n".join(_pair(case, row) for row in rows),
        "per s": "\n".join(_void(case, wording.rate(row["cycles_per_s"])) for row in rows),
        "done": "\n".join(_done(row) for row in rows),
        "conflicts": f"{conflicts:,} of {tries:,}"
        if conflicts
        else ("" if conflicts is None else "none"),
        "wrong": _lines(first["wrong"]),
        "seen": first["seen"].replace("; ", "\n"),
    }


def _pair(case: Case, row: Mapping[str, Any]) -> str:
    return _void(case, wording.pair(row["job_p50_ms"], row["job_p99_ms"]))


def _void(case: Case, text: str) -> str:
    """In brackets where the load generator was the bottleneck."""
    return text if has_numbers(case) or text == NONE else f"({text})"


def _done(row: Mapping[str, Any]) -> str:
    unsure = [
        f"{row[name]:,} {words}"
        for name, words in (("not_done", "not done"), ("outcome_unknown", "unknown"))
        if row[name]
    ]
    return ", ".join([f"{row['done'] or 0:,.0f}", *unsure])


def _harm(score: Mapping[str, Any]) -> str:
    """What a policy let through all the same, and whom it refused wrongly."""
    said = [
        f"{score[name]:,} {words}"
        for name, words in (
            ("lost_updates", "lost"),
            ("repeated_effects", "done again"),
            ("valid_refused", "rightful refused"),
        )
        if score.get(name)
    ]
    return ", ".join(said) or "none lost"


def _lines(text: str) -> str:
    return text.replace(", ", ",\n")


def _latency(case: Case, phase: str, statistic: str) -> float | None:
    """From the arrival where there is one."""
    for basis in ("response", "service"):
        if quantile_ms(case, "job", phase, "count", basis):
            return quantile_ms(case, "job", phase, statistic, basis)
    return None


def _measured(case: Case) -> Mapping[str, Any]:
    """The numbers of the one job that all keys of a case have."""
    jobs = mapping(mapping(case.get("measurements")).get("jobs"))
    return mapping(next(iter(jobs.values()), None))


def _scored(case: Case) -> Mapping[str, Any]:
    """Policy of the resource → its counts."""
    return mapping(mapping(case.get("measurements")).get("fencing"))


def _unfenced(case: Case) -> Mapping[str, Any]:
    return mapping(_scored(case).get("unfenced"))


def _name(workload: str) -> str:
    return workload.partition(":")[0]
