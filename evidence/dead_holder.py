"""Whether a lock was ever free again after its holder was struck, while the load went on.

The verdict ``leaked-lock`` says it of every key, from the quiet phase after the load; histories
without one only have the measurements. They say how long a key stayed taken
(``lockbench.checker.measurements``: ``dead_holder_s`` and ``leaked-lock``), and of a key that
nobody got afterwards that its case has no such time. That may also be for want of time, or because
nobody asked. Guarantees: ``is_locked`` is true only where others asked for the key after its lease
and until the end of the case, were refused each time by a service that went on granting other keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Type
from lockbench.results.cases import dead_holder_s
from lockbench.results.documents import CaseResult, Leaked

NS_PER_S: Final = 1_000_000_000
# Whoever wants a key asks again at once: a longer silence before the end is not to be asking.
SILENCE_NS_MAX: Final = NS_PER_S // 2


@dataclass(frozen=True, slots=True)
class DeadHolder:
    """What became of the keys of a holder that a fault froze or killed. ``longest_s``: until the
    next grant of such a key, or None; ``locked``: there was a key that nobody could get again."""

    longest_s: float | None
    locked: bool


def dead_holder(case: CaseResult, history: Callable[[], History]) -> DeadHolder | None:
    """None where no holder was struck, or nobody wanted its key. ``history`` is asked for only
    where a key was not granted again."""
    leaks = case.measurements.leaked_lock or ()
    longest_s = dead_holder_s(case)
    if longest_s is None and not leaks:
        return None
    lease_ttl_s = case.pace.lease_ttl_s
    stuck = [leak for leak in leaks if leak.released_s is None]
    if not stuck or lease_ttl_s is None:
        return DeadHolder(longest_s, locked=False)
    recorded = history()
    return DeadHolder(longest_s, any(is_locked(recorded, leak, lease_ttl_s) for leak in stuck))


def is_locked(history: History, leak: Leaked, lease_ttl_s: float) -> bool:
    """Whether the key of a hold whose holder died could be got by
    nobody any more. ``lease_ttl_s`` is the lease of the case, for a lock that has none of its own.
    An answer that is unknown may have been the grant, so it leaves the question open."""
    asked = history.f == F.ACQUIRE
    dead = np.array([history.process_name(p) == leak.process for p in history.process.tolist()])
    deaths = history.invoke_ns[dead & (history.f == F.DEATH)]
    if len(deaths) == 0:
        return False
    died = int(deaths.max())
    if leak.key not in history.keys:
        return False
    over = died + round(max(lease_ttl_s, leak.lease_left_s or 0.0) * NS_PER_S)
    same = history.key == history.keys.index(leak.key)
    done = history.complete_ns
    asking = asked & same & ~dead & ((done == NULL) | (done > died))
    late = asking & (history.invoke_ns > over)
    granted = asked & ~same & (history.type == Type.OK) & (history.invoke_ns > over)
    if not (late.any() and granted.any() and (history.type[asking] == Type.FAIL).all()):
        return False
    last_of_all = int(history.invoke_ns[asked].max())
    return int(done[late].max()) >= last_of_all - SILENCE_NS_MAX
