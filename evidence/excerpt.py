"""The few operations that show a broken verdict, cut out of a long history.

Guarantees: a cut holds whole operations of the recorded history, every hold with all that was done
under it, so nothing is wrong in it that was not wrong in the recording. Ids are kept; times count
from its first operation.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from lockbench.checker.check import check
from lockbench.checker.kinds import REENTRANT, SHARED, keys_of
from lockbench.checker.promises import link
from lockbench.checker.rows import owners
from lockbench.checker.verdict import Verdict
from lockbench.history.columns import History
from lockbench.history.jsonl import to_lines
from lockbench.history.op import NULL, F, Fault
from lockbench.results.errors import BadInput

OPERATIONS_MAX: Final = 60
TIMES: Final = (
    "invoke_ns",
    "intended_ns",
    "complete_ns",
    "sent_ns",
    "valid_until_ns",
    "applied_ns",
)


def excerpt(history: History, verdict: str) -> History:
    """The holds that the evidence of a broken verdict names, each with everything that was done
    under it, and the faults of that time. Where these are too many, or do not show it, the last of
    them, which is the one that broke it, and as few as do of those before. Raises BadInput where
    the verdict is not broken, or where no such cut is judged as the whole is."""
    whole = check(history, only=(verdict,)).verdicts.get(verdict)
    if whole is None or whole.result != "invalid":
        is_ = "absent" if whole is None else whole.result
        raise BadInput(f"{verdict} is {is_} in this history: there is nothing to cut out")
    rows = _rows(whole)
    if verdict == "leaked-lock":
        # It is judged from the end of the load on.
        marks = (history.f == F.QUIET) & np.isin(history.key, history.key[rows])
        rows = [*np.flatnonzero(marks).tolist(), *rows]
    before = broken(history)
    if "wrong-release" in before:
        # Without the grant that it ended, or the one that it let in, it is a false release.
        before |= {"false-release"}
    small = _cut(history, rows)
    refused = _refused(small, verdict, before)
    if refused is None:
        return small
    for first in range(1, len(rows) - 1):
        fewer = _cut(history, [*rows[:first], rows[-1]])
        if _refused(fewer, verdict, before) is None:
            return fewer
    raise BadInput(refused)


def _cut(history: History, rows: Sequence[int]) -> History:
    """The holds of these operations, whole. Where operations do not name their hold, and may be of
    several, with all that their owner did to the lock."""
    acquires = link(history).acquire
    mine = acquires[rows]
    kept = np.isin(acquires, mine[mine >= 0])
    kept[rows] = True
    of_locks = np.isin(history.f, (F.ACQUIRE, F.RELEASE, F.EXTEND, F.LOST))
    several = keys_of(history, REENTRANT | SHARED)[history.key] & of_locks & (history.hold == NULL)
    loose = [row for row in rows if several[row]]
    everyone = owners(history)
    for key, owner in {(int(history.key[row]), int(everyone[row])) for row in loose}:
        kept |= of_locks & (history.key == key) & (everyone == owner)
    kept |= (history.f == F.DEATH) & np.isin(history.process, history.process[kept])
    return _relative(_only(history, np.flatnonzero(kept)))


def _refused(small: History, verdict: str, before: Collection[str]) -> str | None:
    """Why a cut does not show what the whole history shows, or None."""
    if len(small) > OPERATIONS_MAX:
        return f"{len(small)} operations belong to it, more than {OPERATIONS_MAX}"
    after = broken(small)
    if verdict in after and after <= {*before}:
        return None
    return (
        f"cut out, its operations break {', '.join(sorted(after)) or 'nothing'}, which is not what "
        "the whole history says"
    )


def broken(history: History) -> set[str]:
    """The verdicts that are invalid."""
    return {name for name, v in check(history).verdicts.items() if v.result == "invalid"}


def _rows(verdict: Verdict) -> list[int]:
    return [row for item in verdict.evidence if isinstance(row := item.get("row"), int)]


def _only(history: History, rows: np.ndarray[Any, np.dtype[np.intp]]) -> History:
    small = history.only(rows)
    present = [history.keys[k] for k in np.unique(small.key).tolist()]
    begin = int(small.invoke_ns.min())
    end = int(max(small.invoke_ns.max(), small.complete_ns.max()))
    faults = tuple(
        # What the nemesis saw belongs to the run.
        replace(fault, rules=(), facts={})
        for fault in history.faults
        if fault.begin_ns[0] <= end and (fault.heal_ns is None or fault.heal_ns[1] >= begin)
    )
    objects = {key: o for key, o in history.objects.items() if key in present}
    # What the service kept is of the whole run, and of its times.
    return replace(small, objects=objects, faults=faults, service=None)


def _relative(history: History) -> History:
    """With times that count from the first operation."""
    zero = int(history.invoke_ns[0])
    moved: dict[str, Any] = {}
    for name in TIMES:
        column = getattr(history, name)
        moved[name] = np.where(column == NULL, NULL, column - zero)
    return replace(history, **moved, faults=tuple(_moved(f, zero) for f in history.faults))


def _moved(fault: Fault, zero: int) -> Fault:
    begin, heal = fault.begin_ns, fault.heal_ns
    return replace(
        fault,
        begin_ns=(begin[0] - zero, begin[1] - zero),
        heal_ns=None if heal is None else (heal[0] - zero, heal[1] - zero),
    )


def lines(history: History) -> str:
    """A small history as it is saved."""
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in to_lines(history))
