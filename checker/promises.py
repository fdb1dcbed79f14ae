"""From columns to holds: which operation belongs to which grant, and what each grant promised.

A promise runs from the completion of the acquire to the earliest of: the outermost release
invoked, a loss notified, the holder's death, ``valid_until``. Nobody else may be promised the same
lock meanwhile.

- ``valid_until`` comes from the client, counted from the *send* time of the last acknowledged
  request. An acknowledged extend makes the promise contiguous up to its own ``valid_until``, also
  where it was acknowledged late: the service said that the hold was still there. Of extends at the
  same time any may have been the last: the earliest of their ends counts. An extend whose outcome
  is unknown changes nothing.
- A release ends the promise when it is *invoked*, whatever its outcome, except where it certainly
  had no effect (a ``fail`` other than ``not-held``): then the hold goes on.
- ε (clocks of several machines) shrinks a promise at both ends, so a skewed clock can hide a
  violation but never make one.

All times are nanoseconds; ``FOREVER`` stands for no limit.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lockbench.checker.intervals import open_during, running_max
from lockbench.checker.kinds import OWNERLESS, REENTRANT, SHARED, keys_of
from lockbench.checker.rows import (
    FOREVER,
    Bools,
    Rows,
    answered_ns,
    by_key_and_time,
    failed_with,
    forever,
    has_values,
    owners,
    rows_of,
    stable_order,
)
from lockbench.history.columns import History, Ids, Ints
from lockbench.history.op import NULL, F, Type


@dataclass(frozen=True)
class Promises:
    """One entry per granted acquire, in the order of invocation.

    ``row``      the acquire's row in the history
    ``owner``    who holds it: the recorded owner, else the process
    ``start``    when the grant had completed (plus ε)
    ``lease``    ``valid_until`` of the last acknowledgement, FOREVER without a limit
    ``lost``     when the holder was told of the loss or died, FOREVER otherwise
    ``release``  row of the release that ended it, -1 if none
    ``end``      end of the promise (minus ε); the promise is empty unless start < end
    ``outer``    false for grants inside another hold of the same owner (reentrant locks)
    """

    row: Rows
    key: Ids
    owner: Ints
    start: Ints
    lease: Ints
    lost: Ints
    release: Rows
    end: Ints
    outer: Bools
    outermost: Rows

    def __len__(self) -> int:
        return len(self.row)

    def at_once(self, chosen: Rows, at_ns: Ints) -> Ints:
        """How many of these promises were good at each of these times."""
        return self.during(chosen, at_ns, at_ns)

    def during(self, chosen: Rows, first_ns: Ints, last_ns: Ints) -> Ints:
        """How many of these promises were good at some time of each of these intervals."""
        return open_during(self.start[chosen], self.end[chosen], first_ns, last_ns)

    @cached_property
    def nonempty(self) -> Bools:
        return self.outer & (self.start < self.end)

    @cached_property
    def order(self) -> Rows:
        """The grants by key, and by their start within a key."""
        return by_key_and_time(self.key, self.start)

    @cached_property
    def in_order(self) -> Rows:
        """The non-empty promises by key, and by their start within a key."""
        if np.all(self.nonempty):
            return self.order
        return self.order[self.nonempty[self.order]]

    @cached_property
    def disjoint(self) -> bool:
        """Whether no two non-empty promises of a key overlap."""
        order = self.in_order
        key, start, end = self.key[order], self.start[order], self.end[order]
        return not np.any((end[:-1] > start[1:]) & (key[:-1] == key[1:]))


@dataclass(frozen=True)
class Sequences:
    """The rows of each identity one after the other: ``rows`` in that order, ``same`` where an
    entry has the identity of the one before."""

    rows: Rows
    same: Bools

    def only(self, chosen: Bools) -> Sequences:
        """Without the rows of the history that are not chosen."""
        if len(self.rows) == 0:
            return self
        kept = chosen[self.rows]
        if np.all(kept):
            return self
        group = np.cumsum(~self.same)[kept]
        same = np.zeros(len(group), np.bool_)
        same[1:] = group[1:] == group[:-1]
        return Sequences(self.rows[kept], same)


@dataclass(frozen=True)
class Links:
    """Which acquire every row belongs to.

    ``acquire`` is the row of the acquire (granted or unknown) under which an operation was done, -1
    if there is none or several may be meant; an acquire belongs to itself. ``not_held`` and
    ``held`` mark the failed rows with that error. ``vague_ns``, for acquires: when something was
    done that may have been under this hold or under another one, FOREVER if nothing was.
    """

    acquire: Rows
    not_held: Bools
    held: Bools
    by_hold: Sequences | None
    by_process: Sequences | None
    vague_ns: Ints

    def under(self, rows: Rows) -> Rows:
        """Those of ``rows`` that have an acquire."""
        return rows[self.acquire[rows] >= 0]


def link(history: History) -> Links:
    """By hold id where there is one, else to the last acquire of the same owner (the process, where
    no owner was recorded) and key."""
    acquire = np.full(len(history), -1, np.intp)
    by_hold = has_values(history.hold)
    sequences: dict[str, Sequences] = {}
    acquires = history.f == F.ACQUIRE
    lock_row = (history.f == F.RELEASE) | (history.f == F.EXTEND) | (history.f == F.LOST)
    unnamed = lock_row | acquires
    if by_hold:
        held = history.hold != NULL
        sequences["hold"] = _link_within(history, acquire, np.flatnonzero(held), history.hold)
        lock_row &= ~held
        unnamed &= ~held
    if np.any(unnamed):
        rows = np.flatnonzero(lock_row | acquires)
        linked_by_hold = acquire[rows] if by_hold else None
        sequences["process"] = _link_within(
            history, acquire, rows, _owner_and_key(history), one_key=True
        )
        if linked_by_hold is not None:
            acquire[rows] = np.where(linked_by_hold >= 0, linked_by_hold, acquire[rows])
    not_held = failed_with(history, "not-held")
    says = (history.type != Type.FAIL) | not_held
    vague_ns = np.full(len(history), FOREVER, np.int64)
    loose = keys_of(history, SHARED)[history.key] & (history.hold == NULL)
    if np.any(loose):
        _unlink(history, acquire, vague_ns, np.flatnonzero(loose & says))
    # Of reentrant locks an owner's releases are counted (``lockbench.checker.reentrant``).
    told = says & ((history.f == F.ACQUIRE) | (history.f == F.RELEASE))
    told &= ~keys_of(history, REENTRANT)[history.key]
    for name, sequence in sequences.items():
        named = (history.hold != NULL) == (name == "hold")
        _end_with_any_release(history, acquire, vague_ns, sequence.only(told & named))
        _unlink_between(history, acquire, vague_ns, sequence.only(named))
    return Links(
        acquire=acquire,
        not_held=not_held,
        held=failed_with(history, "held"),
        by_hold=sequences.get("hold"),
        by_process=sequences.get("process"),
        vague_ns=vague_ns,
    )


def _end_with_any_release(
    history: History, acquire: Rows, vague_ns: Ints, sequences: Sequences
) -> None:
    """Of identities that do more than one thing at a time: a grant may be over with any release
    that was not answered before the grant was asked for. ``sequences`` of acquires and releases."""
    row, same = sequences.rows, sequences.same
    if len(row) == 0:
        return
    invoked, unknown = history.invoke_ns[row], history.type[row] == Type.INFO
    release, granted = history.f[row] == F.RELEASE, history.type[row] == Type.OK
    granted &= ~release
    # An unknown release after a grant: if nothing else can have ended that hold, the next grant
    # shows that it did.
    spent = unknown & release & ~(holds_end(history) | keys_of(history, SHARED))[history.key[row]]
    spent[1:] &= same[1:] & granted[:-1]
    spent[:1] = False
    may_come = release & (history.type[row] != Type.FAIL) & ~spent
    done = answered_ns(history, row)
    group = np.cumsum(~same).astype(np.int32)
    latest, _ = running_max(group, np.where(may_come, done, NULL + 1))
    early = granted & (latest >= invoked - 2 * history.epsilon_ns)
    vague_ns[row[early]] = np.minimum(vague_ns, history.invoke_ns)[row[early]]
    # Where the next release of each identity stands.
    place = np.where(release, np.arange(len(row)), len(row))
    following = np.minimum.accumulate(place[::-1])[::-1]
    at = np.minimum(following, len(row) - 1)
    other = granted & (following < len(row)) & (group[at] == group) & (acquire[row[at]] != row)
    vague_ns[row[other]] = np.minimum(vague_ns[row[other]], invoked[at[other]])


def _unlink_between(history: History, acquire: Rows, vague_ns: Ints, sequences: Sequences) -> None:
    """An extend that was not answered before the next acquires of its identity were asked for may
    be about any of these: it lengthens none, and may have shortened each."""
    row, same = sequences.rows, sequences.same
    if len(row) == 0 or not np.any(history.f[row] == F.EXTEND):
        return
    begins = (history.f[row] == F.ACQUIRE) & (history.type[row] != Type.FAIL)
    group = np.cumsum(~same)
    place = np.where(begins, np.arange(len(row)), len(row))
    following = np.minimum.accumulate(place[::-1])[::-1]
    at = np.minimum(following, len(row) - 1)
    by_ns = answered_ns(history, row) + 2 * history.epsilon_ns
    either = (history.f[row] == F.EXTEND) & (history.type[row] != Type.FAIL)
    either &= (following < len(row)) & (group[at] == group) & (history.invoke_ns[row[at]] <= by_ns)
    told = row[either & (acquire[row] >= 0) & (history.valid_until_ns[row] != NULL)]
    np.minimum.at(vague_ns, acquire[told], history.valid_until_ns[told])
    for n in np.flatnonzero(either & (history.valid_until_ns[row] != NULL)).tolist():
        end = int(np.searchsorted(group, group[n], side="right"))
        next_ = row[n + 1 : end]
        next_ = next_[begins[n + 1 : end] & (history.invoke_ns[next_] <= by_ns[n])]
        vague_ns[next_] = np.minimum(vague_ns[next_], history.valid_until_ns[row[n]])
    acquire[row[either]] = -1


def holds_end(history: History) -> Bools:
    """The keys on which holds may end by themselves."""
    ends = np.zeros(len(history.keys), np.bool_)
    ends[history.key[(history.valid_until_ns != NULL) | (history.f == F.LOST)]] = True
    if np.any(history.f == F.DEATH):
        ends[:] = True
    return ends


def _unlink(history: History, acquire: Rows, vague_ns: Ints, rows: Rows) -> None:
    """Of shared locks without names of holds: an owner of several holds may release or extend any
    of them. Such an operation belongs to none, and none of them is certain from then on."""
    open_holds: dict[tuple[int, int], list[int]] = {}
    released: dict[tuple[int, int], int] = {}
    everyone = owners(history)
    for row in rows.tolist():
        who = (int(history.key[row]), int(everyone[row]))
        mine = open_holds.setdefault(who, [])
        if history.f[row] == F.ACQUIRE:
            mine.append(row)
        elif len(mine) > 1 and history.f[row] in {F.RELEASE, F.EXTEND}:
            acquire[row] = -1
            at = int(history.invoke_ns[row])
            vague_ns[mine] = np.minimum(vague_ns[mine], at)
        if history.f[row] == F.RELEASE:
            released[who] = released.get(who, 0) + (history.type[row] == Type.OK)
            if released[who] >= len(mine):
                mine.clear()
                released[who] = 0


def _owner_and_key(history: History) -> Ints:
    return _with_key(history, owners(history))


def _with_key(history: History, names: Ints) -> Ints:
    """A number for each name and key of the rows."""
    keys = max(1, len(history.keys))
    if len(names) and (names.min() < 0 or int(names.max()) >= FOREVER // keys):
        names = np.unique(names, return_inverse=True)[1].astype(np.int64)
    return names * keys + history.key if keys > 1 else names


def _link_within(
    history: History, acquire: Rows, rows: Rows, group: Ints, *, one_key: bool = False
) -> Sequences:
    """Sets ``acquire[rows]`` to the last acquire at or before each row in its group and key.
    ``one_key`` where no group has rows of several keys."""
    everything = len(rows) == len(history)
    mine = group if everything else group[rows]
    order = stable_order(mine)
    row, here = order if everything else rows[order], mine[order]
    begins = ((history.f == F.ACQUIRE) & (history.type != Type.FAIL))[row]
    at = np.where(begins, np.arange(len(row)), -1)
    np.maximum.accumulate(at, out=at)
    same = (here[at] == here) & (at >= 0)
    found = row[at]
    del at, begins
    if not one_key and len(history.keys) > 1:
        other_key = same & (history.key[found] != history.key[row])
        if np.any(other_key):
            # One name was used for holds of several keys: sort them apart.
            apart = np.unique(np.stack([group, history.key]), axis=1, return_inverse=True)[1]
            group = apart.reshape(-1).astype(np.int64)
            return _link_within(history, acquire, rows, group, one_key=True)
    found[~same] = -1
    acquire[row] = found
    same[1:] = here[1:] == here[:-1]
    same[:1] = False
    return Sequences(row, same)


def promises(history: History, links: Links) -> Promises:
    """What every grant of the history promised. A lock without owners promises nobody anything."""
    row = rows_of(history, F.ACQUIRE, Type.OK)
    ownerless = keys_of(history, frozenset({OWNERLESS}))
    if np.any(ownerless):
        row = row[~ownerless[history.key[row]]]
    key = history.key[row]
    start = history.complete_ns[row] + history.epsilon_ns
    lease = _leases(history, links, row)
    lost = losses(history, links, row)
    release = _first_release(history, links)[row]
    owner = owners(history)[row]
    outer, vague_ns = np.ones(len(row), np.bool_), links.vague_ns[row]
    outermost = np.arange(len(row))
    reentrant = keys_of(history, REENTRANT)
    if np.any(reentrant):
        from lockbench.checker.reentrant import fold

        lease, lost = lease.copy(), lost.copy()
        columns = (lease, lost, release, outer, vague_ns, outermost)
        fold(history, links, reentrant[key], row, columns)
    end = np.minimum(np.minimum(lease, lost), vague_ns)
    ended = release >= 0
    end[ended] = np.minimum(end[ended], history.invoke_ns[release[ended]])
    limited = end < FOREVER
    end[limited] -= history.epsilon_ns
    return Promises(row, key, owner, start, lease, lost, release, end, outer, outermost)


def promised_ends(history: History, links: Links, acquires: Rows) -> Ints:
    """When the promises of acquires end by lease, loss or release; for unknown acquires too, whose
    promise is that of their extends. Without ε."""
    end = np.minimum(_leases(history, links, acquires), losses(history, links, acquires))
    release = _first_release(history, links)[acquires]
    ended = release >= 0
    end[ended] = np.minimum(end[ended], history.invoke_ns[release[ended]])
    return end


def known_leases(history: History, links: Links, held: Promises, at_ns: int) -> Ints:
    """``lease`` as the holders knew it at a time, without what they were told later. An inner grant
    of a reentrant lock renews too; there it is what they knew in the end."""
    known = _leases(history, links, held.row, at_ns)
    return np.where(keys_of(history, REENTRANT)[held.key], held.lease, known)


def limits(history: History) -> Ints:
    """For every acquire and every acknowledged extend: until when the hold was promised by it,
    FOREVER without a limit. A client that never learned of its grant did not learn how long it
    lasts either: it may be over at once, unless the lock grants without any limit."""
    valid_until = history.valid_until_ns
    acquires = rows_of(history, F.ACQUIRE, Type.INFO)
    if not has_values(valid_until) and len(acquires) == 0:
        return forever(len(history))
    limit = np.where(valid_until == NULL, FOREVER, valid_until)
    untold = acquires[limit[acquires] == FOREVER]
    if len(untold):
        told = (history.type == Type.OK) & ((history.f == F.ACQUIRE) | (history.f == F.EXTEND))
        unlimited = np.zeros(len(history.keys), np.bool_)
        unlimited[history.key[told]] = True
        unlimited[history.key[valid_until != NULL]] = False
        untold = untold[~unlimited[history.key[untold]]]
        limit[untold] = history.invoke_ns[untold]
    return limit


def _leases(history: History, links: Links, row: Rows, told_by_ns: int = FOREVER) -> Ints:
    lease = limits(history)[row]
    if not has_values(history.valid_until_ns):
        return lease
    valid_until = history.valid_until_ns
    extends = links.under(rows_of(history, F.EXTEND, Type.OK))
    extends = extends[(valid_until[extends] != NULL) & (history.complete_ns[extends] <= told_by_ns)]
    if len(extends):
        under = links.acquire[extends]
        asked = np.full(len(history), NULL, np.int64)
        np.maximum.at(asked, under, history.invoke_ns[extends])
        # An extend that had ended before another one was asked for was not the last.
        width = 2 * history.epsilon_ns
        last = extends[history.complete_ns[extends] >= asked[under] - width]
        shortest = np.full(len(history), FOREVER, np.int64)
        np.minimum.at(shortest, links.acquire[last], valid_until[last])
        extended = asked[row] != NULL
        lease[extended] = shortest[row[extended]]
    return lease


def losses(history: History, links: Links, row: Rows) -> Ints:
    """For acquires: when the holder was told of the loss or died, FOREVER otherwise. A loss that
    names no hold, or one of a reentrant lock, is about all that its owner has of the key."""
    told = rows_of(history, F.LOST)
    deaths = rows_of(history, F.DEATH)
    if len(told) == 0 and len(deaths) == 0:
        return forever(len(row))
    first = np.full(len(history), FOREVER, np.int64)
    ended = np.concatenate([links.under(told), links.under(deaths)])
    np.minimum.at(first, links.acquire[ended], history.invoke_ns[ended])
    lost = first[row]
    # A client that dies loses everything it holds, whatever hold its death was recorded with.
    _first_after(history, deaths, row, history.process, lost)
    whole = (history.hold[told] == NULL) | keys_of(history, REENTRANT)[history.key[told]]
    _first_after(history, told[whole], row, _owner_and_key(history), lost)
    if has_values(history.hold):
        named, dead = told[history.hold[told] != NULL], deaths[history.hold[deaths] != NULL]
        _first_after(history, dead, row, history.hold, lost)
        if len(named):  # one name may stand for holds of several keys
            _first_after(history, named, row, _with_key(history, history.hold), lost)
    return lost


def _first_after(history: History, ends: Rows, row: Rows, who: Ints, lost: Ints) -> None:
    """Lowers ``lost`` to the first of the ``ends`` of the same ``who`` after each acquire."""
    times: dict[int, list[int]] = {}
    for end in ends:
        times.setdefault(int(who[end]), []).append(int(history.invoke_ns[end]))
    for i in np.flatnonzero(np.isin(who[row], np.array(list(times), np.int64))):
        mine = times[int(who[row[i]])]
        after = bisect_left(mine, int(history.invoke_ns[row[i]]))
        if after < len(mine):
            lost[i] = min(int(lost[i]), mine[after])


def _first_release(history: History, links: Links) -> Rows:
    """For every row, the first release of its hold that may have had an effect or was told that
    there was nothing left to release; -1 if there is none."""
    releases = links.under(rows_of(history, F.RELEASE))
    ends = (history.type[releases] != Type.FAIL) | links.not_held[releases]
    return first_under(history, links, releases[ends])


def effective_releases(history: History, links: Links) -> Rows:
    """For every row, the first release of its hold that may have had an effect; -1 without one."""
    releases = links.under(rows_of(history, F.RELEASE, Type.OK, Type.INFO))
    return first_under(history, links, releases)


def first_under(history: History, links: Links, rows: Rows) -> Rows:
    """For every row, the first of ``rows`` that was done under it; -1 without one. Each of ``rows``
    has an acquire."""
    first = np.full(len(history), -1, np.intp)
    # Backwards, so that the first one is assigned last and stays.
    first[links.acquire[rows[::-1]]] = rows[::-1]
    return first
