"""The relay, in front of a server that says back what it is told."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockbench.clusters.elsewhere.kept import Kept
from lockbench.clusters.elsewhere.site import read
from lockbench.clusters.engine import ports

HERE = "127.0.0.1"
LIMIT_S = 20.0
NOBODY = 65534


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((HERE, 0)) as listening:
        yield listening


@pytest.fixture
def relayed(server: socket.socket, tmp_path: Path) -> Iterator[tuple[Kept, tuple[str, int]]]:
    """A keeper, and where it relays to the server."""
    file = tmp_path / "cluster.toml"
    file.write_text(f'topology = "redis"\nnodes = ["{HERE}:{server.getsockname()[1]}"]\n')
    block = ports.take(used=[1])
    at = (HERE, block.base + 1)
    kept = Kept(read(file))
    kept.ask(open=[(*at, 1, None)])
    yield kept, at
    kept.end()
    block.close()


def test_bytes_pass_unchanged_and_an_end_is_an_end(
    server: socket.socket, relayed: tuple[Kept, tuple[str, int]]
) -> None:
    _, at = relayed
    with socket.create_connection(at, LIMIT_S) as ours:
        theirs, _ = server.accept()
        with theirs:
            said = bytes(range(256)) * 1000
            threading.Thread(target=ours.sendall, args=(said,)).start()
            heard = b""
            while len(heard) < len(said):
                heard += theirs.recv(65536)
            assert heard == said
            theirs.sendall(b"answer")
            assert ours.recv(100) == b"answer"
        assert ours.recv(100) == b""
    with socket.create_connection(at, LIMIT_S) as ours:
        theirs, _ = server.accept()
        ours.close()
        theirs.settimeout(LIMIT_S)
        assert theirs.recv(100) == b""
        theirs.close()


def test_a_reset_is_a_reset(server: socket.socket, relayed: tuple[Kept, tuple[str, int]]) -> None:
    _, at = relayed
    with socket.create_connection(at, LIMIT_S) as ours:
        theirs, _ = server.accept()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        with pytest.raises(ConnectionResetError):
            ours.recv(100)


def test_a_server_that_is_not_there_ends_the_connection_and_is_named(
    server: socket.socket, relayed: tuple[Kept, tuple[str, int]]
) -> None:
    kept, at = relayed
    server.close()
    with socket.create_connection(at, LIMIT_S) as ours:
        assert ours.recv(100) == b""
    assert "cannot be reached" in kept.ask(why=1)["why"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may act as another user")
def test_nobody_else_on_this_machine_is_let_in(
    server: socket.socket, relayed: tuple[Kept, tuple[str, int]]
) -> None:
    _, (host, port) = relayed
    program = (
        f"import os, socket; os.setuid({NOBODY})\n"
        f"with socket.socket() as theirs:\n"
        f"    theirs.settimeout({LIMIT_S}); theirs.connect(('{host}', {port}))\n"
        "    print(theirs.recv(100))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert told.stdout == "b''\n"
    server.settimeout(0.2)
    with pytest.raises(TimeoutError):
        server.accept()
