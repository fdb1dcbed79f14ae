"""The store on S3 with a session that answers as planned: what an answer means for a write, and
what is asked of the server."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from lockbench.clusters.versitygw.bucket import PLAIN, VERSIONED
from lockbench.clusters.versitygw.protocol import Answer
from lockbench.clusters.wire import ProbeFailed
from lockbench.locks.base import Address, Unknown
from lockbench.stores import s3
from lockbench.stores.base import Applied, Away, GuardedStore, Refused, Seen, Where, Write
from lockbench.stores.registry import find

WHERE = Where([Address("127.0.0.1", 1)])
WRITE = Write("k0", 1, Seen(6, '"a"'), fence=9, thing=5)
DONE = Answer(200, "", b"")
UNMET = Answer(412, "", b"<Code>PreconditionFailed</Code>")
NO_KEY = Answer(404, "", b"<Error><Code>NoSuchKey</Code></Error>")
NO_BUCKET = Answer(404, "", b"<Error><Code>NoSuchBucket</Code></Error>")


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    condition: Mapping[str, str]
    body: Any


class Session:
    """Answers by method, one planned answer after the other."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.planned: dict[str, deque[Any]] = {}
        self.closed = False

    def on(self, method: str, *answers: Any) -> None:
        self.planned[method] = deque(answers)

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Any = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Any:
        said = json.loads(body) if body else None
        self.asked.append(Asked(method, path, dict(headers or {}), said))
        answer = self.planned[method].popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def within(self, limit_s: float) -> None:
        pass

    def gone(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made = Session()
    monkeypatch.setattr(s3, "Session", lambda *_: made)
    return made


def client(guard: str) -> GuardedStore:
    return find(f"s3:guard={guard}").connect(WHERE)


def seen(version: int, fence: int, etag: str) -> Answer:
    body = {"version": version, "fence": fence, "value": "{}"}
    return Answer(200, etag, json.dumps(body).encode())


def written(guard: str) -> object:
    """What becomes of a write; "away" where certainly nothing was done."""
    try:
        return client(guard).write(WRITE)
    except Away:
        return "away"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (DONE, Applied(7)),
        (UNMET, Refused()),
        (NO_KEY, "away"),
        (Answer(409, "", b"ConditionalRequestConflict"), "away"),
        (Answer(403, "", b"SignatureDoesNotMatch"), "away"),
        (Answer(503, "", b"SlowDown"), Unknown("503 SlowDown")),
        (TimeoutError("late"), Unknown("TimeoutError: late")),
        (ProbeFailed("cut"), Unknown("ProbeFailed: cut")),
    ],
)
def test_what_a_write_comes_to(session: Session, answer: object, outcome: object) -> None:
    session.on("PUT", answer)
    assert written("compare-and-set") == outcome
    assert len(session.asked) == 1, "nothing is sent again"


def test_a_write_is_made_on_the_condition_that_nothing_was_written_since(session: Session) -> None:
    session.on("PUT", DONE, DONE)
    assert written("compare-and-set") == Applied(7)
    (first,) = session.asked
    assert first.path == f"/{VERSIONED}/guarded/k0"
    assert first.condition == {"If-Match": '"a"'}
    assert first.body == {"version": 7, "fence": 0, "value": WRITE.value}
    assert client("compare-and-set").write(Write("k1", 1, Seen(0))) == Applied(1)
    assert session.asked[1].condition == {"If-None-Match": "*"}


def test_a_fence_that_is_not_above_is_refused_and_nothing_is_put(session: Session) -> None:
    session.on("GET", seen(6, 9, '"a"'))
    assert written("fence") == Refused()
    assert [one.method for one in session.asked] == ["GET"]


def test_whoever_was_overtaken_looks_again(session: Session) -> None:
    session.on("GET", seen(6, 7, '"a"'), seen(7, 8, '"b"'), seen(8, 9, '"c"'))
    session.on("PUT", UNMET, UNMET)
    assert written("fence") == Refused()
    conditions = [one.condition for one in session.asked if one.method == "PUT"]
    assert conditions == [{"If-Match": '"a"'}, {"If-Match": '"b"'}]


def test_a_write_without_an_answer_is_not_looked_at_again(session: Session) -> None:
    """It would find its own fence, and call what was applied refused."""
    session.on("GET", NO_KEY, seen(1, 9, '"a"'))
    session.on("PUT", TimeoutError("late"))
    assert written("fence") == Unknown("TimeoutError: late")
    assert [one.method for one in session.asked] == ["GET", "PUT"]


def test_a_look_without_an_answer_is_no_write(session: Session) -> None:
    session.on("GET", TimeoutError("late"))
    assert written("fence") == "away"


def test_no_object_is_told_from_no_bucket(session: Session) -> None:
    session.on("GET", NO_KEY, NO_BUCKET, NO_KEY, NO_BUCKET)
    assert client("fence").read("k0") == Seen(0)
    with pytest.raises(Away, match="NoSuchBucket"):
        client("fence").read("k0")
    ledger: Any = client("idempotency-key")
    assert not ledger.done("k0", 5)
    with pytest.raises(Away, match="NoSuchBucket"):
        ledger.done("k0", 5)


def test_a_thing_is_an_object_that_must_not_be_there(session: Session) -> None:
    session.on("PUT", DONE, UNMET)
    assert written("idempotency-key") == Applied(5)
    assert written("idempotency-key") == Refused()
    assert {(one.path, *one.condition.items()) for one in session.asked} == {
        (f"/{VERSIONED}/guarded-done/k0/5", ("If-None-Match", "*"))
    }


def test_without_a_record_nothing_goes_where_versions_are_kept(session: Session) -> None:
    session.on("GET", NO_KEY)
    session.on("PUT", DONE)
    assert find("s3").connect(WHERE, recorded=False).write(WRITE) == Applied(1)
    assert {one.path for one in session.asked} == {f"/{PLAIN}/guarded/k0"}
