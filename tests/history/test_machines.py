"""Histories of several machines put together: nothing is lost, nothing is mixed up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lockbench.history.columns import History
from lockbench.history.edn import read_edn, write_edn
from lockbench.history.jsonl import read_jsonl, read_lines, write_jsonl
from lockbench.history.lines import UnreadableHistory
from lockbench.history.machines import BadMerge, merged
from lockbench.history.op import NULL, Fault, Object

WRITERS = {"jsonl": (write_jsonl, read_jsonl), "edn": (write_edn, read_edn)}


def lines(*items: dict[str, object]) -> History:
    return read_lines([json.dumps(item).encode() for item in items], "x.jsonl")


def line(process: object, at: int, **more: object) -> dict[str, object]:
    given: dict[str, object] = {
        "process": process, "f": "acquire", "key": "k", "type": "ok",
        "invoke_ns": at, "complete_ns": at + 2,
    }  # fmt: skip
    return given | more


def two() -> dict[str, History]:
    return {
        "a": lines(
            line(1, 10, hold="h", owner="o", error="held by x", type="fail"),
            line(1, 20, f="write", key="r", value="left"),
        ),
        "b": lines(
            line(1, 5, hold="h", owner=1, key="r"),
            line(1, 15, f="write", key="r", value="right"),
            line(7, 16, f="write", key="r", value="left"),
            line(7, 17, f="death", key="k"),
        ),
    }


def test_names_of_two_machines_are_different_ones_and_keys_and_values_the_same() -> None:
    whole = merged(two())
    assert whole.machines == ("a", "b")
    assert whole.machine is not None
    assert whole.invoke_ns.tolist() == [5, 10, 15, 16, 17, 20]
    assert [whole.machine_of(row) for row in range(6)] == ["b", "a", "b", "b", "b", "a"]
    assert [whole.keys[key] for key in whole.key] == ["r", "k", "r", "r", "k", "r"]
    assert [whole.process_name(int(process)) for process in whole.process] == [
        "b/1", "a/1", "b/1", "b/7", "b/7", "a/1",
    ]  # fmt: skip
    assert len(np.unique(whole.process)) == 3
    assert [whole.hold_name(int(hold)) for hold in whole.hold if hold != NULL] == ["b/h", "a/h"]
    assert [whole.owner_json(int(it)) for it in whole.owner if it != NULL] == ["b/1", "a/o"]
    assert [whole.value_json(int(value)) for value in whole.value if value != NULL] == [
        "right", "left", "left",
    ]  # fmt: skip
    # Who names no owner is his own, and b's owner 1 is its process 1.
    assert whole.owner[0] == whole.process[2]
    assert whole.errors[whole.error[1]] == "held by x"


@pytest.mark.parametrize("ending", WRITERS)
def test_what_is_written_comes_back(tmp_path: Path, ending: str) -> None:
    parts = two()
    fault = Fault("pause", ("redis-1",), (3, 4), (8, 9))
    parts["b"] = replace(parts["b"], faults=(fault,))
    whole = merged(parts)
    assert whole.faults == (replace(fault, machine="b"),)
    write, read = WRITERS[ending]
    write(whole, tmp_path / f"h.{ending}")
    back = read(tmp_path / f"h.{ending}")
    assert back.faults == whole.faults
    for row in range(len(whole)):
        assert back.machine_of(row) == whole.machine_of(row)
        assert back.process_name(int(back.process[row])) == whole.process_name(
            int(whole.process[row])
        )
        assert back.invoke_ns[row] == whole.invoke_ns[row]
    # Owners and processes of one name are one.
    assert back.owner[0] == back.process[2]


def test_a_header_speaks_for_all_and_the_worst_counts() -> None:
    parts = two()
    parts["a"] = replace(parts["a"], objects={"k": Object("lease")}, epsilon_ns=5, ended=True)
    parts["b"] = replace(parts["b"], objects={"r": Object("register")}, ended=False)
    whole = merged(parts)
    assert whole.objects == {"k": Object("lease"), "r": Object("register")}
    assert whole.epsilon_ns == 5
    assert whole.ended is False


def test_machines_that_contradict_each_other_are_refused() -> None:
    parts = two()
    parts["a"] = replace(parts["a"], objects={"k": Object("lease")})
    parts["b"] = replace(parts["b"], objects={"k": Object("semaphore")})
    with pytest.raises(BadMerge, match="a and b say different things of 'k'"):
        merged(parts)
    with pytest.raises(BadMerge, match="c says itself on which machines it was recorded"):
        merged({"c": merged(two()), "d": two()["a"]})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "the process 1 is on a and b"),
        ({"process": 2, "hold": "h"}, "the hold h is on a and b"),
        ({"process": 2, "owner": "o"}, "the owner o is on a and b"),
        ({"machine": None}, "the process 1 is on the clock of the resource and a"),
    ],
)
def test_a_process_a_hold_and_an_owner_are_on_one_machine(
    more: dict[str, object], said: str
) -> None:
    first = line(1, 1, machine="a", hold="h", owner="o")
    assert len(lines(first, line(2, 3, machine="b"))) == 2
    with pytest.raises(UnreadableHistory, match=said):
        lines(first, line(1, 3, machine="b") | more)


@pytest.mark.parametrize("machine", [3, "", ["a"], "x" * 256])
def test_a_machine_is_a_short_name(machine: object) -> None:
    with pytest.raises(UnreadableHistory, match=r"x\.jsonl:1: .*machine"):
        lines(line(1, 1, machine=machine))
