"""A file without ``[tls]`` for servers that want it, or one with it for servers that know nothing
of it: whoever wrote it is told so, by name."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from lockbench.clusters.base import ClusterError
from lockbench.clusters.elsewhere import examine, redis, relay, zookeeper
from lockbench.clusters.elsewhere.relay import speaks_tls
from lockbench.clusters.elsewhere.topology import known

HERE: Final = "127.0.0.1"
RECORD: Final = 5  # bytes of a record's head, which are waited for
REFUSED: Final = bytes([21, 3, 3, 0, 2, 2, 40])  # an alert: fatal, handshake_failure
GREETING: Final = bytes([22, 3, 3, 0, 1, 2])  # how a handshake begins
HELLO: Final = 22
FOREVER_S: Final = 3600.0
WITHOUT: Final = " (without TLS: cluster.toml has no table [tls])"

# Of all that was said until now; None: it waits for more.
Answer = Callable[[bytes], bytes | None]


def tls(answer: bytes) -> Answer:
    """As Netty and OpenSSL do: what does not begin a handshake is ended without a word."""
    return lambda said: answer if said[0] == HELLO else b""


def lines(answer: bytes) -> Answer:
    """As Redis does: a line, whose end is looked for up to the first zero."""
    return lambda said: answer if b"\n" in said.partition(b"\0")[0] else None


@contextmanager
def server(answer: Answer) -> Iterator[int]:
    """Answers once the head of a record is there, and ends the connection. Its port."""
    with socket.create_server((HERE, 0)) as listening:

        def serve(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                said = b""
                while (told := answer(said) if len(said) >= RECORD else None) is None:
                    if not (data := connection.recv(4096)):
                        return
                    said += data
                connection.sendall(told)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=serve, args=(connection,), daemon=True).start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join()


def refusal(folder: Path, topology: str, port: int, more: str = "") -> str:
    file = folder / "cluster.toml"
    file.write_text(f'topology = "{topology}"\nnodes = ["{HERE}:{port}"]\n{more}')
    with pytest.raises(ClusterError) as caught:
        examine.look(known(str(file)))
    return str(caught.value)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "ASK_LIMIT_S", 0.5)
    monkeypatch.setattr(relay, "SAYS_S", 10.0)


@pytest.mark.parametrize("answer", [REFUSED, GREETING], ids=["alert", "handshake"])
@pytest.mark.parametrize("topology", ["zookeeper", "redis", "etcd"])
@pytest.mark.parametrize(
    "more", ["", 'user = "bench"\npassword-file = "password.txt"\n'], ids=["nobody", "user"]
)
def test_a_port_for_tls_is_called_one(
    topology: str, answer: bytes, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``srvr`` is shorter than the head of a record, so ZooKeeper waits for more and says nothing;
    Redis ends the connection, to the relay where that has to log in. That nothing is said is not
    waited for."""
    monkeypatch.setattr(zookeeper, "ASK_LIMIT_S", FOREVER_S)
    (tmp_path / "password.txt").write_text("planted")
    with server(tls(answer)) as port:
        assert refusal(tmp_path, topology, port, more) == (
            f"{HERE}:{port} speaks TLS: give cluster.toml a table [tls] with the ca that its"
            " certificate is from"
        )


@pytest.mark.parametrize("topology", ["zookeeper", "redis"])
def test_what_speaks_something_else_is_not(
    topology: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper, "ASK_LIMIT_S", FOREVER_S)
    with server(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        said = refusal(tmp_path, topology, port)
    assert "speaks TLS" not in said
    assert said.endswith(WITHOUT)


def test_who_says_nothing_at_all_may_want_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "SAYS_S", 0.5)
    with socket.create_server((HERE, 0)) as silent:
        said = refusal(tmp_path, "zookeeper", silent.getsockname()[1])
    assert said.endswith(WITHOUT)


@pytest.mark.parametrize("topology", ["zookeeper", "redis", "etcd"])
def test_a_port_without_tls_is_called_one(topology: str, tmp_path: Path) -> None:
    """ZooKeeper takes a hello for the length of a message that is too long."""
    with server(lambda _: b"") as port:
        said = refusal(tmp_path, topology, port, "[tls]\n")
    assert said == (
        f"{HERE}:{port} ended the connection when TLS began: name its port for TLS, or leave out"
        " the table [tls]"
    )


@pytest.mark.parametrize("said", [b"+PONG\r\n", b"-NOAUTH Authentication required.\r\n"])
def test_a_redis_that_waits_for_the_end_of_a_line_is_asked(
    said: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody waits until it has answered to TLS."""
    monkeypatch.setattr(redis, "ASK_LIMIT_S", FOREVER_S)
    with server(lines(said)) as port:
        assert refusal(tmp_path, "redis", port, "[tls]\n") == f"{HERE}:{port} {relay.NO_TLS}"


def test_what_answers_to_tls_with_something_else(tmp_path: Path) -> None:
    with server(lambda _: b"-ERR unknown command\r\n") as port:
        assert refusal(tmp_path, "redis", port, "[tls]\n") == f"{HERE}:{port} {relay.NO_TLS}"


def test_a_redis_that_is_frozen_is_not_said_to_know_no_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "ASK_LIMIT_S", 2 * relay.SILENT_S)
    with socket.create_server((HERE, 0)) as silent:
        said = refusal(tmp_path, "redis", silent.getsockname()[1], "[tls]\n")
    assert "a server does not answer as it should" in said
    assert "TLS" not in said


@pytest.mark.parametrize(
    ("answer", "more", "why"),
    [
        (b"N", "[tls]\n", "offers no TLS: leave out the table [tls]"),
        (
            b"E\0\0\0\x22SFATAL\0C28000\0Mno encryption\0\0",
            'user = "bench"\n',
            "does not let the user bench in: FATAL 28000: no encryption" + WITHOUT,
        ),
    ],
)
def test_a_postgres_says_it_itself(answer: bytes, more: str, why: str, tmp_path: Path) -> None:
    with server(lambda _: answer) as port:
        assert refusal(tmp_path, "postgres", port, more) == f"{HERE}:{port} {why}"


def test_nobody_is_there(tmp_path: Path) -> None:
    with socket.create_server((HERE, 0)) as gone:
        port = gone.getsockname()[1]
    assert "cannot be reached" in refusal(tmp_path, "redis", port)
    assert not speaks_tls((HERE, port))
