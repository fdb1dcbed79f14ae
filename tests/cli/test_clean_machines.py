"""``clean --machines``: an agent that was stopped while its bench was killed is ended, and what a
killed one left is removed; that of a bench that lives is left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lockbench.cli.machines import clean
from lockbench.clusters.engine.owner import me, place, start_ticks
from lockbench.declarations import program
from lockbench.workloads.machines.agent import OWNER, PREFIX
from tests.eventually import eventually
from tests.workloads.namespaces import BIN, written

pytestmark = pytest.mark.slow

# A bench, up to where its agent has workers.
HOME = """
import sys, time
from pathlib import Path
from lockbench.workloads.machines.file import read
from lockbench.workloads.machines.remote import Remote
folder = Path(sys.argv[1])
(machine,) = read(folder / "m.toml", 3)
remote = Remote(machine, folder, folder / "log")
remote.greet()
remote.answer(remote.prepare("test", "redis-token"), 120)
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The temporary folder of a machine."""
    folder = tmp_path / "there"
    folder.mkdir()
    return folder


@pytest.fixture
def file(tmp_path: Path, there: Path) -> Path:
    # As ssh does, the shell lets what it has started live when it is killed.
    shell = "sh -c '\"$@\"; exit $?' sh"
    command = f"{shell} env PATH={BIN}:{os.environ['PATH']} TMPDIR={there}"
    return written(tmp_path, {"a": (command, 1)})


@pytest.fixture
def asleep() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def planted(there: Path, name: str, *, agent: str, home: str) -> Path:
    folder = there / (PREFIX + name)
    folder.mkdir()
    (folder / OWNER).write_text(json.dumps({"agent": agent, "home": home}))
    return folder


def named(pid: int) -> str:
    return f"{pid}:{start_ticks(pid)}:{place()}"


def dead() -> str:
    return f"1:1:{place()}"


def test_what_killed_runs_have_left_is_ended(
    file: Path, there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = subprocess.Popen(
        [sys.executable, "-P", "-c", HOME, str(tmp_path)],
        env=program.environment(),
        stdout=subprocess.PIPE,
    )
    assert home.stdout is not None
    with home:
        assert home.stdout.readline() == b"up\n"
        (folder,) = there.glob(PREFIX + "*")
        agent = psutil.Process(int(json.loads((folder / OWNER).read_text())["agent"].split(":")[0]))
        started = agent.children(recursive=True)
        assert len(started) == 2, "a fork server and a worker"
        agent.send_signal(signal.SIGSTOP)
        home.kill()
    # Nobody is there who could end it.
    assert agent.is_running()
    assert all(one.is_running() for one in started)
    clean(file)
    said = capsys.readouterr().out
    assert f"machine a: ended agent {agent.pid}" in said
    assert f"machine a: removed {folder}" in said
    eventually(lambda: not any(one.is_running() for one in (agent, *started)))
    assert not list(there.iterdir())
    clean(file)
    assert capsys.readouterr().out == "machine a: nothing is left there\n"


def test_whoever_may_live_is_left_alone(
    file: Path,
    there: Path,
    asleep: subprocess.Popen[bytes],
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine = named(asleep.pid)
    kept = [
        planted(there, "of-a-living-bench", agent=mine, home=me()),
        planted(there, "of-a-bench-elsewhere", agent=mine, home="1:1:other/boot/1"),
        planted(there, "with-numbers-of-elsewhere", agent=f"{asleep.pid}:1:x/y/z", home=dead()),
    ]
    gone = planted(there, "dead", agent=dead(), home=me())
    clean(file)
    assert asleep.poll() is None
    assert all(folder.exists() for folder in kept)
    assert not gone.exists()
    assert "ended" not in capsys.readouterr().out
