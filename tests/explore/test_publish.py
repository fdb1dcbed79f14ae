"""Maps of explorations are taken over, as they are known by now."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace as evolved

from lockbench.evidence import explored, track
from lockbench.explore.publish import add
from lockbench.results.documents import line_of
from lockbench.results.documents.exploration import (
    EventPlace,
    ExplorationMap,
    Finding,
    MappedScenario,
    StrikeAt,
)
from lockbench.results.errors import BadInput

REPLY = EventPlace("reply", 1, 1)
WHOLE = ExplorationMap(
    lock="redis-token",
    topology="redis",
    depth=1,
    lease_s=2.0,
    at="2026-01-01 00:00",
    versions={},
    faults={"late": "it is late"},
    scenarios=(MappedScenario("free", "a free key", (REPLY,), {"late": (0,)}),),
    singles=1,
    ended=True,
    whole=True,
)


def written(folder: Path, found: ExplorationMap) -> Path:
    folder.mkdir()
    (folder / explored.MAP).write_text(line_of(found))
    return folder


def test_a_map_is_taken_over_when_its_exploration_has_ended(tmp_path: Path) -> None:
    kept = add(written(tmp_path / "done", WHOLE), tmp_path)
    assert kept == tmp_path / "redis-token" / "messages-redis.json"
    assert explored.load(tmp_path) == {"redis-token": [WHOLE]}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (evolved(WHOLE, ended=False), "has not ended"),
        (evolved(WHOLE, whole=False), "of some scenarios only"),
        (evolved(WHOLE, lock="reddis"), "is not declared"),
        (evolved(WHOLE, versions={"redis-server": "6.0"}), "other versions: redis-server 6.0"),
        (evolved(WHOLE, ref="redis==8.0.1"), "not with what is pinned here"),
    ],
)
def test_another_is_refused(tmp_path: Path, found: ExplorationMap, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        add(written(tmp_path / "found", found), tmp_path)


def test_where_there_is_no_map_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="map"):
        add(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("verdict", "fault", "declared", "known"),
    [
        ("double-grant", "server-wiped", True, False),
        ("double-grant", "late", False, False),
        ("hangs", "late", False, True),
        ("lost-wakeup", "server-wiped", False, False),  # which no declaration excuses
    ],
)
def test_what_was_declared_or_put_on_record_since_is_told_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verdict: str,
    fault: str,
    declared: bool,
    known: bool,
) -> None:
    page = evolved(
        track.pages()[0],
        locks=("redis-token",),
        fault="none",
        also=(),
        kind="cost",
        explored=("hangs",),
    )
    monkeypatch.setattr(track, "pages", lambda: [page])
    finding = Finding((verdict,), "why", "free", (StrikeAt(REPLY, fault),), False, 3, 11, "000001")
    found = evolved(WHOLE, findings=(finding,))
    add(written(tmp_path / "done", found), tmp_path)
    (kept,) = explored.load(tmp_path)["redis-token"][0].findings
    assert kept == evolved(finding, declared=declared, known=(page.id,) if known else ())
