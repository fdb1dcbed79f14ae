"""What makes a load worthless is said: a resource that dies, a server that is full, a library that
is gone."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from lockbench.bench.generator import generator_health
from lockbench.bench.usable import error_texts
from lockbench.checker.check import check
from lockbench.clusters import images
from lockbench.clusters.engine import client_containers as clients
from lockbench.history.columns import History
from lockbench.history.edn import read_edn, write_edn
from lockbench.history.jsonl import read_jsonl, write_jsonl
from lockbench.history.op import F, Fault, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER
from lockbench.workloads.fleet import Fleet
from lockbench.workloads.load import Pace
from lockbench.workloads.worker_process import LoadError
from tests.eventually import one_of
from tests.locks.fakes import FakeRedis, hang_up
from tests.workloads import contained, unsafe
from tests.workloads.playing import play

pytestmark = pytest.mark.slow
PACE = Pace(aimed_hold_s=0.05)


def test_a_resource_that_dies_ends_the_load(tmp_path: Path) -> None:
    def kill(fleet: Fleet, begin_ns: int) -> Sequence[Fault]:
        while time.monotonic_ns() < begin_ns:
            time.sleep(0.01)
        for process in psutil.Process().children(recursive=True):
            # One that has just ended has no command line.
            with suppress(psutil.NoSuchProcess):
                if "lockbench.workloads.resource_server" in process.cmdline():
                    process.kill()
        return ()

    lock = f"{unsafe.__file__}:OneAtATime"
    with pytest.raises(LoadError, match=r"the guarded resource ended during the load \(exit -9\)"):
        play(tmp_path, "payment", lock=lock, pace=PACE, contended_s=10, meanwhile=kill)


def test_a_client_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    said = r"of the clients failed, .* with: OSError: no more files; see"
    with pytest.raises(LoadError, match=said):
        play(tmp_path, "mutex", lock=f"{unsafe.__file__}:Nobody", pace=PACE)


def load_of(lock: str, folder: Path, good: Callable[[History], object]) -> History:
    """A second of load, on a machine that does not stand still for all of it."""

    def once(number: int) -> History:
        named = f"{unsafe.__file__}:{lock}"
        return play(folder / str(number), "mutex", lock=named, pace=PACE, contended_s=1).history

    return one_of(once, good)


def test_a_heartbeat_that_was_sent_before_the_acquire_belongs_to_its_hold(tmp_path: Path) -> None:
    done = load_of("KeptAlive", tmp_path, lambda done: (done.f == F.EXTEND).sum() > 10)
    assert (done.f == F.EXTEND).sum() > 10
    assert check(done).verdicts["linearizable"].result == "valid"


def test_an_answer_that_is_no_text_does_not_lose_the_run(tmp_path: Path) -> None:
    done = load_of("Garbled", tmp_path, lambda done: len(done) > 50)
    assert len(done) > 50
    told = {text for text in done.errors if "ERR" in text}
    assert told == {"gave up: ERR \\udcff", "unexpected: OSError: ERR \\ud800\x1b[31m"}
    # Everything that is written of it can be written and read.
    write_jsonl(done, tmp_path / "h.jsonl")
    write_edn(done, tmp_path / "h.edn")
    assert len(read_jsonl(tmp_path / "h.jsonl")) == len(read_edn(tmp_path / "h.edn")) == len(done)
    assert "unexpected: OSError: ERR \\ud800\\x1b[31m" in error_texts(done).values()


class FullRedis(FakeRedis):
    """Accepts so many connections and hangs up on all others."""

    limit = 4

    def _serve(self, connection: socket.socket) -> None:
        if connection in self.connections[: self.limit]:
            super()._serve(connection)
        else:
            hang_up(connection)


def test_a_server_that_is_full_is_no_quiet_number(tmp_path: Path) -> None:
    with FullRedis() as server:
        played = play(
            tmp_path, "mutex", address=server.address, clients=8, keys=8, pace=PACE, contended_s=3
        )
    span = (played.spans.floor[1], played.spans.contended[1])
    health = generator_health(played.logs, (), span, 3)
    assert not health.ok
    why = health.why
    assert any("got nothing done" in reason for reason in why)
    assert "of 8 clients got nothing done" in str(health.short)
    assert check(played.history).verdicts["double-grant"].result == "valid"


@pytest.mark.docker
def test_a_client_container_that_dies_takes_nobody_along(tmp_path: Path) -> None:
    """Its worker says so, and what was in flight is unknown; the other workers go on."""
    images.ensure([contained.IMAGE])
    struck_ns: list[int] = []

    def kill(fleet: Fleet, begin_ns: int) -> Sequence[Fault]:
        while time.monotonic_ns() < begin_ns + 300_000_000:
            time.sleep(0.01)
        workers = psutil.Process().children(recursive=True)
        programs = [program for worker in workers for program in clients.started_by(worker.pid)]
        assert len(programs) == 3, "of two workers and the victim's"
        programs[-1].kill()
        programs[-1].wait(30)
        struck_ns.append(time.monotonic_ns())
        return ()

    lock = f"{contained.__file__}:NOTHING"
    played = play(tmp_path, "mutex", lock=lock, pace=PACE, contended_s=6, meanwhile=kill)
    last = {
        path.stem: json.loads(path.read_text().splitlines()[-1])
        for path in sorted(played.logs.glob("worker-*.jsonl"))
    }
    (gone,) = (name for name, said in last.items() if said["failures"])
    (why,) = last[gone]["failures"]
    assert re.match("the sidecar of nothing (ended|takes no requests)", why)
    span = (played.spans.floor[1], played.spans.contended[1])
    health = generator_health(played.logs, (), span, 3)
    assert f"{gone}: {why}" in str(health.why)

    done = played.history
    worker = done.process // PROCESSES_PER_WORKER
    its = worker == int(gone.removeprefix("worker-"))
    later = (done.f == F.ACQUIRE) & (done.invoke_ns > struck_ns[0] + 100_000_000)
    assert (done.type[its & later] == Type.FAIL).all(), "nothing was sent"
    for other in np.unique(worker[~its]):
        granted = done.type[later & (worker == other)] == Type.OK
        assert granted.sum() > 3, other
