"""A violation in text."""

from __future__ import annotations

from lockbench.checker.sketch import sketch
from lockbench.checker.verdict import Verdict


def held(who: str, begin: int, end: int | None) -> dict[str, object]:
    return {"what": "grant", "process": who, "granted_ns": begin, "promised_until_ns": end}


def test_who_held_when_and_where_they_met() -> None:
    fault = {"what": "fault", "name": "pause", "begin_ns": [-50, -40], "heal_ns": [0, 10]}
    drawn = sketch(Verdict("invalid", "", (held("a", 0, 60), held("b", 30, None), fault)))
    scale, a, b, pause = drawn.splitlines()
    assert scale.endswith("s")
    assert a.index("█") == b.index("█") > a.index("━")
    assert b.endswith("→")  # it never left
    assert pause.count("░") < a.count("━")


def test_without_a_grant_there_is_nothing_to_draw() -> None:
    assert sketch(Verdict("invalid", "", ())) == ""


def test_grants_that_never_met_do_not_clash() -> None:
    """Of a stale holder, whose promise was over when the other was granted the key."""
    drawn = sketch(Verdict("invalid", "", (held("a", 0, 30), held("b", 30, 60))))
    assert "█" not in drawn
    assert "█" in sketch(Verdict("invalid", "", (held("a", 0, 31), held("b", 30, 60))))
