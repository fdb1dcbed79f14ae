"""JSON Lines: what is written comes back, and whatever is wrong is named with file and line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockbench.history.builder import Builder
from lockbench.history.columns import History
from lockbench.history.jsonl import read_jsonl, read_lines, to_lines, write_jsonl
from lockbench.history.lines import LINE_BYTES_MAX, UnreadableHistory
from lockbench.history.op import NULL, F, Fault, Mode, Object, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER

COLUMNS = (
    "process", "f", "type", "mode", "invoke_ns", "intended_ns", "complete_ns", "hold", "value",
    "old", "version", "fence", "sent_ns", "valid_until_ns", "applied_ns", "owner",
)  # fmt: skip
GOOD = {"process": 3, "f": "acquire", "key": "k0", "type": "ok", "invoke_ns": 1, "complete_ns": 2}


def lines(*items: object) -> History:
    return read_lines([json.dumps(item).encode() for item in items], "x.jsonl")


def refused(*raw: bytes) -> str:
    with pytest.raises(UnreadableHistory) as raised:
        read_lines(raw, "x.jsonl")
    return str(raised.value)


def nested(depth: int) -> object:
    made: object = 1
    for _ in range(depth):
        made = [made]
    return made


def complaint(raw: list[bytes]) -> str | None:
    try:
        read_lines(raw, "x.jsonl")
    except UnreadableHistory as error:
        return str(error)
    return None


def test_the_line_of_the_contract() -> None:
    history = lines(
        {"history": 1, "objects": {"k0": {"kind": "semaphore", "permits": 3}}, "epsilon_ns": 5},
        {
            "process": 3, "f": "acquire", "key": "k0", "type": "ok", "invoke_ns": 120,
            "complete_ns": 180, "hold": "a91f", "value": None, "fence": 17, "sent_ns": 121,
            "valid_until_ns": 5000000121, "owner": None, "mode": None, "error": None,
        },
        {
            "process": "nemesis", "f": "partition-drop", "targets": ["redis-1"],
            "begin_ns": [1, 2], "heal_ns": None,
        },
    )  # fmt: skip
    assert history.hold[0] == 0xA91F
    assert history.fence[0] == 17
    assert history.valid_until_ns[0] == 5000000121
    assert history.owner[0] == NULL
    assert history.object_of("k0") == Object("semaphore", permits=3)
    assert history.epsilon_ns == 5
    assert history.faults == (Fault("partition-drop", ("redis-1",), (1, 2), None),)


def test_every_field_comes_back(tmp_path: Path) -> None:
    builder = Builder()
    builder.objects["k"] = Object("register", initial=4, role="contended", strict_try=True)
    builder.faults.append(Fault("kill", ("a", "b"), (1, 2), (3, 4), ("proven",), {"proven": True}))
    builder.add(
        process="worker one", f=int(F.CAS), outcome=int(Type.OK), key="k", invoke_ns=9,
        complete_ns=12, mode=int(Mode.WRITE), hold="not hex", error=None,
        numbers={
            "old": builder.values.number("red"), "value": 7, "fence": 1, "version": 3,
            "applied_ns": 11, "intended_ns": 8, "owner": builder.owners.number("me"),
        },
    )  # fmt: skip
    builder.add(
        process=4, f=int(F.RELEASE), outcome=int(Type.INFO), key="ü", invoke_ns=3,
        complete_ns=NULL, hold="ff", error="timeout\n",
    )  # fmt: skip
    history = builder.finish()
    write_jsonl(history, tmp_path / "h.jsonl")
    again = read_jsonl(tmp_path / "h.jsonl")
    assert list(to_lines(again)) == list(to_lines(history))
    for name in COLUMNS:
        assert np.array_equal(getattr(history, name), getattr(again, name)), name
    assert history.invoke_ns.tolist() == [3, 9]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"f": "grab"}, "unknown f 'grab'"),
        ({"f": None}, "f: Expected str, got null"),
        ({"type": "maybe"}, "unknown type 'maybe'"),
        ({"key": None}, "key is missing"),
        ({"process": None}, "process: Expected int | str, got null"),
        ({"process": [1]}, "process: Expected int | str, got array"),
        ({"invoke_ns": None}, "invoke_ns: Expected int, got null"),
        ({"invoke_ns": 1.5}, "invoke_ns: Expected int, got float"),
        ({"invoke_ns": True}, "invoke_ns: Expected int, got bool"),
        ({"invoke_ns": 2**70}, "invoke_ns: "),
        ({"process": 2**70}, "process: "),
        ({"hold": -(2**62)}, "hold: "),
        ({"complete_ns": None}, "complete_ns is missing"),
        ({"complete_ns": 0}, "complete_ns 0 is before invoke_ns 1"),
        ({"mode": "sideways"}, "unknown mode 'sideways'"),
        ({"mode": []}, "mode: Expected str | null, got array"),
        ({"fence": "high"}, "fence: Expected int | null, got str"),
        ({"f": "cas", "value": 3}, "the value of a cas is 3"),
        ({"value": 2**80}, "value: 1208925819614629174706176 is out of range"),
        ({"f": "cas", "value": [1, 2**80]}, "out of range"),
        ({"process": "nemesis"}, "missing required field begin_ns"),
        ({"process": "nemesis", "begin_ns": [1, 2], "heal_ns": [4, 3]}, "heal_ns ends before"),
        ({"process": "nemesis", "begin_ns": [1, float("inf")]}, "malformed"),
        ({"process": "nemesis", "begin_ns": [1, 2**62]}, "begin_ns[1]: "),
        ({"process": "nemesis", "begin_ns": [1, 2], "targets": [3]}, "targets[0]: "),
        ({"process": "nemesis", "begin_ns": [1, 2], "facts": []}, "facts: "),
        ({"process": "nemesis", "begin_ns": [1, 2], "facts": {"a": nested(40)}}, "too deeply"),
        ({"error": "\ud800"}, "half of a surrogate pair"),
    ],
)
def test_a_broken_line_is_named(broken: dict[str, object], said: str) -> None:
    message = refused(json.dumps(GOOD).encode(), json.dumps(GOOD | broken).encode())
    assert message.startswith("x.jsonl:2: ")
    assert said in message


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\xff\xfe\x00", "not text in UTF-8"),
        (b'{"process": 3', "truncated"),
        (json.dumps(GOOD).replace("1,", "NaN,").encode(), "malformed"),
        (b"[1, 2]", "Expected object, got array"),
        (b'{"history": 2}', "version 2"),
        (b'{"history": 1, "epsilon_ns": -1}', "epsilon_ns: Expected int >= 0"),
        (b'{"history": 1, "epsilon_ns": 1e999}', "epsilon_ns: "),
        (b'{"history": 1, "objects": {"k": {"permits": "three"}}}', "permits: Expected int"),
        (b'{"history": 1, "objects": {"k": {"job": {}}}}', "job: Expected str"),
        (b'{"history": 1, "objects": {"k": {"job": "theft"}}}', "unknown job 'theft'"),
        (b'{"history": "one"}', "history: Expected int, got str"),
        (b'{"history": 1, "objects": {"k": {"kind": "door"}}}', "unknown kind 'door'"),
        (b'{"history": 1, "objects": {"k": {"permits": 0}}}', "permits: Expected int >= 1"),
        (b'{"history": 1, "objects": [1]}', "objects: Expected object | null, got array"),
        (b"1" * 5000, "out of range"),
        (b'{"process": ' + b"[" * 100_000, "nested too deeply"),
        (json.dumps(GOOD).encode()[:-1] + b', "value": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_line_that_is_no_line_is_named(raw: bytes, said: str) -> None:
    message = refused(raw)
    assert message.startswith("x.jsonl:1: ")
    assert said in message
    assert len(message) < 400


def test_a_line_without_end_is_not_read_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_bytes(b'"' + b"x" * (2 * LINE_BYTES_MAX))
    with pytest.raises(UnreadableHistory, match="a line of more than"):
        read_jsonl(path)


def test_a_truncated_file_names_its_last_line(tmp_path: Path) -> None:
    whole = "\n".join([json.dumps(GOOD)] * 3)
    path = tmp_path / "cut.jsonl"
    path.write_text(whole[:-9], encoding="utf-8")
    with pytest.raises(UnreadableHistory, match=r"cut\.jsonl:3: "):
        read_jsonl(path)


@pytest.mark.random
@given(st.lists(st.binary(max_size=40) | st.sampled_from([json.dumps(GOOD).encode()]), max_size=5))
def test_noise_is_refused_or_read_but_never_falls_over(raw: list[bytes]) -> None:
    message = complaint(raw)
    assert message is None or message.startswith("x.jsonl:")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


@pytest.mark.random
@given(
    st.dictionaries(
        st.sampled_from([*GOOD, "value", "hold", "owner", "mode", "error", "history", "objects"]),
        JSON,
    )
)
def test_any_json_in_any_field(changes: dict[str, object]) -> None:
    message = complaint([json.dumps(GOOD | changes).encode()])
    assert message is None or message.startswith("x.jsonl:1: ")


def test_clients_are_named_as_people_know_them() -> None:
    def clients(*processes: int | str) -> list[str]:
        history = lines(*({**GOOD, "process": process} for process in processes))
        return [history.client(int(process)) for process in history.process]

    assert clients(3, 2 * PROCESSES_PER_WORKER + 4) == ["worker 0, client 3", "worker 2, client 4"]
    assert clients(3, 4) == ["client 3", "client 4"], "nobody said that they are of a worker"
    assert clients("jepsen 1") == ["client jepsen 1"]
