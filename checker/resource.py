"""``stale-holder`` and ``lost-update`` at the guarded resource, and what fencing would have done.

The resource lies outside the faults' reach and checks nothing: it applies everything in the order
of arrival and counts the writes of each key in a version. A read returns the version found
(``value``); a write names the version that had been read (``version``) and returns the version it
made (``value``). An effect does a numbered thing (``version``) and returns the version that it met.
``applied_ns`` says when the resource applied it; without it an operation counts
as late only if all of its window was late. An operation whose outcome its client never learned, but
of which the resource's log says when it was applied, counts as applied then.

``stale-holder``: an operation was applied after its hold's promise had ended and after another
owner had been granted the key, even if that grant was already released. The other grant is later
for certain where it was asked for after the hold had been granted, or completed after it and was
promised beyond that. It may have come first where it is promised at that very time, or where its
own holder acts too late as well: then one of the two is overtaken, whichever it is. The service did
nothing wrong; this is what a client that was frozen or slow does to everybody else. So is an
operation under an acquire whose outcome its client never learned, applied inside the promise of
another owner.

``lost-update``: an applied write did not build on the state that it replaced, so somebody's
update is gone: it made a version that is not the successor of the one that had been read, or two
applied writes build on the same version, or a version was seen again after a later one had
been acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.intervals import ByKey, running_max, up_to
from lockbench.checker.kinds import OTHERS_TOO, RESOURCES, keys_of
from lockbench.checker.promises import Promises
from lockbench.checker.rows import FOREVER, Bools, Rows, by_key_and_time, owners, rows_of
from lockbench.checker.verdict import Verdict
from lockbench.checker.words import EVIDENCE_MAX, clock, during, faults_on, grant, many, operation
from lockbench.history.columns import Ids, Ints
from lockbench.history.op import NULL, F, Mode, Type


@dataclass(frozen=True)
class Uses:
    """The operations that guarded resources applied.

    ``row``       in the history, in the order of invocation
    ``grant``     the hold's grant, -1 where the acquire is unknown or missing
    ``stale``     applied after its hold's promise, beside or after another owner's grant
    ``later``     that grant, -1 where the operation is not stale
    ``beside``    under an unknown acquire: the grant of another owner inside whose promise it was
                  applied, -1 for all others
    """

    row: Rows
    grant: Rows
    stale: Bools
    later: Rows
    beside: Rows


def uses(analysis: Analysis) -> Uses:
    """All reads, writes and effects on keys of locks that keep others out, with what is known of
    their holds."""
    history = analysis.history
    guarded = ~keys_of(history, RESOURCES | OTHERS_TOO)
    done = (history.type == Type.OK) | ((history.type == Type.INFO) & (history.applied_ns != NULL))
    used = (history.f == F.READ) | (history.f == F.WRITE) | (history.f == F.EFFECT)
    row = np.flatnonzero(used & done)
    return uses_in(analysis, row[guarded[history.key[row]]])


def uses_in(analysis: Analysis, row: Rows) -> Uses:
    """The same of these operations, whatever became of them: one that was refused is stale where it
    would have been, had it been applied when it was asked for."""
    history, promises = analysis.history, analysis.promises
    index = analysis.grant_of[analysis.links.acquire[row]]
    # What is done under an inner level is over with the outermost one.
    index[index >= 0] = promises.outermost[index[index >= 0]]
    stale = np.zeros(len(row), np.bool_)
    later = np.full(len(row), -1, np.intp)
    known = np.flatnonzero(index >= 0)
    applied = history.applied_ns[row[known]]
    certain = np.where(applied != NULL, applied, history.invoke_ns[row[known]])
    certain = certain - history.epsilon_ns
    end = promises.end[index[known]]
    # The promise's end was moved forward by ε for exclusion; here the real end must be past.
    over = np.flatnonzero((end < FOREVER) & (certain > end + 2 * history.epsilon_ns))
    if len(over):
        later[known[over]] = _overtaken(analysis, index[known[over]], certain[over])
        stale = later >= 0
    return Uses(row, index, stale, later, _beside(analysis, row))


def stale_holder(analysis: Analysis, used: Uses) -> Verdict | None:
    """Absent when no operation was done under a hold."""
    if not np.any((used.grant >= 0) | (used.beside >= 0)):
        return None
    history, promises = analysis.history, analysis.promises
    found = used.stale | (used.beside >= 0)
    count = int(np.count_nonzero(found))
    if count == 0:
        under = int(np.count_nonzero(used.grant >= 0))
        return Verdict("valid", f"{many(under, 'operation')} under a hold, none after its promise")
    first = int(np.flatnonzero(found)[0])
    if not used.stale[first]:
        return _unpromised(analysis, int(used.row[first]), int(used.beside[first]), count)
    row, held, later = int(used.row[first]), int(used.grant[first]), int(used.later[first])
    applied, end_ns = _applied(analysis, row), int(promises.end[held])
    word = F(int(history.f[row])).word
    at, end, since = clock(history, [applied, int(promises.end[held]), int(promises.start[later])])
    reason = (
        f"{analysis.name(row)}'s {word} of {analysis.key(row)} was applied at {at} s; "
        f"its promise had ended at {end} s and {analysis.name(int(promises.row[later]))} had been "
        f"granted the key at {since} s{during(analysis, end_ns, applied)}; "
        f"{many(count, 'stale operation')}"
    )
    evidence = (grant(analysis, held), grant(analysis, later), operation(analysis, row))
    begin = int(promises.start[held])
    return Verdict("invalid", reason, (*evidence, *faults_on(analysis, begin, applied)))


def _unpromised(analysis: Analysis, row: int, beside: int, count: int) -> Verdict:
    """An operation under an unknown acquire, inside the promise of somebody else."""
    history, promises = analysis.history, analysis.promises
    applied, start, end = (
        _applied(analysis, row),
        int(promises.start[beside]),
        int(promises.end[beside]),
    )
    at, since = clock(history, [applied, start])
    until = "without end"
    if end < FOREVER:
        at, since, until = clock(history, [applied, start, end])
        until = f"to {until} s"
    reason = (
        f"{analysis.name(row)}'s {F(int(history.f[row])).word} of {analysis.key(row)} was applied "
        f"at {at} s under an acquire whose outcome it never learned, while "
        f"{analysis.name(int(promises.row[beside]))} was promised the key from {since} {until}"
        f"{during(analysis, start, applied)}; {many(count, 'stale operation')}"
    )
    evidence = (grant(analysis, beside), operation(analysis, row))
    return Verdict("invalid", reason, (*evidence, *faults_on(analysis, start, applied)))


def lost_update(analysis: Analysis, used: Uses) -> Verdict | None:
    """Absent when no applied write says on which version it builds."""
    history = analysis.history
    writes = used.row[history.f[used.row] == F.WRITE]
    writes = writes[(history.version[writes] != NULL) & (history.value[writes] != NULL)]
    if len(writes) == 0:
        return None
    lost = _forks(analysis, writes)
    returned = _returns(analysis, used.row)
    if len(lost) == 0 and len(returned) == 0:
        return Verdict("valid", f"{many(len(writes), 'write')}, each on top of the one before")
    if len(lost):
        row = int(lost[0])
        read, made = int(history.version[row]), int(history.value[row])
        what = (
            f"{analysis.name(row)}'s write of {analysis.key(row)} was made from version {read} and "
            f"became version {made}, so it overwrote {many(max(made - read - 1, 1), 'update')} "
            "unseen"
        )
        if made == read + 1:
            what = (
                f"{analysis.name(row)}'s write of {analysis.key(row)} was made from version "
                f"{read}, from which another write had been made already"
            )
        evidence = _competitors(analysis, writes, row)
    else:
        row = int(returned[0])
        what = (
            f"{analysis.name(row)}'s {F(int(history.f[row])).word} of {analysis.key(row)} met "
            f"version {int(history.value[row])} after a later one had been there"
        )
        evidence = [operation(analysis, row)]
    at = clock(history, [_applied(analysis, row)])[0]
    count = len(lost) + len(returned)
    reason = f"{what}, at {at} s; {many(count, 'lost update')} in {many(len(writes), 'write')}"
    faults = faults_on(analysis, int(history.invoke_ns[row]), _applied(analysis, row))
    return Verdict("invalid", reason, (*evidence, *faults))


def _applied(analysis: Analysis, row: int) -> int:
    applied = int(analysis.history.applied_ns[row])
    return int(analysis.history.complete_ns[row]) if applied == NULL else applied


def _beside(analysis: Analysis, row: Rows) -> Rows:
    """For operations under an acquire whose outcome is unknown, and of which the resource knows
    when it applied them: somebody else's promise that was good then, and not reader beside reader;
    -1 for all others. A hold that was extended is one that the service knew: not looked at here."""
    history, promises, links = analysis.history, analysis.promises, analysis.links
    beside = np.full(len(row), -1, np.intp)
    acquire = links.acquire[row]
    unknown = (acquire >= 0) & (history.applied_ns[row] != NULL)
    unknown[unknown] = history.type[acquire[unknown]] == Type.INFO
    if not np.any(unknown):
        return beside
    extends = links.under(rows_of(history, F.EXTEND, Type.OK))
    unknown &= ~np.isin(acquire, links.acquire[extends])
    reads = history.mode[acquire] == Mode.READ
    everybody = promises.in_order
    writers = everybody[history.mode[promises.row[everybody]] != Mode.READ]
    for order, mine in ((everybody, unknown & ~reads), (writers, unknown & reads)):
        at_ns = history.applied_ns[row[mine]] - history.epsilon_ns
        key, owner = history.key[row[mine]], owners(history)[acquire[mine]]
        beside[mine] = _promised_then(analysis, order, key, owner, at_ns)
    return beside


def _overtaken(analysis: Analysis, held: Rows, at_ns: Ints) -> Rows:
    """For holds whose promise was over at some time: a grant that came later and had completed by
    then, or one that was promised then, of another owner, and not reader beside reader; -1 without
    one."""
    history, promises = analysis.history, analysis.promises
    reads = history.mode[promises.row] == Mode.READ
    found = np.full(len(held), -1, np.intp)
    everybody = promises.in_order
    writers = everybody[~reads[everybody]] if np.any(reads) else everybody
    for order, mine in ((everybody, ~reads[held]), (writers, reads[held])):
        if np.any(mine):
            found[mine] = _promised_after(promises, order, held[mine], at_ns[mine])
            left = np.flatnonzero(mine & (found < 0))
            of = held[left]
            key, owner = promises.key[of], promises.owner[of]
            found[left] = _promised_then(analysis, order, key, owner, at_ns[left])
    late = np.flatnonzero(promises.outer & ~promises.nonempty)
    asked = history.invoke_ns[promises.row[late]] - history.epsilon_ns
    last = _last_acts(held, at_ns)
    for i in np.flatnonzero(found < 0).tolist() if len(late) else ():
        mine = held[i]
        rival = (promises.key[late] == promises.key[mine]) & (promises.start[late] < at_ns[i])
        rival &= (promises.owner[late] != promises.owner[mine]) & ~(reads[late] & reads[mine])
        # A hold from before would have lasted until after this grant; or was not even asked for.
        later = np.maximum(asked, np.where(rival, promises.end[late], NULL)) > promises.start[mine]
        later &= (promises.start[late] > promises.start[mine]) | (asked > promises.start[mine])
        # Whoever of two came first, both acted when both had been granted it and both were over.
        acted = np.array([last.get(other, NULL) for other in late.tolist()], np.int64)
        later |= (acted > promises.start[mine]) & (acted <= at_ns[i])
        found[i] = late[rival & later][0] if np.any(rival & later) else -1
    return found


def _last_acts(held: Rows, at_ns: Ints) -> dict[int, int]:
    """For each of these holds the last of these times."""
    acts: dict[int, int] = {}
    for hold, at in zip(held.tolist(), at_ns.tolist(), strict=True):
        acts[hold] = max(at, acts.get(hold, at))
    return acts


def _promised_after(promises: Promises, order: Rows, held: Rows, at_ns: Ints) -> Rows:
    """The first promise of another owner that began after a hold was granted, if before a time.
    ``order`` are promises by key and start."""
    found = np.full(len(held), -1, np.intp)
    if len(order) == 0:
        return found
    key, owner, start = promises.key[order], promises.owner[order], promises.start[order]
    last = len(order) - 1
    # From each promise, where the next one of another owner or key stands.
    changes = np.flatnonzero((key[1:] != key[:-1]) | (owner[1:] != owner[:-1])) + 1
    after = np.append(changes, last + 1)[np.searchsorted(changes, np.arange(last + 1), "right")]
    place = up_to(key, start, promises.key[held], promises.start[held])
    at = np.minimum(place, last)
    own = (place <= last) & (key[at] == promises.key[held]) & (owner[at] == promises.owner[held])
    place = np.where(own, after[at], place)
    at = np.minimum(place, last)
    met = (place <= last) & (key[at] == promises.key[held]) & (start[at] < at_ns)
    found[met] = order[at[met]]
    return found


def _promised_then(analysis: Analysis, order: Rows, key: Ids, owner: Ints, at_ns: Ints) -> Rows:
    """A promise of another owner that was good at a time. ``order`` are promises by key and
    start."""
    promises = analysis.promises
    found = np.full(len(key), -1, np.intp)
    if len(order) == 0:
        return found
    keys = promises.key[order]
    _, longest = running_max(keys, promises.end[order])
    place = up_to(keys, promises.start[order], key, at_ns - 1) - 1
    other = order[longest[np.maximum(place, 0)]]
    met = (place >= 0) & (promises.key[other] == key)
    own = met & (promises.owner[other] == owner)
    for one in np.unique(owner[own]).tolist():
        mine = own & (owner == one)
        others = order[promises.owner[order] != one]
        found[mine] = _promised_then(analysis, others, key[mine], owner[mine], at_ns[mine])
    met &= ~own
    met &= promises.end[other] > at_ns + 2 * analysis.history.epsilon_ns
    found[met] = other[met]
    return found


def _forks(analysis: Analysis, writes: Rows) -> Rows:
    """Writes that do not build on what they replaced."""
    history = analysis.history
    read, made = history.version[writes], history.value[writes]
    skipped = made != read + 1
    # Two writes on one version, both successors of it by their own word: the resource forked.
    order = by_key_and_time(history.key[writes], read)
    twin = np.zeros(len(writes), np.bool_)
    same = history.key[writes][order][1:] == history.key[writes][order][:-1]
    twin[order[1:]] = same & (read[order][1:] == read[order][:-1])
    # One of the two is reported: the one that skipped something, else the second.
    first_of_twins = np.zeros(len(writes), np.bool_)
    first_of_twins[order[:-1]] = twin[order[1:]] & skipped[order[:-1]]
    second = twin.copy()
    second[order[1:]] &= ~first_of_twins[order[:-1]]
    return np.sort(writes[skipped | second])


def _competitors(analysis: Analysis, writes: Rows, row: int) -> list[dict[str, object]]:
    """The writes that made the versions between the one read and the one made, and the write."""
    history = analysis.history
    same = writes[history.key[writes] == history.key[row]]
    read, made = int(history.version[row]), int(history.value[row])
    value, version = history.value[same], history.version[same]
    others = same[((value > read) & (value < made)) | ((version == read) & (same != row))]
    return [operation(analysis, int(r)) for r in (*others[:EVIDENCE_MAX], row)]


def _returns(analysis: Analysis, rows: Rows) -> Rows:
    """Operations that met a version below one acknowledged before they began."""
    history = analysis.history
    rows = rows[history.value[rows] != NULL]
    if len(rows) == 0:
        return rows
    versions = history.value[rows]
    writes = history.f[rows] == F.WRITE
    lost = np.zeros(len(rows), np.bool_)
    if not np.any(writes):
        return rows[lost]
    places = ByKey(history.key[rows])
    for key in places.present():
        mine = places[key]
        lost[mine] = _behind(analysis, rows[mine], versions[mine])
    return rows[lost]


def _behind(analysis: Analysis, rows: Rows, versions: Ints) -> Bools:
    history = analysis.history
    done = history.complete_ns[rows]
    done = np.where(done == NULL, history.applied_ns[rows], done)
    by_end = np.argsort(done, kind="stable")
    ended = done[by_end] + history.epsilon_ns
    highest = np.maximum.accumulate(versions[by_end])
    before = np.searchsorted(ended, history.invoke_ns[rows] - history.epsilon_ns, side="left") - 1
    return (before >= 0) & (highest[np.maximum(before, 0)] > versions)
