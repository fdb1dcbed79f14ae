"""What a client reads that was frozen while it waited for an answer."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from tests.eventually import eventually

TIMEOUT_S = 0.2
BEGINS = """
from lockbench.explore import patched
import select, socket, sys

connection = socket.socket(fileno=int(sys.argv[1]))
print("waits", flush=True)
"""
RECEIVES = f"""
connection.settimeout({TIMEOUT_S})
try:
    print(connection.recv(9))
except TimeoutError:
    print("nothing")
"""
POLLS = f"""
poll = select.poll()
poll.register(connection, select.POLLIN)
print(connection.recv(9) if poll.poll({1000 * TIMEOUT_S}) else "nothing")
"""
SELECTS = f"""
print(connection.recv(9) if select.select([connection], [], [], {TIMEOUT_S})[0] else "nothing")
"""


def frozen(reads: str, answer: bytes) -> str:
    """What it reads that is stopped for longer than its time-out; an answer comes meanwhile."""
    server, client = socket.socketpair()
    with (
        server,
        client,
        subprocess.Popen(
            [sys.executable, "-c", BEGINS + reads, str(client.fileno())],
            pass_fds=[client.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        there = psutil.Process(process.pid)
        eventually(lambda: there.status() == psutil.STATUS_SLEEPING, "it waits")
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: there.status() == psutil.STATUS_STOPPED, "it is stopped")
        over_s = time.monotonic() + TIMEOUT_S
        server.sendall(answer)
        eventually(lambda: time.monotonic() > over_s, "its time-out is over")
        process.send_signal(signal.SIGCONT)
        return process.stdout.read().strip()


@pytest.mark.parametrize("reads", [RECEIVES, POLLS, SELECTS], ids=["recv", "poll", "select"])
def test_an_answer_that_is_there_counts_before_a_time_out(reads: str) -> None:
    assert frozen(reads, b"yes") == "b'yes'"
    assert frozen(reads, b"") == "nothing"
