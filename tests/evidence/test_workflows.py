"""The workflows and the action: what they call exists, and their shell steps do what they say.

There is no runner here, so a step is taken out of its file and run by bash, as a runner does, with
programs of ours in place of ``gh`` and a repository of ours in place of GitHub's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evidence.runner import shells

ROOT = Path(__file__).parents[2]
NIGHTLY, PULL_REQUEST = (
    ROOT / ".github" / "workflows" / f"{name}.yml" for name in ("nightly", "pull-request")
)
ACTION = ROOT / "action.yml"
FILES = (NIGHTLY, PULL_REQUEST, ACTION)


def steps(file: Path) -> dict[str, str]:
    """Name → its shell, of every step that has both."""
    return shells(file.read_text())


def played(
    file: Path, step: str, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """As GitHub's runner does it."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps(file)[step]],
        cwd=folder, capture_output=True, text=True, check=False,
        env={
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            "GITHUB_OUTPUT": str(folder / "output"),
            **environment,
        },
    )  # fmt: skip


def program(folder: Path, name: str, text: str) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text("#!/bin/sh\n" + text)
    (folder / "bin" / name).chmod(0o755)


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@y"]
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *words], capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone, with one commit, of a repository that has it too."""
    git(tmp_path, "init", "--quiet", "--bare", "hub")
    git(tmp_path, "clone", "--quiet", "hub", "clone")
    found = tmp_path / "clone"
    (found / "file").write_text("of the tree")
    git(found, "add", "--all")
    git(found, "commit", "--quiet", "--message", "first")
    git(found, "push", "--quiet", "origin", "HEAD:main")
    return found


def test_all_steps_are_found() -> None:
    assert {"fetch the history", "the night", "keep the history"} <= set(steps(NIGHTLY))
    assert {"what changed", "set up both sides", "regress", "comment"} <= set(steps(PULL_REQUEST))
    assert {"set up", "regress", "say how it ended"} <= set(steps(ACTION))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_step_is_shell_and_every_action_is_pinned(file: Path) -> None:
    for name, text in steps(file).items():
        done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, check=False)
        assert done.returncode == 0, (name, done.stderr)
        assert "${{" not in text, f"{name}: what comes from outside is no shell"
    uses = re.findall(r"uses: (\S+)", re.sub(r"(?m)^#.*$", "", file.read_text()))
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in uses)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_steps_call_is_there(file: Path) -> None:
    text = "\n".join(steps(file).values()) + file.read_text()
    for module in re.findall(r"-m lockbench\.(evidence\.\w+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), module
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"make (?:-C \S+ )?([a-z]+)", "\n".join(steps(file).values()))) <= {
        *targets
    }
    for option in re.findall(r"(--(?:base|new|lock|fault|pairs|fail-on|history))\b", text):
        called = (ROOT / "evidence" / "nightly.py").read_text()
        called += (ROOT / "cli" / "commands" / "regress.py").read_text()
        assert option.removeprefix("--").replace("-", "_") in called.replace("-", "_")


@pytest.mark.parametrize(
    ("required", "skipped"), [({}, "True"), ({"LOCKBENCH_CHROMIUM": "required"}, "False")]
)
def test_the_check_of_a_pull_request_has_a_browser(
    tmp_path: Path, required: dict[str, str], skipped: str
) -> None:
    """Elsewhere the tests of pages are skipped where there is none; there they fail."""
    (variable,) = re.findall(
        r"run: make check\n +env:\n +(\w+): required", PULL_REQUEST.read_text()
    )
    assert {variable} >= set(required)
    asked = "from tests.report.browser import needs_chromium as n; print(n.args[0])"
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=ROOT, env={"PATH": str(tmp_path), **required},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == skipped
    program(tmp_path, "sudo", 'echo "$*" >> asked')
    program(tmp_path, "chromium", "")
    assert played(PULL_REQUEST, "chromium", tmp_path).returncode == 0
    assert not (tmp_path / "asked").exists()


def test_nights_are_kept_one_after_the_other_also_those_that_failed(clone: Path) -> None:
    for night in ("one", "two"):
        assert played(NIGHTLY, "fetch the history", clone).returncode == 0
        history = clone / "history" / "nights.jsonl"
        assert history.exists() is (night == "two")
        assert not (clone / "history" / "file").exists(), "nothing of the tree"
        with history.open("a") as file:
            file.write(night + "\n")
        done = played(NIGHTLY, "keep the history", clone)
        assert done.returncode == 0, done.stderr
        git(clone, "worktree", "remove", "--force", "history")
        git(clone, "branch", "-D", "nights")
    assert git(clone.parent / "hub", "show", "nights:nights.jsonl") == "one\ntwo"
    assert git(clone.parent / "hub", "rev-list", "--count", "nights") == "2"


def test_a_night_that_was_refused_adds_nothing(clone: Path) -> None:
    played(NIGHTLY, "fetch the history", clone)
    assert played(NIGHTLY, "keep the history", clone).returncode == 0
    assert git(clone.parent / "hub", "branch", "--list", "nights") == ""


def test_a_history_that_cannot_be_asked_for_is_not_begun_anew(clone: Path) -> None:
    git(clone, "remote", "set-url", "origin", str(clone.parent / "nowhere"))
    assert played(NIGHTLY, "fetch the history", clone).returncode != 0
    assert not (clone / "history").exists()


@pytest.mark.parametrize(
    ("ending", "warned"), [("ok", False), ("inconclusive", True), ("regression", True)]
)
def test_a_night_without_an_answer_warns(tmp_path: Path, ending: str, warned: bool) -> None:
    latest = tmp_path / "runs" / "latest"
    latest.mkdir(parents=True)
    (latest / "ending").write_text(f"{ending}\n")
    (latest / "report.md").write_text("# the headline\n\nmore\n")
    done = played(NIGHTLY, "say how it ended", tmp_path)
    assert done.returncode == 0
    assert f"ending: {ending}" in done.stdout
    told = f"::warning title=nightly::{ending}: the headline"
    assert (told in done.stdout) is warned
    assert (tmp_path / "summary").read_text().startswith("# the headline")


def test_the_night_is_told_its_refs_only_where_they_are_given(tmp_path: Path) -> None:
    python = tmp_path / ".venv" / "bin"
    python.mkdir(parents=True)
    (python / "python").write_text('#!/bin/sh\necho "$@"\n')
    (python / "python").chmod(0o755)
    plain = played(NIGHTLY, "the night", tmp_path, BASE="", NEW="")
    assert plain.stdout == "-m lockbench.evidence.nightly --history history\n"
    given = played(NIGHTLY, "the night", tmp_path, BASE="redis=a b", NEW="current")
    assert (
        given.stdout
        == "-m lockbench.evidence.nightly --history history --base redis=a b --new current\n"
    )


@pytest.mark.parametrize(
    ("path", "measured"),
    [("locks/redis/token.py", True), ("clusters/images/debian.lock", True), ("README.md", False)],
)
def test_a_pull_request_is_measured_where_a_lock_or_an_image_changed(
    clone: Path, path: str, measured: bool
) -> None:
    base = git(clone, "rev-parse", "HEAD")
    (clone / path).parent.mkdir(parents=True, exist_ok=True)
    (clone / path).write_text("new")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "change")
    assert played(PULL_REQUEST, "what changed", clone, TARGET=base).returncode == 0
    output = (clone / "output").read_text()
    assert f"base={base}\n" in output
    assert ("measure=true" in output) is measured
    assert (clone / "changed.txt").read_text().split() == [path]


def test_a_pull_request_whose_locks_cannot_be_found_out_fails(tmp_path: Path) -> None:
    for name in ("git", "make"):
        program(tmp_path, name, "exit 0\n")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (tmp_path / "base").symlink_to(tmp_path)
    for code, crashes in ((0, ""), (1, "case $* in *touched*) exit 1;; esac\n")):
        python.write_text(f"#!/bin/sh\n{crashes}echo etcd\n")
        python.chmod(0o755)
        assert played(PULL_REQUEST, "set up both sides", tmp_path, BASE="x").returncode == code


def test_the_action_hands_its_inputs_on_and_says_how_it_ended(tmp_path: Path) -> None:
    python = tmp_path / "action" / ".venv" / "bin"
    python.mkdir(parents=True)
    (python / "lockbench").write_text('#!/bin/sh\nfor word; do echo "$word"; done\nexit 3\n')
    (python / "lockbench").chmod(0o755)
    inputs = {"BASE": "redis==8.0.1", "NEW": "my lock.py:L", "LOCK": "", "FAULT": "none"}
    done = played(
        ACTION, "regress", tmp_path, GITHUB_ACTION_PATH=str(tmp_path / "action"), PAIRS="",
        FAIL_ON="safety", WORKLOAD="", TIME_LIMIT="15", **inputs,
    )  # fmt: skip
    assert done.returncode == 3, "its failure is the job's"
    assert done.stdout.splitlines() == [
        "regress", "--base", "redis==8.0.1", "--new", "my lock.py:L", "--fault", "none",
        "--time-limit", "15", "--fail-on", "safety",
    ]  # fmt: skip
    (tmp_path / "runs" / "latest").mkdir(parents=True)
    (tmp_path / "runs" / "latest" / "ending").write_text("regression\n")
    (tmp_path / "runs" / "latest" / "comparison.md").write_text("slower\n")
    played(ACTION, "say how it ended", tmp_path)
    output = (tmp_path / "output").read_text()
    assert "ending=regression\n" in output
    assert f"comparison={tmp_path.resolve() / 'runs' / 'latest' / 'comparison.md'}\n" in output
