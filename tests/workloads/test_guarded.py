"""What is recorded of a store that keeps what was done, without servers."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockbench.bench import guarded as bench
from lockbench.checker.check import check
from lockbench.history.columns import History
from lockbench.history.guarded import Applied as Entry
from lockbench.history.op import NULL, F, Object, Type
from lockbench.history.recorder import Recorder
from lockbench.history.recording import read_recording, write_meta
from lockbench.locks.base import Granted, Hold, Unknown
from lockbench.stores.base import Applied, Away, GuardedStore, Refused, Seen, Write
from lockbench.stores.registry import find
from lockbench.workloads import guarded
from lockbench.workloads.jobs.payment import WORKLOAD
from lockbench.workloads.use import Use

AGAIN = 2 * guarded.REPEATS + 1  # a hold whose write is sent again
ONCE = AGAIN + 2
LEDGER = "postgres:guard=idempotency-key"


class Store(GuardedStore):
    """Answers as planned."""

    def __init__(self, *answers: object, done: bool = False) -> None:
        self.answers = deque(answers)
        self.written_with: list[Write] = []
        self.is_done = done

    def read(self, key: str) -> Seen:
        raise AssertionError("a ledger has nothing to read but whether a thing was done")

    def done(self, key: str, thing: int) -> bool:
        return self.is_done

    def write(self, write: Write) -> Any:
        self.written_with.append(write)
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def written(self) -> list[Entry]:
        return []

    def close(self) -> None:
        pass


class Client:
    """As much of one as a job needs."""

    def __init__(self, folder: Path, store: Store) -> None:
        write_meta(folder, {"k0": Object(job="payment")}, wall_minus_monotonic_ns=0)
        self.recorder = Recorder(folder, 1)
        self.process = self.recorder.new_process()
        self.sends_again = True
        self.store = store

    def work(self, hold: int = ONCE) -> bool | None:
        """The job of one hold that has order 5."""
        held = Granted(Hold(hold, "k0"), None, 0, None)
        use = Use(self, held, lambda _: None, thing=5, reads=False, guarded=True)  # type: ignore[arg-type]
        return WORKLOAD.job({"copies": 2, "idempotency": "no"}).work(use)


def recorded(folder: Path, client: Client) -> History:
    client.recorder.close()
    return read_recording(folder)


@pytest.mark.parametrize(
    ("answer", "done", "outcome"),
    [
        (Applied(5), True, Type.OK),
        (Refused(), True, Type.FAIL),
        (Unknown("silent"), False, Type.INFO),
        (Away("no session"), False, Type.FAIL),
    ],
)
def test_a_thing_is_done_where_it_is_known_to_be(
    answer: object, done: bool, outcome: Type, tmp_path: Path
) -> None:
    """Now or before. Else it is delivered again."""
    client = Client(tmp_path, Store(answer))
    before = client.process
    assert client.work() is done
    assert (client.process != before) == (outcome is Type.INFO)
    history = recorded(tmp_path, client)
    assert history.f.tolist() == [F.READ, F.EFFECT]
    assert history.version[1] == 5
    assert history.type[1] == outcome
    assert history.value[1] == NULL


def test_what_was_done_before_is_left_alone(tmp_path: Path) -> None:
    client = Client(tmp_path, Store(done=True))
    assert client.work() is True
    assert client.store.written_with == []
    assert recorded(tmp_path, client).f.tolist() == [F.READ]


def test_some_are_sent_again_as_if_their_answer_had_been_lost(tmp_path: Path) -> None:
    client = Client(tmp_path, Store(Applied(5), Refused()))
    assert client.work(AGAIN) is True
    assert [write.thing for write in client.store.written_with] == [5, 5]
    assert recorded(tmp_path, client).type.tolist() == [Type.OK, Type.OK, Type.FAIL]


def test_what_the_store_kept_is_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A charge that was confirmed and is not there is lost."""
    client = Client(tmp_path, Store(Applied(5), Applied(5)))
    for hold in (ONCE, ONCE + 2):
        job = client.recorder.invoke(client.recorder.new_process(), F.JOB, "k0", version=hold)
        client.work(hold)
        client.recorder.complete(job, Type.OK)
    client.recorder.close()
    entries = (Entry("k0", ONCE, ONCE, ONCE, 0),)
    monkeypatch.setattr(bench, "written", lambda *_: entries)
    case: Any = SimpleNamespace(store=find(LEDGER))
    load: Any = SimpleNamespace(history=tmp_path, store_folder=tmp_path / "store")
    cluster: Any = SimpleNamespace(addresses=lambda _: [("127.0.0.1", 1)])
    assert bench.read_written(case, load, cluster, None) is None
    report = check(read_recording(tmp_path))
    assert report.verdicts["charged-twice"].result == "valid"
    lost = report.verdicts["lost-charge"]
    assert lost.result == "invalid"
    assert f"payment {ONCE + 2} of k0" in lost.reason
