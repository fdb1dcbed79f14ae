"""The sidecar protocol, against scripted sidecars: one that works, and every way to fail."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from lockbench.locks.base import (
    Acquired,
    Address,
    Denied,
    Extendable,
    Granted,
    Hold,
    LockUnusableError,
    NotHeld,
    Released,
    Unknown,
)
from lockbench.locks.shared import sidecar
from lockbench.locks.shared.library import SHARED
from lockbench.locks.shared.sidecar import (
    ExtendableSidecarLock,
    NotSentError,
    Sidecar,
    SidecarError,
    SidecarLock,
)
from lockbench.workloads.fork_server import RUN_ENVIRONMENT
from tests.eventually import eventually
from tests.locks import asking
from tests.locks.asking import Told, meanwhile

# A library whose keys say what it does.
LIBRARY = """
import asyncio
import threading
import time
from lockbench_sidecar import Client, Denied, Granted, NotHeld, Released, serve

MEETING = threading.Barrier(2, timeout=20)

class GaveUp(Exception):
    pass

class Gone(Exception):
    pass

class Scripted(Client):
    gave_up = (GaveUp,)
    not_held = (Gone,)
    def __init__(self, setup):
        if setup.ttl_s == 13:
            raise OSError("it cannot be")
        self.tell = setup.tell
    def acquire(self, key, hold, ttl_s, wait_s):
        now = time.monotonic_ns()
        if key == "renewed":
            self.tell.extended(hold, sent_ns=now, valid_until_ns=now + 5)
        if key == "lost":
            self.tell.lost(hold)
        if key == "slow":
            time.sleep(1.0)
        for _ in range({"meets": 1, "meets twice": 2}.get(key, 0)):
            MEETING.wait()
        if key == "gone already":
            raise Gone
        if key == "raises":
            raise TimeoutError("two\\nlines")
        if key == "is cancelled":
            raise asyncio.CancelledError
        if key == "prints":
            print("{}")
        if key == "held":
            return Denied("held")
        if key == "clock":
            return Granted(int(1e9 * time.time()), None)
        if key == "dies":
            import os
            os._exit(3)
        if key == "gives up":
            raise GaveUp
        until = None if key == "endless" else now + int(ttl_s * 1e9)
        return Granted(now, until, fence=2**62, lock=key)
    def release(self, hold, lock):
        if lock == "gone":
            raise Gone
        if lock == "stuck":
            raise GaveUp
        return NotHeld() if lock == "not held" else Released()
    def extend(self, hold, lock, ttl_s):
        if lock == "gone":
            raise Gone
        return NotHeld() if lock == "not held" else Granted(1, 2)
    def close(self):
        pass

serve("pip", Scripted)
"""
# A sidecar that says hello and then only what it is told to say.
FAULTY = """
import sys, time
print('{"hello": 1, "library": "x", "version": "1"}', flush=True)
for line in sys.stdin:
    if '"open"' in line:
        import json
        print(json.dumps({"id": json.loads(line)["id"], "said": "opened"}), flush=True)
    else:
        ACTION
"""


Start = Callable[..., Sidecar]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a sidecar from the text of a program."""
    started: list[Sidecar] = []

    def from_text(program: str, **environment: str) -> Sidecar:
        command = [sys.executable, "-P", "-c", program]
        started.append(Sidecar("x", command, {"PYTHONPATH": str(SHARED), **environment}))
        return started[-1]

    yield from_text
    for one in started:
        one.close()


def client(of: Sidecar, observer: Told | None = None, ttl_s: float = 3.0) -> SidecarLock:
    return ExtendableSidecarLock(
        of,
        [Address("127.0.0.1", 9)],
        timeout_s=1,
        ttl_s=ttl_s,
        observer=observer or Told(),
        safe=True,
    )


def take(lock: SidecarLock, key: str) -> Acquired:
    return asking.take(lock, ttl_s=3, key=key)


def granted(lock: SidecarLock, key: str) -> Granted:
    return asking.granted(lock, ttl_s=3, key=key)


def test_every_answer_is_understood(start: Start) -> None:
    one = start(LIBRARY)
    lock = client(one)
    assert one.library.startswith("pip ")
    grant = granted(lock, "k")
    assert (grant.fence, grant.hold.key) == (2**62, "k")
    assert grant.valid_until_ns == grant.sent_ns + 3_000_000_000
    assert isinstance(lock, Extendable)
    assert lock.extend(grant.hold, 3) == Granted(grant.hold, None, 1, 2)
    assert lock.release(grant.hold) == Released()
    assert (lock.extend(grant.hold, 3), lock.release(grant.hold)) == (NotHeld(), NotHeld())
    never = Hold(1, "k")
    assert (lock.extend(never, 3), lock.release(never)) == (NotHeld(), NotHeld())
    other = granted(lock, "not held")
    assert (lock.extend(other.hold, 3), lock.release(other.hold)) == (NotHeld(), NotHeld())
    endless = granted(lock, "endless")
    assert endless.valid_until_ns is None
    assert take(lock, "held") == Denied("held")
    assert take(lock, "raises") == Unknown("acquire: TimeoutError: two lines")
    assert isinstance(take(lock, "prints"), Granted)
    lock.close()
    lock.close()


def test_what_a_library_raises_is_a_refusal_only_where_it_says_so(start: Start) -> None:
    lock = client(start(LIBRARY))
    assert isinstance(lock, Extendable)
    assert take(lock, "gives up") == Denied("gave-up: GaveUp")
    assert take(lock, "gone already") == Unknown("acquire: Gone")
    gone = granted(lock, "gone")
    assert (lock.extend(gone.hold, 3), lock.release(gone.hold)) == (NotHeld(), NotHeld())
    stuck = granted(lock, "stuck")
    assert lock.release(stuck.hold) == Unknown("release: GaveUp")
    # Whether it was given back nobody knows, so nobody says that it was not held.
    said = Unknown("an earlier release was not answered")
    assert (lock.release(stuck.hold), lock.extend(stuck.hold, 3)) == (said, said)


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("acquire: TimeoutError: two lines", "TimeoutError"),
        ("release: gaierror: [Errno -2] Name or service not known", "gaierror"),
        ("release: GaveUp", "GaveUp"),
        ("ReleaseUnlockedLock, 2 nodes in error: TimeoutError", "ReleaseUnlockedLock"),
        ("TimeoutException: null", "TimeoutException"),
        ("LockReleasingException: Failed; RedisException: read", "LockReleasingException"),
        ("ExecutionException: io.grpc.StatusRuntimeException: NOT_FOUND", "StatusRuntimeException"),
        ("ExecutionException: java.util.concurrent.TimeoutException", "TimeoutException"),
        ("ExecutionException: a.KeeperException$NoNodeException: x", "NoNodeException"),
        ("ExecutionException: null", "ExecutionException"),
        ("node #0: EOF node #1: EOF", None),
        ("read tcp 127.0.0.1:1->127.0.0.1:2: i/o timeout", None),
        ("rpc error: code = Unavailable desc = error reading from server: EOF", None),
        ("Lock() has not returned, and the name of its node is not known", None),
        ("extend() returned False", None),
        ("the sidecar of x ended (pip 1.0)", None),
        ("", None),
    ],
)
def test_the_class_of_an_error_stands_first_in_its_reason(reason: str, error: str | None) -> None:
    assert sidecar.raised(reason) == error


def test_an_error_and_an_end_are_recognised_in_what_is_answered(start: Start) -> None:
    lock = client(start(LIBRARY))
    said = take(lock, "raises")
    assert isinstance(said, Unknown)
    assert sidecar.raised(said.reason) == "TimeoutError"
    assert not sidecar.has_ended(said.reason)
    ended, later = take(lock, "dies"), take(lock, "k")
    assert isinstance(ended, Unknown)
    assert isinstance(later, Denied)
    assert sidecar.has_ended(ended.reason)
    assert sidecar.has_ended(later.reason)


def test_what_is_raised_and_no_exception_is_answered_too(start: Start) -> None:
    lock = client(start(LIBRARY))
    said = take(lock, "is cancelled")
    assert isinstance(said, Unknown)
    assert sidecar.raised(said.reason) == "CancelledError"
    assert isinstance(take(lock, "k"), Granted)


def test_a_request_that_was_sent_is_not_denied_for_a_ping_that_was_not(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead() -> None:
        raise NotSentError("the sidecar of x ended (lib 1)")

    one = start(LIBRARY)
    lock = client(one)
    monkeypatch.setattr(sidecar, "OVERDUE_S", 0.05)
    monkeypatch.setattr(one, "_ping", dead)
    assert take(lock, "slow") == Unknown("the sidecar of x ended (lib 1)")


def test_a_library_that_makes_no_client_is_unusable(start: Start) -> None:
    one = start(LIBRARY)
    with pytest.raises(LockUnusableError, match="x does not make a client: OSError: it cannot be"):
        client(one, ttl_s=13)
    client(one)


def test_what_happens_in_the_background_is_told_to_its_own_client(start: Start) -> None:
    one, mine, others = start(LIBRARY), Told(), Told()
    lock, other = client(one, mine), client(one, others)
    renewed, lost = granted(lock, "renewed"), granted(lock, "lost")
    granted(other, "k")
    assert mine.until_ns == [renewed.sent_ns + 5]
    assert mine.losses == [lost.hold]
    assert (others.until_ns, others.losses) == ([], [])


def test_clients_do_not_wait_for_each_other(start: Start) -> None:
    one = start(LIBRARY)
    slow, quick = client(one), client(one)
    with meanwhile(lambda: take(slow, "meets twice")) as answer:
        assert isinstance(take(quick, "meets"), Granted)
        assert isinstance(take(quick, "meets"), Granted)  # its first answer waited for no other
    assert isinstance(answer.result(), Granted)


def test_a_call_that_takes_long_is_no_failure(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar, "OVERDUE_S", 0.05)
    assert isinstance(take(client(start(LIBRARY)), "slow"), Granted)


FAILURES = {
    "dies": ("sys.exit()", "ended"),
    "hangs": ("time.sleep(60)", "did not answer a ping"),
    "garbage": ("print('who?', flush=True)", "answered with garbage: 'who\\?'"),
    "no object": ("print('[1]', flush=True)", "garbage"),
    "a grant without its time": (
        """import json; print(json.dumps(json.loads(line) | {"said": "granted"}), flush=True)""",
        "garbage",
    ),
    "no answer": ("print('{\"id\": 1e999}', flush=True); sys.exit()", "ended|garbage"),
}


@pytest.mark.parametrize("way", FAILURES)
def test_what_is_in_flight_when_it_fails_is_unknown(
    start: Start, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    action, reason = FAILURES[way]
    faulty, sound = start(FAULTY.replace("ACTION", action)), start(LIBRARY)
    lock, other = client(faulty), client(sound)
    with monkeypatch.context() as short:  # not for those that have to answer
        if way == "hangs":
            short.setattr(sidecar, "OVERDUE_S", 0.1)
            short.setattr(sidecar, "PONG_S", 0.3)
        with pytest.raises(SidecarError, match=f"the sidecar of x .*({reason})"):
            faulty.ask("acquire", 1, key="k")
    assert take(lock, "k") == Denied(f"no-effect: {faulty.failure}")
    assert lock.release(Hold(1, "k")) == Unknown(str(faulty.failure))
    eventually(lambda: not psutil.pid_exists(faulty.pid))
    lock.close()
    assert isinstance(take(other, "k"), Granted)


UNREADING = """
import json, os, select
print('{"hello": 1, "library": "x", "version": "1"}', flush=True)
opening = json.loads(os.read(0, 65536))
print(json.dumps({"id": opening["id"], "said": "opened"}), flush=True)
select.select([0], [], [])
"""


def test_one_that_dies_before_it_reads_has_ended_too(start: Start) -> None:
    """Its socket is reset then, not closed."""
    dying = client(start(UNREADING))
    assert take(dying, "k") == Unknown("the sidecar of x ended with requests unread (x 1)")


def test_an_acquire_in_flight_when_it_dies_is_unknown(start: Start) -> None:
    one = start(LIBRARY)
    dying, waiting = client(one), client(one)
    with meanwhile(lambda: take(waiting, "meets twice")) as answer:
        assert isinstance(take(dying, "meets"), Granted)  # so the other is in flight
        assert isinstance(take(dying, "dies"), Unknown)
    assert isinstance(answer.result(), Unknown)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ('print(\'{"hello": 2, "library": "x"}\', flush=True)', "protocol 2, this bench speaks 1"),
        ("print('good morning', flush=True)", "garbage: 'good morning'"),
        ("pass", "ended"),
    ],
)
def test_a_sidecar_that_does_not_say_hello_is_refused(
    start: Start, program: str, reason: str
) -> None:
    with pytest.raises(SidecarError, match=reason):
        start(program)


PARENT = f"""
import sys, time
from lockbench.locks.shared.sidecar import Sidecar
one = Sidecar("x", [sys.executable, "-c", '''{FAULTY}'''.replace("ACTION", "pass")])
print(one.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("frozen", [False, True])
def test_it_dies_with_its_worker(frozen: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        env=os.environ | {RUN_ENVIRONMENT: "a run"},
        stdout=subprocess.PIPE,
        process_group=0,
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.environ()[RUN_ENVIRONMENT] == "a run"  # what ``lockbench clean`` looks for
        if frozen:
            os.killpg(parent.pid, signal.SIGSTOP)
            eventually(lambda: child.status() == psutil.STATUS_STOPPED)
        parent.kill()
        eventually(lambda: not child.is_running())


def test_its_wall_clock_can_be_moved(start: Start, tmp_path: Path) -> None:
    page = tmp_path / "control"
    page.write_bytes(bytes(16))
    environment = {sidecar.CLOCK_ENVIRONMENT: f"{page}@8"}
    lock = client(start(LIBRARY, **environment))

    def ahead_s() -> float:
        return granted(lock, "clock").sent_ns / 1e9 - time.time()

    assert abs(ahead_s()) < 5
    with page.open("r+b") as file:
        file.write(struct.pack("<qq", 0, 60_000_000_000))
    assert abs(ahead_s() - 60) < 5


def test_the_same_under_gevent() -> None:
    """As a worker is."""
    script = """
from gevent import monkey
monkey.patch_all()
import sys, pytest
sys.exit(pytest.main(sys.argv[1:]))
"""
    chosen = "answer or background or wait or long or flight"
    done = subprocess.run(
        [sys.executable, "-c", script, __file__, "-q", "-p", "no:cacheprovider", "-k", chosen],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
