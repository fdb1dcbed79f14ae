"""``lockbench check --merge``: one history of those of several machines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lockbench.evidence.check import check_files
from lockbench.history.jsonl import write_jsonl
from lockbench.history.op import Object
from lockbench.results.errors import BadInput
from perf.machines import MS, Clock, Machines, simulated
from tests.command import lockbench

FLEET = Machines(2, 2, 60, clocks=(Clock(), Clock(100_000_000 * MS, 50)))


def machines(folder: Path, fleet: Machines) -> list[Path]:
    """The files of the machines, each with its own clock and without a word of the others."""
    recorded, _ = simulated(fleet, 1)
    assert recorded.machine is not None
    files = []
    for number, name in enumerate(recorded.machines):
        mine = recorded.only(recorded.machine == number)
        files.append(folder / f"{name}.jsonl")
        write_jsonl(replace(mine, machine=None, machines=()), files[-1])
    return files


def merge(*files: Path, **options: object) -> int:
    given: dict[str, object] = {"model": None, "permits": None, "initial": None, "html": None}
    return check_files(files, json=False, merge=True, **(given | options))  # type: ignore[arg-type]


def test_clocks_days_apart_are_no_violation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = machines(tmp_path, FLEET)
    assert merge(*files) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{files[0]} + {files[1]}: VALID (480 operations, 120 grants, ")
    assert "clocks agree to ±" in said


def test_a_violation_across_machines_is_found_drawn_and_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = machines(tmp_path, replace(FLEET, planted_ns=(20 * MS,)))
    page, target = tmp_path / "wrong.html", tmp_path / "whole.jsonl"
    assert merge(*files, html=page, write=target) == 1
    assert "whole.jsonl: written; read again here it keeps every verdict" in capsys.readouterr().out
    assert "<svg" in page.read_text()
    again = lockbench("check", str(target), "--json")
    assert again.returncode == 1
    report = json.loads(again.stdout)
    assert report["verdicts"]["double-grant"]["result"] == "invalid"
    assert report["measurements"]["clocks"]["contended_promises"] == 120
    # Alone, each of them is a valid history: nothing overlaps on one machine.
    assert merge(*files, write=tmp_path / "whole.edn") == 1
    assert "whole.edn: written; read again here it keeps every verdict" in capsys.readouterr().out


def test_machines_without_probes_are_unknown(tmp_path: Path) -> None:
    assert merge(*machines(tmp_path, replace(FLEET, uses=0))) == 2


def refused(*files: Path) -> str:
    with pytest.raises(BadInput) as raised:
        merge(*files)
    return str(raised.value)


def test_what_cannot_be_merged_is_refused_in_a_sentence(tmp_path: Path) -> None:
    a, b = machines(tmp_path, FLEET)
    assert refused(a) == "--merge needs the histories of two machines or more"
    assert refused(a, b, a) == f"--merge {a}: named twice"
    assert "no-such.jsonl" in refused(a, tmp_path / "no-such.jsonl")
    told = tmp_path / "told.jsonl"
    other = simulated(FLEET, 1)[1]
    write_jsonl(replace(other, objects={"k0": Object("semaphore")}), told)
    assert refused(a, told) == f"--merge: {a.stem} and told say different things of 'k0'"
    whole = tmp_path / "whole.jsonl"
    write_jsonl(simulated(FLEET, 1)[0], whole)
    assert "whole says itself on which machines it was recorded" in refused(a, whole)


def test_files_of_one_name_are_told_apart_by_their_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = machines(tmp_path, FLEET)
    (tmp_path / "b").mkdir()
    same = b.rename(tmp_path / "b" / a.name)
    assert merge(a, same) == 0


def test_of_a_run_with_several_cases_it_is_not_clear_which(tmp_path: Path) -> None:
    a, _ = machines(tmp_path, FLEET)
    for case in ("01-x", "02-y"):
        folder = tmp_path / "run" / "cases" / case / "history"
        folder.mkdir(parents=True)
        (folder / "meta.json").write_text('{"history": 1}')
    said = refused(a, tmp_path / "run")
    assert said.endswith("run: these are 2 histories; name one per machine")


def test_the_command_ends_with_254(tmp_path: Path) -> None:
    a, _ = machines(tmp_path, FLEET)
    run = lockbench("check", str(a), "--merge")
    assert run.returncode == 254
    assert "--merge needs the histories of two machines or more" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_recording_is_a_machine_too(tmp_path: Path) -> None:
    from tests.checker.test_bad_input import recording

    a, b = recording(tmp_path / "a"), recording(tmp_path / "b")
    assert merge(a, b) == 2


def test_without_the_library_that_it_needs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockbench.evidence.check.find_spec", lambda _: None)
    with pytest.raises(BadInput, match=r"needs scipy.*pip install 'lockbench\[machines\]'"):
        merge(*machines(tmp_path, FLEET))


def test_what_is_missing_of_a_part_is_missing_of_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = machines(tmp_path, FLEET)
    head, *rest = files[0].read_text().splitlines(keepends=True)
    files[0].write_text(json.dumps(json.loads(head) | {"missing": ["b"]}) + "\n" + "".join(rest))
    assert merge(*files) == 2
    assert f"{files[0].stem}'s recording did not come back" in capsys.readouterr().out
