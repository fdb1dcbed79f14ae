"""``queue-order``: somebody who asked later was granted before one whose place was certain.

A's place in the queue of a lock is certain from ``F.QUEUED`` on: the moment at which its client had
the service's acknowledgement of it. A client that may have lost its place since (its lock knows
when) records a new one, and the last one counts. The order of asking alone proves nothing: who
asks first may reach the service last.

Invalid, exactly: A and B were granted the same key, to different owners, and

- B was invoked after A's place was acknowledged (by more than ε twice), so B came to the service
  later;
- B's grant was completed before A's (by more than ε twice), and A's own promise lasted beyond that
  completion, and was not lost before. Had the service granted A first, that hold would still have
  stood as B was granted. So the service granted B first.

The second step needs that no two grants overlap: where any promises do, there is no such verdict.
Nor is there one where no waiter's place was recorded, or nobody asked behind one; nor of a
reentrant lock, whose holder may enter again before anybody who waits. Who was never
granted is left out: it may have left the queue before its client said so.

Where the fence of a lock is the place itself (a sequence node, a create revision), ``fence-order``
says the same of it, and no place is recorded.
"""

from __future__ import annotations

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.kinds import OWNED, REENTRANT, keys_of
from lockbench.checker.rows import rows_of
from lockbench.checker.verdict import Verdict
from lockbench.checker.words import clock, during, faults_on, grant, many, operation
from lockbench.history.op import F, Type


def queue_order(analysis: Analysis) -> Verdict | None:
    """Absent where nothing is proven either way (see the module)."""
    history, held, links = analysis.history, analysis.promises, analysis.links
    marks = links.under(rows_of(history, F.QUEUED, Type.OK))
    marks = marks[keys_of(history, OWNED - REENTRANT)[history.key[marks]]]
    if len(marks) == 0 or not held.disjoint:
        return None
    width = 2 * history.epsilon_ns
    placed = np.full(len(history), -1, np.intp)
    placed[links.acquire[marks]] = marks  # in the order of time: the last one stays
    waiters = analysis.grant_of[np.flatnonzero(placed >= 0)]
    order = held.order
    keys = held.key[order]
    done = history.complete_ns[held.row[order]]
    asked = history.invoke_ns[held.row[order]]
    behind = 0
    wrong: list[tuple[int, int, int]] = []  # (A's place, A, B)
    for a in waiters[waiters >= 0].tolist():
        row = int(held.row[a])
        place = int(placed[row])
        at_ns = int(history.complete_ns[place]) + width
        first, last = np.searchsorted(keys, [held.key[a], held.key[a] + 1])
        later = first + int(np.searchsorted(done[first:last], at_ns, side="right"))
        theirs = np.arange(later, last)[asked[later:last] > at_ns]
        theirs = theirs[held.owner[order[theirs]] != held.owner[a]]
        behind += len(theirs) > 0
        stood_ns = min(int(history.complete_ns[row]), int(held.lease[a]), int(held.lost[a]))
        before = theirs[done[theirs] + width < stood_ns]
        if len(before):
            wrong.append((place, a, int(order[before[0]])))
    if behind == 0:
        return None
    if not wrong:
        return Verdict("valid", f"{many(behind, 'waiter')} with others behind, none overtaken")
    place, a, b = wrong[0]
    mine, theirs_row = int(held.row[a]), int(held.row[b])
    begin_ns, end_ns = int(history.complete_ns[place]), int(history.complete_ns[mine])
    at, asked_at, got, mine_at = clock(
        history,
        [
            begin_ns,
            int(history.invoke_ns[theirs_row]),
            int(history.complete_ns[theirs_row]),
            end_ns,
        ],
    )
    reason = (
        f"{analysis.name(mine)} had its place in the queue of {analysis.key(mine)} at {at} s and "
        f"was granted it at {mine_at} s; {analysis.name(theirs_row)} asked at {asked_at} s and was "
        f"granted it at {got} s{during(analysis, begin_ns, end_ns)}; {many(len(wrong), 'waiter')} "
        f"overtaken of {behind} with others behind"
    )
    evidence = (operation(analysis, place), grant(analysis, b), grant(analysis, a))
    return Verdict("invalid", reason, (*evidence, *faults_on(analysis, begin_ns, end_ns)))
