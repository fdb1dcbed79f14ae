"""From the servers' own records to tenures: which entry stood for which hold, from where to where.

A recipe says with ``System.entry`` how it names a hold in the service. Our own recipes write the
hold's id (``token_of``): Redis' as the value of the lock's key, etcd's as the value of the key of
its place in the queue, ZooKeeper's as the beginning of its znode's name. Libraries draw tokens of
their own, which nobody can tell the hold of: their records are not read.

PostgreSQL keeps none: ``pg_locks`` tells of the present only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

from lockbench.clusters.base import Change, ServerLog
from lockbench.history.service import NUMBER_MAX, How, Service, Tenure

TOKEN_DIGITS: Final = 16
PLACE_PARTS: Final = 3
NS_PER_MS: Final = 1_000_000

Entry = Callable[[str, str], tuple[str, int] | None]


def redis_entry(name: str, value: str) -> tuple[str, int] | None:
    """``key`` → token, or token and the number of a try (``token.2``)."""
    hold = _hold(value.partition(".")[0])
    return None if hold is None else (name, hold)


def etcd_entry(name: str, value: str) -> tuple[str, int] | None:
    """``lockbench/<key>/<lease>`` → token."""
    parts, hold = name.split("/"), _hold(value)
    return None if hold is None or len(parts) != PLACE_PARTS else (parts[1], hold)


def zookeeper_entry(name: str, value: str) -> tuple[str, int] | None:
    """``/lockbench/<key>/<token>-lock-<number>``."""
    del value
    parts = name.strip("/").split("/")
    hold = _hold(parts[-1][:TOKEN_DIGITS])
    return None if hold is None or len(parts) != PLACE_PARTS else (unquote(parts[1]), hold)


def service_of(
    logs: Sequence[ServerLog],
    entry: Entry,
    record: str,
    keys: Collection[str],
    wall_minus_monotonic_ns: tuple[int, int],
) -> Service:
    """The record of a case, of these keys. ``wall_minus_monotonic_ns``: the least and the most by
    which this machine's wall clock was ahead during the case."""

    def named(name: str, value: str) -> tuple[str, int] | None:
        found = entry(name, value)
        return found if found is not None and found[0] in keys else None

    servers = {log.server for log in logs}
    return Service(
        record=record,
        quorum=len(servers) // 2 + 1,
        partial="; ".join(log.partial for log in logs if log.partial is not None) or None,
        tenures=tuple(
            tenure for log in logs for tenure in _tenures(log, named, wall_minus_monotonic_ns)
        ),
    )


def _tenures(log: ServerLog, entry: Entry, ahead_ns: tuple[int, int]) -> Iterator[Tenure]:
    """In the order in which they ended, those that stood at the end last."""
    standing: dict[str, Tenure] = {}  # name of the entry → its tenure
    queues: dict[str, dict[str, None]] = {}  # key → the names of its entries, as they came

    def end(name: str, place: int, how: How) -> Tenure:
        tenure = standing.pop(name)
        queue = queues[tenure.key]
        first = next(iter(queue)) == name
        del queue[name]
        if first and queue:
            heir = next(iter(queue))
            standing[heir] = replace(standing[heir], begun=place)
        return replace(tenure, ended=place, how=how)

    for change in log.changes:
        name, place = change.name, change.place
        if change.how in {"deleted", "session", "expired"}:
            if name in standing:
                yield end(name, place, change.how)
            continue
        until_ns = _until_ns(change, ahead_ns)
        if change.how == "renewed":
            if name in standing:
                standing[name] = replace(standing[name], until_ns=until_ns)
            continue
        if name in standing:
            yield end(name, place, "replaced")
        named = entry(name, change.value)
        if named is None:
            continue
        key, hold = named
        queue = queues.setdefault(key, {})
        begun = None if queue else place
        queue[name] = None
        standing[name] = Tenure(log.name, key, hold, place, begun, None, None, until_ns)
    for tenure in standing.values():
        yield replace(tenure, how="lost") if log.lost else tenure


def _until_ns(change: Change, ahead_ns: tuple[int, int]) -> tuple[int, int] | None:
    """A server's wall clock is cut to milliseconds."""
    if change.until_ms is None:
        return None
    least, most = ahead_ns
    wall_ns = change.until_ms * NS_PER_MS
    return wall_ns - most, wall_ns + NS_PER_MS - least


def _hold(token: str) -> int | None:
    if len(token) != TOKEN_DIGITS:
        return None
    try:
        hold = int(token, 16)
    except ValueError:
        return None
    return hold if hold < NUMBER_MAX else None
