"""What is evidence, where something happened that neither the load nor the nemesis did.

A server that was killed by somebody else, clients that were stopped for longer than a lease: what a
lock does after that says nothing about the lock. A history notes it as a fault of the name
``outside``. Without ``heal_ns`` its effects last; with one (clients that stood still) it was over
then.

A violation is told only where it shows in a part of the history that it did not touch:

- what was recorded before it began, as if the load had ended there. Whatever was under way is of
  unknown outcome, and a store's own record counts up to the last write that was confirmed by then;
- where it was over, the holds that were asked for afterwards, up to the next one, beside requests
  from before that had no answer. Clients that stood still leave a sound service sound, so these
  may break no promise either. Only verdicts that no hold from before can bring about count there
  (``LATER``).

Any other violation is *unknown*, and its reason says why. What is valid stays valid: the ending of
such a case is not the checker's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lockbench.checker.catalogue import CATALOGUE
from lockbench.checker.promises import link
from lockbench.checker.rows import FOREVER
from lockbench.checker.verdict import Verdict
from lockbench.history.columns import History
from lockbench.history.guarded import Guarded
from lockbench.history.op import NULL, F, Fault, Type

OUTSIDE: Final = "outside"
LATER: Final = frozenset(name for name, entry in CATALOGUE.items() if entry.self_contained)

Judge = Callable[[History, Collection[str]], Mapping[str, Verdict]]


def from_outside(history: History) -> list[Fault]:
    """What happened from outside, in the order of time."""
    found = (fault for fault in history.faults if fault.name == OUTSIDE)
    return sorted(found, key=lambda fault: fault.begin_ns[0])


def only_untouched(
    history: History, verdicts: Mapping[str, Verdict], judge: Judge
) -> dict[str, Verdict]:
    """The verdicts of a history in which something happened from outside, see the module. ``judge``
    decides some verdicts of a part."""
    broken = {name for name, verdict in verdicts.items() if verdict.result == "invalid"}
    told: dict[str, Verdict] = {}
    for part, first in _parts(history):
        asked = broken - told.keys() if first else broken.intersection(LATER) - told.keys()
        if asked and len(part):
            found = judge(part, asked)
            told |= {name: v for name, v in found.items() if v.result == "invalid"}
    what = "; ".join(str(fault.facts.get("what", OUTSIDE)) for fault in from_outside(history))
    return {
        name: verdict
        if name not in broken
        else told.get(name) or Verdict("unknown", f"{verdict.reason}, but {what}", verdict.evidence)
        for name, verdict in verdicts.items()
    }


def _parts(history: History) -> Iterator[tuple[History, bool]]:
    """The parts that nothing from outside has touched, and whether it is the first."""
    outside = from_outside(history)
    yield _until(history, outside[0].begin_ns[0]), True
    acquires: NDArray[np.intp] | None = None
    over_ns = outside[0].begin_ns[0]
    for number, fault in enumerate(outside):
        if fault.heal_ns is None:
            return
        over_ns = max(over_ns, fault.heal_ns[1])
        following = outside[number + 1].begin_ns[0] if number + 1 < len(outside) else FOREVER
        if following <= over_ns:
            continue
        if acquires is None:
            acquires = link(history).acquire
        mine = (history.f == F.ACQUIRE) & (history.invoke_ns > over_ns)
        kept = mine | ((acquires >= 0) & mine[acquires]) | (history.f == F.DEATH)
        # What had no answer may still take effect: a release ends a later hold of its client.
        kept |= (history.type == Type.INFO) & np.isin(history.f, (F.ACQUIRE, F.RELEASE, F.EXTEND))
        yield _until(history.only(kept), following), False


def _until(history: History, end_ns: int) -> History:
    """As if the recording had ended there."""
    early = history.only(history.invoke_ns < end_ns)
    faults = tuple(fault for fault in history.faults if fault.name != OUTSIDE)
    open_ = early.complete_ns >= end_ns
    cut = replace(
        early,
        type=np.where(open_, np.uint8(Type.INFO), early.type),
        complete_ns=np.where(open_, np.int64(NULL), early.complete_ns),
        applied_ns=np.where(early.applied_ns >= end_ns, np.int64(NULL), early.applied_ns),
        faults=faults,
    )
    return cut if cut.guarded is None else replace(cut, guarded=_confirmed(cut, cut.guarded))


def _confirmed(history: History, guarded: Guarded) -> Guarded:
    """A store's record up to the last write of each key that the history confirms: what stands
    behind it may have been applied later."""
    made = history.version if guarded.rule == "once" else history.value
    writes = np.isin(history.f, (F.EFFECT, F.WRITE)) & (history.type == Type.OK)
    done = {
        (history.keys[int(history.key[row])], int(history.hold[row]), int(made[row]))
        for row in np.flatnonzero(writes)
    }
    last: dict[str, int] = {}
    for one in guarded.applied:
        if (one.key, one.hold, one.made) in done:
            last[one.key] = max(one.place, last.get(one.key, one.place))
    applied = (one for one in guarded.applied if one.place <= last.get(one.key, NULL))
    return replace(guarded, applied=tuple(applied))
