"""Measurements: numbers beside the verdicts, which become verdicts only against a declared bound.

They are taken on the keys that the load contends for; in a foreign history, which says nothing of
roles, on all keys. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.contention import held_by
from lockbench.checker.intervals import running_max
from lockbench.checker.leaks import of_the_load
from lockbench.checker.rows import (
    FOREVER,
    Rows,
    answered_ns,
    by_key_and_time,
    keys_with,
    owners,
    rows_of,
)
from lockbench.history.columns import History, Ints
from lockbench.history.joining import killed_worker
from lockbench.history.op import F, Fault, Type

NS: Final = 1_000_000_000


def measurements(analysis: Analysis) -> dict[str, object]:
    """Everything but the scorings of fences; what does not apply is absent."""
    history = analysis.history
    acquires = of_the_load(history, rows_of(history, F.ACQUIRE))
    acquires = acquires[keys_with(history, frozenset({"contended"}))[history.key[acquires]]]
    if len(acquires) == 0:
        return {}
    granted = acquires[history.type[acquires] == Type.OK]
    result: dict[str, object] = {"availability": _availability(history, acquires, granted)}
    if history.faults:
        result["recovery"] = [_recovery(analysis, fault, granted) for fault in history.faults]
    leaks = _leaks(analysis)
    if leaks:
        result["leaked-lock"] = leaks
    if len(granted):
        result["fairness"] = _fairness(history, acquires, granted)
    return result


def _availability(history: History, acquires: Rows, granted: Rows) -> dict[str, object]:
    """Windows of one second from the first to the last invocation; an incomplete last one does not
    count, unless it is the only one."""
    begin, end = int(history.invoke_ns[acquires[0]]), int(history.invoke_ns[acquires[-1]])
    windows = max(1, (end - begin) // NS)
    done = np.sort(history.complete_ns[granted])
    window = (done - begin) // NS
    window = window[window < windows]
    used = int(np.count_nonzero(np.diff(window, prepend=-1)))
    edges = np.concatenate([[begin], done[done < end], [end]])
    return {
        "fraction": used / windows,
        "windows": int(windows),
        "windows_with_a_grant": used,
        "longest_gap_s": float(np.max(np.diff(edges), initial=0)) / NS,
    }


def _recovery(analysis: Analysis, fault: Fault, granted: Rows) -> dict[str, object]:
    """``failover_s``: from the fault to the first grant asked for after it. ``servers_s``: from the
    heal to the first grant completed after it, also of one who had been waiting since the fault.
    ``dead_holder_s``: from the fault to the next grant of a key whose holder it froze or killed,
    the longest of them."""
    history = analysis.history
    begin = fault.begin_ns[1]
    asked = granted[history.invoke_ns[granted] > begin]
    result: dict[str, object] = {
        "fault": fault.name,
        "failover_s": _since(begin, history.complete_ns[asked]),
        "servers_s": None,
        "dead_holder_s": None,
    }
    if fault.heal_ns is not None:
        result["servers_s"] = _since(fault.heal_ns[1], history.complete_ns[asked])
    freed = [
        (int(next_grant) - fault.begin_ns[0]) / NS
        for i in held_by(analysis, fault)
        if (next_grant := _next_grant(analysis, i, fault.begin_ns[0])) is not None
    ]
    if freed:
        result["dead_holder_s"] = max(freed)
    return result


def _since(begin: int, times: Ints) -> float | None:
    after = times[times > begin]
    return (int(after.min()) - begin) / NS if len(after) else None


def _next_grant(analysis: Analysis, i: int, after_ns: int) -> int | None:
    promises = analysis.promises
    others = promises.start[
        (promises.key == promises.key[i])
        & (promises.start > after_ns)
        & (analysis.history.process[promises.row] != analysis.history.process[promises.row[i]])
    ]
    return int(others.min()) if len(others) else None


def _leaks(analysis: Analysis) -> list[dict[str, object]]:
    """Holds whose holder died, with others waiting: how long the lock stayed taken, and how long
    its lease had still to run. A lock that nobody got afterwards has ``released_s`` null."""
    history, promises = analysis.history, analysis.promises
    ends: dict[int, int] = {}
    for row in rows_of(history, F.DEATH):
        process, died = history.process[row], int(history.invoke_ns[row])
        mine = (history.process[promises.row] == process) & (promises.start <= died)
        mine |= promises.row == analysis.links.acquire[row]
        mine &= promises.outer & (promises.release < 0) & (promises.lease >= died)
        for held in np.flatnonzero(mine):
            ends.setdefault(int(held), died)
    for fault in history.faults:
        if killed_worker(fault) is not None:
            for i in held_by(analysis, fault):
                ends.setdefault(i, fault.begin_ns[0])
    found = []
    for i, died in sorted(ends.items()):
        waiters = _waiters(history, int(promises.key[i]), int(promises.row[i]), died)
        if waiters == 0:
            continue
        freed = _next_grant(analysis, i, died)
        lease = int(promises.lease[i])
        found.append(
            {
                "key": history.keys[int(promises.key[i])],
                "process": history.process_name(int(history.process[promises.row[i]])),
                "waiters": waiters,
                "released_s": None if freed is None else (freed - died) / NS,
                "lease_left_s": None if lease >= FOREVER else (lease - died) / NS,
            }
        )
    return found


def _waiters(history: History, key: int, but: int, after_ns: int) -> int:
    """Acquires of a key in flight or asked for after a time."""
    acquires = of_the_load(history, rows_of(history, F.ACQUIRE))
    acquires = acquires[(history.key[acquires] == key) & (acquires != but)]
    return int(np.count_nonzero(answered_ns(history, acquires) > after_ns))


def _fairness(history: History, acquires: Rows, granted: Rows) -> dict[str, object]:
    """``overtaken``: the share of grants that somebody who asked later got before. Jain's index is
    1 when all who asked got equally many grants and 1/n when one got all. ``unserved`` asked and
    got nothing, ``starved`` asked several times."""
    waits = (history.complete_ns[granted] - history.invoke_ns[granted]) / NS
    order = granted[by_key_and_time(history.key[granted], history.complete_ns[granted])]
    latest, _ = running_max(history.key[order], history.invoke_ns[order])
    overtaken = int(np.count_nonzero(latest > history.invoke_ns[order]))
    asked = np.sort(owners(history)[acquires])
    clients = asked[np.diff(asked, prepend=asked[0] - 1) != 0]
    tries = np.diff(np.searchsorted(asked, clients), append=len(asked))
    got = np.bincount(np.searchsorted(clients, owners(history)[granted]), minlength=len(clients))
    return {
        "wait_s": _quantiles(waits),
        "overtaken": overtaken / len(granted),
        "jain": float(got.sum() ** 2 / (len(got) * np.sum(got.astype(float) ** 2))),
        "clients": len(clients),
        "unserved": int(np.count_nonzero(got == 0)),
        "starved": int(np.count_nonzero((got == 0) & (tries >= STARVED_TRIES))),
    }


STARVED_TRIES: Final = 3  # a client that asked less often was unlucky, not starved


def _quantiles(values: np.ndarray) -> Mapping[str, float | int | None]:
    """p50, p99 and the maximum; a quantile is null where there are too few values to carry it."""
    n = len(values)
    # Nearest rank, with ten values beyond it (lockbench.results.quantiles).
    p50, p99 = np.quantile(values, (0.5, 0.99), method="inverted_cdf")
    return {
        "p50": float(p50) if n >= 20 else None,
        "p99": float(p99) if n >= 1000 else None,
        "max": float(values.max()),
        "count": n,
    }
