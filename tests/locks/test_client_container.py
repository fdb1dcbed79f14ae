"""Sidecars in containers: what they must know, how they fail, how they end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from lockbench.clusters import images
from lockbench.clusters.engine import client_containers as clients
from lockbench.clusters.engine.docker import Engine
from lockbench.locks.base import Address, Denied, NoObserver, Released, Unknown
from lockbench.locks.shared.client_container import WORD, WORKER, ContainerSidecar
from lockbench.locks.shared.client_programs import GO_IMAGE as GO
from lockbench.locks.shared.sidecar import Sidecar, SidecarError, SidecarLock, raised
from tests.eventually import eventually
from tests.locks.asking import granted, said, take
from tests.locks.test_pins import contained

LIMIT_S = 10.0
# A program in bash that says hello so, and then what it is told to say to every request but "open".
PROGRAM = f"""
exec 3<>"/dev/tcp/${{{WORKER}/:/\\/}}"
read -r was _ < /proc/uptime; up=$was
while [[ $up == "$was" ]]; do read -r up _ < /proc/uptime; done
echo '{{"hello": 1, "library": "x", "version": "1", "word": "'"${WORD}"'", "now_ns": '"NOW"'}}' >&3
while read -r line <&3; do
  if [[ $line == *'"open"'* ]]; then
    id=${{line#*\\"id\\":}}; echo '{{"id": '"${{id%%,*}}"', "said": "opened"}}' >&3
  else
    ACTION
  fi
done
"""
NOW = "${up/./}0000000"  # of the machine's own clock, which has just passed a hundredth

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module", autouse=True)
def _image() -> None:
    images.ensure(images.CLIENTS)


@pytest.fixture
def opened() -> Iterator[list[Sidecar]]:
    """What is in it is closed in the end."""
    sidecars: list[Sidecar] = []
    yield sidecars
    for one in sidecars:
        one.close()


def scripted(
    opened: list[Sidecar], *, now: str = NOW, action: str = ":", hello: str = "1"
) -> Sidecar:
    program = PROGRAM.replace("NOW", now).replace("ACTION", action)
    program = program.replace('"hello": 1', f'"hello": {hello}')
    opened.append(ContainerSidecar(GO, "x", ["/bin/bash", "-c", program]))
    return opened[-1]


def client(sidecar: Sidecar) -> SidecarLock:
    node = [Address("127.0.0.1", 9)]
    return SidecarLock(sidecar, node, timeout_s=1, ttl_s=3, observer=NoObserver(), safe=True)


@pytest.mark.parametrize("image", images.CLIENTS)
def test_the_program_of_the_image_serves(opened: list[Sidecar], image: str) -> None:
    opened.append(ContainerSidecar(image, "nothing"))
    lock = client(opened[0])
    assert isinstance(lock.release(granted(lock).hold), Released)
    assert re.fullmatch(r"\S+ v?[\d.]+\S*", opened[0].library)


def test_a_client_of_php_may_be_idle_for_longer_than_php_waits_for_data(
    opened: list[Sidecar],
) -> None:
    program = ["/usr/bin/php", "-d", "default_socket_timeout=1", "/usr/local/bin/php-sidecar"]
    opened.append(ContainerSidecar("php-sidecar", "nothing", program))
    lock = client(opened[0])
    for idle_s in (0.0, 1.5):
        time.sleep(idle_s)
        assert isinstance(lock.release(granted(lock).hold), Released)


@pytest.mark.parametrize(
    ("image", "lock", "error"),
    [
        ("jvm-sidecar", "shedlock-postgres", "SQLTransientConnectionException"),
        ("node-sidecar", "node-redlock", "LockError"),
        ("php-sidecar", "symfony-redis", "RedisException"),
        (GO, "bsm-redislock", None),
    ],
)
def test_an_error_is_named_by_its_class_where_it_has_one(
    opened: list[Sidecar], image: str, lock: str, error: str | None
) -> None:
    """As ``explore`` compares it with what the library documents; nobody is there to connect to."""
    opened.append(ContainerSidecar(image, lock))
    answer = take(client(opened[0]))
    assert isinstance(answer, Denied)
    *_, words = re.split(r"no-effect: |there is no table: ", answer.reason)
    assert raised(words) == error, answer


@pytest.mark.parametrize(
    ("says", "refusal"),
    [
        ({"hello": "2"}, "speaks protocol 2, this bench speaks 1"),
        ({"now": "12345"}, "has another clock"),
    ],
)
def test_another_protocol_or_clock_is_refused(
    opened: list[Sidecar], says: dict[str, str], refusal: str
) -> None:
    with pytest.raises(SidecarError, match=refusal):
        scripted(opened, **says)


def test_whoever_does_not_know_the_word_is_refused(
    opened: list[Sidecar], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockbench.locks.shared.client_container.WORD", "SOMETHING_ELSE")
    with pytest.raises(SidecarError, match="does not know the word"):
        scripted(opened)


def test_a_program_that_cannot_run_is_named(opened: list[Sidecar]) -> None:
    with pytest.raises(SidecarError, match=r"cannot be started: .*no-such-program"):
        opened.append(ContainerSidecar(GO, "x", ["/no-such-program"]))
    with pytest.raises(SidecarError, match="ended"):
        opened.append(ContainerSidecar(GO, "x", ["/bin/bash", "-c", "exit 3"]))


HANGS = "sleep 60 3>&-"  # in a process of its own


def _kill_at_a_request(pid: int) -> None:
    """The program says nothing, and is killed."""
    program = psutil.Process(pid)
    eventually(program.children)
    program.kill()


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("echo '{garbage' >&3", "answered with garbage"),
        ("exit 1", "ended"),
        (HANGS, "ended"),
    ],
)
def test_what_was_in_flight_is_unknown_and_later_calls_have_no_effect(
    opened: list[Sidecar], action: str, why: str
) -> None:
    lock = client(scripted(opened, action=action))
    if action == HANGS:
        threading.Thread(target=_kill_at_a_request, args=(opened[0].pid,)).start()
    answer = take(lock)
    assert isinstance(answer, Unknown), answer
    assert why in answer.reason
    assert said(take(lock)) == "Denied: no-effect"


def test_a_program_that_hangs_is_killed(
    opened: list[Sidecar], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = client(scripted(opened))
    monkeypatch.setattr("lockbench.locks.shared.sidecar.OVERDUE_S", 0.2)
    monkeypatch.setattr("lockbench.locks.shared.sidecar.PONG_S", 0.2)
    answer = take(lock)
    assert isinstance(answer, Unknown)
    assert "did not answer a ping" in answer.reason
    eventually(lambda: not psutil.pid_exists(opened[0].pid))


def test_it_starts_where_gevent_has_replaced_sockets() -> None:
    program = (
        "from gevent import monkey; monkey.patch_all(); "
        "from lockbench.locks.base import *; "
        "from lockbench.locks.shared.client_container import ContainerSidecar as C; "
        "from lockbench.locks.shared.sidecar import SidecarLock as L; "
        f"s = C({GO!r}, 'nothing'); l = L(s, [], timeout_s=1, ttl_s=1, observer=NoObserver(), "
        "safe=True); print(l.acquire('k', hold_id=1, ttl_s=1, wait_s=0).fence); s.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "None\n", done.stderr


@pytest.mark.parametrize("image", images.CLIENTS)
def test_it_is_frozen_by_number_and_found_by_its_worker(opened: list[Sidecar], image: str) -> None:
    opened.append(ContainerSidecar(image, "nothing"))
    (found,) = clients.started_by(os.getpid())
    assert found.pid == opened[0].pid
    found.send_signal(signal.SIGSTOP)
    eventually(lambda: found.status() == psutil.STATUS_STOPPED)
    found.send_signal(signal.SIGCONT)
    granted(client(opened[0]))


@pytest.mark.parametrize("image", images.CLIENTS)
def test_it_ends_with_its_worker_and_leaves_no_container(image: str) -> None:
    program = (
        "import time; from lockbench.locks.shared.client_container import ContainerSidecar as C; "
        f"print(C({image!r}, 'nothing').pid, flush=True); time.sleep(60)"
    )
    worker = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    with worker.stdout:
        pid = int(worker.stdout.readline())
    assert psutil.pid_exists(pid)
    worker.kill()
    worker.wait()
    eventually(lambda: not psutil.pid_exists(pid))
    name = f"lockbench-client-{worker.pid}-"
    ours = {"lockbench": "1"}
    with Engine() as engine:
        eventually(lambda: not any(c.name.startswith(name) for c in engine.containers(ours)))


def test_every_lock_of_an_image_is_declared_and_known_to_it() -> None:
    """By the sources: a name that the program does not know would be refused only in a case."""
    sources = {
        image: "".join(path.read_text() for path in images.recipes()[image].files().values())
        for image in images.CLIENTS
    }
    for name, library in contained().items():
        assert re.search(f"[\"']{library.lock}[\"']", sources[library.image]), name
