# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""NATS: a value that was stored and acknowledged is removed by the marker of the one before it.

    python docs/track/nats-marker-removes-renewal.py 127.0.0.1:4222 127.0.0.1:4223 127.0.0.1:4224

Clients make keys with a time to live of 1 s and renew each as that ends, by an update that expects
the revision that they wrote and has a time to live of 60 s. The server refuses it or acknowledges
it. Of an acknowledged one nothing may be left half a second later, so that another is granted the
key.
"""

from __future__ import annotations

import json
import random
import secrets
import socket
import threading
import time

from plain import Recorder, end, servers

BUCKET = "lockbench-track"
STREAM = f"KV_{BUCKET}"
CLIENTS = 24
LIMIT_S = 90.0
TTL_S, RENEWED_S = 1, 60
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
SETTINGS = {
    "name": STREAM,
    "subjects": [f"$KV.{BUCKET}.>"],
    "max_msgs_per_subject": 1,
    "storage": "file",
    "discard": "new",
    "num_replicas": 3,
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "allow_direct": True,
    "allow_msg_ttl": True,
    "subject_delete_marker_ttl": 60_000_000_000,
}


class Client:
    """One connection; one request at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        connection = socket.create_connection(address, timeout=10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = connection.makefile("rwb")
        self.info = json.loads(self._stream.readline().partition(b" ")[2])
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._send(b'CONNECT {"verbose": false, "headers": true, "no_responders": true}\r\n')
        self._send(f"SUB {self._inbox} 1\r\n".encode())

    def ask(self, subject: str, body: bytes = b"", **headers: str) -> tuple[str, bytes]:
        """The headers and the body of the answer."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        said = f"NATS/1.0\r\n{head}\r\n".encode()
        sizes = f"{len(said)} {len(said) + len(body)}"
        start = f"HPUB {subject} {self._inbox} {sizes}\r\n".encode()
        self._send(start + said + body + b"\r\n")
        while True:
            verb, *words = self._stream.readline().decode().split()
            if verb == "PING":
                self._send(b"PONG\r\n")
            elif verb in {"MSG", "HMSG"}:
                whole = self._stream.read(int(words[-1]) + 2)[:-2]
                size = int(words[-2]) if verb == "HMSG" else 0
                return whole[:size].decode(), whole[size:]
            elif verb != "INFO":
                raise RuntimeError(f"{verb} {words}")

    def put(self, key: str, expected: int, ttl_s: int) -> int | None:
        """Its revision; None: another one is the last."""
        headers = {EXPECTED: str(expected), "Nats-TTL": f"{ttl_s}s"}
        said = json.loads(self.ask(f"$KV.{BUCKET}.{key}", b"held", **headers)[1])
        if error := said.get("error"):
            if error["err_code"] in {10071, 10164}:  # wrong last sequence
                return None
            raise RuntimeError(f"{key}: {error}")
        return int(said["seq"])

    def marker(self, key: str) -> int | None:
        """The revision of the server's marker, if that is the last message."""
        head, _ = self.ask(f"$JS.API.DIRECT.GET.{STREAM}.$KV.{BUCKET}.{key}")
        if "Nats-Marker-Reason" not in head:
            return None
        (line,) = (line for line in head.splitlines() if line.startswith("Nats-Sequence:"))
        return int(line.partition(":")[2])

    def _send(self, data: bytes) -> None:
        self._stream.write(data)
        self._stream.flush()


addresses, history = servers(__doc__, 3, "the three servers of one NATS cluster")
shown: list[Recorder] = []
answered: dict[str, int] = {"refused": 0, "acknowledged": 0}
until = time.monotonic() + LIMIT_S
first = Client(addresses[0])
made = json.loads(first.ask(f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(SETTINGS).encode())[1])
assert "error" not in made, made
print(f"NATS {first.info['version']}")


def granted(recorder: Recorder, client: Client, key: str) -> bool:
    """Whether another client is granted the key within half a second."""
    limit = time.monotonic() + 0.5
    while time.monotonic() < limit:
        other = recorder.begin("B", "acquire", "b1")
        marker = client.marker(key)
        if marker is not None and client.put(key, marker, TTL_S) is not None:
            other.ok("stored in the place of a marker")
            return True
        time.sleep(0.02)
    return False


def work(address: tuple[str, int]) -> None:
    """Makes and renews keys until one of all clients was removed."""
    client = Client(address)
    while not shown and time.monotonic() < until:
        key = secrets.token_hex(8)
        recorder = Recorder(key, quiet=True)
        acquire = recorder.begin("A", "acquire", "a1")
        sent_ns = time.monotonic_ns()
        revision = client.put(key, 0, TTL_S)
        assert revision is not None, "a new key was refused"
        acquire.ok("stored", sent_ns=sent_ns, valid_until_ns=sent_ns + TTL_S * 1_000_000_000)
        time.sleep(TTL_S - (time.monotonic_ns() - sent_ns) / 1e9 + random.uniform(-0.02, 0.0))
        extend = recorder.begin("A", "extend", "a1")
        sent_ns = time.monotonic_ns()
        renewed = client.put(key, revision, RENEWED_S)
        answered["refused" if renewed is None else "acknowledged"] += 1
        if renewed is None:
            continue
        extend.ok("stored", sent_ns=sent_ns, valid_until_ns=sent_ns + RENEWED_S * 1_000_000_000)
        if granted(recorder, client, key):
            shown.append(recorder)


threads = [
    threading.Thread(target=work, args=(addresses[number % len(addresses)],))
    for number in range(CLIENTS)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
first.ask(f"$JS.API.STREAM.DELETE.{STREAM}")
end(
    shown[0] if shown else Recorder("none"),
    history if shown else None,
    bool(shown),
    [
        f"renewals: {answered['refused']} refused, {answered['acknowledged']} acknowledged",
        f"of those {len(shown)} were removed, and the key was granted to another",
    ],
)
