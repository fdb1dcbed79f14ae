"""What makes a load worthless is said: a resource that dies, a server that is full."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from bench.watch import generator_health
from checker.check import check
from history.op import Fault
from tests.locks.fakes import FakeRedis, hang_up
from tests.workloads import unsafe
from tests.workloads.playing import play
from workloads.fleet import Fleet, LoadError
from workloads.load import Pace

pytestmark = pytest.mark.slow
PACE = Pace(aimed_hold_s=0.05)


def test_a_resource_that_dies_ends_the_load(tmp_path: Path) -> None:
    def kill(fleet: Fleet, begin_ns: int) -> Sequence[Fault]:
        while time.monotonic_ns() < begin_ns:
            time.sleep(0.01)
        for process in psutil.Process().children(recursive=True):
            if "workloads.resource" in process.cmdline():
                process.kill()
                process.wait()
        return ()

    lock = f"{unsafe.__file__}:OneAtATime"
    with pytest.raises(LoadError, match=r"clients failed|resource ended during the load"):
        play(tmp_path, "payment", lock=lock, pace=PACE, contended_s=10, meanwhile=kill)


class FullRedis(FakeRedis):
    """Accepts so many connections and hangs up on all others."""

    limit = 4

    def _serve(self, connection: socket.socket) -> None:
        if connection in self.connections[: self.limit]:
            super()._serve(connection)
        else:
            hang_up(connection)


def test_a_server_that_is_full_is_no_quiet_number(tmp_path: Path) -> None:
    server = FullRedis()
    try:
        played = play(
            tmp_path, "mutex", address=server.address, clients=8, keys=8, pace=PACE, contended_s=3
        )
    finally:
        server.stop()
    span = (played.spans.floor[1], played.spans.contended[1])
    health = generator_health(played.logs, (), span, 3)
    assert not health["ok"]
    why = health["why"]
    assert isinstance(why, list)
    assert any("got nothing done" in reason for reason in why)
    assert check(played.history).verdicts["double-grant"].result == "valid"
