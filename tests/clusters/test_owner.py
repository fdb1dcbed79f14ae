import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lockbench.clusters.engine import owner

HOST, BOOT, NAMESPACE = owner.place().split("/")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """As this one is named with an identity of its own, which not every machine has."""
    identity = tmp_path / "machine-id"
    identity.write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr(owner, "_MACHINE_ID", identity)
    return owner.place().split("/")[0]


def test_i_live() -> None:
    assert not owner.is_dead(owner.me())


def test_a_process_that_has_ended_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = f"{child.pid}:{owner.start_ticks(child.pid)}:{owner.place()}"
    assert not owner.is_dead(name)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert owner.is_dead(name), "a zombie owns nothing"
    child.communicate()
    assert owner.is_dead(name)


def test_a_number_that_is_used_again_is_another_process() -> None:
    start = owner.start_ticks(os.getpid())
    assert start is not None
    assert owner.is_dead(f"{os.getpid()}:{start - 1}:{owner.place()}")


def test_who_is_killed_is_the_one_that_was_named() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        start = owner.start_ticks(child.pid)
        assert start is not None
        for name in (
            f"{child.pid}:{start - 1}:{owner.place()}",
            f"{child.pid}:{start}:{HOST}/another-boot/{NAMESPACE}",
        ):
            owner.kill(name)
            assert owner.is_stopped(child.pid) is False
        mine = f"{child.pid}:{start}:{owner.place()}"
        owner.kill(mine)
        assert child.wait(60) == -signal.SIGKILL
        owner.kill(mine)


def test_after_a_reboot_everybody_is_dead(host: str) -> None:
    start = owner.start_ticks(os.getpid())
    assert owner.is_dead(f"{os.getpid()}:{start}:{host}/another-boot/{NAMESPACE}")


def test_another_machine_of_the_same_name_was_not_rebooted(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, _ = host.partition("+")
    for other in (f"{name}+fedcba987654", name):
        assert not owner.is_dead(f"1:1:{other}/another-boot/{NAMESPACE}")
    monkeypatch.setattr(owner, "_MACHINE_ID", Path("/nowhere"))
    assert not owner.is_dead(f"1:1:{name}/another-boot/{NAMESPACE}"), "it may be another one"


@pytest.mark.parametrize(
    "name",
    [
        f"1:1:another-host/{BOOT}/{NAMESPACE}",
        f"1:1:{HOST}/{BOOT}/another-namespace",
        "",
        "1",
        "1:1",
        f"x:1:{owner.place()}",
        f"1:None:{owner.place()}",
    ],
)
def test_who_cannot_be_seen_from_here_lives(name: str) -> None:
    assert not owner.is_dead(name)


def test_only_what_is_labelled_can_be_an_orphan(host: str) -> None:
    start = owner.start_ticks(os.getpid())
    dead = f"{os.getpid()}:{start}:{host}/another-boot/{NAMESPACE}"
    assert owner.orphaned({owner.OURS: "1", owner.OWNER: dead})
    assert not owner.orphaned({owner.OWNER: dead})
    assert not owner.orphaned({owner.OURS: "2", owner.OWNER: dead})
    assert not owner.orphaned({owner.OURS: "1"})
    assert not owner.orphaned(owner.labels("run", "cluster"))
