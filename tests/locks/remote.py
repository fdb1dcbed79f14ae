"""A lock client in a process of its own, so that it can be frozen and killed as in a bad night.

Run as a script it reads one request per line (JSON) and answers each with one line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clusters.clients import started_by
from locks import registry
from locks.base import Address, Granted, Hold, System, new_hold_id


class RemoteClient:
    """The handle that a test holds."""

    def __init__(
        self, system: System, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float
    ) -> None:
        arguments = [system.name, json.dumps(nodes), str(timeout_s), str(ttl_s)]
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # of its own, with the sidecars that it starts
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)
        for process in started_by(self._process.pid):
            process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


class _Remembering:
    """An observer whose news are asked for."""

    def __init__(self) -> None:
        self.news: list[str] = []

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        self.news.append("extended")

    def lost(self, hold: Hold, *, alive_ns: int | None = None) -> None:
        self.news.append("lost")


def main(name: str, nodes: str, timeout_s: str, ttl_s: str) -> None:
    observer = _Remembering()
    lock = registry.find(name).connect(
        [Address(*node) for node in json.loads(nodes)],
        timeout_s=float(timeout_s),
        ttl_s=float(ttl_s),
        observer=observer,
    )
    holds: dict[str, Hold] = {}
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {"news": observer.news}
        key = request.get("key")
        if request["call"] == "acquire":
            outcome: object = lock.acquire(
                key, hold_id=new_hold_id(), ttl_s=float(ttl_s), wait_s=request["wait_s"]
            )
            if isinstance(outcome, Granted):
                holds[key] = outcome.hold
                answer["valid_until_ns"] = outcome.valid_until_ns
            answer["said"] = type(outcome).__name__
        elif request["call"] == "release":
            answer["said"] = type(lock.release(holds.pop(key))).__name__
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    lock.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
