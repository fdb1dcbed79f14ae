"""What a session leaves behind fails it; what it clears away does not."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockbench.clusters.engine import owner
from lockbench.clusters.engine.docker import EngineUnreachable
from tests import leftovers

BEGIN = "import subprocess, sys, tempfile\n"
ASLEEP = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
PLANTED = f"""{BEGIN}
def test():
    tempfile.mkdtemp(prefix="forgotten-")
    {ASLEEP}
"""
INNOCENT = f"""{BEGIN}
def test(tmp_path):
    (tmp_path / "kept").touch()
    with tempfile.TemporaryDirectory():
        made = {ASLEEP}
    made.kill()
    made.wait()
"""


def session(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    file = folder / "test_planted.py"
    file.write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    words = ["-q", "-p", "no:cacheprovider", "-p", "tests.leftovers", "--rootdir", str(folder)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words, f"--basetemp={folder / 'base'}", str(file)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_left_fails_the_session(tmp_path: Path) -> None:
    done = session(tmp_path, PLANTED)
    assert "1 passed" in done.stdout
    entry, process = done.stdout.partition("left behind")[2].splitlines()[1:3]
    assert "/forgotten-" in entry
    assert process.startswith("process ")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED


def test_what_is_cleared_away_does_not(tmp_path: Path) -> None:
    done = session(tmp_path, INNOCENT)
    assert "left behind" not in done.stdout
    assert done.returncode == pytest.ExitCode.OK, done.stdout


@dataclass
class FakeEngine:
    """Containers and networks, by name."""

    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    answers: bool = True

    def containers(self, _: object) -> list[SimpleNamespace]:
        if not self.answers:
            raise EngineUnreachable("no engine answers")
        return [SimpleNamespace(name=name) for name in self.labels]

    def networks(self, _: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=f"{name}-net", labels=of) for name, of in self.labels.items()]

    def state(self, container: SimpleNamespace) -> SimpleNamespace:
        return SimpleNamespace(labels=self.labels[container.name])


def test_containers_of_this_process_and_of_the_dead_are_left() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    dead = {**owner.labels("r", "c"), owner.OWNER: f"{ended.pid}:1:{owner.place()}"}
    other = f"{os.getppid()}:{owner.start_ticks(os.getppid())}:{owner.place()}"
    others = {**owner.labels("r", "c"), owner.OWNER: other}
    engine = FakeEngine({"mine": owner.labels("r", "c"), "dead": dead, "other": others})
    assert leftovers._of_engine(engine) == [  # type: ignore[arg-type]
        "container mine",
        "container dead",
        "network mine-net",
        "network dead-net",
    ]


def test_an_engine_that_does_not_answer_is_not_an_empty_one() -> None:
    (line,) = leftovers._of_engine(FakeEngine(answers=False))  # type: ignore[arg-type]
    assert "no engine answers" in line
