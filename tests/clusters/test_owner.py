import os
import signal
import subprocess
import sys

import pytest

from lockbench.clusters.engine import owner

HOST, BOOT, NAMESPACE = owner.place().split("/")


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


def test_after_a_reboot_everybody_is_dead() -> None:
    start = owner.start_ticks(os.getpid())
    assert owner.is_dead(f"{os.getpid()}:{start}:{HOST}/another-boot/{NAMESPACE}")


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


def test_only_what_is_labelled_can_be_an_orphan() -> None:
    start = owner.start_ticks(os.getpid())
    dead = f"{os.getpid()}:{start}:{HOST}/another-boot/{NAMESPACE}"
    assert owner.orphaned({owner.OURS: "1", owner.OWNER: dead})
    assert not owner.orphaned({owner.OWNER: dead})
    assert not owner.orphaned({owner.OURS: "2", owner.OWNER: dead})
    assert not owner.orphaned({owner.OURS: "1"})
    assert not owner.orphaned(owner.labels("run", "cluster"))
