"""A Docker engine on a Unix socket that can hang or go away: as much of it as removing takes."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.clusters.json_server import answering

Labels = Mapping[str, str]


@dataclass
class FakeDocker:
    """``silent``: it takes requests and answers none. ``away``: it hangs up. ``answers``: after so
    many more answers it is silent. ``does``: whether it does what it is asked for meanwhile."""

    containers: dict[str, Labels] = field(default_factory=dict)
    networks: dict[str, Labels] = field(default_factory=dict)
    away: bool = False
    silent: bool = False
    answers: float = float("inf")
    does: bool = True
    asked: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def answer(self, method: str, path: str, asked: Mapping[str, list[str]], body: Any) -> object:
        """A JSON value, or None for "there is none"."""
        match method, re.sub(r"^/v[\d.]+", "", path).split("/")[1:]:
            case "GET", ["version"]:
                return {"ApiVersion": "1.41", "Version": "1"}
            case "GET", ["_ping"]:
                return "OK"
            case "GET", ["containers", "json"]:
                found = _matching(self.containers, asked)
                return [{"Id": name, "Names": [f"/{name}"]} for name in found]
            case "GET", ["networks"]:
                found = _matching(self.networks, asked)
                return [{"Id": n, "Name": n, "Labels": dict(self.networks[n])} for n in found]
            case "POST", ["containers", "create"]:
                (name,) = asked["name"]
                self.containers[name] = body["Labels"]
                return {"Id": name}
            case "POST", ["networks", "create"]:
                self.networks[body["Name"]] = body["Labels"]
                return {"Id": body["Name"]}
            case "GET", ["containers", name, "json"] if name in self.containers:
                return {
                    "Id": name,
                    "State": {"Paused": False, "Status": "running", "Running": True, "Pid": 1}
                    | {"ExitCode": 0, "OOMKilled": False},
                    "NetworkSettings": {"Networks": {}},
                    "Config": {"Labels": self.containers[name], "Tty": False},
                }
            case "DELETE", ["containers", name] if name in self.containers:
                del self.containers[name]
                return {}
            case "DELETE", ["networks", name] if name in self.networks:
                del self.networks[name]
                return {}
        return None


def _matching(things: Mapping[str, Labels], asked: Mapping[str, list[str]]) -> list[str]:
    wanted = json.loads(asked.get("filters", ["{}"])[0]).get("label", [])
    return [
        name
        for name, labels in things.items()
        if all(w in labels or w in {f"{k}={v}" for k, v in labels.items()} for w in wanted)
    ]


@contextmanager
def fake_docker(socket: Path) -> Iterator[FakeDocker]:
    """One that listens there."""
    fake = FakeDocker()

    def answer(method: str, target: str, body: Any) -> tuple[int, object] | None:
        split = urlsplit(target)
        fake.asked.append(f"{method} {split.path}")
        if fake.away:
            return None
        silent = fake.silent or fake.answers <= 0
        found = None
        if fake.does or not silent:
            found = fake.answer(method, split.path, parse_qs(split.query), body)
        if silent:
            fake.released.wait()
            return None
        fake.answers -= 1
        return (404, {"message": "No such thing"}) if found is None else (200, found)

    with answering(answer, str(socket)):
        try:
            yield fake
        finally:
            fake.released.set()
