"""An engine that hangs or goes away: no call waits for ever, what is left is named, nothing is
called removed that may be there, and the next start removes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker import APIClient

from lockbench.clusters.engine import connection, ledger, owner, reaper, removal
from lockbench.clusters.engine.docker import Engine, EngineError, EngineUnreachable
from tests.clusters.fake_engine import FakeDocker, fake_docker
from tests.clusters.test_lifetime import DEAD
from tests.eventually import eventually

RUN = "fake-run"
TIMEOUT_S = 2.0
SILENT_S = 0.3
PATIENT_S = 30.0  # of an engine that answers again, on a busy machine
ALL = [NET, ONE, TWO] = [f"lockbench-{RUN}-c-{part}" for part in ("net", "one", "two")]
MINE = owner.labels(RUN, "c")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDocker]:
    socket = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{socket}")
    monkeypatch.setattr(ledger, "_names", {})
    monkeypatch.setattr(connection, "SILENT_TIMEOUT_S", SILENT_S)
    with fake_docker(socket) as found:
        yield found


def impatient() -> Engine:
    engine = Engine()
    engine._timeout_s = TIMEOUT_S  # type: ignore[assignment]
    return engine


def start(engine: Engine) -> None:
    network = engine.create_network(NET, labels=MINE)
    for name in (ONE, TWO):
        engine.create_container("image", name, network=network, labels=MINE)


def remove(engine: Engine | None = None, limit_s: float = 0.3) -> list[str]:
    prefix = f"lockbench-{RUN}-"
    return removal.remove({owner.RUN: RUN}, engine=engine, limit_s=limit_s, prefix=prefix)


def test_what_is_removed_is_not_left(fake: FakeDocker) -> None:
    engine = Engine()
    start(engine)
    fake.containers["other"] = {owner.RUN: "another"}
    assert ledger.names() == ALL
    assert remove(engine) == []
    assert list(fake.containers) == ["other"]
    assert not fake.networks
    assert ledger.names() == []
    asked = len(fake.asked)
    assert removal.remove_run(RUN) == removal.remove_own() == []
    assert len(fake.asked) == asked, "who has left nothing asks nobody"


def test_what_is_left_of_another_run_is_not_forgotten(fake: FakeDocker) -> None:
    engine = Engine()
    start(engine)
    fake.away = True
    assert remove(engine) == ALL
    fake.away = False
    assert removal.remove_run("another") == []
    assert ledger.names() == ALL
    assert removal.remove_run(RUN) == []
    assert not fake.containers


def test_an_engine_that_is_gone_leaves_names_and_the_next_start_removes_them(
    fake: FakeDocker,
) -> None:
    engine = Engine()
    start(engine)
    fake.away = True
    assert remove(engine) == remove() == ALL
    assert removal.remove_run(RUN, 0.1) == removal.remove_own(0.1) == ALL
    fake.away = False
    for name in fake.containers:
        fake.containers[name] = {**MINE, owner.OWNER: DEAD}
    fake.networks[NET] = {**MINE, owner.OWNER: DEAD}
    assert sorted(reaper.reap()) == ALL
    assert not fake.containers


def test_an_engine_that_hangs_is_waited_for_but_not_for_ever(fake: FakeDocker) -> None:
    start(Engine())
    engine = impatient()
    fake.silent, fake.does = True, False
    assert remove(engine) == ALL
    fake.silent = False
    assert remove(engine, PATIENT_S) == []
    assert not fake.containers


def test_an_engine_that_comes_back_in_time_is_met(fake: FakeDocker) -> None:
    start(Engine())
    engine = impatient()
    fake.away = True
    left: list[list[str]] = []
    clearing = threading.Thread(target=lambda: left.append(remove(engine, limit_s=3600)))
    clearing.start()
    asked = len(fake.asked)
    eventually(lambda: len(fake.asked) > asked + 2)
    assert not left
    fake.away = False
    clearing.join(60)
    assert left == [[]]


@pytest.mark.parametrize("answers", range(10))
def test_an_engine_that_hangs_in_the_middle_names_all_that_is_there(
    fake: FakeDocker, answers: int
) -> None:
    """Each call in turn is the first that is not answered, and not done."""
    start(Engine())
    engine = impatient()
    fake.answers, fake.does = answers, False
    left = remove(engine)
    assert sorted(left) == sorted([*fake.containers, *fake.networks])
    fake.answers = float("inf")
    assert remove(engine, PATIENT_S) == []


def test_what_was_made_without_an_answer_may_be_left(fake: FakeDocker) -> None:
    engine = impatient()
    fake.silent = True
    with pytest.raises(EngineUnreachable, match="does not answer"):
        engine.create_container("image", ONE, labels=MINE)
    assert ONE in fake.containers, "it was made"
    assert ledger.names() == [ONE]
    fake.silent = False
    assert removal.remove_own() == []
    assert not fake.containers


def test_what_was_never_made_is_not_left(fake: FakeDocker) -> None:
    engine = Engine()
    fake.away = True
    with pytest.raises(EngineError):
        engine.create_container("image", ONE, labels=MINE)
    fake.away = False
    assert ledger.names() == [ONE]
    assert remove(engine) == []
    assert ledger.names() == []


def test_after_a_silence_nobody_waits_long_until_there_is_an_answer(
    fake: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    asking = APIClient.send

    def send(self: APIClient, *args: Any, **options: Any) -> object:
        waited.append(options["timeout"])
        return asking(self, *args, **options)

    engine = impatient()
    monkeypatch.setattr(APIClient, "send", send)
    fake.silent = True
    for _ in range(2):
        with pytest.raises(EngineUnreachable):
            engine.version()
    monkeypatch.setattr(connection, "SILENT_TIMEOUT_S", PATIENT_S)
    engine._timeout_s = 2 * PATIENT_S  # type: ignore[assignment]
    fake.silent = False
    engine.version()
    engine.version()
    assert waited == [TIMEOUT_S, SILENT_S, PATIENT_S, 2 * PATIENT_S]
