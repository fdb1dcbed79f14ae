"""The store on ZooKeeper with a client that only notes what it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lockbench.locks.base import Address
from lockbench.stores import zookeeper
from lockbench.stores.base import Away, Seen, Where, Write
from lockbench.stores.registry import find


class Client:
    """What was begun, in order."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., str]:
        if not name.endswith("_async"):
            raise AttributeError(name)

        def begin(*_: Any) -> str:
            self.begun.append(name.removesuffix("_async"))
            return name

        return begin

    def transaction(self) -> Any:
        def nothing(*_: Any, **__: Any) -> None:
            pass

        def commit() -> str:
            self.begun.append("commit")
            return "commit"

        return SimpleNamespace(check=nothing, set_data=nothing, create=nothing, commit_async=commit)


class Session:
    """Connected or not; every request is answered."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.client = Client()
        self.there = True

    def connected(self, limit_s: float) -> bool:
        return self.there

    def answers(self, limit_s: float, *requests: str) -> list[Any]:
        said = SimpleNamespace(version=7)
        answers = {"get_async": (b"0", said), "commit": [said, said]}
        return [answers.get(request) for request in requests]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made = Session()
    fakes = SimpleNamespace(Session=lambda *_, **__: made, NoAnswerError=TimeoutError)
    monkeypatch.setattr(zookeeper, "session", fakes)
    return made


def test_a_write_is_not_begun_before_it_is_connected(session: Session) -> None:
    """What is begun before, kazoo sends whenever it is: long after it was called not done."""
    store = find("zookeeper:guard=compare-and-set")
    client = store.connect(Where([Address("127.0.0.1", 1)]))
    assert client.read("k0") == Seen(7)
    session.client.begun.clear()
    session.there = False
    with pytest.raises(Away):
        client.write(Write("k0", 1, Seen(7)))
    assert session.client.begun == []
    session.there = True
    client.write(Write("k0", 1, Seen(7)))
    assert session.client.begun == ["commit"]


def test_a_holder_reads_behind_a_sync(session: Session) -> None:
    client = find("zookeeper:guard=compare-and-set").connect(Where([Address("127.0.0.1", 1)]))
    client.read("k0")
    assert session.client.begun[-2:] == ["sync", "get"]
