"""A Docker engine on a Unix socket that can hang or go away: as much of it as removing takes."""

from __future__ import annotations

import json
import re
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

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

    def answer(self, method: str, path: str, asked: Mapping[str, list[str]], body: bytes) -> object:
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
                self.containers[name] = json.loads(body)["Labels"]
                return {"Id": name}
            case "POST", ["networks", "create"]:
                made = json.loads(body)
                self.networks[made["Name"]] = made["Labels"]
                return {"Id": made["Name"]}
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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            split = urlsplit(self.path)
            fake.asked.append(f"{self.command} {split.path}")
            if fake.away:
                self.close_connection = True
                return
            silent = fake.silent or fake.answers <= 0
            found = None
            if fake.does or not silent:
                found = fake.answer(self.command, split.path, parse_qs(split.query), body)
            if silent:
                fake.released.wait()
                self.close_connection = True
                return
            fake.answers -= 1
            said = json.dumps({"message": "No such thing"} if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - as the library wants it

        def address_string(self) -> str:
            return "test"

        def log_message(self, *_: object) -> None:
            pass

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    with Server(str(socket), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield fake
        finally:
            fake.released.set()
            server.shutdown()
