"""docs/systems.md: rendered and nothing else; observations add up, none is written by hand."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as with_

from lockbench.checker.check import check
from lockbench.evidence import excerpt as cutting
from lockbench.evidence import observations, systems
from lockbench.evidence.dead_holder import DeadHolder
from lockbench.evidence.observations import (
    FILE,
    FOLDER,
    Counted,
    Key,
    Last,
    Locked,
    Observations,
    Observed,
    Rated,
    Share,
    files,
    histories_in,
    history_file,
    wrong,
)
from lockbench.evidence.track import pages
from lockbench.history.jsonl import read_jsonl
from lockbench.results.cases import results_of
from lockbench.results.documents import Versions, made
from lockbench.results.errors import BadInput
from lockbench.results.stored import Stored
from lockbench.results.wording import NONE as NONE_WORD
from tests.evidence.test_adr import swept
from tests.results.made_run import make_run

UNDER_PAUSE = Key("etcd", "etcd", "pause")
FROZEN = Key("etcd", "etcd", "client-pause")


def seen(*, under: Key = UNDER_PAUSE, **verdicts: tuple[int, int]) -> Observations:
    """One observation, of etcd under a pause: verdict (with ``_``) → (k, n)."""
    tries = max((n for _, n in verdicts.values()), default=1)
    return changed(
        Observed(
            *under,
            cases=1,
            tries=tries,
            exposed=tries if verdicts else 0,
            verdicts={v.replace("_", "-"): Share(*share) for v, share in verdicts.items()},
            last=Last("a", 0, "as expected", ()),
        )
    )


def changed(it: Observed, **fields: Any) -> Observations:
    """This observation alone, with other values, and its run."""
    it = with_(it, **fields)
    run = Counted("a", it.cases, "0" * 64, {"etcd": "3.6"})
    return Observations({"a": run}, {it.key: it})


def test_the_page_is_what_is_rendered_now() -> None:
    assert systems.PAGE.read_text(encoding="utf-8") == systems.current(), "run `make systems`"


def test_what_was_observed_is_as_the_command_writes_it() -> None:
    found = observations.load()
    stored = {*FOLDER.glob("*.json"), *FOLDER.glob(f"*/{FILE}")}
    assert {path: path.read_text(encoding="utf-8") for path in stored} == {
        FOLDER / name: text for name, text in files(found).items()
    }


def test_what_was_observed_is_read_as_it_was_written(tmp_path: Path) -> None:
    rated = Rated("etcd", "etcd", "a", swept("etcd"))
    found = replace(seen(double_grant=(1, 2)), rates={("etcd", "etcd"): rated})
    observations.save(found, tmp_path)
    assert observations.load(tmp_path) == found
    (tmp_path / "etcd").rename(tmp_path / "redlock")
    with pytest.raises(BadInput, match="etcd is another lock"):
        observations.load(tmp_path)


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*/*.jsonl")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_saved_history_breaks_what_it_is_called(path: Path) -> None:
    broken = {name for name, v in check(read_jsonl(path)).verdicts.items() if v.result == "invalid"}
    assert any(path.stem.endswith(f"-{verdict}") for verdict in broken)


def test_runs_add_up_and_each_counts_once(tmp_path: Path) -> None:
    kept = make_run(tmp_path / "a", faults={"pause": True, "none": False})
    broke = make_run(tmp_path / "b", faults={"pause": True}, double=True)
    other = broke.path.rename(tmp_path / "b" / "other")
    folder = tmp_path / "observed"
    found, said = observations.add(Observations(), [kept.path, other], folder)
    assert [line.partition(": ")[2] for line in said] == [
        "2 of 2 cases count",
        "1 of 1 cases count",
    ]
    entry = found.cases[UNDER_PAUSE]
    assert (entry.cases, entry.tries, entry.exposed) == (2, 2, 2)
    assert entry.runs == (kept.path.name, "other")
    assert found.runs["other"].machine == "Some CPU"
    assert entry.share("double-grant") == Share(1, 2)
    assert entry.last.broke == ("double-grant", "linearizable")
    assert list(wrong(found)) == []
    again, said = observations.add(found, [kept.path], folder)
    assert again == found
    assert "counted before" in said[0]
    (saved,) = folder.rglob("*.jsonl")
    assert saved == folder / history_file("etcd", "pause", "double-grant")
    assert check(read_jsonl(saved)).verdicts["double-grant"].result == "invalid"
    saved.unlink()
    assert len(observations.add(found, [other], folder)[1]) == 1
    assert [*folder.rglob("*.jsonl")] == [saved], "cut again, if it is missing"


def test_a_break_that_a_history_shows_is_not_saved_again(tmp_path: Path) -> None:
    """Also where it was saved for another break of the same lock and fault."""
    broke = make_run(tmp_path, faults={"pause": True}, double=True)
    folder = tmp_path / "observed"
    observations.add(Observations(), [broke.path], folder)
    (saved,) = folder.rglob("*.jsonl")
    other = saved.rename(folder / history_file("etcd", "pause", "lost-update"))
    observations.add(Observations(), [broke.path], folder)
    assert [*folder.rglob("*.jsonl")] == [other]
    elsewhere = other.rename(folder / history_file("etcd", "kill", "double-grant"))
    observations.add(Observations(), [broke.path], folder)
    assert {*folder.rglob("*.jsonl")} == {saved, elsewhere}


def test_a_break_that_could_not_be_cut_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broke = make_run(tmp_path, faults={"pause": True}, double=True)
    monkeypatch.setattr(cutting, "OPERATIONS_MAX", 1)
    _, said = observations.add(Observations(), [broke.path], tmp_path / "observed")
    where = f"{broke.path.name}, 01-etcd-pause"
    why = "2 operations belong to it, more than 1"
    assert said[1:] == [f"{where}: double-grant is not shown: {why}"]


def test_what_showed_in_an_earlier_try_alone_is_cut_out_of_it(tmp_path: Path) -> None:
    earlier = make_run(tmp_path / "a", faults={"pause": True}, double=True)
    observed = results_of(earlier.results().cases[0])
    before = {"observed": observed, "exposed": True, "folder": "try"}

    def change(case: dict[str, Any]) -> None:
        case["earlier_tries"] = [before]

    run = make_run(tmp_path / "b", change=change)
    shutil.copytree(earlier.path / "cases" / "01-etcd-pause", run.path / "cases" / "try")
    folder = tmp_path / "observed"
    assert len(observations.add(Observations(), [run.path], folder)[1]) == 1
    (saved,) = folder.rglob("*.jsonl")
    assert "double-grant" in cutting.broken(read_jsonl(saved))


@pytest.mark.parametrize(
    ("of", "kept"),
    [({}, True), ({"keys": 1}, False), ({"hold_s": 0.005}, False), ({"network": "az"}, False)],
)
def test_rates_are_those_of_the_last_run_with_nothing_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: dict[str, Any], kept: bool
) -> None:
    before, now = swept("etcd", carried=(100.0, 200.0)), swept("etcd", carried=(300.0, 400.0))
    run = make_run(tmp_path)
    real = observations._run

    def measured(path: Path) -> Stored:
        found = real(path)
        rates = (with_(now, of=with_(now.of, **of)),)
        return replace(found, results=with_(found.results, rates=rates))

    monkeypatch.setattr(observations, "_run", measured)
    earlier = Observations(rates={("etcd", "etcd"): Rated("etcd", "etcd", "a", before)})
    found, _ = observations.add(earlier, [run.path], tmp_path / "observed")
    rated = found.rates["etcd", "etcd"]
    assert rated == (
        Rated("etcd", "etcd", run.path.name, now) if kept else earlier.rates["etcd", "etcd"]
    )


@pytest.mark.parametrize(
    "change",
    [
        {"network": "region"},
        {"own": {"spec": "./etcd", "file": "./etcd", "sha256": "0" * 64}},
        {"resource": "postgres:guard=fence"},
    ],
    ids=["another network", "a lock from elsewhere with the same name", "a guarded store"],
)
def test_what_no_expectation_was_written_for_does_not_count(
    change: dict[str, Any], tmp_path: Path
) -> None:
    def changed(case: dict[str, Any]) -> None:
        case.update(change)

    run = make_run(tmp_path, change=changed)
    found, said = observations.add(Observations(), [run.path], tmp_path)
    assert "0 of 1 cases count" in said[0]
    assert not found.cases


def test_a_run_that_was_edited_or_is_none_adds_nothing(tmp_path: Path) -> None:
    good, bad = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    results = bad.path / "results.json"
    results.write_text(results.read_text().replace('"seed": 4', '"seed": 5'))
    with pytest.raises(BadInput, match="disagree on seed"):
        observations.add(Observations(), [good.path, bad.path], tmp_path / "observed")
    assert not (tmp_path / "observed").exists()
    found = Observations({good.path.name: Counted(good.path.name, 0, "", {})})
    with pytest.raises(BadInput, match="another state"):
        observations.add(found, [good.path], tmp_path)
    with pytest.raises(BadInput, match="does not exist"):
        observations.add(found, [tmp_path / "nowhere"], tmp_path)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"verdicts": {"double-grant": Share(3, 2)}}, "double-grant 3 of 2"),
        ({"verdicts": {"double-grant": Share(0, 9)}}, "0 of 9 in 2 tries"),
        ({"exposed": 5}, "5 exposed of 2"),
        ({"last": Last("b", 0, None, ())}, "not among the runs"),
        ({"last": Last("a", 0, None, ("double-grant",))}, "not among what broke"),
    ],
)
def test_what_was_written_by_hand_is_noticed(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    it = seen(double_grant=(0, 2)).cases[UNDER_PAUSE]
    assert list(wrong(changed(it))) == []
    observations.save(changed(it, **fields), tmp_path)
    with pytest.raises(BadInput, match=said):
        observations.load(tmp_path)


def test_every_case_is_of_a_run_that_was_added() -> None:
    found = seen()
    more = replace(found, cases={UNDER_PAUSE: with_(found.cases[UNDER_PAUSE], cases=2)})
    assert list(wrong(more)) == ["its cases are not as many as its runs had"]


def test_the_table_says_what_broke_and_what_was_not_run() -> None:
    def row(found: Observations, lock: str) -> list[str]:
        rows = systems.render(found).splitlines()
        named = (f"| {lock} |", f"| [{lock}]")
        return next(line for line in rows if line.startswith(named)).split(" | ")[1:]

    assert row(seen(double_grant=(1, 2)), "etcd") == [
        "etcd",
        "Python",
        "1 of 7",
        "0 of 7",
        "pause |",
    ]
    assert row(seen(double_grant=(0, 2)), "etcd")[-1] == f"{NONE_WORD} |"
    assert row(Observations(), "etcd")[-3:] == ["0 of 7", "0 of 7", "not run |"]
    assert row(Observations(), "redisson-rlock")[1] == "Java"


def test_the_table_stays_small() -> None:
    assert len(systems.current().encode()) < 16_384


def test_every_observed_break_is_shown() -> None:
    """By a page or a saved history, if it does not follow from a break that is."""
    found, saved = observations.load(), histories_in()
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


def test_what_became_of_a_dead_holders_key_adds_up() -> None:
    known = Locked()
    for struck in (DeadHolder(None, locked=True), DeadHolder(3.14159, locked=False)):
        known = observations._with_struck(known, struck)
    assert known == Locked(3.14, Share(1, 2))


def test_a_run_names_the_versions_of_servers_and_of_lock_libraries() -> None:
    recorded = {
        "images": {"redis": {"versions": {"redis-server": "8.0.2"}}},
        "clients": {"jvm-sidecar": {"versions": {"redisson": "4.7.0"}}},
        "libraries": {"lockbench": "0.1.0"},
    }
    assert observations._versions(made(Versions, recorded)) == {
        "redis-server": "8.0.2",
        "redisson": "4.7.0",
        "lockbench": "0.1.0",
    }
