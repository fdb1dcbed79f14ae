"""What the service's own record says of a violation: confirmed, contradicted or not decided.

The verdicts rest on what clients were told. Where the servers kept a record of their own
(``lockbench.history.service``), it is asked as a second witness of each violation that is told. It
can:

- *confirm*: the record itself shows what cannot be if the lock kept its word: an entry that was
  taken away from a hold still promised, two holds that both stand, an operation by one whose entry
  was gone.
- *contradict*: the record shows that it was not so. That is a defect of the bench (most likely a
  promise that the service never made), and no evidence against the lock.
- decide nothing, and say why.

The order within a log is the service's own and exact. Times are not taken from it but bracketed by
the clients: what a client was told of had happened by then, what it asked for had not happened
before. Only the end of a term that the service noted itself (``until_ns``) is a time, and only
where no fault moved the servers' clocks.

Whatever was told, a promise must not outlive the term that the service noted for the hold: where
one does, the bench is wrong (``Witness.contradictions``), violation or not.

Only of locks with one holder at a time, and only where the record shows every grant. A record
without any trace of a grant that was told is no witness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from lockbench.checker.verdict import Report, Verdict
from lockbench.checker.witness import Witness, Word

WHAT: Final = "service"  # marks the entry of a verdict's evidence
# What is decided by the order of entries, and so by the log of a single server.
OF_ONE_ORDER: Final = frozenset({"stale-holder", "wrong-release", "false-release", "fence-order"})


def asks(name: str, verdict: Verdict) -> bool:
    """Whether a verdict tells of a violation that a record can know of."""
    return verdict.result == "invalid" and name in ASKED


def witnessed(witness: Witness, name: str, verdict: Verdict) -> Verdict:
    """The verdict, one that ``asks`` for it, with what the record says of the violation that it
    tells, as the last entry of its evidence."""
    try:
        silent = witness.silent_on(verdict)
        if silent is None and witness.several_decide and name in OF_ONE_ORDER:
            silent = "the order within one node says little of a majority"
        word = witness.undecided(silent) if silent else ASKED[name](witness, verdict)
    except (KeyError, ValueError, IndexError):
        word = witness.undecided("the operations of this violation are not all in it")
    said = {"what": WHAT, "says": word.says, "text": f"{word.says}: {word.text}"}
    reason = verdict.reason
    if word.says != "not decided":
        reason += f"; {word.says} by {witness.record}"
    return replace(verdict, reason=reason, evidence=(*verdict.evidence, said))


def contradictions(report: Report) -> dict[str, str]:
    """What the service's record contradicts of a report: verdict, or ``promises`` → a sentence."""
    found = {}
    for name, verdict in report.verdicts.items():
        for item in verdict.evidence:
            if item.get("what") == WHAT and item["says"] == "contradicted":
                found[name] = str(item["text"])
    summary = report.measurements.get("service")
    if isinstance(summary, Mapping) and summary.get("contradicted"):
        found["promises"] = str(summary["contradictions"][0])
    return found


def _rows(verdict: Verdict, what: str) -> list[int]:
    rows = (item["row"] for item in verdict.evidence if item["what"] == what)
    return [row for row in rows if isinstance(row, int)]


def _stale(witness: Witness, verdict: Verdict) -> Word:
    (row,) = _rows(verdict, "operation")[-1:]
    applied = next(item["applied_ns"] for item in verdict.evidence if item.get("row") == row)
    later = _rows(verdict, "grant")[-1]
    if not isinstance(applied, int):
        raise KeyError("when it was applied is not known")
    return witness.stale_holder(row, later, applied)


ASKED: Final[Mapping[str, Callable[[Witness, Verdict], Word]]] = {
    "double-grant": lambda witness, verdict: witness.double_grant(_rows(verdict, "grant")),
    "late-grant": lambda witness, verdict: witness.late_grant(_rows(verdict, "grant")[0]),
    "stale-holder": _stale,
    "wrong-release": lambda witness, verdict: witness.wrong_release(
        _rows(verdict, "operation")[0], _rows(verdict, "grant")[0]
    ),
    "false-release": lambda witness, verdict: witness.false_release(
        _rows(verdict, "operation")[-1]
    ),
    "fence-order": lambda witness, verdict: witness.fence_order(*_rows(verdict, "grant")[:2]),
}
