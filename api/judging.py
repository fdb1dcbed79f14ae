"""Judges what was recorded, as ``lockbench check`` does."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockbench.api.cluster import Cluster
from lockbench.api.errors import BrokenPromise, Undecided
from lockbench.api.recording import Recording, record
from lockbench.checker.check import check
from lockbench.checker.drawing import page
from lockbench.checker.sketch import sketch
from lockbench.checker.verdict import Report
from lockbench.checker.words import describe
from lockbench.evidence.check import check_one
from lockbench.history.columns import History

DOUBLE_GRANT = "double-grant"


def judge(history: History | str | os.PathLike[str]) -> Report:
    """Every verdict on a history, or on a file or folder of ``lockbench check`` that holds one.
    ``result`` is the worst of them. Raises BadInput for what is no history, or several."""
    return check(history) if isinstance(history, History) else check_one(Path(history))


@contextmanager
def exclusive(cluster: Cluster | None = None, *, at_most: int = 1) -> Iterator[Recording]:
    """A section that admits so many holders at once, judged at the end of the block.

    Raises BrokenPromise where more were inside, with the drawing of it. Raises Undecided where
    nothing could have been seen: nobody entered, too few to be too many, or nobody entered before
    or after a fault. What the block itself raised goes on, with a note where a promise broke.
    """
    with record(cluster, at_most=at_most) as recording:
        try:
            yield recording
        except BaseException as error:
            if (broken := broken_promise(recording)) is not None:
                error.add_note(str(broken))
            raise
    decide(recording)


def decide(recording: Recording) -> None:
    """The end of ``exclusive``. Raises BrokenPromise, Undecided."""
    if (broken := broken_promise(recording)) is not None:
        raise broken
    if (missing := undecided(recording)) is not None:
        raise Undecided(missing)


def broken_promise(recording: Recording) -> BrokenPromise | None:
    """What to raise where more were inside than the section admits."""
    history = recording.history()
    report = check(history, only={DOUBLE_GRANT})
    verdict = report.verdicts.get(DOUBLE_GRANT)
    if verdict is None or verdict.result == "valid":
        return None
    if verdict.result == "unknown":
        raise Undecided(verdict.reason)
    admitted = "one holder" if recording.at_most == 1 else f"{recording.at_most} holders"
    sentence = f"more than {admitted} inside at once: {verdict.reason}\n\n{sketch(verdict)}"
    return BrokenPromise(sentence, verdict, page([("section", history, report)]))


def undecided(recording: Recording) -> str | None:
    """Why nothing could have been seen in a recording in which nothing is broken."""
    if recording.troubles:
        more = f" (and {len(recording.troubles) - 1} more)" if recording.troubles[1:] else ""
        return f"a report makes no sense: {recording.troubles[0]}{more}"
    stays = recording.stays
    if not stays:
        return "nothing was recorded: nobody entered the section"
    by_key: dict[str, set[str]] = defaultdict(set)
    for stay in stays:
        if not stay.is_empty:
            by_key[stay.key].add(stay.who)
    if not by_key:
        return (
            f"{stays[0].who} entered {stays[0].key} and never left, as all did: report leave, or "
            "give pid= to those that may be killed"
        )
    names = max(by_key.values(), key=len)
    if len(names) <= recording.at_most:
        only = ", ".join(sorted(names))
        unknown = sorted({stay.who for stay in stays if stay.is_empty} - names)
        more = f"; how long {', '.join(unknown)} stayed is not known" if unknown else ""
        return (
            f"nobody could have met another: only {only} entered, and the section admits "
            f"{recording.at_most}{more}"
        )
    for fault in recording.faults:
        before = sum(stay.entered_ns < fault.begin_ns[0] for stay in stays)
        if not before or before == len(stays):
            when = "after it began" if before else "before it"
            return f"{describe(fault)} was not met: nobody entered {when}"
        if fault.seen.proven is not True:
            return f"{describe(fault)} is not proven: no effect of it was seen, or it did not heal"
    return None
