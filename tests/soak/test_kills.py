"""Attacks are drawn alike from a seed and reach everything; the engine is cut in front of it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from lockbench.clusters.engine.docker import Container, ContainerState, EngineError
from lockbench.locks.registry import systems
from lockbench.results.errors import BadInput
from soak import kills
from soak import run as soak
from soak.aftermath import Left, Said
from soak.engine_link import EngineLink, NoSocketError, engine_socket
from soak.kills import KINDS, Attack, Found, Room, attack, enough, plain_lock, table
from soak.victims import SERVER, SIGNALS, Victims
from tests.eventually import eventually, one_of

PLAIN = [system for system in systems().values() if system.prepare is None]
PLACES = sorted({topology for system in PLAIN for topology in system.topologies})


# --- what is drawn -------------------------------------------------------------------------------


def test_a_hundred_reach_every_kind_and_every_topology() -> None:
    drawn = [attack(0, number, PLACES) for number in range(100)]
    assert {one.kind for one in drawn} == set(KINDS)
    assert {one.topology for one in drawn} == set(PLACES)
    assert {one.fault for one in drawn} == set(kills.FAULTS)
    assert all(0 <= one.moment < 1 for one in drawn)


def test_the_seed_and_the_number_decide_an_attack() -> None:
    assert attack(3, 37, PLACES) == attack(3, 37, PLACES)
    assert attack(3, 37, PLACES) != replace(attack(4, 37, PLACES), number=37)


@pytest.mark.parametrize("places", [PLACES[:1], PLACES[:23], ["redis"] * len(KINDS)])
def test_a_kind_does_not_always_meet_the_same_place(places: list[str]) -> None:
    numbered = [f"{place}-{n}" for n, place in enumerate(places)]
    rounds = len(KINDS) * len(numbered)
    met = {(one.kind, one.topology) for one in (attack(0, n, numbered) for n in range(rounds))}
    assert len(met) == rounds


@pytest.mark.parametrize("topology", PLACES)
def test_a_soak_needs_nothing_that_has_to_be_installed(topology: str) -> None:
    system = systems()[plain_lock(topology)]
    assert system.prepare is None
    assert topology in system.topologies


@pytest.mark.parametrize(
    ("words", "numbers"),
    [("37", [37]), ("9,2-4", [9, 2, 3, 4]), ("x", None), ("3-", [3]), ("-3", None), ("1,,2", None)],
)
def test_which_kills_are_played_again(words: str, numbers: list[int] | None) -> None:
    if numbers is None:
        with pytest.raises(BadInput, match="--only"):
            soak._numbers(words)
    else:
        assert soak._numbers(words) == numbers


# --- the connection to the engine ----------------------------------------------------------------


@contextmanager
def echoing(path: Path) -> Iterator[None]:
    """An engine that answers what it is told."""

    def serve(client: socket.socket) -> None:
        with client, suppress(OSError):
            while said := client.recv(100):
                client.sendall(said)

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=accept, daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def link(tmp_path: Path) -> Iterator[EngineLink]:
    with echoing(tmp_path / "engine"), EngineLink(tmp_path / "link", f"{tmp_path}/engine") as made:
        yield made


def connected(link: EngineLink) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    try:
        client.connect(link.host.removeprefix("unix://"))
    except OSError:
        client.close()
        raise
    return client


def answers(client: socket.socket, word: bytes = b"ping") -> bool:
    client.sendall(word)
    return client.recv(100) == word


def test_a_link_passes_on_until_it_is_cut(link: EngineLink) -> None:
    with connected(link) as client, connected(link) as other:
        assert answers(client)
        assert answers(other)
        assert link.flows()
        link.cut()
        assert not link.flows()
        assert client.recv(100) == b""
        with pytest.raises(OSError, match="No such file"):
            connected(link)
    link.restore()
    with connected(link) as client:
        assert answers(client)


def test_what_hangs_is_answered_after_it_is_restored(link: EngineLink) -> None:
    with connected(link) as old:
        assert answers(old)
        link.hang()
        assert not link.flows()
        with connected(link) as new:
            for client in (old, new):
                client.sendall(b"kept")
                client.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    client.recv(100)
            link.restore()
            for client in (old, new):
                client.settimeout(10)
                assert client.recv(100) == b"kept"


def test_it_comes_back_by_itself_unless_it_is_cut_again(link: EngineLink) -> None:
    link.cut()
    link.restore_in(0.05)
    eventually(link.flows)
    link.cut()
    link.restore_in(0.05)
    timer = link._later
    link.cut()
    assert timer is not None
    timer.join(10)
    assert not link.flows()


def test_an_engine_that_is_far_away_cannot_be_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://far:2375")
    with pytest.raises(NoSocketError, match="tcp://far:2375"):
        engine_socket()
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/mine.sock")
    assert engine_socket() == "/run/mine.sock"


# --- whom it strikes -----------------------------------------------------------------------------


class FakeEngine:
    """Three containers of the bench, one of which does not run."""

    def __init__(self) -> None:
        self.struck: list[tuple[str, str]] = []

    def containers(self, labels: dict[str, str]) -> list[Container]:
        assert labels == {"lockbench.owner": "me"}
        return [Container(name, name) for name in ("redis-1", "redis-1-link", "redis-2")]

    def state(self, container: Container) -> ContainerState | None:
        if container.name == "redis-3":
            return None
        runs = container.name != "redis-2" and not self.struck
        return ContainerState(runs, False, 1)

    def kill(self, container: Container, signal: str) -> None:
        self.struck.append((container.name, signal))
        raise EngineError("it is being removed")


@pytest.mark.parametrize(("target", "name"), [("link", "redis-1-link"), (SERVER, "redis-1")])
def test_a_container_that_runs_is_struck(target: str, name: str, link: EngineLink) -> None:
    engine = FakeEngine()
    victims = Victims(engine, link)  # type: ignore[arg-type]
    victim = victims.find(target, 1, "me", 0.99)
    assert victim is not None
    assert victim.there()
    victim.strike("SIGKILL")
    assert engine.struck == [(name, "SIGKILL")]
    assert not victim.there()
    assert victims.find(target, 1, "me", 0.0) is None


@pytest.mark.parametrize("how", SIGNALS)
def test_a_signal_ends_the_bench_that_is_struck_alone(how: str, link: EngineLink) -> None:
    victims = Victims(FakeEngine(), link)  # type: ignore[arg-type]
    # Under nohup a child ignores SIGHUP.
    program = "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    command = [sys.executable, "-c", program + "print(flush=True); sys.stdin.read()"]
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as bench,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
    ):
        for one in (bench, other):
            assert one.stdout is not None
            one.stdout.readline()
        victim = victims.find("bench", bench.pid, "me", 0.5)
        assert victim is not None
        victim.strike(how)
        eventually(lambda: not victim.there())
        assert other.poll() is None
        other.communicate()
    assert victims.find("bench", bench.pid, "me", 0.5) is None


# --- one after the other -------------------------------------------------------------------------

# A bench whose worker is struck. The files beside it say whether it leaves a file, whether its
# start removes those that are left, and whether it ends by itself.
BENCH = """
import json, os, pathlib, subprocess, sys
if sys.argv[1] != "run":
    sys.exit(0)
for name in os.listdir(os.environ["TMPDIR"]) if os.path.exists("removes") else ():
    os.remove(os.environ["TMPDIR"] + "/" + name)
run = pathlib.Path("runs", str(os.getpid()))
run.mkdir(parents=True)
(run / "ending").write_text("running")
if os.path.exists("leaves"):
    pathlib.Path(os.environ["TMPDIR"], "forgotten").touch()
with open("worker-0.log", "w") as log:
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    worker = subprocess.Popen(sleeps, stdout=log)
if os.path.exists("healthy"):
    worker.kill()
word, code = ("ok", 0) if worker.wait() == 0 or os.path.exists("healthy") else ("bench", 255)
(run / "ending").write_text(word)
case = run / "cases" / "01-a-none"
case.mkdir(parents=True)
(case / "case.json").write_text(json.dumps({"judgement": "as expected" if not code else "failed"}))
print(json.dumps({"ending": word}))
sys.exit(code)
"""
WORKER = Attack(1, "worker", "SIGKILL", "redis", "none", 0.0, 0.0)


class NoContainers:
    """An engine that has none."""

    def containers(self, labels: dict[str, str]) -> list[Container]:
        return []

    def networks(self, labels: dict[str, str]) -> list[Container]:
        return []

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends may take long on a busy machine."""
    for name in ("ENDS_S", "VANISHES_S"):
        monkeypatch.setattr(kills, name, 60.0)


@contextmanager
def room(folder: Path) -> Iterator[Room]:
    command = (sys.executable, "-c", BENCH)
    engine = NoContainers()
    with Room(folder, Console(quiet=True), engine=engine, command=command) as made:  # type: ignore[arg-type]
        yield made


def after(there: Room, *names: str) -> Found:
    """What came of an attack, and of the start after it."""
    found = there.play(WORKER)
    for name in ("leaves", "removes", "healthy"):
        (there.folder / name).unlink(missing_ok=True)
    for name in ("healthy", *names):
        (there.folder / name).touch()
    assert there.healthy() == []
    return found


def test_what_the_next_start_does_not_remove_is_told(tmp_path: Path) -> None:
    with room(tmp_path) as there:
        (tmp_path / "leaves").touch()
        found = after(there)
        assert found.struck_s is not None
        assert found.all_wrong() == [
            "left when it had ended: file forgotten",
            "left after the next start: file forgotten",
        ]
        (tmp_path / "healthy").unlink()
        assert there.play(WORKER).all_wrong() == [], "what an earlier one left is not told again"


def test_what_the_next_start_removes_is_not(tmp_path: Path) -> None:
    with room(tmp_path) as there:
        (tmp_path / "leaves").touch()
        found = after(there, "removes")
        assert found.all_wrong() == ["left when it had ended: file forgotten"]
        assert not list((tmp_path / "tmp").iterdir())


def test_a_kill_that_leaves_nothing_is_clean(tmp_path: Path) -> None:
    with room(tmp_path) as there:
        assert after(there).all_wrong() == []
        too_late = replace(WORKER, moment=0.9)
        found = one_of(lambda _: there.play(too_late), lambda found: found.struck_s is None)
        assert found.struck_s is None, "it had ended"


# --- what is printed -----------------------------------------------------------------------------

ONE = Attack(7, "bench", "SIGTERM", "redis", "none", 0.5, 0.5)
SOME = frozenset({Left("container", "c", "lockbench-a-redis-1")})


def test_what_a_bench_left_counts_unless_it_could_not_clear() -> None:
    assert Found(ONE, 1.0, left_at_end=SOME).all_wrong() == [
        "left when it had ended: container lockbench-a-redis-1"
    ]
    killed = replace(ONE, how="SIGKILL")
    assert Found(killed, 1.0, left_at_end=SOME).all_wrong() == []
    assert Found(killed, 1.0, left_at_end=SOME, left=SOME).all_wrong() == [
        "left after the next start: container lockbench-a-redis-1"
    ]


def test_the_table_has_a_line_for_each_kind_that_was_played() -> None:
    made = table(
        [
            Found(ONE, 1.0, 2.0, checked=Said(0, "VALID", "")),
            Found(ONE, 1.0, 9.04, checked=Said(254, "", "lockbench: cut\n"), wrong=["a", "b"]),
            Found(ONE),
            Found(replace(ONE, target="worker"), 1.0, left_at_end=SOME),
        ]
    )
    lines = list(zip(*(column.cells for column in made.columns), strict=True))
    assert lines == [
        ("bench", "SIGTERM", "2", "1", "9.0 s", "0", "0", "1 judged, 1 refused", "2"),
        ("worker", "SIGTERM", "1", "0", "0.0 s", "1", "0", "0 judged, 0 refused", "0"),
    ]


def test_a_soak_of_which_much_came_too_late_says_nothing() -> None:
    assert enough([*([Found(ONE, 1.0)] * 9), Found(ONE)])
    assert not enough([*([Found(ONE, 1.0)] * 8), Found(ONE)])
