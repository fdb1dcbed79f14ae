"""How declarations are made from those of a family."""

from __future__ import annotations

from lockbench.bench.judge import Expected
from lockbench.locks.base import Expectation
from lockbench.locks.registry import find
from lockbench.locks.shared.expectations import SLOW_LINKS, UNMINDED, with_changes, with_verdicts

KEPT = {"double-grant": Expectation("holds", "a page")}
USUAL = {"pause": KEPT, "latency": KEPT}
LATE = {"late-grant": Expectation("may-break", "another page", "documented-limit")}


def test_what_is_added_everywhere_is_not_added_under_slow_links_unless_they_are_named() -> None:
    found = with_verdicts(USUAL, LATE, "kill")
    assert found == {"pause": KEPT | LATE, "latency": KEPT, "kill": LATE}
    named = with_verdicts(USUAL, LATE, *UNMINDED)
    assert named["latency"] == KEPT | LATE
    assert all(named[fault] == LATE for fault in UNMINDED if fault != "latency")
    assert set(SLOW_LINKS) < set(UNMINDED)


def test_a_change_leaves_the_usual_declaration_alone() -> None:
    found = with_changes(USUAL, {"pause": LATE}, {"power-loss": LATE})
    assert found == {"pause": KEPT | LATE, "latency": KEPT, "power-loss": LATE}
    assert USUAL == {"pause": KEPT, "latency": KEPT}


def test_a_server_that_forgets_may_say_so_to_the_holder() -> None:
    """Before anybody else is granted the key, a release within the promise finds nothing."""
    system = find("redis-token")
    assert Expected(system, ("wipe",)).excused(["linearizable"]) == {"linearizable"}
    assert Expected(system, ("latency",)).excused(["linearizable"]) == frozenset()
