"""An object of S3. The guard is a condition of the ``PUT``: the server writes if the object still
has the ETag that was read (``If-Match``), or if there is none (``If-None-Match: *``).

A fence stands in the object. Whoever writes has looked at it, and writes on the condition that the
object is still what was looked at. A version stands in it, too, without which two equal objects
would have one ETag.

The record is the bucket's versions, which the server makes: a ``PUT`` that should have been refused
takes nothing from it. Without a record the objects are in a bucket that keeps no versions.

Does not guarantee: that a server's check is one step with its write. That is what the record shows.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, Final

from lockbench.clusters.versitygw import bucket
from lockbench.clusters.versitygw.protocol import FAULTY, NOT_FOUND, OK, UNMET, Answer, Session
from lockbench.clusters.wire import PROBE_FAILURES
from lockbench.history.guarded import Rule
from lockbench.locks.base import Unknown
from lockbench.locks.shared.sessions import Broken
from lockbench.stores.base import (
    PREFIX,
    UNGUARDED,
    UNGUARDED_PROMISES,
    Applied,
    Away,
    Entry,
    Guard,
    Outcome,
    Refused,
    Seen,
    Store,
    Where,
    Write,
    entry,
)

DONE: Final = f"{PREFIX}-done"  # in whose folder a thing is an object of its own


def put_if_newer(s3: Any, key: str, value: str, fence: int) -> int | None:
    """The version made, or None: refused."""
    while True:
        found, etag = s3.get(key)
        if fence <= found["fence"]:
            return None
        made = {"version": found["version"] + 1, "fence": fence, "value": value}
        if s3.put(key, made, {"If-Match": etag} if etag else {"If-None-Match": "*"}):
            return int(found["version"]) + 1


def put_if_unchanged(s3: Any, key: str, value: str, version: int, etag: str | None) -> int | None:
    """The version made, or None: refused. ``version`` and ``etag`` are those of the read."""
    made = {"version": version + 1, "fence": 0, "value": value}
    if s3.put(key, made, {"If-Match": etag} if etag else {"If-None-Match": "*"}):
        return version + 1
    return None


def put_once(s3: Any, key: str, thing: int, value: str) -> bool:
    """Whether it is done now, and was not before: an object for each thing."""
    done = s3.put(f"{key}/{thing}", {"value": value}, {"If-None-Match": "*"})
    return bool(done)


def put_anyway(s3: Any, key: str, value: str) -> int:
    """The version made; what it is made from is read to be counted, and for nothing else."""
    version = int(s3.get(key)[0]["version"]) + 1
    s3.put(key, {"version": version, "fence": 0, "value": value}, {})
    return version


class S3:
    """One client: a connection to the server. The guards call ``get`` and ``put``."""

    def __init__(self, where: Where, guard: Guard, recorded: bool) -> None:
        self._where = where
        self._rule = guard.rule
        self._bucket = bucket.VERSIONED if recorded else bucket.PLAIN
        self._session: Session | None = None

    def get(self, key: str) -> tuple[Any, str | None]:
        """An object and its ETag; where there is none, what it would begin from. Raises Away."""
        answer = self._got(key)
        if answer is None:
            return {"version": 0, "fence": 0}, None
        return json.loads(answer.body), answer.etag

    def put(self, key: str, made: Mapping[str, object], condition: Mapping[str, str]) -> bool:
        """Whether the condition was met, and the object is there. Raises Away, Broken."""
        session, body = self._open(), json.dumps(made).encode()
        try:
            answer = session.ask("PUT", self._path(key), headers=condition, body=body)
        except PROBE_FAILURES as error:
            raise Broken(f"{type(error).__name__}: {error}") from error
        if answer.status >= FAULTY:
            raise Broken(answer.said)
        if answer.status not in {OK, UNMET}:  # 404: it is gone; 409: somebody else is writing it
            raise Away(answer.said)
        return answer.status == OK

    def read(self, key: str) -> Seen:
        found, etag = self.get(f"{PREFIX}/{key}")
        return Seen(int(found["version"]), etag)

    def write(self, write: Write) -> Outcome:
        try:
            made = self._written(write)
        except Broken as error:
            return Unknown(str(error))
        return Refused() if made is None else Applied(made)

    def done(self, key: str, thing: int) -> bool:
        return self._got(f"{DONE}/{key}/{thing}") is not None

    def written(self) -> list[Entry]:
        folder = f"{DONE if self._rule == 'once' else PREFIX}/"
        found: list[Entry] = []
        try:
            kept = bucket.versions(self._open(), self._bucket, folder)
            for path, versions in groupby(kept, lambda one: one.key):
                for place, one in enumerate(reversed(list(versions)), 1):
                    query = {"versionId": one.id}
                    answer = self._open().ask("GET", self._path(path), query=query)
                    said = json.loads(bucket.done(answer).body)
                    found.append(self._entry(path.removeprefix(folder), place, said))
        except PROBE_FAILURES as error:
            raise Away(f"{type(error).__name__}: {error}") from error
        return found

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _written(self, write: Write) -> int | None:
        """Raises Away, Broken."""
        key, value, seen = f"{PREFIX}/{write.key}", write.value, write.seen
        if self._rule == "newer":
            return put_if_newer(self, key, value, write.fence or 0)
        if self._rule == "unchanged":
            return put_if_unchanged(self, key, value, seen.version, seen.mark)
        if self._rule == "once":
            thing = write.thing or 0
            return thing if put_once(self, f"{DONE}/{write.key}", thing, value) else None
        return put_anyway(self, key, value)

    def _entry(self, name: str, place: int, said: Mapping[str, Any]) -> Entry:
        if self._rule == "once":
            key, _, thing = name.rpartition("/")
            return entry(key, int(thing), int(thing), said["value"])
        return entry(name, place, int(said["version"]), said["value"])

    def _got(self, key: str) -> Answer | None:
        """What there is under a name; None: nothing. Raises Away."""
        try:
            answer = self._open().ask("GET", self._path(key))
        except PROBE_FAILURES as error:
            raise Away(f"{type(error).__name__}: {error}") from error
        if answer.status == NOT_FOUND and b"<Code>NoSuchKey</Code>" in answer.body:
            return None
        if answer.status != OK:
            raise Away(answer.said)
        return answer

    def _path(self, key: str) -> str:
        return f"/{self._bucket}/{key}"

    def _open(self) -> Session:
        """A connection for one more request. Raises Away."""
        if self._session is None or self._session.gone():
            self.close()
            try:
                self._session = Session(self._where.nodes[0], self._where.timeout_s)
            except OSError as error:
                raise Away(f"{type(error).__name__}: {error}") from error
        self._session.within(self._where.timeout_s)
        return self._session


CONDITION_DOC = (
    "https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html: 'Amazon S3 "
    "compares the provided ETag value with the ETag value of the object in S3. If the ETag values "
    "don't match, the operation fails.'"
)
NO_OBJECT_DOC = (
    "https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html: 'If an "
    "identical key name is found in the bucket, the operation fails.'"
)


def _guard(
    name: str, rule: Rule, function: Callable[..., object], promises: str, source: str
) -> Guard:
    return Guard(name, rule, "python", inspect.getsource(function).rstrip(), promises, source)


STORE = Store(
    name="s3",
    summary="an object of S3",
    topologies=("versitygw",),
    connect=S3,
    record="the versions of the bucket, which the server makes",
    guards=(
        _guard(
            "fence",
            "newer",
            put_if_newer,
            "A write is applied if its fence is above every fence applied before.",
            CONDITION_DOC,
        ),
        _guard(
            "compare-and-set",
            "unchanged",
            put_if_unchanged,
            "A write is applied if the object still has the ETag that it was made from; needs no "
            "fence.",
            CONDITION_DOC,
        ),
        _guard(
            "idempotency-key",
            "once",
            put_once,
            "An object is made if the thing that it stands for was not done before; needs no "
            "fence, but work of which each piece has a number (--workload payment).",
            NO_OBJECT_DOC,
        ),
        _guard(UNGUARDED, "any", put_anyway, UNGUARDED_PROMISES, CONDITION_DOC),
    ),
)
