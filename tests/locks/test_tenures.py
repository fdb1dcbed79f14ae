"""From servers' own records to tenures: which entry stood for which hold."""

from __future__ import annotations

import pytest

from lockbench import declarations, locks
from lockbench.clusters.base import Change, ServerLog
from lockbench.history.service import Tenure
from lockbench.locks.base import System, token_of
from lockbench.locks.registry import NO_LOCKS, systems
from lockbench.locks.shared.tenures import etcd_entry, redis_entry, service_of, zookeeper_entry

A, B = token_of(0xA), token_of(0xB)
MS = 1_000_000


def tenures(*changes: Change, lost: bool = False) -> tuple[Tenure, ...]:
    log = ServerLog("redis-1", "redis-1", changes, lost)
    return service_of([log], redis_entry, "a record", {"k"}, (0, 0)).tenures


def queued(*changes: Change) -> tuple[Tenure, ...]:
    log = ServerLog("etcd", "etcd", changes)
    return service_of([log], etcd_entry, "a record", {"k"}, (0, 0)).tenures


def test_an_entry_stands_until_it_is_deleted() -> None:
    found = tenures(Change(1, "made", "k", A, 5), Change(4, "deleted", "k"))
    assert found == (Tenure("redis-1", "k", 0xA, 1, 1, 4, "deleted", (5 * MS, 6 * MS)),)


def test_the_last_term_counts() -> None:
    (found,) = tenures(Change(1, "made", "k", A, 5), Change(2, "renewed", "k", A, 9))
    assert (found.until_ns, found.how) == ((9 * MS, 10 * MS), None)
    (found,) = tenures(Change(1, "made", "k", A, 5), Change(2, "renewed", "k", A))
    assert found.until_ns is None


def test_a_clock_that_was_slewed_widens_the_term() -> None:
    log = ServerLog("redis-1", "redis-1", [Change(1, "made", "k", A, 5)])
    (found,) = service_of([log], redis_entry, "a record", {"k"}, (1 * MS, 3 * MS)).tenures
    assert found.until_ns == (2 * MS, 5 * MS)


def test_an_entry_may_be_replaced_or_lost() -> None:
    first, second = tenures(Change(1, "made", "k", A), Change(2, "made", "k", B), lost=True)
    assert (first.ended, first.how) == (2, "replaced")
    assert (second.ended, second.how) == (None, "lost")


def test_who_waits_has_no_turn() -> None:
    one, two = "lockbench/k/1", "lockbench/k/2"
    first, second = queued(
        Change(1, "made", one, A),
        Change(2, "made", two, B),
        Change(5, "deleted", one),
        Change(7, "deleted", two),
    )
    assert (first.begun, first.ended) == (1, 5)
    assert (second.made, second.begun, second.ended) == (2, 5, 7)


def test_who_gave_up_waiting_never_had_a_turn() -> None:
    one, two = "lockbench/k/1", "lockbench/k/2"
    second, first = queued(
        Change(1, "made", one, A), Change(2, "made", two, B), Change(5, "deleted", two)
    )
    assert (second.begun, second.ended) == (None, 5)
    assert (first.begun, first.ended) == (1, None)


def test_other_keys_and_foreign_tokens_are_left_out() -> None:
    made = (Change(1, "made", "other", A), Change(2, "made", "k", "token"))
    assert not tenures(*made)
    assert not tenures(Change(1, "made", "k", "f" * 16))  # no number of a hold


@pytest.mark.parametrize(
    ("entry", "name", "value", "found"),
    [
        (redis_entry, "k", f"{A}.3", ("k", 0xA)),
        (redis_entry, "k:fence", "17", None),
        (etcd_entry, "lockbench/k/7f", A, ("k", 0xA)),
        (etcd_entry, "lockbench/probe", A, None),
        (zookeeper_entry, f"/lockbench/a%2Fb/{A}-lock-0000000001", "", ("a/b", 0xA)),
        (zookeeper_entry, "/lockbench/a", "", None),
    ],
)
def test_how_recipes_name_holds(
    entry: object, name: str, value: str, found: tuple[str, int] | None
) -> None:
    assert callable(entry)
    assert entry(name, value) == found


def test_partial_logs_are_told_and_nodes_are_counted_once() -> None:
    logs = [
        ServerLog("r-1", "r-1", (), lost=True),
        ServerLog("r-1", "r-1 after wipe 1", ()),
        ServerLog("r-2", "r-2", (), partial="r-2: gone"),
        ServerLog("r-3", "r-3", ()),
    ]
    service = service_of(logs, redis_entry, "a record", {"k"}, (0, 0))
    assert (service.quorum, service.partial) == (2, "r-2: gone")


def test_libraries_draw_tokens_of_their_own() -> None:
    """Nobody could tell which hold an entry of theirs stands for."""
    recipes = declarations.declared(
        locks, "SYSTEM", System, skip=(*NO_LOCKS, "libraries/*/lock.py")
    )
    libraries = {name: system for name, system in systems().items() if name not in recipes}
    assert libraries
    assert not [name for name, system in libraries.items() if system.entry is not None]
    assert systems()["redis-token"].entry is redis_entry
    assert systems()["etcd"].entry is etcd_entry
    assert systems()["zookeeper-herd"].entry is zookeeper_entry
