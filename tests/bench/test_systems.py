"""docs/systems.md: rendered and nothing else; observations add up, and none is written by hand."""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import observations, systems, track
from bench.errors import BadInput
from bench.locked import DeadHolder
from bench.observations import FILE, HISTORIES, history_file, key, text_of, wrong
from bench.track import Page, pages
from checker.check import check
from history.jsonl import read_jsonl
from locks.base import NAMED_VERDICTS
from results.wording import NONE as NONE_WORD
from tests.results.made_run import make_run

UNDER_PAUSE = key("etcd", "etcd", "pause")


def seen(**verdicts: tuple[int, int]) -> observations.Observations:
    """One observation of etcd under a pause: verdict (with ``_``) → (k, n)."""
    found = observations.empty()
    found["runs"]["a"] = {"cases": 1, "results_sha256": "", "versions": {"etcd": "3.6"}}
    tries = max((n for _, n in verdicts.values()), default=1)
    found["cases"][UNDER_PAUSE] = {
        "lock": "etcd",
        "topology": "etcd",
        "fault": "pause",
        "cases": 1,
        "tries": tries,
        "exposed": tries if verdicts else 0,
        "verdicts": {v.replace("_", "-"): {"k": k, "n": n} for v, (k, n) in verdicts.items()},
        "last": {"run": "a", "seed": 0, "judgement": "as expected", "broke": []},
    }
    return found


def cell(
    found: observations.Observations, *, lock: str = "etcd", fault: str = "pause", **more: Any
) -> str:
    page = systems.render(found, more.get("pages", ()), more.get("histories", {}))
    row = next(line for line in page.splitlines() if line.startswith(f"| [{lock}]"))
    return row.strip("| ").split(" | ")[1 + systems.COLUMNS.index(fault)]


def test_the_page_is_what_is_rendered_now() -> None:
    assert systems.PAGE.read_text(encoding="utf-8") == systems.current(), "run `make systems`"


def test_what_was_observed_is_as_the_command_writes_it() -> None:
    found = observations.load()
    assert FILE.read_text(encoding="utf-8") == text_of(found)
    assert list(wrong(found)) == []


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_a_saved_history_breaks_what_it_is_called(path: Path) -> None:
    broken = {name for name, v in check(read_jsonl(path)).verdicts.items() if v.result == "invalid"}
    assert any(path.stem.endswith(f"-{verdict}") for verdict in broken)


def test_runs_add_up_and_each_counts_once(tmp_path: Path) -> None:
    kept = make_run(tmp_path / "a", faults={"pause": True, "none": False})
    broke = make_run(tmp_path / "b", faults={"pause": True}, double=True)
    other = broke.path.rename(tmp_path / "b" / "other")
    found = observations.empty()
    histories = tmp_path / "histories"
    said = observations.add(found, [kept.path, other], histories)
    assert [line.partition(": ")[2] for line in said] == [
        "2 of 2 cases count",
        "1 of 1 cases count",
    ]
    entry = found["cases"][UNDER_PAUSE]
    assert (entry["cases"], entry["tries"], entry["exposed"]) == (2, 2, 2)
    assert entry["verdicts"]["double-grant"] == {"k": 1, "n": 2}
    assert entry["last"]["broke"] == ["double-grant", "linearizable"]
    assert list(wrong(found)) == []
    once = copy.deepcopy(found)
    assert "counted before" in observations.add(found, [kept.path], histories)[0]
    assert found == once
    (saved,) = histories.iterdir()
    assert saved.name == history_file("etcd", "pause", "double-grant")
    assert check(read_jsonl(saved)).verdicts["double-grant"].result == "invalid"
    saved.unlink()
    assert len(observations.add(found, [other], histories)) == 1
    assert [path.name for path in histories.iterdir()] == [saved.name], (
        "cut again, if it is missing"
    )


def test_a_break_that_could_not_be_cut_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broke = make_run(tmp_path, faults={"pause": True}, double=True)
    monkeypatch.setattr(track, "OPERATIONS_MAX", 1)
    said = observations.add(observations.empty(), [broke.path], tmp_path / "histories")
    where = f"{broke.path.name}, 01-etcd-pause"
    why = "2 operations belong to it, more than 1"
    assert said[1:] == [f"{where}: double-grant is not shown: {why}"]


def test_what_showed_in_an_earlier_try_alone_is_cut_out_of_it(tmp_path: Path) -> None:
    earlier = make_run(tmp_path / "a", faults={"pause": True}, double=True)
    before = {"observed": {"double-grant": "invalid"}, "exposed": True, "folder": "try"}

    def change(case: dict[str, Any]) -> None:
        case["earlier_tries"] = [before]

    run = make_run(tmp_path / "b", change=change)
    shutil.copytree(earlier.path / "cases" / "01-etcd-pause", run.path / "cases" / "try")
    histories = tmp_path / "histories"
    assert len(observations.add(observations.empty(), [run.path], histories)) == 1
    (saved,) = histories.iterdir()
    assert "double-grant" in track.broken(read_jsonl(saved))


def test_what_no_expectation_was_written_for_does_not_count(tmp_path: Path) -> None:
    def change(case: dict[str, Any]) -> None:
        case["network"] = "region"

    run = make_run(tmp_path, change=change)
    found = observations.empty()
    assert "0 of 1 cases count" in observations.add(found, [run.path], tmp_path)[0]
    assert not found["cases"]


def test_a_run_that_was_edited_or_is_none_adds_nothing(tmp_path: Path) -> None:
    good, bad = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    results = bad.path / "results.json"
    results.write_text(results.read_text().replace('"seed": 4', '"seed": 5'))
    found = observations.empty()
    with pytest.raises(BadInput, match="disagree on seed"):
        observations.add(found, [good.path, bad.path], tmp_path)
    assert found == observations.empty()
    found["runs"][good.path.name] = {"cases": 0, "results_sha256": "", "versions": {}}
    with pytest.raises(BadInput, match="another state"):
        observations.add(found, [good.path], tmp_path)
    with pytest.raises(BadInput, match="does not exist"):
        observations.add(found, [tmp_path / "nowhere"], tmp_path)


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (("verdicts", "double-grant", "k"), 3, "double-grant 3 of 2"),
        (("verdicts", "double-grant", "n"), 9, "0 of 9 in 2 tries"),
        (("exposed",), 5, "5 exposed of 2"),
        (("cases",), 2, "not as many as its runs had"),
        (("lock",), "redlock", "names another case"),
        (("last", "run"), "b", "not among the runs"),
        (("last", "broke"), ["double-grant"], "not among what broke"),
    ],
)
def test_what_was_written_by_hand_is_noticed(
    where: tuple[str, ...], value: object, said: str
) -> None:
    found = seen(double_grant=(0, 2))
    assert list(wrong(found)) == []
    *path, last = where
    entry = found["cases"][UNDER_PAUSE]
    for name in path:
        entry = entry[name]
    entry[last] = value
    assert any(said in sentence for sentence in wrong(found))


def test_a_cell_says_how_often_and_how_sure() -> None:
    assert cell(seen(double_grant=(0, 5), stale_holder=(0, 4))) == "✓ 4"
    assert cell(seen(double_grant=(2, 5))) == "DG‼ 2/5"
    assert cell(seen()) == "? 0/1"
    assert cell(observations.empty()) == "not run"
    assert cell(observations.empty(), fault="wipe") == "·"
    assert cell(observations.empty(), fault="client-pause") == "SH!, LU~, not run"
    # What a variant meets in ``full`` was not run; the rest is in ``exhaustive`` alone.
    variant = {"lock": "redis-pubsub"}
    assert cell(observations.empty(), **variant, fault="reply-lost") == "not run"
    assert cell(observations.empty(), **variant, fault="pause") == "`exhaustive`"
    assert cell(observations.empty(), **variant, fault="wipe") == "DG!, LU~, `exhaustive`"
    # What follows from another break is not a second one; alone it is shown.
    assert cell(seen(double_grant=(2, 5), linearizable=(2, 5))) == "DG‼ 2/5"
    assert cell(seen(double_grant=(0, 5), linearizable=(2, 5))) == "LN‼ 2/5"


def test_a_race_that_never_showed_has_a_bound() -> None:
    found = seen(stale_holder=(5, 5), lost_update=(0, 5))
    entry = found["cases"].pop(UNDER_PAUSE) | {"fault": "client-pause"}
    found["cases"][key("etcd", "etcd", "client-pause")] = entry
    # What is rarer than 45 % fails to show in five tries more often than once in twenty.
    assert cell(found, fault="client-pause") == "SH! 5/5, LU~ 0/5 (≤ 45 %)"


def made_page(*, kind: str, histories: dict[str, str]) -> Page:
    return Page(
        id="some",
        title="Some",
        locks=("etcd",),
        fault="pause",
        kind=kind,
        versions="1",
        histories=histories,
        shown=1,
        runs=1,
        command="",
        source="",
    )


def test_a_break_leads_to_its_page_or_else_to_its_history() -> None:
    found = seen(double_grant=(2, 5))
    saved = history_file("etcd", "pause", "double-grant")
    assert cell(found, histories={saved: {"double-grant"}}) == f"[DG‼](histories/{saved}) 2/5"
    # One that was saved for another break of the case, and shows this one too.
    other = history_file("etcd", "pause", "lost-update")
    both = {other: {"lost-update", "double-grant"}}
    assert cell(found, histories=both) == f"[DG‼](histories/{other}) 2/5"
    assert cell(found, histories={other: {"lost-update"}}) == "DG‼ 2/5"
    page = made_page(kind="defect", histories={"some.jsonl": "double-grant"})
    shown = {saved: {"double-grant"}}
    assert cell(found, histories=shown, pages=[page]) == "[DG‼](track/some.md) 2/5"
    elsewhere = replace(page, fault="kill")
    assert cell(found, histories=shown, pages=[elsewhere]) == f"[DG‼](histories/{saved}) 2/5"
    also = replace(elsewhere, also=("wipe", "pause"))
    assert cell(found, histories=shown, pages=[also]) == "[DG‼](track/some.md) 2/5"
    # Why it never could have broken may be on record, too.
    assert cell(seen(), pages=[also]) == "[? 0/1](track/some.md)"
    assert cell(seen(), pages=[elsewhere]) == "? 0/1"


def test_every_observed_break_is_shown() -> None:
    """By a page or a saved history, if it does not follow from a break that is."""
    found, saved = observations.load(), systems.histories_in()
    assert systems.unshown(found, pages(), saved) == []
    assert systems.unshown(found, (), {}) != []


def test_a_break_that_nothing_shows_is_named() -> None:
    found = seen(lost_update=(1, 2), linearizable=(2, 2))
    sentence = f"{UNDER_PAUSE}: neither a page nor a saved history shows "
    assert systems.unshown(found, (), {}) == [f"{sentence}lost-update"]
    name = history_file("etcd", "pause", "stale-holder")
    assert systems.unshown(found, (), {name: {"stale-holder", "lost-update"}}) == []
    alone = seen(lost_update=(0, 2), linearizable=(2, 2))
    assert systems.unshown(alone, (), {}) == [f"{sentence}linearizable"]


def test_a_key_that_nobody_got_again_is_marked_and_changes_no_verdict() -> None:
    found = seen(double_grant=(0, 2))
    entry = found["cases"][UNDER_PAUSE]
    entry["dead_holder"] = {"longest_s": 3.1, "locked": {"k": 0, "n": 2}}
    assert cell(found) == "✓ 2"
    entry["dead_holder"]["locked"]["k"] = 1
    assert cell(found) == "✓ 2, ⛔ locked 1/2"
    page = made_page(kind="liveness", histories={})
    assert cell(found, pages=[page]) == "✓ 2, [⛔ locked](track/some.md) 1/2"
    assert any("locked in 1 of 2 of 1 cases" in sentence for sentence in wrong(found))
    entry["cases"] = found["runs"]["a"]["cases"] = 2
    assert list(wrong(found)) == []


def test_what_became_of_a_dead_holders_key_adds_up() -> None:
    entry: dict[str, Any] = {}
    for struck in (DeadHolder(None, locked=True), DeadHolder(3.14159, locked=False)):
        observations._add_dead_holder(entry, struck)
    assert entry == {"dead_holder": {"longest_s": 3.14, "locked": {"k": 1, "n": 2}}}


def test_every_lock_whose_frozen_holder_wrote_too_late_leads_to_its_history() -> None:
    found = seen(stale_holder=(3, 4))
    entry = found["cases"].pop(UNDER_PAUSE) | {"fault": "client-pause"}
    found["cases"][key("etcd", "etcd", "client-pause")] = entry
    name = history_file("etcd", "client-pause", "stale-holder")
    row = "| [etcd](#etcd) | 3/4 | "
    page = systems.render(found, (), {name: {"stale-holder"}}).splitlines()
    assert f"{row}[{name}](histories/{name}) |" in page
    assert f"{row}{NONE_WORD} |" in systems.render(found, (), {}).splitlines()
    entry["verdicts"]["stale-holder"]["k"] = 0
    assert "It did not show with: [etcd](#etcd) 0/4." in systems.render(found, (), {})


def test_every_verdict_has_its_letters() -> None:
    assert set(NAMED_VERDICTS) <= set(systems.SHORT)
    assert len(set(systems.SHORT.values())) == len(systems.SHORT)


def test_a_run_names_the_versions_of_servers_and_of_lock_libraries() -> None:
    recorded = {
        "images": {"redis": {"versions": {"redis-server": "8.0.2"}}},
        "clients": {"jvm-sidecar": {"versions": {"redisson": "4.7.0"}}},
        "libraries": {"lockbench": "0.1.0"},
    }
    assert observations._versions(recorded) == {
        "redis-server": "8.0.2",
        "redisson": "4.7.0",
        "lockbench": "0.1.0",
    }
