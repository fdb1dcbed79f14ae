"""Evidence: operations, grants and faults as JSON objects with a sentence in each."""

from __future__ import annotations

from collections.abc import Sequence

from lockbench.checker.analysis import Analysis
from lockbench.checker.rows import FOREVER
from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Fault, Type

EVIDENCE_MAX = 16  # entries of one verdict; the reason says how many there are


def number(value: int) -> int | None:
    """A column's entry as JSON: null for NULL and for no limit."""
    return None if value == NULL or value >= FOREVER else int(value)


def clock(history: History, times: Sequence[int]) -> list[str]:
    """Times as seconds since the first operation, with as many digits as it takes to tell them
    apart."""
    origin = int(history.invoke_ns[0]) if len(history) else 0
    for digits in (3, 6):
        texts = [f"{(time - origin) / 1e9:.{digits}f}" for time in times]
        if len(set(texts)) == len(set(times)):
            return texts
    return [_exact(time - origin) for time in times]


def _exact(nanoseconds: int) -> str:
    sign = "-" if nanoseconds < 0 else ""
    whole, rest = divmod(abs(nanoseconds), 10**9)
    return f"{sign}{whole}.{rest:09d}"


def grant(analysis: Analysis, i: int) -> dict[str, object]:
    """Grant number ``i`` of the promises."""
    history, promises = analysis.history, analysis.promises
    row = int(promises.row[i])
    start, end = int(promises.start[i]), int(promises.end[i])
    fence = number(int(history.fence[row]))
    release = int(promises.release[i])
    granted = int(history.complete_ns[row])
    if end >= FOREVER:
        (at,) = clock(history, [granted])
        until = "without end"
    else:
        at, to = clock(history, [granted, end])
        until = f"to {to} s" if start < end else f"to {to} s, which is empty"
    fenced = "" if fence is None else f" with fence {fence}"
    return {
        "what": "grant",
        "row": row,
        "process": history.process_name(int(history.process[row])),
        "key": analysis.key(row),
        "hold": hold_name(history, row),
        "fence": fence,
        "invoke_ns": int(history.invoke_ns[row]),
        "granted_ns": granted,
        "promised_until_ns": number(end),
        "valid_until_ns": number(int(promises.lease[i])),
        "released_ns": number(int(history.invoke_ns[release])) if release >= 0 else None,
        "text": f"{analysis.name(row)} was promised {analysis.key(row)} from {at} {until}{fenced}",
    }


def operation(analysis: Analysis, row: int, remark: str = "") -> dict[str, object]:
    """One operation as it was recorded."""
    history = analysis.history
    kind = Type(int(history.type[row]))
    begin, end = int(history.invoke_ns[row]), int(history.complete_ns[row])
    error = history.errors[int(history.error[row])] if history.error[row] >= 0 else None
    applied = int(history.applied_ns[row])
    if end == NULL and applied != NULL:
        window = "from {} s on, applied at {} s, reply never seen".format(
            *clock(history, [begin, applied])
        )
    elif end == NULL:
        window = f"from {clock(history, [begin])[0]} s on, outcome unknown"
    else:
        window = "from {} to {} s".format(*clock(history, [begin, end]))
    word = F(int(history.f[row])).word
    answer = kind.word if error is None else f"{kind.word} ({error})"
    return {
        "what": "operation",
        "row": row,
        "process": history.process_name(int(history.process[row])),
        "f": word,
        "type": kind.word,
        "key": analysis.key(row),
        "hold": hold_name(history, row),
        "fence": number(int(history.fence[row])),
        "value": number(int(history.value[row])),
        "version": number(int(history.version[row])),
        "invoke_ns": begin,
        "complete_ns": number(end),
        "applied_ns": number(int(history.applied_ns[row])),
        "error": error,
        "text": f"{analysis.name(row)}: {word} of {analysis.key(row)} {window}: {answer}{remark}",
    }


def hold_name(history: History, row: int) -> str | None:
    """The hold of a row, if it has one."""
    hold = int(history.hold[row])
    return None if hold == NULL else history.hold_name(hold)


def faults_on(analysis: Analysis, begin_ns: int, end_ns: int) -> list[dict[str, object]]:
    """The faults that were on at some time between two times."""
    return [_fault(analysis.history, fault) for fault in _on(analysis, begin_ns, end_ns)]


def _on(analysis: Analysis, begin_ns: int, end_ns: int) -> list[Fault]:
    return [
        fault
        for fault in analysis.history.faults
        if fault.begin_ns[0] <= end_ns and (fault.heal_ns is None or fault.heal_ns[1] >= begin_ns)
    ]


def _fault(history: History, fault: Fault) -> dict[str, object]:
    begin, *_ = clock(history, [fault.begin_ns[0]])
    healed = "never healed"
    if fault.heal_ns is not None:
        begin, end = clock(history, [fault.begin_ns[0], fault.heal_ns[1]])
        healed = f"healed by {end} s"
    return {
        "what": "fault",
        "name": fault.name,
        "targets": list(fault.targets),
        "begin_ns": list(fault.begin_ns),
        "heal_ns": None if fault.heal_ns is None else list(fault.heal_ns),
        "text": f"{describe(fault)} from {begin} s, {healed}",
    }


def describe(fault: Fault) -> str:
    """A fault with what it was aimed at."""
    return f"{fault.name} of {', '.join(fault.targets)}" if fault.targets else fault.name


def during(analysis: Analysis, begin_ns: int, end_ns: int) -> str:
    """The end of a sentence that names the faults of a time, or nothing."""
    found = [describe(fault) for fault in _on(analysis, begin_ns, end_ns)]
    return f"; during {' and '.join(found)}" if found else ""


def many(count: int, noun: str) -> str:
    """A count with its noun."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
