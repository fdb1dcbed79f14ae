from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockbench.results import store
from lockbench.results.documents import Machine, Plan, Results, Versions
from lockbench.results.store import NotARun, RunFolder, StoreError, open_run, slug, write_atomically
from tests.results.plain import write_case, write_machine, write_plan, write_results, write_versions


def finished(base: Path, ending: str = "ok") -> RunFolder:
    run = RunFolder.create(base, "quick")
    write_plan(run, {"seed": 1})
    write_results(run, {"cases": [], "ending": ending})
    run.finish(ending)
    return run


def test_a_run_from_plan_to_ending(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "runs", "quick")
    assert run.ending == "running"
    assert (tmp_path / "runs" / "latest").resolve() == run.path.resolve()
    write_plan(run, {"seed": 7})
    write_machine(run, {"cores": 2})
    write_versions(run, {"engine": "28"})
    case = run.case(1, "redis-token", "client-pause")
    (case.history / "0.strings").write_text('"k0"\n')
    assert case.read_case() is None
    write_case(
        case, {"lock": "redis-token", "fault": "none", "history_sha256": case.history_sha256()}
    )
    run.write_text("report.md", "# Report\n")
    write_results(run, {"cases": [], "ending": "safety"})
    run.finish("safety")

    stored = open_run(tmp_path / "runs" / "latest")
    assert stored.path == run.path.resolve()
    assert stored.ending == "safety"
    assert stored.plan() == Plan(seed=7)
    assert stored.machine() == Machine(cores=2)
    assert stored.versions() == Versions(engine="28")
    assert stored.results().ending == "safety"
    assert [c.path.name for c in stored.cases()] == ["01-redis-token-client-pause"]
    assert not [path for path in run.path.rglob("*") if path.name.endswith(".tmp")]


def test_runs_of_the_same_second_get_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_now", lambda: "2026-01-02T030405Z")
    names = [RunFolder.create(tmp_path, "quick").path.name for _ in range(3)]
    stem = "2026-01-02T030405Z-quick"
    assert names == [stem, f"{stem}-2", f"{stem}-3"]
    assert (tmp_path / "latest").readlink() == Path(names[-1])


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_processes_that_start_together_do_not_share_a_folder(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from lockbench.results.store import RunFolder\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for _ in range(5): print(RunFolder.create(pathlib.Path(sys.argv[1]), 'quick').path.name)"
    )
    benches = [start(code, str(tmp_path)) for _ in range(4)]
    for bench in benches:
        assert bench.stdout is not None
        assert bench.stdout.readline() == "ready\n"
    for bench in benches:
        assert bench.stdin is not None
        bench.stdin.write("go\n")
        bench.stdin.flush()
    names = [name for bench in benches for name in bench.communicate(timeout=60)[0].split()]
    assert len(names) == 20
    assert len(set(names)) == 20
    assert (tmp_path / "latest").readlink().name in names


def test_a_half_written_run_is_recognised(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib; from lockbench.results.store import RunFolder\n"
        "run = RunFolder.create(pathlib.Path(sys.argv[1]), 'quick')\n"
        "run.write_text('plan.json', '{}')\n"
        "print(run.path, flush=True); sys.stdin.read()"
    )
    bench = start(code, str(tmp_path))
    assert bench.stdin is not None
    assert bench.stdout is not None
    path = Path(bench.stdout.readline().strip())
    try:
        run = open_run(path)
        assert run.is_alive()
        with pytest.raises(NotARun, match="still at work: wait"):
            run.results()
        with pytest.raises(StoreError, match="another bench"):
            run.take_over()
    finally:
        bench.kill()
        bench.wait()
        bench.stdin.close()
        bench.stdout.close()
    assert not run.is_alive()
    with pytest.raises(NotARun, match="its bench died"):
        run.results()
    (run.path.parent / "latest").unlink()
    run.take_over()
    assert run.is_alive()
    assert (run.path.parent / "latest").resolve() == run.path.resolve()
    write_results(run, {"cases": []})
    run.finish("inconclusive")
    assert not open_run(path).is_alive()
    assert open_run(path).results() == Results(cases=())


def test_what_is_not_a_run_is_named_with_the_remedy(tmp_path: Path) -> None:
    run = finished(tmp_path)
    (run.path / "results.json").write_text("{")
    empty, file, odd = tmp_path / "empty", tmp_path / "file", tmp_path / "odd"
    empty.mkdir()
    file.write_text("")
    odd.mkdir()
    (odd / "ending").write_text("fine\n")
    for path, why in (
        (tmp_path / "nowhere", "does not exist"),
        (empty, "no `ending`"),
        (file, "is a file"),
        (odd, "'fine'"),
    ):
        with pytest.raises(NotARun, match=why) as error:
            open_run(path)
        assert str(path) in str(error.value)
        assert "runs/latest" in str(error.value)
    with pytest.raises(NotARun, match=r"results\.json cannot be read"):
        open_run(run.path).results()
    (run.path / "results.json").unlink()
    with pytest.raises(NotARun, match=r"results\.json is missing"):
        open_run(run.path).results()


def test_an_ending_is_one_of_five_words(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "quick")
    with pytest.raises(ValueError, match="green"):
        run.finish("green")
    assert run.ending == "running"
    run.let_go()


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError("no disk")

    path = tmp_path / "results.json"
    write_atomically(path, "whole\n")
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="no disk"):
        write_atomically(path, "half\n")
    assert path.read_text() == "whole\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_changed_history_is_noticed(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "quick")
    case = run.case(3, "etcd", "kill")
    for name in ("0.0.ops", "0.strings", "meta.json"):
        (case.history / name).write_bytes(name.encode())
    digests = case.history_sha256()
    # Known: the SHA-256 of the bytes "meta.json" is not that of anything else.
    assert set(digests) == {"0.0.ops", "0.strings", "meta.json"}
    assert case.history_differs(digests) == []
    (case.history / "0.0.ops").write_bytes(b"0.0.opz")
    (case.history / "0.strings").unlink()
    (case.history / "1.0.ops").write_bytes(b"")
    sentences = case.history_differs(digests)
    assert [sentence.rsplit("/", 1)[1] for sentence in sentences] == [
        "0.0.ops was changed",
        "0.strings is missing",
        "1.0.ops was added later",
    ]
    run.let_go()


def test_cases_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "full")
    for number in (100, 2, 11):
        run.case(number, "etcd", "none")
    numbers = [folder.path.name.split("-")[0] for folder in run.cases()]
    assert numbers == ["02", "11", "100"]
    run.let_go()


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("partition-drop:group=2", "partition-drop-group=2"),
        ("kill+wipe", "kill+wipe"),
        ("../../etc", "etc"),
        ("path/to/lock.py:My Lock", "path-to-lock.py-My-Lock"),
        ("ü|\n", "unnamed"),
    ],
)
def test_names_become_safe_folder_names(name: str, safe: str) -> None:
    assert slug(name) == safe


def test_a_base_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file is in the way")
    with pytest.raises(StoreError, match="no run folder could be made"):
        RunFolder.create(tmp_path / "runs", "quick")


def test_a_latest_that_is_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "latest" / "mine").mkdir(parents=True)
    with pytest.raises(StoreError, match="directory"):
        RunFolder.create(tmp_path, "quick")
    assert (tmp_path / "latest" / "mine").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["latest"]
