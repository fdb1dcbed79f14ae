"""What the scripts of the track record share, and every one of them on real servers."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
import threading
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from examples.software import Version
from lockbench.checker.check import check
from lockbench.clusters.base import ClusterPlan
from lockbench.clusters.postgres.protocol import USER
from lockbench.clusters.registry import topologies
from lockbench.evidence.track import FOLDER, SHARED, Page, pages
from lockbench.history.jsonl import read_jsonl
from lockbench.locks.registry import find, systems
from lockbench.locks.shared.library import ADAPTERS, Library
from lockbench.locks.shared.pins import requirements

SHOWS, HEALTHY, UNDECIDED = 1, 0, 2
# Libraries that no lock here adapts.
PINNED = Path(__file__).parent / "libraries"


@pytest.fixture
def plain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("track_plain", FOLDER / SHARED)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def echo() -> tuple[str, int]:
    """A server that answers every line with itself."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1024):
                connection.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    host, port = listener.getsockname()
    return host, port


def test_the_proxy_loses_one_reply_and_no_other(plain: ModuleType, echo: tuple[str, int]) -> None:
    proxy = plain.Proxy(echo)
    with socket.create_connection((proxy.host, proxy.port), timeout=10) as client:
        client.sendall(b"one")
        assert client.recv(10) == b"one"
        proxy.lose = lambda request: b"two" in request
        client.sendall(b"two")
        assert client.recv(10) == b"", "the connection ends, and nothing was answered"
    assert proxy.lost_ns is not None
    with socket.create_connection((proxy.host, proxy.port), timeout=10) as client:
        client.sendall(b"two")
        assert client.recv(10) == b"two", "only the first one"


def test_the_proxy_drops_one_request_and_no_other(plain: ModuleType, echo: tuple[str, int]) -> None:
    proxy = plain.Proxy(echo)
    proxy.drop = lambda request: b"two" in request
    with socket.create_connection((proxy.host, proxy.port), timeout=10) as client:
        client.sendall(b"one")
        assert client.recv(10) == b"one"
        client.sendall(b"two")
        assert client.recv(10) == b""
    assert proxy.dropped_ns is not None
    assert proxy.lost_ns is None
    with socket.create_connection((proxy.host, proxy.port), timeout=10) as client:
        client.sendall(b"two")
        assert client.recv(10) == b"two", "only the first one"


def test_a_mute_proxy_swallows_replies_and_keeps_the_connection(
    plain: ModuleType, echo: tuple[str, int]
) -> None:
    proxy = plain.Proxy(echo)
    with socket.create_connection((proxy.host, proxy.port), timeout=10) as client:
        proxy.mute = True
        client.sendall(b"one")
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.recv(10)
        proxy.mute = False
        client.settimeout(10)
        client.sendall(b"two")
        assert client.recv(10) == b"two", "what was swallowed does not come any more"


def test_the_recorder_writes_what_the_checker_reads(plain: ModuleType, tmp_path: Path) -> None:
    recorder = plain.Recorder("k", strict_try=True)
    for name in ("A", "B"):
        operation = recorder.begin(name, "acquire", f"hold-{name}")
        operation.ok("granted")
    recorder.begin("C", "acquire", "hold-C").fail("held", "False")
    recorder.begin("A", "release", "hold-A").unknown("no answer")
    recorder.write(str(tmp_path / "h.jsonl"))
    history = read_jsonl(tmp_path / "h.jsonl")
    assert history.invoke_ns[0] == 0
    assert history.object_of("k").strict_try
    assert check(history).verdicts["double-grant"].result == "invalid"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("raise ValueError('the script is wrong')", UNDECIDED),
        ("assert False, 'not as it should be'", UNDECIDED),
        ("end(Recorder('k'), None, True, [])", SHOWS),
        ("end(Recorder('k'), None, False, [])", HEALTHY),
    ],
)
def test_a_script_that_fails_does_not_look_like_the_defect(
    tmp_path: Path, body: str, code: int
) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"from plain import Recorder, end, servers\nservers('x', 1, 'y')\n{body}\n")
    done = run(script, "127.0.0.1:1", path=str(FOLDER))
    assert done.returncode == code, done.stderr


# One of each kind, of those that need nothing but the bench's own libraries; the others are long.
USUAL = {"redis-py-lost-reply", "kazoo-is-acquired"}
SCRIPTS = [
    pytest.param(each, marks=[] if each.id in USUAL else pytest.mark.long, id=each.id)
    for each in pages()
    if each.script
]


@pytest.mark.docker
@pytest.mark.parametrize("made", SCRIPTS)
def test_a_script_shows_its_defect(made: Page, tmp_path: Path) -> None:
    """On the versions of its page, which are ours too; its history breaks what the page says."""
    script = FOLDER / made.script
    (count,) = re.findall(r"servers\(__doc__, (\d)", script.read_text())
    # What no lock here adapts speaks to one Redis.
    lock = made.locks[0]
    topology = find(lock).topologies[0] if lock in systems() else "redis"
    plan = ClusterPlan(
        topology=topology,
        size=topologies()[topology].default_size,
        groups=1,
        run_id=f"test-track-{os.getpid()}",
        lease_ttl_s=3.0,
        log_dir=str(tmp_path),
    )
    with topologies()[topology].make(plan) as cluster:
        words = [f"{host}:{port}" for host, port in cluster.addresses(1)[: int(count)]]
        history = tmp_path / "h.jsonl"
        done = run(script, *words, "--history", str(history), python=interpreter(script))
    assert done.returncode == SHOWS, done.stdout + done.stderr
    verdicts = check(read_jsonl(history)).verdicts
    for verdict in made.verdicts if made.script == f"{made.id}.py" else ():
        assert verdicts[verdict].result == "invalid"


def interpreter(script: Path) -> str:
    """One that has the libraries of the script in its versions: ours, or a lock library's own."""
    wanted = re.findall(r'"([\w-]+)(?:==([\d.]+))?"', script.read_text().partition('"""')[0])
    if all(
        here(library) is not None and version in ("", here(library)) for library, version in wanted
    ):
        return sys.executable
    for folder in (*ADAPTERS.iterdir(), *PINNED.iterdir()):
        locked = folder / "requirements.txt"
        pinned = requirements(locked).items() if locked.exists() else ()
        if {(library, version) for library, version in wanted} <= set(pinned):
            beside = str(folder / "lock.py")
            environment = (
                Library(beside)
                if folder.parent == ADAPTERS
                else Version(beside, program=FOLDER / SHARED)
            )
            environment.prepare()
            return str(environment.environment / "bin" / "python")
    pytest.fail(f"{wanted} is in no environment here")


def here(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def run(
    script: Path, *words: str, path: str = "", python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, str(script), *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "PGUSER": USER},
    )
