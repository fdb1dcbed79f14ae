"""Clients of locks whose operations are played by hand on a real cluster and written as a history.

For scenes that no fault of the nemesis makes: who asks when is up to the script.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lockbench.clusters.base import Cluster, ClusterPlan
from lockbench.clusters.registry import topologies
from lockbench.locks.base import (
    Address,
    Denied,
    Freed,
    Granted,
    Hold,
    Lock,
    NotHeld,
    Released,
    System,
    new_hold_id,
    token_of,
)
from lockbench.locks.registry import find
from lockbench.workloads.resource import Resource
from tests.eventually import eventually

COULD_NOT_TELL: Final = 2  # how a script ends


class Party:
    """One client, and what it did in the words of a history. It is its own observer."""

    def __init__(
        self, name: str, system: System, nodes: list[Address], key: str, ttl_s: float
    ) -> None:
        self.name = name
        self.lines: list[dict[str, Any]] = []
        self.granted: Granted | None = None
        self.granted_ns = 0  # when it was told so, monotonic
        self._key = key
        self._ttl_s = ttl_s
        self._done = threading.Event()
        self._lock: Lock = system.connect(nodes, timeout_s=1, ttl_s=ttl_s, observer=self)

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        self._line("extend", "ok", hold, sent_ns, acknowledged_ns, None, sent_ns, valid_until_ns)

    def lost(self, hold: Hold, *, alive_ns: int | None = None) -> None:
        now_ns = time.monotonic_ns()
        self._line("lost", "ok", hold, now_ns, now_ns)

    def acquire(self, wait_s: float) -> None:
        """Asks once, and notes what it was told."""
        hold = Hold(new_hold_id(), self._key)
        begun_ns = time.monotonic_ns()
        answer = self._lock.acquire(self._key, hold_id=hold.id, ttl_s=self._ttl_s, wait_s=wait_s)
        ended_ns = time.monotonic_ns()
        match answer:
            case Granted(sent_ns=sent_ns, valid_until_ns=until_ns):
                self._line("acquire", "ok", hold, begun_ns, ended_ns, None, sent_ns, until_ns)
                self.granted, self.granted_ns = answer, ended_ns
            case Denied(reason=reason):
                self._line("acquire", "fail", hold, begun_ns, ended_ns, reason)
            case _:
                self._line("acquire", "info", hold, begun_ns, None, answer.reason)
        self._done.set()

    def wait(self, seconds: float) -> bool:
        """Whether it was granted the lock within the time."""
        self._done.wait(seconds)
        return self.granted is not None

    def release(self) -> Freed:
        """Gives back what it was granted."""
        assert self.granted is not None
        begun_ns = time.monotonic_ns()
        answer = self._lock.release(self.granted.hold)
        ended_ns = time.monotonic_ns()
        match answer:
            case Released():
                self._line("release", "ok", self.granted.hold, begun_ns, ended_ns)
            case NotHeld():
                self._line("release", "fail", self.granted.hold, begun_ns, ended_ns, "not-held")
            case _:
                self._line("release", "info", self.granted.hold, begun_ns, None)
        return answer

    def read(self, resource: Resource) -> int:
        """Reads what the lock guards under its hold; returns the version it found."""
        assert self.granted is not None
        hold, begun_ns = self.granted.hold, time.monotonic_ns()
        version, applied_ns, _ = resource.read(hold.key, hold.id)
        self._line(
            "read", "ok", hold, begun_ns, time.monotonic_ns(), value=version, applied_ns=applied_ns
        )
        return version

    def write(self, resource: Resource, version: int) -> int:
        """Writes on top of the version it had read, whether its hold is still good or not; returns
        the version made."""
        assert self.granted is not None
        hold, begun_ns = self.granted.hold, time.monotonic_ns()
        made, applied_ns = resource.write(hold.key, hold.id, version, self.granted.fence)
        times = (begun_ns, time.monotonic_ns())
        self._line("write", "ok", hold, *times, value=made, version=version, applied_ns=applied_ns)
        return made

    def until_ns(self) -> int:
        """When the promise of what it was granted ends, as far as it knows; 0 without one."""
        return max((line["valid_until_ns"] or 0 for line in self.lines), default=0)

    def told(self, f: str) -> int:
        """How often it was told of an ``extend`` or of ``lost``."""
        return sum(line["f"] == f for line in self.lines)

    def close(self) -> None:
        """Leaves."""
        self._lock.close()

    def _line(
        self,
        f: str,
        how: str,
        hold: Hold,
        invoke_ns: int,
        complete_ns: int | None,
        error: str | None = None,
        sent_ns: int | None = None,
        until_ns: int | None = None,
        **more: int,
    ) -> None:
        self.lines.append(
            {
                "process": self.name,
                "f": f,
                "key": self._key,
                "type": how,
                "invoke_ns": invoke_ns,
                "complete_ns": complete_ns,
                "hold": token_of(hold.id),
                "sent_ns": sent_ns,
                "valid_until_ns": until_ns,
                "error": error,
                **more,
            }
        )


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def prepared(name: str) -> System:
    """A lock by name, its image built."""
    system = find(name)
    if system.prepare is not None:
        system.prepare()
    return system


def rounds(
    play: Callable[[Path | None], bool | None], times: int, history: Path | None, shows: str
) -> int:
    """Plays a scene again and again, and says of each round whether it showed, which ``shows``
    puts into words. ``play`` is given where to write the history until one round showed it, and
    returns None where it could not tell; such a round does not count.
    1 when it showed, 0 when it never did, 2 when no round could tell."""
    shown = counted = 0
    for turn in range(times):
        did = play(None if shown else history)
        counted += did is not None
        shown += did is True
        say(f"round {turn + 1}: {'could not tell' if did is None else shows if did else 'no'}")
    say(f"{shown} of {counted}")
    return int(shown > 0) if counted else COULD_NOT_TELL


def written(path: Path, parties: Sequence[Party], faults: Sequence[dict[str, Any]]) -> None:
    """What all of them did, as a history."""
    lines = sorted((line for p in parties for line in p.lines), key=lambda line: line["invoke_ns"])
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *faults]))


def fault(name: str, targets: Sequence[str], begin_ns: int, heal_ns: int) -> dict[str, Any]:
    """Something that was broken between two times."""
    return {
        "process": "nemesis",
        "f": name,
        "targets": list(targets),
        "begin_ns": [begin_ns, begin_ns],
        "heal_ns": [heal_ns, heal_ns],
    }


@contextmanager
def cluster(topology: str, lease_s: float) -> Iterator[Cluster]:
    """One of the default size, with links of its own for one group of clients."""
    with tempfile.TemporaryDirectory() as logs:
        plan = ClusterPlan(
            topology=topology,
            size=topologies()[topology].default_size,
            groups=1,
            run_id=f"by-hand-{os.getpid()}",
            lease_ttl_s=lease_s,
            log_dir=logs,
        )
        with topologies()[topology].make(plan) as made:
            yield made


@contextmanager
def guarded() -> Iterator[tuple[str, int]]:
    """A guarded resource, which no fault reaches; yields where it listens."""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        module = "lockbench.workloads.resource_server"
        command = [sys.executable, "-m", module, str(port_file), f"{folder}/log"]
        with subprocess.Popen(command) as server:
            try:
                eventually(port_file.exists, "the guarded resource does not listen")
                yield "127.0.0.1", int(port_file.read_text(encoding="ascii"))
            finally:
                server.terminate()
