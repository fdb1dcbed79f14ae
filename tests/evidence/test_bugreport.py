"""The command bugreport: what a maintainer gets, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from lockbench.bench import clients
from lockbench.checker.check import check
from lockbench.evidence import bugreport, bugreport_library, templates, track
from lockbench.history.jsonl import read_jsonl
from lockbench.locks.registry import find
from lockbench.results.cases import broken
from lockbench.results.documents import Versions
from lockbench.results.errors import BadInput
from lockbench.results.store import RunFolder, open_run
from lockbench.results.stored import stored
from tests.command import lockbench
from tests.results.made_run import make_run
from tests.results.plain import write_versions


def reports(run: RunFolder) -> dict[str, Path]:
    """Verdict → folder of its report, of a run with one case of etcd."""
    made = bugreport.bugreport(run.path, declared_too=True).folders
    return {path.name.split("-", 3)[3]: path for path in made}


def told(run: RunFolder, verdict: str = "double-grant") -> str:
    return (reports(run)[verdict] / "report.md").read_text()


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The reports on a key of etcd that was granted twice under a pause."""
    return reports(make_run(tmp_path_factory.mktemp("double"), double=True))


def test_every_broken_verdict_has_a_report(double: dict[str, Path]) -> None:
    run = open_run(double["double-grant"].parents[1])
    case = run.results().cases[0]
    assert set(double) == set(broken(case)) == {"double-grant", "linearizable"}
    for verdict, path in double.items():
        history = read_jsonl(path / "history.jsonl")
        assert check(history).verdicts[verdict].result == "invalid"
    text = (double["double-grant"] / "report.md").read_text()
    assert text.startswith("# etcd under pause: double-grant\n")
    assert case.verdicts["double-grant"].reason in text.replace("\\", "")
    assert "1 of 1 run of" in text
    assert "https://etcd.io" in text, "the promise with its address"
    assert "| redis | 8.1.0 |" in text
    assert re.search("^lockbench run --lock etcd --fault pause .*--seed 4$", text, re.MULTILINE)
    timeline = re.findall(r"^\| (-?[\d.]+) \| .* \| acquire aimed \| granted", text, re.MULTILINE)
    assert timeline == ["0.000", "100.000"]
    assert re.search(r"\| fault \| pause etcd-2 \| begins", text), text


def test_the_timeline_says_that_it_shows_calls_and_no_commands(double: dict[str, Path]) -> None:
    text = (double["double-grant"] / "report.md").read_text().split("## Timeline")[1]
    assert "no commands on the wire were recorded" in text
    assert "puts a proxy between" not in text
    assert "The clients of one worker share a process." in text
    assert "**pause**: freezes servers" in text
    assert "It struck etcd-2." in text


def test_what_follows_from_another_break_is_no_claim_of_its_own(tmp_path: Path) -> None:
    double = reports(make_run(tmp_path, double=True, faults={"kill": True}, injected="kill"))
    follows = (double["linearizable"] / "report.md").read_text()
    assert "It is expected to break wherever double-grant does" in follows
    assert "The same recording breaks" in follows
    own = (double["double-grant"] / "report.md").read_text()
    assert "Under kill it was expected to hold." in own


def test_repetitions_are_one_report_with_k_of_n(tmp_path: Path) -> None:
    """Three runs of one case, of which one held: 2 of 3. A try that was not exposed and held is no
    try."""
    run = make_run(tmp_path, double=True, faults={"pause": True})
    (case,) = run.results().cases
    (healthy,) = make_run(tmp_path / "other", faults={"pause": True}).results().cases
    unexposed = changed(healthy, exposed=False)
    found = stored(run.path)
    cases = (healthy, case, changed(case, tries=1), unexposed)
    object.__setattr__(found, "results", changed(found.results, cases=cases))
    shares = {b.verdict: (b.shown, b.tried) for b in bugreport._broken(found)}
    assert shares["double-grant"] == (2, 3)


def test_an_earlier_try_counts_and_is_verified(tmp_path: Path) -> None:
    def tried_twice(case: dict[str, Any]) -> None:
        (folder,) = tmp_path.glob("2*/cases/01-*")
        earlier = folder.with_name("01-etcd-pause-try1")
        shutil.copytree(folder, earlier)
        document = {**case, "folder": earlier.name}
        (earlier / "case.json").write_text(json.dumps(document))
        observed = {verdict: of["result"] for verdict, of in case["verdicts"].items()}
        case["earlier_tries"] = [{"observed": observed, "exposed": True, "folder": earlier.name}]

    run = make_run(tmp_path, double=True, change=tried_twice)
    made = bugreport.bugreport(run.path, declared_too=True).folders
    text = (run.path / "bugreports" / "01-etcd-pause-try1-double-grant" / "report.md").read_text()
    assert len(made) == len({path.name for path in made})
    assert "2 of 2 runs" in text
    next((run.path / "cases" / "01-etcd-pause-try1" / "history").glob("*.ops")).write_bytes(b"")
    with pytest.raises(BadInput, match="not the one that was judged"):
        bugreport.bugreport(run.path)


def test_what_broke_as_declared_is_reported_only_when_asked_for(tmp_path: Path) -> None:
    def declared(case: dict[str, Any]) -> None:
        case["expected"] = {"double-grant": "may-break", "linearizable": "holds"}

    run = make_run(tmp_path, double=True, change=declared)
    made = bugreport.bugreport(run.path)
    assert [path.name for path in made.folders] == ["01-etcd-pause-linearizable"]
    assert "1 verdict broke as declared; --all" in bugreport.sentence(run.path, made)
    every = bugreport.bugreport(run.path, declared_too=True)
    assert len(every.folders) == 2
    assert "--all" not in bugreport.sentence(run.path, every)


def test_a_run_that_kept_every_promise_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert bugreport.bugreport(run.path) == bugreport.Made(())
    assert not (run.path / "bugreports").exists()
    done = lockbench("bugreport", str(run.path))
    assert done.returncode == 0
    assert "no verdict is broken" in done.stdout


def test_what_cannot_be_trusted_ends_with_254(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", double=True)
    file = next((run.cases()[0].history).glob("*.ops"))
    data = bytearray(file.read_bytes())
    data[-200] ^= 1
    file.write_bytes(data)
    for path, said in (
        (run.path, "not the one that was judged"),
        (tmp_path, "not a run folder"),
        (tmp_path / "nowhere", "does not exist"),
    ):
        done = lockbench("bugreport", str(path))
        assert done.returncode == 254, done.stderr
        assert said in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr
    unfinished = RunFolder.create(tmp_path / "more")
    unfinished.let_go()
    with pytest.raises(BadInput, match="half-written"):
        bugreport.bugreport(unfinished.path)


def test_names_stay_text(tmp_path: Path) -> None:
    """A lock's name may be a path, and a fault's parameters what somebody typed."""

    def named(case: dict[str, Any]) -> None:
        case["lock"] = "a|b/<script>`x`*.py:Slow"
        case["fault"] = "pause:who=a|b"

    run = make_run(tmp_path, double=True, change=named)
    text = (bugreport.bugreport(run.path, declared_too=True).folders[0] / "report.md").read_text()
    heading = text.splitlines()[0]
    assert "<script>" not in heading
    assert "`x`" not in heading
    assert "nothing can be quoted" in text, "that lock is not declared"
    assert "--lock 'a|b/<script>`x`*.py:Slow'" in text, "a command is quoted for the shell"


def test_nothing_ends_a_block_of_code_but_its_end() -> None:
    text = "a\n````\nb"
    assert templates.code(text) == f"`````\n{text}\n`````"
    assert templates.quote("x <b> https://a.example/?q=*1* y\nz") == (
        "> x &lt;b&gt; https://a.example/?q=*1* y z"
    )
    assert templates.marked("a*b ``Until_()`` <c>") == "a\\*b `Until_()` &lt;c&gt;"


def page_of(name: str) -> track.Page:
    """A page with a program, on etcd's double grants under a pause."""
    return track.Page(
        id=name,
        title="t",
        locks=("etcd",),
        fault="pause",
        kind="defect",
        versions="etcd 0",
        histories={f"{name}.jsonl": "double-grant"},
        shown=5,
        runs=6,
        command=f"uv run docs/track/{name}.py HOST:PORT",
        source="s",
        script=f"{name}.py",
    )


def test_the_program_of_the_track_record_goes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "track"
    folder.mkdir()
    (folder / "etcd.py").write_text("proxy = Proxy(server)\n")
    (folder / track.SHARED).write_text("pass\n")
    page = changed(page_of("etcd"), source="https://etcd.example: it stays locked until release")
    monkeypatch.setattr(track, "FOLDER", folder)
    monkeypatch.setattr(track, "pages", lambda: [page])
    made = reports(make_run(tmp_path / "runs", double=True))
    path = made.pop("double-grant")
    files = {"report.md", "history.jsonl", "etcd.py", track.SHARED}
    assert {p.name for p in path.iterdir()} == files
    text = (path / "report.md").read_text()
    assert "5 of 6 times with etcd 0" in text
    assert ": it stays locked until release" in text
    assert "`etcd.py` beside this file puts a proxy" in text
    assert all(not (other / "etcd.py").exists() for other in made.values())


def test_another_defect_of_the_lock_is_no_proof_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = changed(page_of("etcd"), title="late replies", fault="replies-delayed")
    monkeypatch.setattr(track, "pages", lambda: [page])
    run = make_run(tmp_path, double=True)
    text = told(run)
    assert not (reports(run)["double-grant"] / "etcd.py").exists()
    assert "There is no program for this one yet" in text
    assert "A different defect breaks this promise of the lock under replies-delayed" in text
    monkeypatch.setattr(track, "pages", lambda: [changed(page, also=("pause",), script="")])
    assert "different defect" not in told(run)


def test_a_page_without_a_program_is_referred_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = changed(page_of("made"), shown=2, runs=3, command="lockbench run --lock etcd", script="")
    monkeypatch.setattr(track, "pages", lambda: [page])
    text = told(make_run(tmp_path, double=True))
    assert "There is no program for this one yet" in text
    assert "seen 2 of 3 times with etcd 0 (`docs/track/made.md`), by" in text


def of_library(tmp_path: Path, lock: str, recorded: dict[str, Any] | None = None) -> Path:
    """The folder of the report on a double grant of that lock, under a pause."""

    def named(case: dict[str, Any]) -> None:
        case["lock"] = lock
        case["settings"] = {"lease_ttl_s": 3.0, "client_timeout_s": 1.0}

    run = make_run(tmp_path, double=True, change=named)
    if recorded is not None:
        library = clients.declared(lock)
        assert library is not None
        entry = {"locks": [lock], **clients.as_pinned(library), **recorded}
        entries = {clients.name_of(library): entry}
        write_versions(run, {"libraries": {"redis": "8.1.0"}, "clients": entries})
    return reports(run)["double-grant"]


def test_an_adapter_says_how_its_library_is_set(tmp_path: Path) -> None:
    """The words of its own file, and the versions of its own environment."""
    text = (of_library(tmp_path, "redis-py") / "report.md").read_text()
    assert "``redis-py-safe`` sets the lease" in text
    assert re.search(r"\| redis-py: redis \| 8\.", text)
    assert "lease\\_ttl\\_s | 3.0" in text


def test_a_library_of_the_jvm_is_named_with_what_the_run_recorded(tmp_path: Path) -> None:
    recorded = {
        "pins": {"org.redisson:redisson": "3.1", "netty-common": "4.0", "other": "7"},
        "versions": {"redisson": "3.1"},
        "id": "sha256:abc",
    }
    path = of_library(tmp_path, "redisson-rlock-safe", recorded)
    text = (path / "report.md").read_text()
    assert "**org.redisson:redisson 3.1**: an acquire is `getLock(key).tryLock" in text
    assert "| redisson-rlock-safe: netty-common | 4.0 |" in text
    assert "redisson 3.1 (sha256:abc) |" in text
    assert "| Config.setLockWatchdogTimeout | the lease (3 s) |" in text
    assert "| setTimeout | the client timeout (1 s) |" in text
    assert "| setRetryAttempts | 0 |" in text
    assert "tryLock() threw anything | Unknown" in text
    assert "pinned today" not in text
    assert "has changed since" not in text
    assert "| redis | 8.1.0 |" not in text, "what the bench stands on is none of Redisson's"
    assert {"RedissonLocks.java", "pins.txt"} <= {p.name for p in path.iterdir()}
    assert (path / "pins.txt").read_text().splitlines()[-1] == "other 7"


def test_one_side_of_a_change_is_reported_with_what_it_had(tmp_path: Path) -> None:
    """The other side is no repetition of it."""
    run = make_run(tmp_path, double=True, change=lambda case: case.update(lock="redis-py"))
    sides = {"base": {"ref": "current"}, "new": {"ref": "redis==5.0.1", "library": "redis==5.0.1"}}
    write_versions(run, {"libraries": {"redis": "8.1.0"}, "sides": sides})
    found = stored(run.path)
    (broke,) = found.cases
    held = changed(
        broke, verdicts={v: changed(it, result="valid") for v, it in broke.verdicts.items()}
    )
    cases = (
        changed(held, side="base", ref="current"),
        changed(broke, side="new", ref="redis==5.0.1"),
    )
    object.__setattr__(found, "results", changed(found.results, cases=cases))
    it = next(one for one in bugreport._broken(found) if one.verdict == "double-grant")
    assert (it.shown, it.tried) == (1, 1)
    assert ("redis-py: redis", "5.0.1") in bugreport._versions(it)
    (command,) = bugreport._commands(it, small=False)
    assert command.endswith(" --with redis==5.0.1")


def test_what_a_run_did_not_record_is_said_to_be_of_today(tmp_path: Path) -> None:
    """So it is with every run that was made before versions of libraries were recorded."""
    text = (of_library(tmp_path / "a", "redsync") / "report.md").read_text()
    assert "are those that are pinned today" in text
    assert re.search(r"\*\*github\.com/go-redsync/redsync/v4 v4\.[\d.]+\*\*", text)
    assert "| image go-sidecar | not recorded |" in text
    assert "MaxRetries" not in text.split("## Settings")[1].split("on the servers")[0], (
        "redsync is not redsync-safe"
    )
    other = of_library(tmp_path / "b", "redsync", {"fingerprint": "other"})
    assert "has changed since the run" in (other / "report.md").read_text()


@pytest.mark.parametrize("lock", ["curator-mutex", "jetcd", "etcd-concurrency", "tooz", "pottery"])
def test_every_kind_of_library_has_a_report(tmp_path: Path, lock: str) -> None:
    path = of_library(tmp_path, lock)
    text = (path / "report.md").read_text()
    library = bugreport_library.beside(lock, Versions())
    assert library is not None
    assert (path / library.source.name).read_text() == library.source.read_text()
    assert f"| {lock}: {library.names[0]} | {library.pins[library.names[0]]} |" in text


def test_a_break_under_a_fault_that_is_not_declared_is_not_called_unexpected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = find("etcd")
    some = {fault: said for fault, said in whole.expectations.items() if fault != "pause"}
    silent = replace(whole, expectations=some)
    monkeypatch.setattr(bugreport, "declared", lambda _: silent)
    made = told(make_run(tmp_path, double=True))
    assert "Nothing is declared of this lock under pause." in made
    assert "expected to hold" not in made
    assert "no other source can be quoted" in made


def test_a_run_of_several_cases_is_not_replayed_for_one(
    double: dict[str, Path], tmp_path: Path
) -> None:
    assert "--replay" in (double["double-grant"] / "report.md").read_text()
    run = make_run(tmp_path, double=True, faults={"pause": True, "none": False})
    texts = [
        (path / "report.md").read_text()
        for path in bugreport.bugreport(run.path, declared_too=True).folders
    ]
    assert texts
    assert all("--replay" not in text for text in texts)


def test_it_is_written_anew(tmp_path: Path) -> None:
    run = make_run(tmp_path, double=True)
    first = bugreport.bugreport(run.path, declared_too=True)
    (first.folders[0] / "old").write_text("x")
    assert bugreport.bugreport(run.path, declared_too=True) == first
    assert not (first.folders[0] / "old").exists()
    assert json.loads((run.path / "results.json").read_text())["ending"] == "ok"
