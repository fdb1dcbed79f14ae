"""The page about CI, and the action: their files fit the schemas of GitHub and GitLab, and their
steps do what the page says, played by bash."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clusters.json_server import answering
from tests.command import lockbench
from tests.evidence.runner import ACTION, OURS, ROOT, Runner, bash, read, shells, steps

PAGE: Final = (ROOT / "docs" / "ci.md").read_text()
BLOCKS: Final = re.findall(r"^```(yaml|sh)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
# Name of its file → text.
YAML: Final = {
    text.split("\n", 1)[0].removeprefix("# "): text for kind, text in BLOCKS if kind == "yaml"
}
WORKFLOWS: Final = {name: text for name, text in YAML.items() if "workflows" in name}
SCRIPTS: Final = [text for kind, text in BLOCKS if kind == "sh"]
LOCK: Final = ".github/workflows/lock.yml"
GITLAB: Final = ".gitlab-ci.yml"
CALLS: Final = re.compile(r"(?:\.lockbench/\.venv/bin/)?lockbench (?:run|regress|conform)\b[^\n]*")

# In the place of programs. What is asked of Lockbench is noted, and then leaves what a run leaves.
STUBS: Final = {
    "lockbench": """
        echo "$*" >> "$CALLS"
        mkdir -p runs/latest
        echo ok > runs/latest/ending
        echo "### Lockbench" | tee runs/latest/comparison.md > runs/latest/report.md
        exit "${ENDS:-0}" """,
    # Names the images, and saves no gigabyte.
    "docker": """
        echo "$*" >> "$DOCKER"
        if [ "$1" = save ]; then echo "$*" > "$3"; fi""",
    "make": "exit 0",
    "git": """
        case "$*" in
          clone*) exit 0 ;;
          *worktree*) mkdir -p base/app && cp app/my_lock.py base/app/ ;;
        esac""",
}


def test_the_page_has_what_it_promises() -> None:
    assert {LOCK, GITLAB} < YAML.keys()
    assert len(WORKFLOWS) == 3
    assert len(SCRIPTS) == 2


def refused(text: str, schema: str, folder: Path) -> str:
    """What the schema says against a document; empty: nothing."""
    file = folder / "document.yml"
    file.write_text(text)
    words = ["-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize(
    ("schema", "text", "defect"),
    [
        ("vendor.github-workflows", YAML[LOCK], ("runs-on", "run-on")),
        ("vendor.gitlab-ci", YAML[GITLAB], ("  script:", "  scripts:")),
        ("vendor.github-actions", ACTION.read_text(), ("using: composite", "using: magic")),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("vendor") else "",
)
def test_files_fit_their_schema_and_a_planted_defect_does_not(
    schema: str, text: str, defect: tuple[str, str], tmp_path: Path
) -> None:
    assert refused(text, schema, tmp_path) == ""
    assert refused(text.replace(*defect), schema, tmp_path)


@pytest.mark.parametrize("text", WORKFLOWS.values(), ids=WORKFLOWS)
def test_every_workflow_of_the_page_is_one(text: str, tmp_path: Path) -> None:
    if text != YAML[LOCK]:
        assert refused(text, "vendor.github-workflows", tmp_path) == ""
    for name, script in shells(text).items():
        assert "${{" not in script, f"{name}: what comes from outside is no shell"
    for step in steps(text):
        uses = step.get("uses", OURS)
        assert re.fullmatch(rf"{OURS}|actions/[\w-]+@[0-9a-f]{{40}}", uses)


def calls() -> list[str]:
    """Every call of Lockbench on the page, in one line."""
    joined = re.sub(r"\n +(?=--)", " ", PAGE.replace("\\\n", ""))
    return [
        found[0] for found in CALLS.finditer("\n".join(re.findall(r"(?ms)^```.*?^```", joined)))
    ]


@pytest.mark.parametrize("call", calls())
def test_every_call_has_options_that_are_there(call: str) -> None:
    """The lock's file is not there, so that it ends before it starts anything."""
    words = call.partition("lockbench ")[2]
    words = words.replace('"$FAULTS"', "none").replace('"$GITHUB_RUN_NUMBER"', "7")
    done = lockbench(*words.split())
    assert done.returncode == 254
    assert "my_lock.py" in done.stderr, done.stderr


def folder_of(root: Path) -> Path:
    """A repository with a lock, and programs in the place of others."""
    (root / "app").mkdir()
    (root / "app" / "my_lock.py").write_text("")
    programs = root / "bin"
    programs.mkdir()
    for name, text in STUBS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    return root


def action_in(root: Path, program: str) -> Path:
    """A checkout with another ``lockbench``: links to all of this one but its environment."""
    action = root / "action"
    (action / ".venv" / "bin").mkdir(parents=True)
    for path in ROOT.iterdir():
        if path.name != ".venv":
            (action / path.name).symlink_to(path)
    (action / ".venv" / "bin" / "lockbench").write_text(f"#!/bin/bash\n{program}\n")
    (action / ".venv" / "bin" / "lockbench").chmod(0o755)
    return action


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    folder = folder_of(tmp_path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    return Runner(
        folder,
        action_in(tmp_path, STUBS["lockbench"]),
        {
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "CALLS": str(folder / "calls"),
            "DOCKER": str(folder / "docker"),
            "GITHUB_RUN_NUMBER": "7",
        },
        {
            "runner.temp": str(temporary),
            "github.event.pull_request.base.sha": "abc",
            "github.event.pull_request.head.repo.full_name": "someone/fork",
            "github.repository": "owner/repository",
            "github.token": "secret",
        },
    )


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_step_can_be_played(runner: Runner, name: str) -> None:
    assert runner.play(steps(WORKFLOWS[name])), runner.said
    assert set(shells(WORKFLOWS[name])) <= set(runner.played)
    called = (runner.folder / "calls").read_text()
    assert "my_lock.py" in called


def test_images_are_saved_once_and_loaded_from_then_on(runner: Runner) -> None:
    for _ in range(2):
        assert runner.play(steps(WORKFLOWS[LOCK])), runner.said
    saved, loaded = (runner.folder / "docker").read_text().splitlines()
    assert saved.startswith("save --output")
    assert loaded == f"load --quiet --input {runner.context['runner.temp']}/lockbench-images.tar"
    refs = saved.split()[3:]
    assert {ref.partition(":")[0] for ref in refs} >= {"lockbench-redis", "lockbench-toxiproxy"}
    assert not any("golang" in ref or "sidecar" in ref for ref in refs)


def test_other_images_have_another_cache(runner: Runner) -> None:
    keys = set()
    for images in ("", "go-sidecar"):
        runner.context["inputs.images"] = images
        step = next(s for s in steps(ACTION.read_text()) if s.get("id") == "images")
        assert runner.play([step]), runner.said
        keys.add(runner.context["steps.images.outputs.key"])
    assert len(keys) == 2
    assert "lockbench-go-sidecar:" in runner.context["steps.images.outputs.refs"]
    runner.context["inputs.images"] = "gosidecar"
    assert not runner.play([step]), "it is not there"
    assert "no image is called gosidecar" in runner.said[-1]


def test_a_job_fails_where_lockbench_does_and_still_says_how_it_ended(runner: Runner) -> None:
    runner.env = {**runner.env, "ENDS": "3"}
    assert not runner.play(steps(WORKFLOWS[LOCK]))
    assert runner.context["steps.told.outputs.ending"] == "ok", "what the stub left"
    assert "comment" not in runner.played, "a fork may not write"


# --- the comment ---------------------------------------------------------------------------------

GITHUB: Final = {
    "GITHUB_REPOSITORY": "a/b", "GITHUB_SERVER_URL": "https://github", "GITHUB_RUN_ID": "5",
    "GITHUB_WORKFLOW": "lock", "GITHUB_JOB": "regress",
}  # fmt: skip
FORGES: Final = {
    "GitHub": ("/repos/a/b/issues/7/comments", "/repos/a/b/issues/comments", "PATCH"),
    "GitLab": ("/projects/3/merge_requests/7/notes",) * 2 + ("PUT",),
}


class Comments:
    """The comments of a request, as GitHub and GitLab serve them, in pages."""

    def __init__(self, forge: str, there: list[str]) -> None:
        self.list, self.one, self.update = FORGES[forge]
        self.bodies = dict(enumerate(there))

    def answer(self, method: str, path: str, body: Any) -> tuple[int, object] | None:
        address, _, asked = path.partition("?")
        if method == "GET" and address == self.list:
            page = int(re.findall(r"\bpage=(\d+)", asked)[0])
            rows = [{"id": number, "body": text} for number, text in self.bodies.items()]
            return 200, rows[100 * (page - 1) : 100 * page]
        if method == "POST" and address == self.list:
            self.bodies[len(self.bodies)] = body["body"]
            return 201, {}
        number = address.removeprefix(f"{self.one}/")
        if method == self.update and number.isdigit() and int(number) in self.bodies:
            self.bodies[int(number)] = body["body"]
            return 200, {}
        return 403, {"message": "no"}


@contextmanager
def served(forge: str, there: list[str], folder: Path) -> Iterator[tuple[Comments, dict[str, str]]]:
    comments = Comments(forge, there)
    event = folder / "event.json"
    event.write_text('{"pull_request": {"number": 7}}')
    with answering(comments.answer) as (port, _):
        address = f"http://127.0.0.1:{port}"
        env = {"PATH": os.environ["PATH"], "LOCKBENCH_TOKEN": "secret", "no_proxy": "*"}
        if forge == "GitHub":
            env |= {**GITHUB, "GITHUB_API_URL": address, "GITHUB_EVENT_PATH": str(event)}
        else:
            env |= {"CI_API_V4_URL": address, "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "7"}
            env |= {"CI_JOB_NAME": "lock", "CI_JOB_URL": "https://gitlab/job"}
        yield comments, env


def write(folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """As the action's step does it, and GitLab's ``after_script``."""
    script = f'python3 -I "{ROOT}/tools/comment.py" runs/latest/comparison.md'
    return bash(script, folder, env)


@pytest.mark.parametrize("forge", FORGES)
def test_a_request_has_one_comment_that_is_updated(forge: str, tmp_path: Path) -> None:
    latest = tmp_path / "runs" / "latest"
    latest.mkdir(parents=True)
    # More than a page of others', and one that is nearly ours.
    others = [f"comment {number}" for number in range(120)] + ["<!-- lockbench: other -->\nx"]
    with served(forge, others, tmp_path) as (comments, env):
        for text in ("### slower\n", "### ok\n"):
            (latest / "comparison.md").write_text(text)
            done = write(tmp_path, env)
            assert done.returncode == 0, done.stdout
            assert comments.bodies[len(others)].splitlines()[1:] == [text.strip()]
        assert len(comments.bodies) == len(others) + 1
        assert list(comments.bodies.values())[: len(others)] == others
        (latest / "comparison.md").unlink()
        write(tmp_path, env)
        assert "Could not compare: [the log says why](https://git" in comments.bodies[len(others)]


def test_the_action_comments_on_a_pull_request_that_is_no_forks(runner: Runner) -> None:
    with served("GitHub", [], runner.folder) as (comments, env):
        runner.context["github.event.pull_request.head.repo.full_name"] = "owner/repository"
        runner.env = {**runner.env, **env, "PATH": runner.env["PATH"]}
        assert runner.play(steps(WORKFLOWS[LOCK])), runner.said
    assert comments.bodies == {0: "<!-- lockbench: lock, regress -->\n### Lockbench\n"}


def test_a_comment_that_is_too_long_is_cut(tmp_path: Path) -> None:
    latest = tmp_path / "runs" / "latest"
    latest.mkdir(parents=True)
    (latest / "comparison.md").write_text("x" * 70_000)
    with served("GitHub", [], tmp_path) as (comments, env):
        write(tmp_path, env)
    assert len(comments.bodies[0]) < 65_536
    assert comments.bodies[0].endswith("has the rest.\n")


def test_what_may_not_write_says_so_and_fails(tmp_path: Path) -> None:
    with served("GitHub", [], tmp_path) as (_, env):
        done = write(tmp_path, env | {"GITHUB_REPOSITORY": "not/ours"})
        assert done.returncode == 255
        assert "403" in done.stdout
    done = write(tmp_path, {"PATH": os.environ["PATH"]})
    assert done.returncode == 254
    assert "LOCKBENCH_TOKEN" in done.stdout


# --- on a real cluster ---------------------------------------------------------------------------

# The shortest there is. The last of two equal options counts.
SHORT: Final = """
case $1 in
  regress) set -- "$@" --pairs 2 --time-limit 8 --fail-on safety ;;
  run) set -- "$@" --fault none ;;
esac
exec "$REAL" "$@" """


def real(folder: Path, runner: Runner) -> None:
    """Lockbench itself in the runner's place of it, made short."""
    for name in STUBS:
        if name not in {"git", "docker"}:
            (folder / "bin" / name).unlink()
    program = runner.action / ".venv" / "bin" / "lockbench"
    program.write_text(f"#!/bin/bash\n{SHORT}\n")
    runner.env = {**runner.env, "REAL": str(Path(sys.executable).with_name("lockbench"))}
    (folder / "app" / "my_lock.py").unlink()
    made = bash(f'"{program}" new-lock my-lock', folder / "app", runner.env)
    assert made.returncode == 0, made.stderr


@pytest.mark.docker
@pytest.mark.timeout(900)  # six runs, one after the other
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name == LOCK else [])
        for name in WORKFLOWS
        if "night" not in name
    ],
)
def test_a_workflow_of_the_page_runs(runner: Runner, name: str) -> None:
    """Set up, measured and told. The images are there, as they are from a cache."""
    real(runner.folder, runner)
    assert runner.play(steps(WORKFLOWS[name])), "\n".join(runner.said)
    latest = runner.folder / "runs" / "latest"
    assert (latest / "ending").read_text().strip() in {"ok", "inconclusive"}
    told = (runner.folder / "github-summary").read_text()
    assert "my-lock" in told or "my_lock" in told


@pytest.mark.docker
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_job_of_gitlab_and_the_scripts_run(runner: Runner) -> None:
    folder = runner.folder
    real(folder, runner)
    (folder / ".lockbench").symlink_to(runner.action)
    job = read(YAML[GITLAB])["lock"]
    env = {**runner.env, "CI_MERGE_REQUEST_DIFF_BASE_SHA": "abc"}
    for script in [*job["script"], *SCRIPTS]:
        done = bash(script, folder, env)
        assert done.returncode == 0, (script, done.stdout, done.stderr)
    assert (folder / "junit.xml").read_text().startswith("<?xml")
    assert [*folder.glob("images-*.tar")]
