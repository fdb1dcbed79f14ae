"""A lock client in a process of its own, so that it can be frozen and killed while it holds a lock.

Run as a module it reads one request per line (JSON) and answers each with one line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psutil

from lockbench.clusters.engine.client_containers import started_by
from lockbench.locks.base import Address, Granted, Hold, NoObserver, new_hold_id
from lockbench.locks.registry import find


class ClientProcess:
    """The handle on it. ``lock`` is a name as ``lockbench.locks.registry.find`` takes it."""

    def __init__(
        self, lock: str, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float
    ) -> None:
        arguments = [lock, json.dumps(nodes), str(timeout_s), str(ttl_s)]
        self._process = subprocess.Popen(
            # -P: what lies in the working folder must not stand for a module.
            [sys.executable, "-P", "-m", "lockbench.bench.client_process", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # of its own, with the sidecars that it starts
        )

    def acquire(self, key: str, wait_s: float) -> dict[str, Any]:
        """``said`` is the type of the answer; a grant also has ``valid_until_ns``."""
        return self._ask(call="acquire", key=key, wait_s=wait_s)

    def release(self, key: str) -> str:
        """Gives back what it was granted last; the type of the answer."""
        return str(self._ask(call="release", key=key)["said"])

    def freeze(self) -> None:
        """SIGSTOP, for its sidecars too."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT, for its sidecars too."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; returns when it has ended. A frozen one ends too."""
        if self._process.returncode is None:  # its number may be another one's after that
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(
            self._process.stdout.readline() or '{"said": "nothing"}'
        )
        return answer

    def _signal(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)
        for process in started_by(self._process.pid):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def main(name: str, nodes: str, timeout_s: str, ttl_s: str) -> None:
    """Serves until its input ends."""
    lock = find(name).connect(
        [Address(*node) for node in json.loads(nodes)],
        timeout_s=float(timeout_s),
        ttl_s=float(ttl_s),
        observer=NoObserver(),
    )
    holds: dict[str, Hold] = {}
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        key = request["key"]
        if request["call"] == "acquire":
            outcome: object = lock.acquire(
                key, hold_id=new_hold_id(), ttl_s=float(ttl_s), wait_s=request["wait_s"]
            )
            if isinstance(outcome, Granted):
                holds[key] = outcome.hold
                answer["valid_until_ns"] = outcome.valid_until_ns
        else:
            outcome = lock.release(holds.pop(key))
        answer["said"] = type(outcome).__name__
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    lock.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
