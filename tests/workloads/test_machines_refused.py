"""What a file of machines may not say, and machines without an agent of ours: a sentence each."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lockbench.workloads.machines.agent import GREETING
from lockbench.workloads.machines.file import MachinesError, read
from lockbench.workloads.machines.link import ASKS
from lockbench.workloads.machines.remote import Remote
from lockbench.workloads.machines.version import versions
from tests.command import lockbench
from tests.workloads.namespaces import written


def script(folder: Path, text: str) -> str:
    """A command that leads to a machine where this runs in the place of the agent."""
    file = folder / "there"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def greeted(folder: Path, text: str) -> str:
    """What is said of a machine where ``text`` runs in the place of the agent."""
    (machine,) = read(written(folder, {"b": (script(folder, text), 1)}), 3)
    with Remote(machine, folder, folder / "log") as remote:
        with pytest.raises(MachinesError) as refused:
            remote.greet()
        return str(refused.value)


def hello(**other: str) -> str:
    return f"echo '{GREETING}{json.dumps(versions() | other)}'; cat > /dev/null"


def test_the_same_version_is_let_in(tmp_path: Path) -> None:
    """Whatever a shell says before."""
    (machine,) = read(
        written(tmp_path, {"b": (script(tmp_path, f"echo Welcome; {hello()}"), 1)}), 3
    )
    with Remote(machine, tmp_path, tmp_path / "log") as remote:
        remote.greet()


def test_another_version_is_refused(tmp_path: Path) -> None:
    ours = versions()["lockbench"]
    said = greeted(tmp_path, hello(lockbench="1a2b3c4d"))
    assert said == f"machine b runs lockbench 1a2b3c4d, this is {ours}: install the same"


def test_other_libraries_are_refused(tmp_path: Path) -> None:
    said = greeted(tmp_path, hello(redis="0.1"))
    assert said == f"machine b has redis 0.1, this is {versions()['redis']}: install the same"


def test_a_machine_without_python(tmp_path: Path) -> None:
    said = greeted(tmp_path, "exec /no/such/python -m lockbench agent")
    assert said.startswith("machine b runs no agent: the command ended with 127 (")
    assert "not found" in said
    assert said.endswith("; lockbench has to be in its PATH, with Python 3.11 or newer")


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    (machine,) = read(written(tmp_path, {"b": ("/no/such/ssh b", 1)}), 3)
    with (
        Remote(machine, tmp_path, tmp_path / "log") as remote,
        pytest.raises(MachinesError, match="machine b cannot be reached: /no/such/ssh: No such"),
    ):
        remote.greet()


@pytest.mark.parametrize("stream", ["", ">&2"])
def test_a_command_that_asks_for_a_password(tmp_path: Path, stream: str) -> None:
    """It would wait for ever, and nobody sees the question."""
    said = greeted(tmp_path, f'printf "me@b\'s password: " {stream}; cat > /dev/null')
    assert said.startswith("machine b asks \"me@b's password:")
    assert "nobody answers" in said


@pytest.mark.parametrize(
    "asked",
    [
        "me@b's password: ",
        "Enter passphrase for key '/home/me/.ssh/id': ",
        "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
    ],
)
def test_what_ssh_asks(asked: str) -> None:
    assert ASKS.search(asked)


@pytest.mark.parametrize("said", ["Your password expires in 3 days.", "Last login: Tue", ""])
def test_what_is_no_question(said: str) -> None:
    assert not ASKS.search(said)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "machine"),
        ("[[machine]]\nname = 'b'\n", "run"),
        ("[[machine]]\nname = 'b'\nrun = 'ssh b'\nport = 1\n", "port"),
        ("[[machine]]\nname = 'b'\nrun = ''\n", "no command"),
        ("[[machine]]\nname = 'b'\nrun = \"ssh 'b\"\n", "No closing quotation"),
        ("[[machine]]\nname = 'here'\nrun = 'ssh b'\n", "no name for a machine"),
        ("[[machine]]\nname = '../b'\nrun = 'ssh b'\n", "no name for a machine"),
        ("[[machine]]\nname = 'b'\nrun = 'ssh b'\nworkers = 0\n", ">= 1"),
        ("[[machine]]\nname = 'b'\nrun = 'ssh b'\nworkers = 100\n", "there may be 67"),
        ("[[machine]]\nname = 'b'\nrun = 'ssh b'\n" * 2, "names b twice"),
        ("[[machine]\n", "Expected"),
        (f"x = {'[' * 5000}", "nested too deeply"),
        (f"{'a.' * 20_000}a = 1", "line 1 has more than 64 dots"),
        ("[[machine]]\nname = 'b'\nrun = 'ssh b'\nworkers = 1000000000\n", "<= 1000"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "m.toml"
    file.write_text(text)
    with pytest.raises(MachinesError, match=why) as refused:
        read(file, 3)
    assert str(refused.value).startswith(str(file))


def test_a_file_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.toml")
    with pytest.raises(MachinesError, match="a FIFO"):
        read(tmp_path / "m.toml", 3)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MachinesError, match="no such file"):
        read(tmp_path / "m.toml", 3)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return written(tmp_path, {"b": (script(tmp_path, hello(lockbench="1a2b")), 1)})


def test_the_command_line_refuses_before_anything_is_started(there: Path, tmp_path: Path) -> None:
    runs = str(tmp_path / "runs")
    for words, why in (
        (["redis-token", "--machines", str(there)], "machine b runs lockbench 1a2b, this is"),
        (["redsync", "--machines", str(there)], "redsync runs in a container"),
        (["redis-token", "--machines", "no.toml"], "no.toml: no such file"),
        (["redis-token", "--machines", str(there), "--locustfile", __file__], "leave --machines"),
        (["redis-fence", "--machines", str(there), "--resource", "file"], "from this machine only"),
    ):
        ended = lockbench("run", "--lock", *words, "--runs", runs)
        assert ended.returncode == 254, ended.stderr
        assert why in ended.stderr
    assert not (tmp_path / "runs").exists()
