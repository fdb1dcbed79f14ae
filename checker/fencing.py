"""What a check at the resource would have done: the log of the guarded resource, replayed.

Every applied read, write and effect is replayed in the order in which the resource applied it,
under four policies of the resource. What is said of writes goes for effects (a charge, a run) too:

``unfenced``                 applies everything, as the real one did;
``fence-on-write``           refuses a write whose fence is below the highest fence written so far;
``fence-on-read-and-write``  keeps the highest fence of reads and writes and refuses both below it;
``random-token-cas``         a read leaves its hold's random token, a write is applied only while
                             that token is still there (no order among tokens is needed).

A write is a lost update in a replay when it is applied although the replay's version has moved on
since the hold last read (or wrote) the key in the replay. Stale operations are the real ones: which
promise had ended does not depend on what the resource refuses. ``repeated_effects``, where things
are to be done once (``ONCE``), counts those that were done again.

Operations whose reply was lost are in the history as applied where the resource's log was joined;
where versions show that one is missing, an anonymous write that nobody refuses stands in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.intervals import running_max, same_key_as_before
from lockbench.checker.resource import Uses
from lockbench.checker.rows import Bools, Rows, has_values
from lockbench.history.columns import Ids, Ints
from lockbench.history.op import NULL, F

ANONYMOUS: Final = -2
ONCE: Final = frozenset({"payment", "cron"})
GAP_MAX: Final = 1000  # a foreign file may count in other steps than one


@dataclass(frozen=True)
class _Log:
    """The resource's log, sorted by key and place."""

    key: Ids
    hold: Ints  # ANONYMOUS where a lost reply hides who wrote
    read: Bools
    write: Bools
    thing: Ints  # what an effect does that is to be done once, else NULL
    fence: Ints
    stale: Bools
    refusable: Bools
    lowest: int  # the fence of an operation that brings none


def scorings(analysis: Analysis, used: Uses) -> dict[str, dict[str, int]] | None:
    """Counts per policy; None when the history has no resource log. Fence policies are absent where
    no fence was recorded."""
    history = analysis.history
    if len(used.row) == 0 or not np.any(used.grant >= 0):
        return None
    if history.guarded is not None and history.guarded.rule == "once":
        return None  # without versions there is no order to replay
    log = _log(analysis, used)
    key = log.key
    context = _last_seen(log)
    everything = np.ones(len(key), np.bool_)
    result = {"unfenced": _score(log, context, everything)}
    if has_values(history.fence):
        writes = np.where(log.read, log.lowest, log.fence)
        accepted = ~log.refusable | log.read | (log.fence >= _before(log, writes))
        result["fence-on-write"] = _score(log, context, accepted)
        accepted = ~log.refusable | (log.fence >= _before(log, log.fence))
        result["fence-on-read-and-write"] = _score(log, context, accepted)
    reader = np.where(log.read, np.arange(len(key)), -1)
    _, last_read = running_max(key, reader)
    token = np.where(log.read[last_read], log.hold[last_read], ANONYMOUS)
    accepted = ~log.refusable | log.read | (token == log.hold)
    result["random-token-cas"] = _score(log, context, accepted)
    return result


def _log(analysis: Analysis, used: Uses) -> _Log:
    history, promises = analysis.history, analysis.promises
    row = used.row
    versions = history.value[row]
    write = history.f[row] == F.WRITE
    applied = history.applied_ns[row]
    if np.any(applied == NULL):
        # Without the resource's clock its versions give the order: a read follows the write it saw.
        # Rows are in the order of invocation already.
        order = np.lexsort((~write, versions, history.key[row]))
    else:
        order = np.lexsort((versions, applied, history.key[row]))
    row, write, versions = row[order], write[order], versions[order]
    grant, stale = used.grant[order], used.stale[order]
    hold = history.hold[row] if has_values(history.hold) else grant.astype(np.int64)
    fence = history.fence[row].copy()
    granted = np.flatnonzero(grant >= 0)
    fence[granted] = history.fence[promises.row[grant[granted]]]
    known = fence != NULL
    lowest = int(fence[known].min()) - 1 if np.any(known) else 0
    fence[~known] = lowest
    key = history.key[row]
    once = np.array([history.object_of(name).job in ONCE for name in history.keys], np.bool_)
    thing = np.where((history.f[row] == F.EFFECT) & once[key], history.version[row], NULL)
    missing = _missing_before(key, write, versions)
    at = np.repeat(np.arange(len(row)), missing)
    return _Log(
        key=np.insert(key, at, key[at]),
        hold=np.insert(hold, at, ANONYMOUS),
        read=np.insert(history.f[row] == F.READ, at, False),
        write=np.insert(write, at, True),
        thing=np.insert(thing, at, NULL),
        fence=np.insert(fence, at, lowest),
        stale=np.insert(stale, at, False),
        refusable=np.insert(np.ones(len(row), np.bool_), at, False),
        lowest=lowest,
    )


def _missing_before(key: Ids, write: Bools, versions: Ints) -> Ints:
    """How many writes the versions show between each entry and the one before it."""
    expected = np.zeros(len(key), np.int64)
    same = same_key_as_before(key)
    expected[1:][same[1:]] = versions[:-1][same[1:]]
    known = versions != NULL
    # The first entry of a key tells where its versions begin.
    first = ~same
    expected[first] = versions[first] - write[first]
    gap = np.where(known, versions - expected - write, 0)
    gap[1:][versions[:-1] == NULL] = 0
    return np.clip(gap, 0, GAP_MAX)


def _before(log: _Log, values: Ints) -> Ints:
    """The largest value of the entries before each entry in its key."""
    highest, _ = running_max(log.key, values)
    before = np.full(len(log.key), log.lowest, np.int64)
    same = same_key_as_before(log.key)
    before[1:][same[1:]] = highest[:-1][same[1:]]
    return before


def _last_seen(log: _Log) -> Rows:
    """For every entry, the place of the previous read or write of the same hold and key, or -1."""
    places = np.flatnonzero(log.read | log.write)
    order = places[np.lexsort((places, log.hold[places], log.key[places]))]
    same = (log.hold[order][1:] == log.hold[order][:-1]) & (
        log.key[order][1:] == log.key[order][:-1]
    )
    last = np.full(len(log.key), -1, np.intp)
    last[order[1:]] = np.where(same, order[:-1], -1)
    return last


def _score(log: _Log, context: Rows, accepted: Bools) -> dict[str, int]:
    # The version after each entry, counted through all keys: only differences within one matter.
    version = np.cumsum(log.write & accepted)
    writes = np.flatnonzero(log.write & accepted & (context >= 0))
    moved = version[writes] - 1 != version[context[writes]]
    stale = log.stale
    effects = np.flatnonzero(log.thing != NULL)
    done = {}
    if len(effects):
        kept = effects[accepted[effects]]
        different = np.unique(np.stack([log.key[kept], log.thing[kept]]), axis=1).shape[1]
        done["repeated_effects"] = len(kept) - different
    return {
        "stale_attempted": int(np.count_nonzero(stale)),
        "stale_refused": int(np.count_nonzero(stale & ~accepted)),
        "stale_applied": int(np.count_nonzero(stale & accepted)),
        "valid_refused": int(np.count_nonzero(~stale & ~accepted)),
        "lost_updates": int(np.count_nonzero(moved & log.refusable[writes])),
        **done,
    }
