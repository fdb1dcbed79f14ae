"""``check``: everything the checker has to say about one history."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import cache
from time import perf_counter
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.exclusion import double_grant, late_grant
from lockbench.checker.fences import fence_order
from lockbench.checker.fencing import scorings
from lockbench.checker.guard import broken_guard, counts
from lockbench.checker.job_measurements import summaries
from lockbench.checker.jobs import judged
from lockbench.checker.leaks import leaked_lock
from lockbench.checker.linearizable import linearizable
from lockbench.checker.machines import check_machines
from lockbench.checker.measurements import measurements
from lockbench.checker.missing import without_missing
from lockbench.checker.outside import from_outside, only_untouched
from lockbench.checker.queue_order import queue_order
from lockbench.checker.releases import Releases
from lockbench.checker.resource import lost_update, stale_holder, uses
from lockbench.checker.rows import rows_of
from lockbench.checker.service import asks, witnessed
from lockbench.checker.verdict import Report, Verdict
from lockbench.checker.witness import Witness
from lockbench.history.columns import History
from lockbench.history.op import F, Type

# What an answer ok confirms; the others are told by the bench or by whoever holds.
SHOWS: Final = frozenset(F) - {F.LOST, F.DEATH, F.QUIET, F.QUEUED}


def check(history: History, *, only: Collection[str] | None = None) -> Report:
    """Every verdict that applies, or those named in ``only`` and no measurements. One that crashed
    is unknown and hides no other. Where something happened from outside, a violation is told only
    if that cannot have been its cause (``lockbench.checker.outside``); where there are clocks of
    several machines, what stands whatever they were (``lockbench.checker.machines``); where a part
    of a recording is missing, what that cannot have caused (``lockbench.checker.missing``)."""
    if history.missing:
        whole = replace(history, missing=())
        return without_missing(check(whole, only=only), history)
    if history.machine is not None:
        return check_machines(history, lambda h, o: check(h, only=o), only)
    report = _check(history, only)
    if not from_outside(history):
        return report
    verdicts = only_untouched(history, report.verdicts, lambda h, o: _check(h, o).verdicts)
    return replace(report, verdicts=verdicts)


def _check(history: History, only: Collection[str] | None) -> Report:
    began = perf_counter()
    verdicts: dict[str, Verdict] = {}
    try:
        analysis = Analysis.of(history)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not pass for a verdict
        verdicts["double-grant"] = crashed("reading the grants", error)
        seconds = {"check": perf_counter() - began}
        return Report(len(history), 0, verdicts, {}, seconds, history.ended is False)

    record = history.service
    # Made when it is first asked for, so that a crash belongs to those who need it.
    witness = None if record is None else cache(lambda: Witness(analysis, record))

    def answer(name: str, ask: Callable[[], Verdict | None]) -> None:
        verdict = attempt(name, ask) if only is None or name in only else None
        if verdict is None:
            return
        verdicts[name] = verdict
        if witness is not None and asks(name, verdict):
            # A second witness that crashes changes no verdict.
            with suppress(Exception):
                verdicts[name] = witnessed(witness(), name, verdict)

    answer("double-grant", lambda: double_grant(analysis))
    answer("late-grant", lambda: late_grant(analysis))
    released = cache(lambda: Releases(analysis))
    answer("wrong-release", lambda: released().wrong_release())
    answer("false-release", lambda: released().false_release())
    answer("wrong-extend", lambda: released().wrong_extend())
    answer("fence-order", lambda: fence_order(analysis))
    used = cache(lambda: uses(analysis))
    answer("stale-holder", lambda: stale_holder(analysis, used()))
    answer("lost-update", lambda: lost_update(analysis, used()))
    answer("queue-order", lambda: queue_order(analysis))
    answer("leaked-lock", lambda: leaked_lock(analysis))
    answer("linearizable", lambda: linearizable(analysis))
    answer("broken-guard", lambda: broken_guard(analysis))
    for name, ask in judged(analysis).items():
        answer(name, ask)
    measured: dict[str, object] = {}
    if only is None:
        measured = attempt_measurement("measurements", lambda: measurements(analysis))
        done = attempt_measurement("jobs", lambda: {"jobs": summaries(analysis)})
        if done["jobs"]:
            measured |= done
        if witness is not None:
            measured |= attempt_measurement("service", lambda: {"service": witness().summary()})
        if history.guarded is not None:
            measured |= attempt_measurement("guard", lambda: {"guard": counts(analysis)})
        fencing = attempt_measurement("fencing", lambda: {"fencing": scorings(analysis, used())})
        if fencing["fencing"] is not None:
            measured |= fencing
    grants = len(rows_of(history, F.ACQUIRE, Type.OK))
    seconds = {"check": perf_counter() - began}
    return Report(
        len(history),
        grants,
        verdicts,
        measured,
        seconds,
        cut=history.ended is False,
        confirmed=_anything_confirmed(history),
    )


def _anything_confirmed(history: History) -> bool:
    """Whether anything that was asked for or done was answered ok."""
    return bool(np.any(np.isin(history.f[history.type == Type.OK], [*map(int, SHOWS)])))


def attempt(name: str, ask: Callable[[], Verdict | None]) -> Verdict | None:
    """A verdict, or unknown with what it crashed on."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - see crashed
        return crashed(name, error)


def crashed(name: str, error: Exception) -> Verdict:
    """What crashed proves nothing either way."""
    return Verdict("unknown", f"{name} crashed: {type(error).__name__}: {error}")


def attempt_measurement(name: str, take: Callable[[], dict[str, object]]) -> dict[str, object]:
    """Some measurements; a number that cannot be taken hides no verdict."""
    try:
        return take()
    except Exception as error:  # noqa: BLE001 - see above
        return {name: {"error": f"{type(error).__name__}: {error}"}}
