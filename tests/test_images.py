"""Images and the engine's adapter: fingerprints, failures, and containers on a real engine."""

from __future__ import annotations

import gc
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clusters import images
from clusters.docker import Container, Engine, EngineError, EngineUnreachable, Network
from tests.eventually import eventually

LABEL = "lockbench.test"


def test_server_images_do_not_include_what_only_builds() -> None:
    assert set(images.server_names()) == {"toxiproxy", "etcd", "redis", "zookeeper", "postgres"}
    assert images.lineage("redis") == ["base", "compiler", "redis"]
    assert images.lineage("etcd") == ["base", "golang", "etcd"]


def test_fingerprints_follow_pins_and_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: images.fingerprint(name) for name in images.recipes()}
    assert len(set(before.values())) == len(before)
    pins = images.pins()
    monkeypatch.setattr(images, "pins", lambda: {**pins, "etcd": "v3.6.0"})
    changed = {name for name in before if images.fingerprint(name) != before[name]}
    assert changed == {"etcd"}
    monkeypatch.setattr(images, "pins", lambda: {**pins, "go_suite": "other"})
    changed = {name for name in before if images.fingerprint(name) != before[name]}
    assert changed == {"golang", "etcd", "toxiproxy", "go-sidecar"}
    monkeypatch.setattr(images, "pins", lambda: {**pins, "debian_suite": "other"})
    assert all(images.fingerprint(name) != before[name] for name in before)


def test_fingerprints_do_not_follow_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    before = images.fingerprint("etcd")
    monkeypatch.setenv("GOPROXY", "off")
    assert images.fingerprint("etcd") == before


def test_versions_are_read_as_dockerfiles_write_them() -> None:
    assert images.parse_versions(b"redis-server=5:8.0.2-3\nx=1\n") == {
        "redis-server": "5:8.0.2-3",
        "x": "1",
    }
    assert images.parse_versions(b"") == {}


def test_host_certificates_are_those_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("a certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert images.host_ca() == b"a certificate"
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    assert b"BEGIN CERTIFICATE" in images.host_ca()


# The SDK leaves the socket open with which it could not connect.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_absent_engine_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(EngineUnreachable, match="no Docker engine answers") as failed:
        Engine()
    sentence = str(failed.value)
    assert "\n" not in sentence
    assert sentence.endswith("start Docker, or run `make setup`")
    del failed
    gc.collect()


# --- with a real engine ---


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as found:
        yield found


@pytest.fixture
def labels(engine: Engine) -> Iterator[dict[str, str]]:
    """Labels of this test alone; what carries them is gone afterwards."""
    mine = {LABEL: uuid.uuid4().hex}
    yield mine
    for container in engine.containers(mine):
        engine.remove(container)
    for network in engine.networks(mine):
        engine.remove_network(network)
    assert engine.containers(mine) == []
    assert engine.networks(mine) == []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Tell whether a Redis behind this port says PONG within half a second."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.5) as redis:
            redis.sendall(b"PING\r\n")
            return redis.recv(7) == b"+PONG\r\n"
    except OSError:
        return False


def redis(engine: Engine, network: Network, port: int, labels: dict[str, str]) -> Container:
    return engine.run_container(
        "lockbench-redis:latest",
        f"lockbench-test-{uuid.uuid4().hex[:8]}",
        ["redis-server", "/etc/test.conf"],
        network=network,
        ports={6379: [("127.0.0.1", port)]},
        labels=labels,
        files={"/etc/test.conf": b"protected-mode no\n"},
    )


@pytest.mark.docker
def test_ensure_does_nothing_when_all_is_there(engine: Engine) -> None:
    said: list[str] = []
    images.ensure(images.server_names(), engine=engine, say=said.append)
    assert said == []


@pytest.mark.docker
def test_images_are_described_with_the_versions_inside(engine: Engine) -> None:
    described = images.describe(["etcd", "redis", "toxiproxy", "zookeeper"], engine=engine)
    assert described["etcd"].versions == {"etcd": images.pins()["etcd"]}
    toxiproxy = f"{images.pins()['toxiproxy']}+lockbench2"  # some of it is ours
    assert described["toxiproxy"].versions == {"toxiproxy": toxiproxy}
    assert described["redis"].versions["redis-server"].startswith("5:8.")
    assert set(described["zookeeper"].versions) == {"libzookeeper-java", "openjdk-21-jre-headless"}
    assert all(image.id.startswith("sha256:") for image in described.values())


@pytest.mark.docker
def test_an_image_that_is_not_there_is_named(engine: Engine) -> None:
    with pytest.raises(EngineError, match="no image lockbench-nowhere:1"):
        images.describe(["lockbench-nowhere:1"], engine=engine)
    with pytest.raises(EngineError, match="no image is called nowhere; there are golang"):
        images.ensure(["nowhere"], engine=engine)


@pytest.mark.docker
def test_a_failed_build_shows_the_end_of_its_log(engine: Engine) -> None:
    dockerfile = f"FROM {images.base_ref()}\nRUN echo the last words && exit 7\n"
    with pytest.raises(EngineError) as failed:
        engine.build({"Dockerfile": dockerfile.encode()}, "lockbench-test:fails")
    assert "the last words" in str(failed.value)
    assert "code: 7" in str(failed.value)


@pytest.mark.docker
def test_a_container_lives_through_everything_done_to_it(
    engine: Engine, labels: dict[str, str]
) -> None:
    network = engine.create_network(f"lockbench-test-{uuid.uuid4().hex[:8]}", labels=labels)
    port = free_port()
    server = redis(engine, network, port, labels)
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
    assert engine.read_file(server, "/etc/test.conf") == b"protected-mode no\n"
    assert engine.read_file(server, "/etc/none") is None
    assert engine.execute(server, ["redis-cli", "ping"]) == (0, "PONG\n")
    assert "Ready to accept connections" in engine.logs(server)

    engine.stop(server)
    stopped = engine.state(server)
    assert stopped is not None
    assert (stopped.status, stopped.exit_code) == ("exited", 0)


@pytest.mark.docker
def test_a_frozen_container_can_be_removed_and_removed_again(
    engine: Engine, labels: dict[str, str]
) -> None:
    network = engine.create_network(f"lockbench-test-{uuid.uuid4().hex[:8]}", labels=labels)
    server = redis(engine, network, free_port(), labels)
    engine.pause(server)
    engine.remove(server)
    engine.remove(server)
    assert engine.state(server) is None
    engine.remove_network(network)
    engine.remove_network(network)


@pytest.mark.docker
def test_containers_share_a_network_namespace(engine: Engine, labels: dict[str, str]) -> None:
    network = engine.create_network(f"lockbench-test-{uuid.uuid4().hex[:8]}", labels=labels)
    owner = redis(engine, network, free_port(), labels)
    guest = engine.run_container(
        "lockbench-redis:latest",
        f"{owner.name}-guest",
        ["redis-server", "--port", "7000"],
        network_of=owner,
        labels=labels,
    )
    eventually(lambda: engine.execute(guest, ["redis-cli", "ping"]) == (0, "PONG\n"))
    assert engine.execute(owner, ["redis-cli", "-p", "7000", "ping"]) == (0, "PONG\n")
    with pytest.raises(ValueError, match="has no network or ports itself"):
        engine.create_container(
            "lockbench-redis:latest", "never", network_of=owner, ports={1: [("127.0.0.1", 1)]}
        )


@pytest.mark.docker
def test_a_container_whose_port_is_taken_leaves_nothing(
    engine: Engine, labels: dict[str, str]
) -> None:
    network = engine.create_network(f"lockbench-test-{uuid.uuid4().hex[:8]}", labels=labels)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(EngineError, match="cannot start container"):
            redis(engine, network, taken.getsockname()[1], labels)
    assert engine.containers(labels) == []


@pytest.mark.docker
def test_an_engine_serves_many_threads_with_few_connections(engine: Engine) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: engine.image("lockbench-redis:latest"), range(64)))
    assert len({image.id for image in found if image}) == 1
    assert None not in found
    assert len(engine._idle) <= 9
