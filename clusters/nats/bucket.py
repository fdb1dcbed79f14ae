"""The bucket: a stream whose messages are the values of keys, as NATS' key-value clients have it.

https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-8.md. A key's revision is
the number of its last message in the stream, so revisions grow over all keys and for as long as the
stream is there. A deleted key has a message that says so (a marker): of a client, or of the server
where a time to live has ended (ADR-43).

Errors are those of the session. ``Refused`` is JetStream's own word that it did not do it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from lockbench.clusters.nats.protocol import Session
from lockbench.clusters.wire import ProbeFailed

BUCKET: Final = "lockbench"
STREAM: Final = f"KV_{BUCKET}"
MARKER_TTL_S: Final = 60  # of the server's markers

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
TTL: Final = "Nats-TTL"  # whole seconds; the server cuts off the rest
OPERATION: Final = "KV-Operation"
MARKERS: Final = frozenset({OPERATION, "Nats-Marker-Reason"})
DELETE: Final[Mapping[str, str]] = {OPERATION: "DEL"}
# https://github.com/nats-io/nats-server/blob/main/server/errors.json
WRONG_LAST: Final = 10071  # another message is the key's last
IN_PROCESS: Final = 10164  # a message that expects the same is on its way through the cluster
NOT_FOUND: Final = 404


class Refused(ProbeFailed):
    """JetStream answered with an error."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"{code} {said}")
        self.code = code
        number = said.rpartition(": ")[2]
        # Of WRONG_LAST: the key's last revision as this leader knows it.
        self.last = int(number) if number.isdecimal() else 0


class Entry(NamedTuple):
    """The last message of a key; without a value it is a marker."""

    revision: int
    value: bytes | None


def make(session: Session, replicas: int) -> None:
    """The bucket is there with these settings, whether or not it was before."""
    settings = {
        "name": STREAM,
        "subjects": [f"$KV.{BUCKET}.>"],
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs_per_subject": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msg_size": -1,
        "storage": "file",
        "discard": "new",
        "num_replicas": replicas,
        "duplicate_window": 120_000_000_000,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": MARKER_TTL_S * 1_000_000_000,
    }
    _api(session, f"STREAM.CREATE.{STREAM}", settings)


def put(session: Session, key: str, value: bytes, headers: Mapping[str, str]) -> int:
    """Publishes a value or a marker; its revision."""
    answer = _answer(session.request(_subject(key), value, headers).body)
    return int(answer["seq"])


def look(session: Session, key: str) -> Entry | None:
    """The last message as the replica has it that answers: it may be older than the newest, and in
    place of one there may be none yet."""
    found = session.request(f"$JS.API.DIRECT.GET.{STREAM}.{_subject(key)}")
    if found.status == NOT_FOUND:
        return None
    if found.status:
        raise ProbeFailed(f"direct get: {found.status}")
    value = None if MARKERS & found.headers.keys() else found.body
    return Entry(int(found.headers["Nats-Sequence"]), value)


def newest(session: Session, key: str) -> str:
    """The last message's data in base64, as the stream's leader has it."""
    found = _api(session, f"STREAM.MSG.GET.{STREAM}", {"last_by_subj": _subject(key)})
    return str(found["message"].get("data", ""))


def purge(session: Session, key: str = "") -> None:
    """Removes every message of a key, or of all."""
    _api(session, f"STREAM.PURGE.{STREAM}", {"filter": _subject(key)} if key else {})


def _api(session: Session, verb: str, body: Mapping[str, object]) -> Any:
    return _answer(session.request(f"$JS.API.{verb}", json.dumps(body).encode()).body)


def _answer(body: bytes) -> Any:
    answer = json.loads(body)
    if not isinstance(answer, dict):
        raise ProbeFailed(f"no object: {body[:80]!r}")
    if error := answer.get("error"):
        raise Refused(int(error.get("err_code", 0)), str(error.get("description", "")))
    return answer


def _subject(key: str) -> str:
    return f"$KV.{BUCKET}.{key}"
