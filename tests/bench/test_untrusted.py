"""A run folder that somebody sent is data: whoever reads it runs nothing of what is in it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lockbench.bench import clients, plan, replay, resume
from lockbench.cli import adr, alerts
from lockbench.evidence import bugreport, compare, observations, track
from lockbench.history.lines import UnreadableHistory
from lockbench.locks.registry import LockNotFoundError, declared, find
from lockbench.report import commands
from lockbench.results.errors import BadInput
from lockbench.results.store import NotARun, StoreError, open_run
from lockbench.results.stored import Edited
from tests.budget import some
from tests.command import lockbench
from tests.eventually import eventually
from tests.results.made_run import make_run
from tests.results.plain import write_plan

EVIL = "from pathlib import Path\nPath({mark!r}).write_text('ran')\nclass Name: pass\n"


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder, in the working directory, whose lock is a file inside of it; running that file
    leaves ``ran``."""
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.chdir(tmp_path)
    run = make_run(Path("runs"), double=True, change=change)
    folder = run.path.rename("run")
    evil = folder / "evil.py"
    evil.write_text(EVIL.format(mark=str(tmp_path / "ran")))
    case = replace(plan.resolve(plan.make_case("etcd", "none", seed=1)), lock="run/evil.py:Name")
    write_cases(folder, case)
    shutil.copytree(folder, "copy")
    return folder


def write_cases(folder: Path, *cases: plan.Case) -> None:
    """A plan of these cases."""
    document = {"name": "it", "cases": [asdict(case) for case in cases]}
    (folder / "plan.json").write_text(json.dumps(document))


def change(case: dict[str, Any]) -> None:
    case["lock"] = "run/evil.py:Name"
    case["own"] = {"spec": "run/evil.py:Name", "file": "run/evil.py", "sha256": "0" * 64}


def ran(folder: Path) -> bool:
    return (folder.parent / "ran").exists()


def test_the_planted_file_would_be_noticed(planted: Path) -> None:
    with pytest.raises(LockNotFoundError):
        find(f"{planted}/evil.py:Name")
    assert ran(planted.resolve())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["report", "run"], 0),
        (["bugreport", "run"], 0),
        (["compare", "run", "copy"], 0),
        (["compare", "run", "copy", "--anyway", "--json"], 0),
        (["export", "run", "--format", "csv", "--out", "out"], 0),
        (["adr", "run", "--needs", "correctness", "--json"], 0),
        (["alerts", "run"], 0),
        (["check", "run"], 1),
        (["suite", "quick", "--resume", "run"], 254),
        (["run", "--replay", "run"], 254),
        (["run", "--replay", "run", "--shrink", "--json"], 254),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else None,
)
def test_no_command_over_a_run_folder_runs_its_files(
    planted: Path, words: Sequence[str], code: int
) -> None:
    done = lockbench(*words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert not ran(planted.resolve())


def test_a_bug_report_says_what_the_results_say(planted: Path) -> None:
    made = {path.name: path for path in bugreport.bugreport(planted, declared_too=True).folders}
    text = (made["01-etcd-pause-double-grant"] / "report.md").read_text().replace("\\", "")
    assert "run/evil.py:Name (sha256 " + "0" * 64 in text
    assert "A report never runs such a file" in text
    assert "was expected to break now and then" in text
    assert not ran(planted.resolve())


def test_a_file_called_like_a_lock_of_ours_is_not_taken_for_it(tmp_path: Path) -> None:
    """A System in a file of one's own may be called etcd."""

    def called_etcd(case: dict[str, Any]) -> None:
        case["own"] = {"spec": "mine.py:Mine", "file": "mine.py", "sha256": "1" * 64}

    run = make_run(tmp_path, double=True, change=called_etcd)
    text = (bugreport.bugreport(run.path).folders[0] / "report.md").read_text()
    assert "https://etcd.io" not in text
    assert "mine.py:Mine" in text


@pytest.mark.parametrize("name", ["run/evil.py:Name", "run/evil.pyc:Name", "run/evil:Name"])
def test_what_is_looked_up_for_a_reader_is_never_a_file(planted: Path, name: str) -> None:
    with pytest.raises(LockNotFoundError, match="unknown lock"):
        declared(name)
    assert clients.declared(name) is None
    assert not ran(planted.resolve())


def test_a_replay_says_what_it_would_run(planted: Path) -> None:
    (said,) = replay.foreign(planted)
    now = hashlib.sha256((planted / "evil.py").read_bytes()).hexdigest()
    assert repr(str((planted / "evil.py").resolve())) in said
    assert "which lies in the run folder itself" in said
    assert f"sha256 {now}; the run did not record another" in said
    versions = json.loads((planted / "versions.json").read_text())
    for recorded, words in ((now, "as the run recorded it"), ("0" * 64, "the run recorded 000")):
        own = {"run/evil.py:Name": {"sha256": recorded}}
        (planted / "versions.json").write_text(json.dumps({**versions, "own": own}))
        assert words in replay.foreign(planted)[0]
    with pytest.raises(BadInput, match="only if you trust it"):
        replay.stored_cases(planted)
    done = lockbench("run", "--replay", "run")
    assert repr(str((planted / "evil.py").resolve())) in done.stderr
    assert "--trust-plan" in done.stderr
    assert not ran(planted.resolve())


def test_a_library_of_a_plan_is_a_stranger_too(planted: Path) -> None:
    (planted / "lock.py").write_text((planted / "evil.py").read_text())
    plan_file = planted / "plan.json"
    plan_file.write_text(plan_file.read_text().replace("run/evil.py:Name", "run:Name"))
    assert replay.foreign(planted) == []  # a name and no path: a lock that is not declared
    plan_file.write_text(plan_file.read_text().replace("run:Name", "./run:Name"))
    (said,) = replay.foreign(planted)
    assert f"the library, whose requirements are installed, in {str(planted.resolve())!r}" in said
    with pytest.raises(BadInput, match="only if you trust it"):
        replay.stored_cases(planted)
    with pytest.raises(LockNotFoundError, match="unknown lock"):
        declared("./run:Name")
    assert not ran(planted.resolve())


def test_a_replay_that_is_trusted_runs_the_file(planted: Path) -> None:
    """This one ends there: the class in it is no lock. In a process of its own, which has not
    loaded a file of this name."""
    command = [sys.executable, "-m", "lockbench.cli.main", "run", "--replay", "run", "--trust-plan"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 254
    assert "evil.py" in done.stderr
    assert "the class lacks acquire" in " ".join(done.stderr.split())
    assert ran(planted.resolve())


@pytest.mark.parametrize("answer", ["n", "y"])
def test_at_a_terminal_the_user_is_asked(planted: Path, answer: str) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "lockbench.cli.main", "run", "--replay", "run"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as asked:
        os.close(theirs)
        seen = bytearray()

        def is_asked() -> bool:
            seen.extend(os.read(ours, 4096))
            return b"[y/N]" in seen

        eventually(is_asked, limit_s=60)
        assert not ran(planted.resolve())
        os.write(ours, f"{answer}\n".encode())
        assert asked.wait(60) == 254
    os.close(ours)
    assert ran(planted.resolve()) == (answer == "y")


def test_images_of_a_plan_are_foreign_and_the_benchs_own_are_not(planted: Path) -> None:
    case = plan.resolve(plan.make_case("redis-token", "none", seed=1))
    write_cases(planted, replace(case, images=(("redis", "evil:1"),)))
    assert replay.foreign(planted) == ["'evil:1' as the image 'redis'"]
    with pytest.raises(BadInput, match="only if you trust it"):
        replay.stored_cases(planted)
    write_cases(planted, case)
    assert replay.foreign(planted) == []
    assert replay.stored_cases(planted) == [case]


def test_a_schedule_file_of_a_plan_is_not_read(planted: Path) -> None:
    os.mkfifo(planted / "faults.toml")  # who opens it waits for ever
    case = plan.resolve(plan.make_case("etcd", "pause", seed=1))
    write_cases(planted, replace(case, fault=str(planted / "faults.toml")))
    (found,) = replay.stored_cases(planted)
    assert found.injections == case.injections
    assert found.fault == replay.schedule_words(case)


def reading(run: Path, out: Path) -> dict[str, Callable[[], object]]:
    """Everything that reads a run folder, by its command."""
    quiet = Console(quiet=True)
    asked = adr.answers("correctness", None, None, None)
    case = plan.resolve(plan.make_case("etcd", "none", seed=1))
    suite = resume.planned("quick", [case])
    return {
        "report": lambda: commands.report(run),
        "bugreport": lambda: bugreport.bugreport(run, declared_too=True),
        "compare": lambda: compare.compare(
            run,
            make_run(out / "other", double=True).path,
            anyway=True,
            as_json=False,
            junit=out / "junit.xml",
            out=quiet,
        ),
        "export": lambda: commands.export(run, "csv", out / "export"),
        "adr": lambda: adr.adr(
            [run], asked, anyway=True, output=out / "adr.md", as_json=False, out=quiet
        ),
        "alerts": lambda: alerts.alerts([run], as_json=False, out=quiet),
        "replay": lambda: replay.stored_cases(run),
        "resume": lambda: resume.stopped(run, suite),
        "systems": lambda: observations.add(observations.Observations(), [run], out / "histories"),
        "track": lambda: track.cut(run, "double-grant"),
    }


# What the callers of each make a sentence of.
REFUSED: dict[str, tuple[type[Exception], ...]] = {
    "track": (BadInput, NotARun, Edited, UnreadableHistory)
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that every command reads, whose plan can be played again."""
    base = tmp_path_factory.mktemp("whole")
    run = make_run(base, cycles=400, double=True)
    case = plan.resolve(plan.make_case("etcd", "pause", seed=1))
    write_plan(run, {"name": "quick", "command": "lockbench suite x", "cases": [asdict(case)]})
    for name in ("report", "bugreport", "compare", "export", "adr", "alerts", "replay"):
        reading(run.path, base)[name]()
    return run.path


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(whole, tmp_path / "run", symlinks=True))


NODES = (
    "ending",
    "owner",
    "plan.json",
    "machine.json",
    "versions.json",
    "results.json",
    "cases",
    "cases/01-etcd-pause",
    "cases/01-etcd-pause/case.json",
    "cases/01-etcd-pause/history",
    "cases/01-etcd-pause/history/0.0.ops",
    "cases/01-etcd-pause/history/0.strings",
    "cases/01-etcd-pause/history/meta.json",
    "cases/01-etcd-pause/history/faults.jsonl",
    "report",
    "bugreports",
    "bugreports/01-etcd-pause-double-grant",
    "report.html",
    "report.md",
)


@pytest.mark.parametrize(
    ("name", "kind"), some(list(product(NODES, ("fifo", "device", "link", "huge"))), 25)
)
def test_no_file_of_a_run_hangs_or_trips_a_command(
    run: Path, tmp_path: Path, name: str, kind: str
) -> None:
    """Each is read, refused with a sentence, or not looked at; nothing is written elsewhere."""
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    out.mkdir()
    if (run / name).is_dir():
        shutil.copytree(run / name, elsewhere)
    else:
        shutil.copy(run / name, elsewhere)
    before = everything(elsewhere)
    plant(run / name, kind, elsewhere)
    for command, read in reading(run, out).items():
        with contextlib.suppress(*REFUSED.get(command, (BadInput,))):
            read()
        assert everything(elsewhere) == before, command


def plant(path: Path, kind: str, elsewhere: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "link":
            path.symlink_to(elsewhere)
        case "huge":
            with path.open("wb") as file:
                file.truncate(1 << 42)


def everything(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def test_what_a_command_needs_is_not_read_through_a_link(whole: Path, tmp_path: Path) -> None:
    """A link to a good file is refused all the same."""
    for name in ("results.json", "cases/01-etcd-pause/case.json", "cases", "machine.json"):
        run = Path(shutil.copytree(whole, tmp_path / name.replace("/", "-")))
        elsewhere = tmp_path / f"good-{name.replace('/', '-')}"
        (run / name).rename(elsewhere)
        (run / name).symlink_to(elsewhere)
        for command in ("report", "compare", "adr", "alerts"):
            if (command, name) == ("alerts", "machine.json"):
                continue
            with pytest.raises(BadInput):
                reading(run, tmp_path)[command]()


@pytest.mark.parametrize("name", ["report", "bugreports"])
def test_nothing_is_written_through_a_link(run: Path, tmp_path: Path, name: str) -> None:
    shutil.rmtree(run / name)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "old.svg").write_text("theirs")
    (run / name).symlink_to(elsewhere)
    command = name.removesuffix("s")
    with pytest.raises(BadInput, match="not a folder of this run"):
        reading(run, tmp_path)[command]()
    assert [path.name for path in elsewhere.iterdir()] == ["old.svg"]


def test_a_link_in_place_of_a_file_is_replaced(run: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    for name in ("report.html", "report.md", "report/01-etcd-pause-timeline.svg"):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(theirs)
    (run / "bugreports" / "01-etcd-pause-double-grant").rename(tmp_path / "old")
    (run / "bugreports" / "01-etcd-pause-double-grant").symlink_to(tmp_path / "old")
    before = everything(tmp_path / "old")
    commands.report(run)
    bugreport.bugreport(run, declared_too=True)
    assert theirs.read_text() == "theirs"
    assert everything(tmp_path / "old") == before
    assert not (run / "report.html").is_symlink()
    assert not (run / "bugreports" / "01-etcd-pause-double-grant").is_symlink()


def test_the_owner_of_a_run_is_a_file(run: Path, tmp_path: Path) -> None:
    """Going on with a run empties ``owner``; what a link leads to stays."""
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    for kind in ("link", "fifo"):
        plant(run / "owner", kind, theirs)
        with pytest.raises(StoreError, match="cannot be taken over"):
            open_run(run).take_over()
    assert theirs.read_text() == "theirs"


def rewritten(run: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The run with a change in the first case of its plan."""
    document = json.loads((run / "plan.json").read_text())
    change(document["cases"][0])
    (run / "plan.json").write_text(json.dumps(document))
    return run


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"topology": "moon"}, "no topology is called 'moon'"),
        ({"network": "moon"}, "no network is called"),
        ({"workload": "moon"}, "no workload is called"),
        ({"fault": "moon"}, "no fault is called"),
        ({"lock": "moon"}, "no lock is called"),
        ({"images": (("moon", "x"),)}, "trust"),
        ({"pace": {"lease_ttl_s": 3.0, "moon": 1}}, "no plan that can be played"),
        ({"moon": 1}, "no plan that can be played"),
        ({"time_limit_s": 1e300}, "time_limit_s"),
        ({"size": True}, "size"),
    ],
)
def test_a_plan_that_was_made_up_is_refused(run: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        replay.stored_cases(rewritten(run, lambda case: case.update(change)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fault": "moon"}, "no fault is called 'moon'"),
        ({"parameters": []}, "the plan differs"),
        ({"parameters": [["who", "moon"]]}, "pause:who='moon'"),
        ({"parameters": [["who"]]}, "parameters"),
        ({"begin_s": -1}, "begin_s"),
    ],
)
def test_a_schedule_that_was_made_up_is_refused(
    run: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        replay.stored_cases(rewritten(run, lambda case: case["injections"][0].update(change)))


def test_a_plan_of_many_faults_is_not_drawn(run: Path) -> None:
    """Its words stand for more faults than it holds: drawing them could take for ever."""
    many = {"fault": "+".join(["pause:times=1000"] * 500)}
    (found,) = replay.stored_cases(rewritten(run, lambda case: case.update(many)))
    assert found.fault == replay.schedule_words(found)


def test_resume_takes_no_lock_from_the_folder(planted: Path) -> None:
    """A suite's cases are declared here; a folder that holds other ones is not gone on with."""
    stored = json.loads((planted / "plan.json").read_text())
    (planted / "plan.json").write_text(json.dumps({**stored, "command": "lockbench suite quick"}))
    case = plan.resolve(plan.make_case("etcd", "none", seed=1))
    with pytest.raises(BadInput, match="another plan"):
        resume.stopped(planted, resume.planned("quick", [case]))
    assert not ran(planted.resolve())
