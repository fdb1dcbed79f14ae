import socket

import pytest

from lockbench.clusters.base import ClusterError
from lockbench.clusters.engine import ports


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three blocks only, far from those that real clusters take first."""
    monkeypatch.setattr(ports, "FIRST", 18_000)
    monkeypatch.setattr(ports, "LAST", 18_000 + 3 * ports.SIZE)


def listening(host: str, port: int) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((host, port))
    found.listen()
    return found


@pytest.mark.usefixtures("few")
def test_blocks_that_are_held_never_overlap() -> None:
    blocks = [ports.take() for _ in range(3)]
    assert sorted(b.base for b in blocks) == [18_000, 18_064, 18_128]
    with pytest.raises(ClusterError, match="no block of 64 free ports"):
        ports.take()
    blocks[1].close()
    again = ports.take()
    assert again.base == blocks[1].base
    for block in (again, blocks[0], blocks[2]):
        block.close()


@pytest.mark.usefixtures("few")
def test_a_block_with_a_port_in_use_is_skipped_on_whatever_host_it_is() -> None:
    with listening("127.0.0.3", 18_010), listening("0.0.0.0", 18_070):
        block = ports.take(["127.0.0.1", "127.0.0.3"])
        assert block.base == 18_128
        block.close()


@pytest.mark.usefixtures("few")
def test_a_port_that_is_not_needed_may_be_in_use() -> None:
    taken = [listening("127.0.0.1", base + 50) for base in (18_000, 18_064, 18_128)]
    block = ports.take(used=range(1, 20))
    block.close()
    for each in taken:
        each.close()


def test_a_port_whose_connections_are_closing_is_free() -> None:
    server = listening("127.0.0.1", 0)
    host, port = server.getsockname()
    with socket.create_connection((host, port)):
        accepted, _ = server.accept()
        accepted.close()  # the side that closes first keeps the port in TIME_WAIT
        assert not ports.is_free(host, port)
        server.close()
    assert ports.is_free(host, port)
