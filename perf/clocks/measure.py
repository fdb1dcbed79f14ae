"""``python -m perf.clocks.measure``: round trips of one TCP message as this machine has them.

Prints their quantiles at ``delays.SHARES``, in nanoseconds, as ``delays.json`` keeps them. The
message goes between two network namespaces that a virtual wire joins, which needs root. What a
lock's server would do besides is not in it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from perf.clocks.delays import SHARES

COUNT: Final = 50_000
SIZE: Final = 64  # bytes of a message, as a short command of Redis has
PORT: Final = 7741
ECHO: Final = f"""
import socket
with socket.create_server(("", {PORT})) as server:
    print("up", flush=True)
    peer, _ = server.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := peer.recv({SIZE}):
        peer.sendall(data)
"""


def quantiles(times_ns: Sequence[int]) -> list[int]:
    """From the least to the greatest."""
    found: list[int] = np.quantile(times_ns, SHARES).astype(np.int64).tolist()
    return found


def round_trips(address: str) -> list[int]:
    """Nanoseconds of each."""
    message, times = b"x" * SIZE, []
    with socket.create_connection((address, PORT)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(COUNT):
            began = time.perf_counter_ns()
            peer.sendall(message)
            got = 0
            while got < SIZE:
                got += len(peer.recv(SIZE))
            times.append(time.perf_counter_ns() - began)
    return times


def between(server: str, client: str, address: str) -> list[int]:
    """Round trips between these namespaces."""
    inside = [["ip", "netns", "exec", name] for name in (server, client)]
    with subprocess.Popen(
        [*inside[0], sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True
    ) as echo:
        assert echo.stdout is not None
        echo.stdout.readline()
        told = subprocess.run(
            [*inside[1], sys.executable, "-m", "perf.clocks.measure", address],
            check=True,
            capture_output=True,
            text=True,
        )
    times: list[int] = json.loads(told.stdout)
    return times


def namespaces() -> list[int]:
    """Round trips between two namespaces, which are taken away again."""
    one, two = (f"lockbench-{os.getpid()}-{name}" for name in "ab")
    commands = (
        f"netns add {one}",
        f"netns add {two}",
        f"link add name near netns {one} type veth peer name far netns {two}",
        f"-n {one} addr add 10.78.0.1/24 dev near",
        f"-n {two} addr add 10.78.0.2/24 dev far",
        f"-n {one} link set near up",
        f"-n {two} link set far up",
    )
    try:
        for command in commands:
            subprocess.run(["ip", *command.split()], check=True)
        return between(one, two, "10.78.0.1")
    finally:
        for name in (one, two):
            subprocess.run(["ip", "netns", "del", name], check=False)


def main() -> None:
    """Measures; with an address the part of the client alone."""
    if len(sys.argv) > 1:
        print(json.dumps(round_trips(sys.argv[1])))
        return
    print(json.dumps({"namespaces": quantiles(namespaces())}))


if __name__ == "__main__":
    main()
