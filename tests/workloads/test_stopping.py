"""A fleet ends at any moment: nobody is waited for who has nothing to end."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import psutil
import pytest

from lockbench.workloads import fork_server as nurseries
from lockbench.workloads.fleet import Fleet
from lockbench.workloads.fork_server import ForkServer
from tests.workloads.playing import fork_server

FOR_EVER_S = 3600.0
LIMIT_S = 30.0


def pids(fleet: Fleet) -> list[int]:
    assert fleet._server is not None
    return [
        fleet._server.pid,
        *(child.pid for child in fleet._children.values() if child.pid is not None),
    ]


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_fleet_without_a_load_is_not_waited_for(tmp_path: Path) -> None:
    """Its processes wait for a load and would not see the stop."""
    fleet = Fleet(tmp_path, "test", 2, fork_server())
    fleet.launch()
    started = pids(fleet)
    assert len(started) == 5
    stopping = threading.Thread(target=fleet.stop, args=(FOR_EVER_S,), daemon=True)
    stopping.start()
    stopping.join(LIMIT_S)
    assert not stopping.is_alive(), "it waited for processes that have nothing to end"
    assert all(map(ended, started))
    fleet.stop()  # twice is no error


class Stubborn:
    """A process that ends when it is killed. To wait for it is all that time is spent on."""

    now_s = 0.0

    def __init__(self) -> None:
        self.killed = False

    def send_signal(self, number: signal.Signals) -> None:
        self.killed = self.killed or number == signal.SIGKILL

    def wait(self, timeout_s: float) -> bool:
        if not self.killed:
            Stubborn.now_s += timeout_s
        return self.killed

    def close(self) -> None:
        pass


def test_all_processes_together_are_waited_for_not_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(tmp_path, "test", 2)
    fleet.load_file.write_text("a load")
    stubborn = [Stubborn() for _ in range(4)]
    fleet._children = dict(zip("abcd", stubborn, strict=True))  # type: ignore[arg-type]
    monkeypatch.setattr("lockbench.workloads.fleet.time.monotonic", lambda: Stubborn.now_s)
    fleet.stop(5.0)
    assert Stubborn.now_s == 5.0
    assert all(child.killed for child in stubborn)


def test_a_stop_that_is_interrupted_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(tmp_path, "test", 2, fork_server())
    fleet.launch()
    started = pids(fleet)
    close = nurseries.Child.close
    closed: list[int] = []

    def interrupt(self: nurseries.Child) -> None:
        closed.append(self.pid)
        if len(closed) == 1:
            raise KeyboardInterrupt
        close(self)

    monkeypatch.setattr(nurseries.Child, "close", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fleet.__exit__(None, None, None)
    assert len(closed) == 5
    assert all(map(ended, started))


def test_a_fork_server_that_says_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ForkServer("test") as silent:
        silent._process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(nurseries, "SPAWN_S", 0.1)
        with pytest.raises(OSError, match="says nothing"):
            silent.spawn("lockbench.workloads.master", {}, tmp_path / "log")
    assert ended(silent._process.pid)


def test_a_fork_server_that_is_ended_from_outside_says_how_and_no_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with ForkServer("test") as ended_one:
        ended_one.spawn("lockbench.workloads.worker", {}, tmp_path / "log").close()
        ended_one._process.send_signal(signal.SIGINT)
        ended_one._process.wait(LIMIT_S)
        with pytest.raises(OSError, match=r"ended \(exit -2\)"):
            ended_one.spawn("lockbench.workloads.worker", {}, tmp_path / "log")
    assert "Traceback" not in capfd.readouterr().err


def test_a_child_that_has_ended_is_forgotten_when_the_next_is_made(tmp_path: Path) -> None:
    """A night of explorations ends thousands."""
    with ForkServer("test", ["lockbench.explore.actor"]) as server:
        pids = []
        for n in range(4):
            child = server.spawn("lockbench.explore.actor", {}, tmp_path / f"log-{n}")
            assert child.wait(LIMIT_S)
            assert psutil.pid_exists(child.pid)
            pids.append(child.pid)
        assert [psutil.pid_exists(pid) for pid in pids] == [False, False, False, True]
