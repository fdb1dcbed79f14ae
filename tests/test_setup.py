"""Setup: what it says beforehand, when it does nothing, and how it fails."""

from __future__ import annotations

import ast
import resource
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.eventually import eventually
from tools import setup
from tools.setup import SetupError, Step

ROOT = Path(__file__).resolve().parent.parent


def nothing() -> None:
    pass


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "requirements.lock"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    return tmp_path


def stamp(project: Path) -> None:
    (project / ".venv").mkdir()
    (project / ".venv" / setup.STAMP).write_text("\n".join(setup.venv_stamp(project)))


def test_announcement_marks_what_changes_the_machine() -> None:
    steps = [
        Step("venv", "an environment", nothing),
        Step("engine", "install an engine", nothing, on_machine=True),
        Step("images", "build", nothing),
    ]
    lines = setup.announcement(steps, base_missing=True)
    assert "  venv: an environment" in lines
    assert "  engine: install an engine (on this machine, as root)" in lines
    assert any("apt-get install debootstrap" in line for line in lines)


def test_nothing_is_announced_when_nothing_is_missing() -> None:
    images = Step("images", "build", nothing, quiet=True)
    assert setup.announcement([images], base_missing=False) == []
    assert setup.announcement([images], base_missing=True) != []


def test_environment_is_stamped_by_its_pins_not_by_tool_settings(project: Path) -> None:
    assert setup.venv_stamped(project) != setup.venv_stamp(project)
    stamp(project)
    assert setup.venv_stamped(project) == setup.venv_stamp(project)
    with (project / "pyproject.toml").open("a") as file:
        file.write("\n[tool.other]\nline-length = 1\n")
    assert setup.venv_stamped(project) == setup.venv_stamp(project)
    with (project / "requirements.lock").open("a") as file:
        file.write("one-more==1.0\n")
    python, pins = setup.venv_stamp(project)
    assert setup.venv_stamped(project)[0] == python
    assert setup.venv_stamped(project)[1] != pins


def test_a_python_that_is_too_old_is_told_in_a_sentence() -> None:
    file = ROOT / "tools" / "setup.py"
    ast.parse(file.read_text(), feature_version=(3, 8))  # else it would be a SyntaxError
    program = f"import runpy, sys; sys.version_info = (3, 10, 13); runpy.run_path({str(file)!r})"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 254
    assert done.stderr == "[setup] Python 3.11 or newer is needed: make PYTHON=python3.12 ...\n"


def test_a_failed_command_shows_its_last_words_and_the_remedy() -> None:
    said = "print('\\n'.join(f'line {n}.' for n in range(40))); raise SystemExit(3)"
    with pytest.raises(SetupError) as failed:
        setup.command([sys.executable, "-c", said], "plug it in")
    text = str(failed.value)
    assert "ended with 3" in text
    assert "line 39." in text
    assert "line 2." not in text
    assert text.endswith("what to do: plug it in")


def test_a_failed_step_ends_with_255(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise SetupError("no cable: plug it in")

    monkeypatch.setattr(setup, "plan", lambda **_: [Step("cable", "use the cable", fail)])
    monkeypatch.setattr(setup, "base_image_is_missing", lambda: False)
    assert setup.main() == 255
    assert "[setup] failed: no cable: plug it in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("root", "debian", "dockerd", "does"),
    [
        (True, True, None, "apt-get install docker.io"),
        (True, True, "/usr/sbin/dockerd", "start dockerd"),
        (False, True, "/usr/sbin/dockerd", None),
        (True, False, None, None),
    ],
)
def test_an_engine_is_installed_only_by_root_on_debian(
    monkeypatch: pytest.MonkeyPatch, root: bool, debian: bool, dockerd: str | None, does: str | None
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr(setup, "is_debian", lambda: debian)
    monkeypatch.setattr("shutil.which", lambda name: dockerd)
    problem = FileNotFoundError("no socket")
    if does is None:
        with pytest.raises(SetupError, match="start Docker, then run this again"):
            setup.engine_step(problem)
    else:
        step = setup.engine_step(problem)
        assert step.does.startswith(does)
        assert step.on_machine


def test_an_engine_that_was_named_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    problem = setup.engine_problem()
    assert isinstance(problem, FileNotFoundError)
    with pytest.raises(SetupError, match="DOCKER_HOST=unix:///nowhere"):
        setup.engine_step(problem)


def test_a_socket_that_is_closed_to_us_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match="group `docker`"):
        setup.engine_step(PermissionError("denied"))


def test_dockerd_that_ends_shows_the_end_of_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dockerd = tmp_path / "dockerd"
    dockerd.write_text("#!/bin/sh\necho 'failed to start: no such driver' >&2\nexit 1\n")
    dockerd.chmod(0o755)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(setup, "DOCKERD_LOG", tmp_path / "log")
    (tmp_path / "log").write_text("of an earlier start\n")
    with pytest.raises(SetupError) as failed:
        setup.start_dockerd(f"{tmp_path}:/usr/bin:/bin")
    assert "no such driver" in str(failed.value)
    assert "earlier start" not in str(failed.value)


def test_two_setups_take_turns(capsys: pytest.CaptureFixture[str]) -> None:
    other = "from tools import setup\nwith setup.only_setup(): print('in', flush=True)\n"
    with setup.only_setup():
        process = subprocess.Popen(
            [sys.executable, "-c", other], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert "waiting for it" in process.stdout.readline()
    rest, _ = process.communicate(timeout=20)
    assert rest.strip() == "in"


def test_the_environment_of_another_checkout_is_left_alone(project: Path) -> None:
    stamp(project)
    mine = project / "mine"
    shutil.copytree(project, mine, ignore=shutil.ignore_patterns(".venv"))
    (mine / ".venv").symlink_to(project / ".venv")
    with pytest.raises(SetupError, match="is a link"):
        setup.make_venv(mine)
    assert setup.venv_stamped(project) == setup.venv_stamp(project)


@pytest.mark.parametrize(
    ("pins_changed", "cut_short"),
    [(False, "venv"), (False, "-r"), (False, "-e"), (True, "-r"), (True, "-e")],
)
def test_an_environment_that_was_being_made_is_made_anew(
    project: Path, monkeypatch: pytest.MonkeyPatch, pins_changed: bool, cut_short: str
) -> None:
    if pins_changed:
        stamp(project)
        (project / "requirements.lock").write_text("one-more==1.0\n")
    asked: list[Sequence[str]] = []

    def command(args: Sequence[str], _: str) -> None:
        asked.append(args)
        (project / ".venv").mkdir(exist_ok=True)
        if cut_short in args:
            raise KeyboardInterrupt

    monkeypatch.setattr(setup, "command", command)
    with pytest.raises(KeyboardInterrupt):
        setup.make_venv(project)
    assert setup.venv_stamped(project) != setup.venv_stamp(project), "the next start does it again"
    asked.clear()
    cut_short = "nothing"
    setup.make_venv(project)
    assert asked[0][1:4] == ["-m", "venv", "--clear"]
    assert setup.venv_stamped(project) == setup.venv_stamp(project)


@pytest.mark.parametrize(("who", "runs"), [("dockerd", True), ("sleep", False), ("nobody", False)])
def test_only_a_dockerd_that_lives_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str, runs: bool
) -> None:
    """One that was killed leaves its number, which another process may have by now."""
    monkeypatch.setattr(setup, "DOCKERD_PID", tmp_path / "docker.pid")
    assert not setup.dockerd_is_running()
    program = tmp_path / who
    shutil.copy("/usr/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as process:
        setup.DOCKERD_PID.write_text(f"{process.pid}\n")
        named = Path(f"/proc/{process.pid}/comm")
        eventually(lambda: named.read_text().strip() == who)
        if who != "nobody":
            assert setup.dockerd_is_running() is runs
        process.kill()
    assert not setup.dockerd_is_running()


def test_every_dependency_is_a_range_and_locked_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [Requirement(line) for line in chain(project["dependencies"], *extras.values())]
    assert not any("==" in str(one.specifier) for one in wanted)
    lock = (ROOT / "requirements.lock").read_text()
    lines = [line.split(" ")[0] for line in lock.splitlines() if line[:1].isalpha()]
    locked = {name: version for name, _, version in (line.partition("==") for line in lines)}
    for one in wanted:
        if one.name != "lockbench":
            assert one.specifier.contains(locked[canonicalize_name(one.name)]), one
    assert lock.count("--hash=sha256:") >= len(lines)
    assert "://" not in lock


@pytest.mark.docker
def test_setup_with_nothing_to_do_is_quick_and_says_so() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-I", str(ROOT / "tools" / "setup.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    assert "everything is in place" in line
    # Of a processor, not of a clock: others use the machine, too.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5
