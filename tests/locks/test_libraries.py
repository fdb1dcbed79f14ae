"""Environments of libraries, and what redis-py's adapter makes of a reply that was lost."""

from __future__ import annotations

import inspect
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest.mock import MagicMock

import pytest

from lockbench.bench.plan import make_case
from lockbench.bench.usable import why_unusable
from lockbench.cli.commands.run import run
from lockbench.explore.asked import LONGER_LEASE_S, asked
from lockbench.locks import registry
from lockbench.locks.base import Denied, Granted, LockUnusableError, NoObserver, System, Unknown
from lockbench.locks.shared import library
from lockbench.locks.shared.library import ADAPTERS, CacheUnusableError, Library, library_of
from lockbench.results.errors import BadInput
from tests.locks.fakes import Close, FakeRedis
from tests.tiny_disk import fill, tiny_disk

__all__ = ["tiny_disk"]

LIBRARIES = sorted(path.parent.name for path in ADAPTERS.glob("*/adapter.py"))
SYSTEMS = [system for system in registry.systems().values() if system.prepare is not None]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """A library that needs nothing, in a place of its own."""
    monkeypatch.setattr(library, "ADAPTERS", tmp_path / "libraries")
    monkeypatch.setattr(library, "ENVIRONMENTS", tmp_path / "environments")
    folder = tmp_path / "libraries" / "made"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text("# nothing\n")
    (folder / "adapter.py").write_text("import json\n")
    return Library(str(folder / "lock.py"))


def test_an_environment_is_built_once(made: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[Path] = []
    build = Library._build

    def counted(self: Library, environment: Path, lock: int) -> None:
        builds.append(environment)
        build(self, environment, lock)

    monkeypatch.setattr(Library, "_build", counted)
    threads = [threading.Thread(target=made.prepare) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made.prepare()
    assert builds == [made.environment]
    assert (made.environment / "bin" / "python").exists()
    (library.ADAPTERS / "made" / "requirements.txt").write_text("# something else\n")
    assert made.environment not in builds


def test_what_cannot_be_installed_is_named(made: Library, tmp_path: Path) -> None:
    wheel = f"{tmp_path}/nothing-1.0-py3-none-any.whl --hash=sha256:{'0' * 64}\n"
    (library.ADAPTERS / "made" / "requirements.txt").write_text(wheel)
    with pytest.raises(LockUnusableError, match=r"\Amade cannot be installed: .*nothing-1\.0.*\Z"):
        made.prepare()
    assert not made.environment.exists(), "nothing half-written"


def test_a_cache_that_cannot_be_written_is_named(
    made: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(library, "ENVIRONMENTS", tmp_path / "file" / "libraries")
    with pytest.raises(BadInput, match=r"\Amade has no environment: .*: set XDG_CACHE_HOME"):
        why_unusable(replace(registry.find("redis-py"), prepare=made.prepare))


def test_a_cache_that_is_full_is_named_and_keeps_nothing(
    made: Library, monkeypatch: pytest.MonkeyPatch, tiny_disk: Path
) -> None:
    monkeypatch.setattr(library, "ENVIRONMENTS", tiny_disk)
    (tiny_disk / "made.lock").touch()
    fill(tiny_disk)
    with pytest.raises(CacheUnusableError, match="No space left on device"):
        made.prepare()
    assert not made.environment.exists()


def test_an_environment_whose_builder_was_interrupted_is_not_kept(
    made: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Library, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.prepare()
    assert not made.environment.exists()


# A builder whose pip is a program that waits, and that is killed once that has begun.
KILLED = """
import os, signal, sys, threading, time
from pathlib import Path
from lockbench.locks.shared import library

library.ENVIRONMENTS = Path(sys.argv[2])
run = library.Library._run

def killed(self, otherwise, *command, **how):
    half, goes_on = self.environment / "half", self.environment / "goes-on"
    half.touch()
    script = f"touch {goes_on}; for _ in $(seq 300); do test -e {goes_on} || exit; sleep 0.1; done"
    threading.Thread(target=run, args=(self, otherwise, "sh", "-c", script), kwargs=how).start()
    while not goes_on.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

library.Library._run = killed
library.Library(sys.argv[1]).prepare()
"""


def test_an_environment_whose_builder_was_killed_is_built_anew_after_its_pip(
    made: Library,
) -> None:
    """pip goes on though nobody waits for it any more."""
    where = [made.declared_in, str(library.ENVIRONMENTS)]
    builder = subprocess.run([sys.executable, "-c", KILLED, *where], check=False)
    assert builder.returncode == -signal.SIGKILL
    half, goes_on = made.environment / "half", made.environment / "goes-on"
    assert half.exists()
    preparing = threading.Thread(target=made.prepare)
    preparing.start()
    preparing.join(0.5)
    assert half.exists(), "it waits for the pip that goes on"
    goes_on.unlink()
    preparing.join(250)
    assert not half.exists()
    assert (made.environment / "built").exists()
    assert (made.environment / "bin" / "python").exists()


def test_what_cannot_be_imported_is_named(made: Library) -> None:
    (library.ADAPTERS / "made" / "adapter.py").write_text("import no_such_library\n")
    expected = r"\Amade cannot be imported: ModuleNotFoundError: .*no_such_library.*\Z"
    for _ in range(2):  # a failed build is not taken for a built one
        with pytest.raises(LockUnusableError, match=expected):
            made.prepare()


def test_a_changed_adapter_is_imported_again_and_nothing_installed(
    made: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.prepare()
    monkeypatch.setattr(Library, "_build", lambda *_: pytest.fail("it is installed"))
    made.adapter.write_text("import no_such_library\n")
    with pytest.raises(LockUnusableError, match="no_such_library"):
        made.prepare()
    made.adapter.write_text("import sys\n")
    made.prepare()


def test_a_library_without_pins_is_told_how_to_get_them(made: Library) -> None:
    made.requirements.unlink()
    with pytest.raises(LockUnusableError, match=r"made has no pins: lockbench library lock .*made"):
        made.prepare()


def test_a_list_of_locks_builds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "ENVIRONMENTS", tmp_path / "environments")
    assert SYSTEMS
    for system in SYSTEMS:
        registry.find(system.name)
    assert not (tmp_path / "environments").exists()


@pytest.mark.parametrize("folder", LIBRARIES)
def test_everything_is_pinned_with_its_hashes(folder: str) -> None:
    lines = (ADAPTERS / folder / "requirements.txt").read_text().splitlines()
    wanted = (ADAPTERS / folder / "requirements.in").read_text().splitlines()
    pins = [line for line in lines if re.match(r"[a-z0-9]", line)]
    assert pins
    assert all("==" in pin and pin.endswith("\\") for pin in pins)
    hashes = sum("--hash=sha256:" in line for line in lines)
    assert hashes >= len(pins)
    assert any("==" in want for want in wanted), "the library itself is asked for exactly"
    for want in wanted:
        name, _, version = want.partition("==")
        name = re.split(r"[\[<>=!~ ]", name)[0]
        exactly = rf"{re.escape(version)} " if version else ""
        assert any(re.match(rf"{name}(\[.*\])?=={exactly}", pin) for pin in pins)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_library_says_what_its_answers_mean(system: System) -> None:
    assert set(system.outcomes.values()) >= {"Granted", "Released", "Unknown"}
    # What a library raises is never taken for a refusal, unless it is the refusal.
    raised = {said for said in system.outcomes if "raised anything" in said}
    assert {system.outcomes[said] for said in raised} <= {"Unknown"}


def test_a_library_keeps_its_own_time_to_live() -> None:
    """10 s of pottery are the lease of its cases, whichever command plans them."""
    assert make_case("pottery", "client-pause", seed=0).pace.lease_ttl_s == 10
    assert inspect.signature(run).parameters["ttl"].default is None
    explored = asked("pottery").case.pace.lease_ttl_s
    assert explored == LONGER_LEASE_S, "short leases where time is not drawn"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("kazoo", "kazoo.client.KazooClient timeout"),
        ("pottery", "pottery.Redlock auto_release_time"),
        ("tooz", "kazoo.client.KazooClient timeout"),
    ],
)
def test_the_lease_of_its_cases_is_the_default_of_the_library(name: str, what: str) -> None:
    """Its adapter always sets it, since an exploration wants a shorter one."""
    system = registry.find(name)
    assert system.prepare is not None
    system.prepare()
    made = library_of(system)
    assert isinstance(made, Library)
    place, parameter = what.split()
    module, _, name = place.rpartition(".")
    code = (
        "import importlib, inspect\n"
        f"made = getattr(importlib.import_module({module!r}), {name!r})\n"
        f"print(inspect.signature(made).parameters[{parameter!r}].default)"
    )
    said = subprocess.run(
        [made.environment / "bin" / "python", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(said.stdout) == system.pace["lease_ttl_s"]


def test_a_round_begins_with_its_own_first_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that an earlier round left behind may set its value at any time."""
    monkeypatch.syspath_prepend(library.SHARED)
    from rounds import Rounds

    rounds = Rounds()
    rounds.asks("left behind", first=False)
    rounds.clear()
    before_ns = time.monotonic_ns()
    rounds.asks("new", first=False)
    after_ns = time.monotonic_ns()
    rounds.asks("left behind", first=False)
    rounds.asks("new", first=False)  # at its other nodes
    grant = rounds.granted("new", 10.0, None)
    assert before_ns <= grant.sent_ns <= after_ns
    assert grant.valid_until_ns == grant.sent_ns + 9_898_000_000
    rounds.asks("new", first=True)
    assert rounds.granted("new", 10.0, None).sent_ns >= after_ns


EndAfter = Callable[[int, int, int, int], int]
MS, SECOND = 1_000_000, 1_000_000_000


@pytest.fixture
def end_after(monkeypatch: pytest.MonkeyPatch) -> EndAfter:
    """Of redis-lock-py's adapter, whose library is not installed here."""
    monkeypatch.syspath_prepend(library.SHARED)
    monkeypatch.setitem(sys.modules, "redis_lock", MagicMock())
    monkeypatch.setitem(sys.modules, "redis_lock.exceptions", MagicMock())
    module = runpy.run_path(str(ADAPTERS / "redis_lock_py" / "adapter.py"), run_name="adapter")
    found: EndAfter = module["end_after"]
    return found


def _extended(end_after: EndAfter) -> Iterator[tuple[int, int]]:
    """Of random extends: how long before the server's end (negative: after it) the promise ends,
    and how long the request took to reach the server. A server that counts whole milliseconds."""
    random = Random(0)
    for _ in range(5_000):
        ttl_s, took = random.choice((2, 3, 10)), random.choice((1, MS, 300 * MS))
        tick_ns = random.randrange(MS)  # where its milliseconds begin
        set_ns = random.randrange(SECOND, 2 * SECOND)
        sent_ns = set_ns + random.randrange(ttl_s * SECOND - took)
        ran_ns = sent_ns + random.randrange(took)
        set_ms, ran_ms = (set_ns - tick_ns) // MS, (ran_ns - tick_ns) // MS
        left_s = (set_ms + 1000 * ttl_s - ran_ms + 500) // 1000
        end_ns = (ran_ms + 1000 * (left_s + ttl_s) + 1) * MS + tick_ns
        promised_ns = set_ns - random.randrange(took) + ttl_s * SECOND
        answered_ns = ran_ns + random.randrange(took)
        yield end_ns - end_after(promised_ns, sent_ns, answered_ns, ttl_s), ran_ns - sent_ns


def test_redis_lock_py_extends_to_no_later_than_the_server(end_after: EndAfter) -> None:
    assert min(early_ns for early_ns, _ in _extended(end_after)) > 0
    assert max(early_ns - took_ns for early_ns, took_ns in _extended(end_after)) <= SECOND + 2 * MS


def test_other_reckonings_of_that_extend_are_wrong() -> None:
    from_then_on = list(_extended(lambda until_ns, sent_ns, _, s: sent_ns + s * SECOND))
    assert max(early_ns - took_ns for early_ns, took_ns in from_then_on) > 2 * SECOND
    added = _extended(lambda until_ns, sent_ns, _, s: until_ns + s * SECOND)
    assert min(early_ns for early_ns, _ in added) < 0


class Redis(FakeRedis):
    """One that greets redis-py as it expects, and sets keys that do not expire."""

    def _answer(self, connection: socket.socket, command: tuple[bytes, ...]) -> bool:
        if command[0] == b"HELLO":
            connection.sendall(b"%1\r\n+proto\r\n:3\r\n")
            return True
        if command[0] == b"CLIENT":
            connection.sendall(b"+OK\r\n")
            return True
        return super()._answer(connection, command)

    def _run(self, command: tuple[bytes, ...]) -> bytes:
        if command[0] == b"SET":
            command = (*command[:3], b"NX", b"PX", b"60000")
        answer = super()._run(command)
        return b"_\r\n" if answer == b"$-1\r\n" else answer  # as RESP3 writes nothing


@pytest.fixture
def redis() -> Iterator[Redis]:
    with Redis() as fake:
        yield fake


def test_redis_py_says_no_while_its_own_key_lives(redis: Redis) -> None:
    """The defect: its client repeats the SET whose reply was lost, and finds its own key."""
    lock = registry.find("redis-py").connect(
        [redis.address], timeout_s=10, ttl_s=30, observer=NoObserver()
    )
    redis.on("SET", Close())
    assert lock.acquire("k", hold_id=5, ttl_s=3, wait_s=0) == Denied("held")
    first, second = [command[2] for command in redis.log if command[0] == b"SET"]
    assert first == second == redis.value("k")
    lock.close()


def test_redis_py_without_retries_does_not_know(redis: Redis) -> None:
    lock = registry.find("redis-py-safe").connect(
        [redis.address], timeout_s=10, ttl_s=30, observer=NoObserver()
    )
    redis.on("SET", Close())
    assert isinstance(lock.acquire("k", hold_id=5, ttl_s=3, wait_s=0), Unknown)
    assert redis.names() == ["SET"]
    grant = lock.acquire("other", hold_id=7, ttl_s=3, wait_s=0)
    assert isinstance(grant, Granted)
    assert grant.valid_until_ns == grant.sent_ns + 3_000_000_000
    lock.close()
