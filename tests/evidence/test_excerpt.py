"""What is cut out of a long history: whole holds that show the verdict, and nothing invented."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockbench.checker.check import check
from lockbench.evidence import excerpt as cutting
from lockbench.evidence.excerpt import broken, excerpt, lines
from lockbench.history.columns import History
from lockbench.history.jsonl import read_jsonl
from lockbench.results.errors import BadInput
from tests.checker.scenes import Scene


def cycle(scene: Scene, hold: str, client: int, at: float, version: int) -> None:
    scene.acquire(client, at, at + 0.1, hold=hold)
    scene.read(client, at + 0.115, version, hold=hold)
    scene.write(client, at + 0.515, version, version + 1, hold=hold)
    scene.release(client, at + 0.6, at + 0.61, hold=hold)


def long(*, double: bool = True) -> Scene:
    """A hundred cycles one after the other; hold 50 has a twin in its midst."""
    scene = Scene()
    for i in range(100):
        cycle(scene, f"h{i}", i % 4, i, version=i)
    if double:
        cycle(scene, "twin", 9, 50.2, version=50)
    return scene


def overtaken(by: int) -> History:
    """A holder whose lease ends before its write, and so many others in between."""
    scene = Scene().acquire(99, 0, 0.01, hold="late", until=0.5).read(99, 0.03, 0, hold="late")
    scene.write(99, by + 1.02, 0, by + 1, hold="late")
    for i in range(by):
        cycle(scene, f"h{i}", i % 4, i + 1, version=i)
    return scene.history()


def holds_of(history: History) -> set[str]:
    return {history.hold_name(h) for h in history.hold.tolist()}


def test_a_cut_keeps_whole_holds_and_invents_nothing(tmp_path: Path) -> None:
    """Of a long history with one double grant it is that, under its own names."""
    whole = long().history()
    small = excerpt(whole, "double-grant")
    assert len(small) == 8
    assert holds_of(small) == {"h50", "twin"}
    assert small.invoke_ns[0] == 0
    assert broken(small) == broken(whole)
    saved = tmp_path / "small.jsonl"
    saved.write_text(lines(small))
    again = check(read_jsonl(saved)).verdicts["double-grant"]
    assert again == check(small).verdicts["double-grant"]
    releases = saved.read_text().count('"f":"release"')
    assert releases == 2, "a hold without its release would be promised for ever"


def test_a_fault_goes_along_without_what_was_seen_of_it() -> None:
    scene = long().fault("wipe", 50.0, 50.5, targets=("redis-1",), port=1)
    scene.fault("wipe", 10.0, 10.5, targets=("redis-1",))
    (kept,) = excerpt(scene.history(), "double-grant").faults
    assert (kept.name, kept.begin_ns[0], dict(kept.facts)) == ("wipe", 0, {})


@pytest.mark.parametrize(
    ("verdict", "result"), [("double-grant", "valid"), ("fence-order", "absent")]
)
def test_a_verdict_that_holds_cannot_be_cut_out(verdict: str, result: str) -> None:
    with pytest.raises(BadInput, match=f"{verdict} is {result}"):
        excerpt(long(double=False).history(), verdict)


def test_a_lost_update_that_overwrote_many_is_cut_out_with_one_of_them() -> None:
    """The evidence names sixteen others, which are too many operations for a page."""
    whole = overtaken(by=24)
    small = excerpt(whole, "lost-update")
    assert holds_of(small) == {"late", "h0"}
    assert len(small) == 7
    assert "lost-update" in broken(small) <= broken(whole)
    assert len(excerpt(overtaken(by=6), "lost-update")) == 27, "where they fit, all"


def test_what_no_cut_shows_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "OPERATIONS_MAX", 6)
    with pytest.raises(BadInput, match="operations belong to it, more than 6"):
        excerpt(overtaken(by=24), "lost-update")


@pytest.mark.parametrize("kind", ["reentrant", "semaphore"])
def test_holds_without_names_are_cut_out_with_their_ends(kind: str) -> None:
    """Which release ended which is not said; without them the holds would have no end."""
    scene = Scene().kind(kind, permits=2 if kind == "semaphore" else None)
    scene.acquire(1, 0, 1, named=False).acquire(1, 2, 3, named=False)
    if kind == "reentrant":
        scene.release(1, 4, 5, named=False)
    scene.acquire(2, 6, 7, named=False).release(1, 8, 9, named=False)
    scene.release(2, 20, 21, named=False)
    history = scene.history()
    whole, cut = (
        check(one).verdicts["double-grant"] for one in (history, excerpt(history, "double-grant"))
    )
    assert "both held it for" in whole.reason
    assert cut.reason == whole.reason
