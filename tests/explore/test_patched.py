"""What a client reads that was frozen while it waited for an answer."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time

import psutil

from tests.eventually import eventually

TIMEOUT_S = 0.2
READS = f"""
from lockbench.explore import patched
import socket, sys

connection = socket.socket(fileno=int(sys.argv[1]))
connection.settimeout({TIMEOUT_S})
print("waits", flush=True)
try:
    print(connection.recv(9))
except TimeoutError as error:
    print(type(error))
"""


def frozen(answer: bytes) -> str:
    """What it reads that is stopped for longer than its time-out; an answer comes meanwhile."""
    server, client = socket.socketpair()
    with (
        server,
        client,
        subprocess.Popen(
            [sys.executable, "-c", READS, str(client.fileno())],
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


def test_an_answer_that_is_there_counts_before_a_time_out() -> None:
    assert frozen(b"yes") == "b'yes'"


def test_no_answer_is_a_time_out() -> None:
    assert frozen(b"") == "<class 'TimeoutError'>"
