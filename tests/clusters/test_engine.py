"""The engine's adapter: containers and networks on a real engine, and an engine that is absent."""

from __future__ import annotations

import gc
import io
import socket
import time
import tracemalloc
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryFile

import pytest

from lockbench.clusters import images
from lockbench.clusters.engine.connection import CALL_TIMEOUT_S
from lockbench.clusters.engine.docker import (
    Container,
    Engine,
    EngineError,
    EngineUnreachable,
    Network,
)
from lockbench.workloads.fleet import free_port
from tests.eventually import eventually

LABEL = "lockbench.test"
Labels = dict[str, str]


def test_an_absent_engine_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(EngineUnreachable, match="no Docker engine answers") as failed:
        Engine()
    sentence = str(failed.value)
    assert "\n" not in sentence
    assert sentence.endswith(
        "at unix:///nowhere/docker.sock (No such file or directory): start Docker, or set"
        " DOCKER_HOST to where it listens"
    )
    del failed
    gc.collect()


def test_an_engine_that_lets_us_not_in_says_who_may(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("DOCKER_HOST", "unix:///some/docker.sock")
    monkeypatch.setattr("socket.socket.connect", refuse)
    with pytest.raises(EngineUnreachable, match="join the group `docker`") as failed:
        Engine()
    assert "\n" not in str(failed.value)
    del failed
    gc.collect()


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as found:
        yield found


@pytest.fixture
def labels(engine: Engine) -> Iterator[Labels]:
    """Labels of this test alone; what carries them is gone afterwards."""
    mine = {LABEL: uuid.uuid4().hex}
    yield mine
    for container in engine.containers(mine):
        engine.remove(container)
    for network in engine.networks(mine):
        engine.remove_network(network)
    assert engine.containers(mine) == []
    assert engine.networks(mine) == []


@pytest.fixture
def network(engine: Engine, labels: Labels) -> Network:
    return engine.create_network(f"lockbench-test-{uuid.uuid4().hex[:8]}", labels=labels)


def answers(port: int) -> bool:
    """Tell whether a Redis behind this port says PONG within half a second."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.5) as redis:
            redis.sendall(b"PING\r\n")
            return redis.recv(7) == b"+PONG\r\n"
    except OSError:
        return False


def redis(engine: Engine, network: Network, *ports: int, labels: Labels) -> Container:
    """A Redis behind the first port; 6380 in its namespace is behind the second."""
    container = engine.create_container(
        images.recipes()["redis"].ref,
        f"lockbench-test-{uuid.uuid4().hex[:8]}",
        ["redis-server", "/etc/test.conf"],
        network=network,
        ports={6379 + n: [("127.0.0.1", port)] for n, port in enumerate(ports)},
        labels=labels,
        files={"/etc/test.conf": b"protected-mode no\n"},
    )
    engine.start(container)
    return container


@pytest.mark.docker
def test_the_log_of_a_container_that_runs_ends(
    engine: Engine, labels: Labels, network: Network
) -> None:
    port = free_port()
    server = redis(engine, network, port, labels=labels)
    eventually(lambda: answers(port))
    said = io.BytesIO()
    began = time.monotonic()
    engine.save_log(server, said)
    assert time.monotonic() - began < CALL_TIMEOUT_S - 5, "it followed the log"
    assert b"Ready to accept connections" in said.getvalue()


@pytest.mark.docker
def test_a_large_log_is_not_held_in_memory(
    engine: Engine, labels: Labels, network: Network
) -> None:
    talkative = engine.create_container(
        images.recipes()["redis"].ref,
        f"lockbench-test-{uuid.uuid4().hex[:8]}",
        ["sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x | fold -w 999"],
        network=network,
        labels=labels,
    )
    engine.start(talkative)
    eventually(lambda: (state := engine.state(talkative)) is not None and not state.running)
    with TemporaryFile() as file:
        tracemalloc.start()
        engine.save_log(talkative, file)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert file.tell() > 20_000_000
    assert peak < 2_000_000


@pytest.mark.docker
def test_a_container_lives_through_everything_done_to_it(
    engine: Engine, labels: Labels, network: Network
) -> None:
    port = free_port()
    server = redis(engine, network, port, labels=labels)
    eventually(lambda: answers(port))
    state = engine.state(server)
    assert state is not None
    assert state.running
    assert state.pid > 0
    assert set(state.addresses) == {network.name}
    assert state.labels[LABEL] == labels[LABEL]

    engine.pause(server)
    assert not answers(port)
    engine.unpause(server)
    engine.unpause(server)
    eventually(lambda: answers(port))

    engine.kill(server)
    eventually(lambda: not answers(port))
    engine.kill(server)
    engine.start(server)
    eventually(lambda: answers(port))
    conf = {"/etc/test.conf": b"protected-mode no\n"}
    assert engine.read_folder(server, "/etc/test.conf") == conf
    assert engine.read_folder(server, "/etc/none") == {}
    engine.put_files(
        server, {"/srv/cut/long": b"12345", "/srv/cut/never": b"6", "/srv/cut/ok": b"7"}
    )
    assert engine.cut_files(server, "/srv/cut", {"/srv/cut/long": 2, "/srv/cut/ok": 9}) == 4
    left = {"/srv/cut/long": b"12", "/srv/cut/never": b"", "/srv/cut/ok": b"7"}
    assert engine.read_folder(server, "/srv/cut") == left
    said = io.BytesIO()
    engine.save_log(server, said)
    assert b"Ready to accept connections" in said.getvalue()
    assert said.getvalue().decode().endswith(engine.last_words(server, 3))

    engine.stop(server)
    stopped = engine.state(server)
    assert stopped is not None
    assert not stopped.running


@pytest.mark.docker
def test_a_frozen_container_can_be_removed_and_removed_again(
    engine: Engine, labels: Labels, network: Network
) -> None:
    server = redis(engine, network, free_port(), labels=labels)
    engine.pause(server)
    engine.remove(server)
    engine.remove(server)
    assert engine.state(server) is None
    engine.remove_network(network)
    engine.remove_network(network)


@pytest.mark.docker
def test_containers_share_a_network_namespace(
    engine: Engine, labels: Labels, network: Network
) -> None:
    mine, guests = free_port(), free_port()
    owner = redis(engine, network, mine, guests, labels=labels)
    image = images.recipes()["redis"].ref
    command = ["redis-server", "--port", "6380", "--protected-mode", "no"]
    guest = engine.create_container(
        image, f"{owner.name}-guest", command, network_of=owner, labels=labels
    )
    engine.start(guest)
    eventually(lambda: answers(mine) and answers(guests))
    with pytest.raises(ValueError, match="has no network or ports itself"):
        engine.create_container(image, "never", network_of=owner, ports={1: [("127.0.0.1", 1)]})


@pytest.mark.docker
def test_a_container_whose_port_is_taken_does_not_start(
    engine: Engine, labels: Labels, network: Network
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(EngineError, match="cannot start container"):
            redis(engine, network, taken.getsockname()[1], labels=labels)


@pytest.mark.docker
def test_a_failed_build_shows_the_end_of_its_log(engine: Engine) -> None:
    dockerfile = f"FROM {images.recipes()['base'].ref}\nRUN echo the last words && exit 7\n"
    with pytest.raises(EngineError) as failed:
        engine.build({"Dockerfile": dockerfile.encode()}, "lockbench-test:fails")
    assert "the last words" in str(failed.value)
    assert "code: 7" in str(failed.value)


@pytest.mark.docker
def test_an_engine_serves_many_threads_with_few_connections(engine: Engine) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: engine.image(images.recipes()["redis"].ref), range(64)))
    assert len({image.id for image in found if image}) == 1
    assert None not in found
    assert len(engine._idle) <= 9
