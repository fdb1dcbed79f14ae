"""What is said of a lock under a fault: never green without a try, never "never" after one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace as with_

from lockbench.bench.suites import suite
from lockbench.checker.catalogue import ALWAYS, CATALOGUE, OF_LOCKS
from lockbench.evidence.cells import Cell, Far, cells_of, far, language
from lockbench.evidence.observations import Key, Locked, Observations, Share
from lockbench.locks.registry import find, systems
from tests.evidence import test_systems
from tests.evidence.test_systems import FROZEN, changed

UNDER_KILL = Key("etcd", "etcd", "kill")
seen = partial(test_systems.seen, under=UNDER_KILL)


def cell(found: Observations, key: Key = UNDER_KILL) -> Cell:
    return Cell(find(key.lock), key, found.cases.get(key))


def judged(n: int, *, under: Key = UNDER_KILL, **broke: tuple[int, int]) -> Observations:
    """Tries in which everything was judged, and what broke in them."""
    others = {v.replace("-", "_"): (0, n) for v in ALWAYS}
    return seen(under=under, **(others | broke))


def texts(one: Cell) -> list[str]:
    return [line.text for line in one.lines]


@pytest.mark.parametrize(("n", "in_words"), [(1, "one try"), (2, "two tries"), (3, "3 tries")])
def test_what_held_is_green_and_says_in_how_many_tries(n: int, in_words: str) -> None:
    one = cell(judged(n))
    assert (one.kind, one.short, one.counted) == ("kept", "✓", in_words)
    assert texts(one)[0] == f"nothing broke in {in_words}"


def test_without_a_run_or_a_try_that_counts_it_is_never_green() -> None:
    assert (cell(Observations()).kind, cell(Observations()).short) == ("plain", "not run")
    assert (cell(seen()).kind, cell(seen()).counted) == ("open", "not exposed")
    assert texts(cell(seen())) == ["1 case ran; the fault could not have hurt"]
    # Of one verdict that is always due nothing was decided.
    undecided = judged(2).cases[UNDER_KILL]
    rest = {v: share for v, share in undecided.verdicts.items() if v != "stale-holder"}
    assert cell(changed(undecided, verdicts=rest)).kind == "open"
    assert cell(changed(undecided, verdicts={**rest, "stale-holder": Share(0, 0)})).kind == "open"


def test_a_fault_that_does_not_apply_is_no_result() -> None:
    key = Key("etcd", "etcd", "wipe")
    assert (cell(Observations(), key).kind, cell(Observations(), key).short) == ("na", "·")


@pytest.mark.parametrize(
    ("share", "counted", "said"),
    [
        ((1, 1), "one try", "double-grant broke in one try"),
        ((2, 2), "two tries", "double-grant broke in both tries"),
        ((1, 2), "two tries", "double-grant broke in 1 of 2 tries"),
        # Clopper and Pearson 1934: for 1 of 5 the interval is 0.5 to 71.6 %.
        ((1, 5), "1 of 5", "double-grant broke in 1 of 5 tries (95 %: 1 to 72 %)"),
    ],
)
def test_bounds_stand_where_there_are_three_tries(
    share: tuple[int, int], counted: str, said: str
) -> None:
    one = cell(judged(share[1], double_grant=share))
    assert (one.kind, one.short, one.counted) == ("worse", "✗✗ DG", counted)
    assert texts(one)[0] == f"{said}, and is declared to hold"


def test_what_may_break_and_did_not_is_not_green() -> None:
    one = cell(judged(5, under=FROZEN, stale_holder=(5, 5)), FROZEN)
    assert (one.kind, one.short, one.counted) == ("broke", "✗ SH", "5 of 5")
    # What is rarer than 45 % fails to show in five tries more often than once in twenty.
    assert "lost-update may break; it did not in 5 tries (95 %: at most 46 %)" in texts(one)
    few = cell(judged(2, under=FROZEN), FROZEN)
    assert (few.kind, few.short, few.counted) == ("may", "~ SH, LU", "two tries")
    assert "lost-update may break; it did not in two tries" in texts(few)
    assert "stale-holder has to break; it did not in two tries" in texts(few)


def test_a_verdict_with_fewer_tries_is_named_beside_the_others() -> None:
    """Leaked locks are looked for in later runs only: one cell has one n."""
    one = cell(judged(4, leaked_lock=(0, 1)))
    assert (one.kind, one.counted) == ("kept", "4 tries")
    assert texts(one) == ["nothing broke in 4 tries (leaked-lock: one)"]
    assert not one.enough
    extended = cell(judged(4, leaked_lock=(0, 3), wrong_extend=(0, 1)))
    assert texts(extended) == ["nothing broke in 4 tries (leaked-lock: 3, wrong-extend: one)"]
    assert extended.enough, "in most runs nobody extends"
    leaked = cell(judged(4, leaked_lock=(1, 1)))
    assert leaked.kind == "worse"
    assert leaked.counted == "one try"


def test_what_follows_from_another_break_is_told_alone_only() -> None:
    assert cell(judged(5, double_grant=(2, 5), linearizable=(2, 5))).broke == ("double-grant",)
    assert cell(judged(5, linearizable=(2, 5))).broke == ("linearizable",)


def test_a_key_that_nobody_got_again_is_told_and_not_green() -> None:
    entry = judged(2).cases[UNDER_KILL]
    free = changed(with_(entry, cases=2), dead_holder=Locked(3.1, Share(0, 2)))
    assert cell(free).kind == "kept"
    one = cell(changed(with_(entry, cases=2), dead_holder=Locked(3.1, Share(1, 2))))
    assert (one.kind, one.short) == ("broke", "✗ locked")
    said = "the key of the struck holder was never granted again in 1 of 2 tries"
    assert said in texts(one)
    assert not any("nothing broke" in text for text in texts(one))


@pytest.mark.parametrize(("broke", "kind"), [(0, "kept"), (1, "worse")])
def test_of_what_nobody_declared_it_is_said(broke: int, kind: str) -> None:
    whole = find("etcd")
    some = {f: said for f, said in whole.expectations.items() if f != "kill"}
    found = judged(2, double_grant=(broke, 2)).cases[UNDER_KILL]
    one = Cell(replace(whole, expectations=some), UNDER_KILL, found)
    assert one.kind == kind
    assert "declared" in texts(one)[0]


def test_a_lock_has_its_canonical_faults_and_what_else_was_observed() -> None:
    other: Any = Key("etcd", "etcd", "latency")
    assert other not in cells_of(find("etcd"), Observations())
    assert other in cells_of(find("etcd"), judged(1, under=other))


def test_a_variant_has_the_cases_that_the_suite_has() -> None:
    names = ("etcd", "redis-pubsub")
    whole, variant = (cells_of(find(name), Observations()) for name in names)
    for name, cells in zip(names, (whole, variant), strict=True):
        played = {c.fault for c in suite("full", 0).cases if c.lock == name}
        assert {cell.key.fault for cell in cells.values() if cell.due} == played
    assert far([*whole.values(), *variant.values()]).due < 2 * len(whole)


@pytest.mark.parametrize(("n", "filled"), [(0, (0, 0)), (2, (1, 0)), (3, (1, 1))])
def test_a_case_is_filled_after_three_tries_that_could_have_shown_a_break(
    n: int, filled: tuple[int, int]
) -> None:
    found = judged(n) if n else seen()
    elsewhere = replace(cell(found), key=Key("etcd", "etcd", "latency"))
    assert far([cell(found), elsewhere]) == (1, *filled)


@pytest.mark.parametrize(
    ("filled", "recent", "begins"),
    [
        (Far(3, 3, 3), 3, "Each of the 3 cases of the full suite has three tries or more"),
        (Far(3, 3, 3), 2, "Of the 3 cases of the full suite, 3 have three tries or more"),
        (Far(4, 3, 2), 2, "Of the 4 cases of the full suite, 2 have three tries or more"),
    ],
)
def test_how_far_it_is_is_said_and_nothing_more(filled: Far, recent: int, begins: str) -> None:
    assert filled.said(recent).startswith(begins)
    short = "1 one or two, and 1 none. With the versions that are pinned now, 2 of them"
    assert (short in filled.said(recent)) == (filled.enough == 2)


def test_a_lock_knows_the_language_of_its_client() -> None:
    known = {name: language(systems()[name]) for name in ("redsync", "redisson-rlock", "redis-py")}
    assert known == {"redsync": "Go", "redisson-rlock": "Java", "redis-py": "Python"}


def test_every_verdict_of_locks_has_its_letters() -> None:
    codes = {CATALOGUE[verdict].code for verdict in OF_LOCKS}
    assert "" not in codes
    assert len(codes) == len(OF_LOCKS)
