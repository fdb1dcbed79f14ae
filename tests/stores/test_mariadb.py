"""The store on MariaDB with a session that answers as planned: what an error means for a write."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from lockbench.locks.base import Unknown
from lockbench.locks.shared.sessions import Broken
from lockbench.locks.shared.sessions import Refused as Error
from lockbench.stores import mariadb
from lockbench.stores.base import Applied, Away, Refused, Seen, Where, Write
from lockbench.stores.registry import find

WRITE = Write("k0", 1, Seen(6), fence=9, thing=5)
DONE = [[1, 7]]
EXECUTE, MADE = "EXECUTE", "SELECT ROW_COUNT"


class Session:
    """Answers by how a statement begins, one planned answer after the other, and then with no
    rows."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.planned: dict[str, deque[Any]] = {}
        self.closed = False

    def on(self, beginning: str, *answers: Any) -> None:
        self.planned[beginning] = deque(answers)

    def ask(self, sql: str) -> Any:
        self.asked.append(sql)
        if sql == mariadb.RECORD_EXISTS:
            return [["there"]]
        answers = next((a for begins, a in self.planned.items() if sql.startswith(begins)), None)
        answer = answers.popleft() if answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer

    def gone(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made = Session()
    monkeypatch.setattr(mariadb, "Session", lambda *_, **__: made)
    return made


def written(spec: str = "mariadb") -> object:
    """What becomes of a write; "away" where certainly nothing was done."""
    try:
        return find(spec).connect(Where()).write(WRITE)
    except Away:
        return "away"


def error(number: str) -> Error:
    return Error(number, "as planned")


@pytest.mark.parametrize(
    ("execute", "made", "outcome"),
    [
        ([], DONE, Applied(7)),
        ([], [[0, 7]], Refused()),
        (error("1213"), DONE, "away"),
        (error("1205"), DONE, "away"),
        (error("1180"), DONE, Unknown("1180 as planned")),
        (error("1062"), DONE, Unknown("1062 as planned")),
        (Broken("silent"), DONE, Unknown("silent")),
        # By then it may have been applied.
        ([], error("1213"), Unknown("1213 as planned")),
        ([], Broken("silent"), Unknown("silent")),
    ],
)
def test_what_a_write_comes_to(session: Session, execute: Any, made: Any, outcome: object) -> None:
    session.on(EXECUTE, execute)
    session.on(MADE, made)
    assert written() == outcome


def test_a_key_that_is_taken_refuses_and_any_other_error_does_not(session: Session) -> None:
    session.on(EXECUTE, [], error("1062"), error("1213"), error("1180"))
    outcomes = []
    for _ in range(4):
        outcomes.append(written("mariadb:guard=idempotency-key"))
        session.closed = False
    assert outcomes == [Applied(5), Refused(), "away", Unknown("1180 as planned")]


def test_whoever_is_rolled_back_looks_again(session: Session) -> None:
    session.on("SELECT fence", [[8, 6]], [[9, 7]])
    session.on("UPDATE", error("1213"))
    assert written("mariadb:guard=serializable") == Refused()
    assert session.asked.count("BEGIN") == 2
    assert session.asked.count("ROLLBACK") == 2
    assert "COMMIT" not in session.asked


def test_a_session_that_has_seen_an_error_is_not_used_again(session: Session) -> None:
    session.on(EXECUTE, error("1213"))
    assert written() == "away"
    assert session.closed
