"""Host ports for a cluster: a block of neighbouring ports that nobody listens on.

The first port of a block is bound for as long as the block is held, so two benches on one machine
never take the same block. A foreign program that binds one of the other ports between our look and
the engine's is not excluded; the start then fails and names the port.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress

from lockbench.clusters.base import ClusterError

# Below the ports that Linux hands out for outgoing connections (32768 and up).
FIRST = 20_000
LAST = 32_000
SIZE = 64
LOOPBACK = "127.0.0.1"


class Block:
    """Ports ``base`` to ``base + SIZE - 1``; the first one is only the mark of ownership."""

    def __init__(self, base: int, mark: socket.socket) -> None:
        self.base = base
        self._mark = mark

    def close(self) -> None:
        """Let others have the block."""
        self._mark.close()


def take(hosts: Iterable[str] = (LOOPBACK,), used: Iterable[int] = range(1, SIZE)) -> Block:
    """Take the first block whose ports at the offsets ``used`` are free on all ``hosts``.

    Processes begin at different places, so that blocks which have just been closed rest a while.
    """
    hosts, used = tuple(hosts), tuple(used)
    for base in _bases():
        mark = socket.socket()
        try:
            mark.bind((LOOPBACK, base))
            mark.listen(1)
        except OSError:
            mark.close()
            continue
        if all(is_free(host, base + offset) for host in hosts for offset in used):
            return Block(base, mark)
        mark.close()
    raise ClusterError(
        f"no block of {SIZE} free ports between {FIRST} and {LAST} on {', '.join(hosts)}:"
        " stop what listens there, or run `lockbench clean`"
    )


def is_free(host: str, port: int) -> bool:
    """Tell whether nobody listens there; connections that are merely closing don't count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind((host, port))
            return True
    return False


def _bases() -> Iterator[int]:
    blocks = (LAST - FIRST) // SIZE
    first = os.getpid() % blocks
    for number in range(blocks):
        yield FIRST + SIZE * ((first + number) % blocks)
