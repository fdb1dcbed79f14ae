"""The map of an exploration: what is kept, how it is told, and a report for each finding."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from lockbench.explore import page, reports
from lockbench.explore.mapped import map_of
from lockbench.history.op import F, Object, Type
from lockbench.history.recorder import Recorder
from lockbench.history.recording import write_faults, write_meta
from lockbench.locks.registry import find
from lockbench.report import messages
from lockbench.results.documents import read, text_of
from lockbench.results.documents.environment import Image, Versions
from lockbench.results.documents.exploration import (
    KEPT,
    MISSED,
    EventPlace,
    Exploration,
    ExplorationMap,
    ExploredScenario,
    Finding,
    StrikeAt,
    Tried,
)

REQUEST, REPLY = EventPlace("request", 1, 1, 0.001), EventPlace("reply", 1, 1, 0.002)
LOST = StrikeAt(REPLY, "reply-lost")
FOUND = Finding(
    ("double-grant",), "both <b>held</b> it", "free", (LOST,), False, 10, 11, "000001", ("a-page",)
)
DOCUMENT = Exploration(
    lock="redis-py",
    topology="redis",
    seed=0,
    depth=2,
    lease_s=2.0,
    at="2026-01-01 00:00",
    versions=Versions(
        libraries={"lockbench": "9"}, images={"redis": Image(versions={"redis-server": "8.0"})}
    ),
    scenarios=(
        ExploredScenario("free", "a free key", (REQUEST, REPLY)),
        ExploredScenario("extended", "a hold", why="nothing passes in it"),
    ),
    tried=(
        Tried("free", (StrikeAt(REQUEST, "late"),), "kept"),
        Tried("free", (StrikeAt(REPLY, "late"),), "not reached"),
        Tried("free", (LOST,), "broke", finding=0),
        Tried("free", (StrikeAt(REQUEST, "late"), LOST), "broke", pair=True, finding=0),
    ),
    findings=(FOUND,),
    pairs=7,
    ended=True,
)


def test_a_map_keeps_what_came_of_each_fault_at_each_event() -> None:
    mapped = map_of(DOCUMENT)
    assert (mapped.singles, mapped.pairs, mapped.pairs_tried, mapped.missed) == (3, 7, 1, 1)
    assert mapped.versions == {"redis-server": "8.0", "lockbench": "9"}
    free = mapped.scenarios[0]
    assert free.tried == {"reply-lost": (None, 1), "late": (KEPT, MISSED)}


def test_a_strike_where_no_event_was_seen_has_no_place_in_the_map() -> None:
    """It was asked for by name; the scenario did not work, or has no such event."""
    nowhere = (Tried("extended", (LOST,), "could not run"),)
    beyond = (Tried("free", (StrikeAt(EventPlace("reply", 9, 1, 0.0), "late"),), "not reached"),)
    asked = map_of(structs.replace(DOCUMENT, tried=(*nowhere, *beyond), findings=(), pairs=0))
    assert (asked.singles, asked.missed) == (2, 2)
    assert [scenario.tried for scenario in asked.scenarios] == [{}, {}]


def test_a_map_is_read_as_it_was_written(tmp_path: Path) -> None:
    mapped = map_of(DOCUMENT)
    (tmp_path / "map.json").write_text(text_of(mapped), encoding="utf-8")
    assert read(tmp_path / "map.json", ExplorationMap, inside=tmp_path) == mapped


def test_what_was_not_tried_is_said() -> None:
    first, second = messages.summary(map_of(DOCUMENT))
    assert "2 events, 3 faults, 7 pairs (1 tried, 6 like others), 1 of them not tried" in first
    assert second == ("not declared: free, reply-lost at reply 1: double-grant in 10 of 11 plays")


def test_tables_show_each_outcome_and_escape_what_was_recorded() -> None:
    html = messages.tables(map_of(DOCUMENT), defects="../defects/")
    assert html.count('<td class="c kept">✓</td>') == 1
    assert html.count('<td class="c open"') == 1
    assert html.count('<a href="#redis-finding-0">✗</a>') == 1
    assert "both &lt;b&gt;held&lt;/b&gt; it" in html
    assert '<a href="../defects/a-page.html">a-page</a>' in html
    assert "Not explored: nothing passes in it." in html


def test_the_command_that_plays_it_again_names_lock_script_and_strike() -> None:
    assert messages.again(map_of(DOCUMENT), FOUND) == (
        "lockbench explore --lock redis-py --topology redis --scenario free "
        "--strike reply-lost@reply:1"
    )
    other = map_of(structs.replace(DOCUMENT, clients=2, seed=7))
    assert messages.again(other, FOUND).endswith("--clients 2 --seed 7")


def test_a_finding_has_a_page_and_a_report_and_a_declared_one_only_the_page(
    tmp_path: Path,
) -> None:
    write_play(tmp_path / "000001")
    html = page.write(tmp_path, DOCUMENT).read_text(encoding="utf-8")
    assert "<figure" in html or "<svg" in html
    (folder,) = reports.write(tmp_path, DOCUMENT, find("redis-py"))
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "the answer does not arrive" in text
    assert "reply 1, counted over all connections" in text
    assert "redis-server" in text
    assert (folder / "pins.txt").is_file()
    assert (folder / "history.jsonl").is_file()
    declared = Exploration(
        **{
            name: getattr(DOCUMENT, name)
            for name in DOCUMENT.__struct_fields__
            if name != "findings"
        },
        findings=(Finding(FOUND.verdicts, "", "free", (LOST,), True, 10, 11, "000001"),),
    )
    assert reports.write(tmp_path, declared, find("redis-py")) == []
    assert not list((tmp_path / "findings").glob("*"))


def write_play(folder: Path) -> None:
    """Two clients who hold the same key at once."""
    folder.mkdir()
    aimed = Object(kind="mutex", permits=None, role="aimed", lease_ns=10**10, slack_ns=10**9)
    write_meta(folder, {"k": aimed}, wall_minus_monotonic_ns=0)
    recorder = Recorder(folder, 0, segment_records=16)
    for client in (0, 1):
        row = recorder.invoke(client, F.ACQUIRE, "k", hold=client + 1, invoke_ns=10 + client)
        recorder.complete(
            row, Type.OK, complete_ns=20 + client, sent_ns=10 + client, valid_until_ns=10**10
        )
    recorder.close()
    write_faults(folder, [])
