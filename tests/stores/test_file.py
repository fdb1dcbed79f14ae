"""The store on disk, which needs no server; and one that renames where it has to link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockbench.bench.trial import check
from lockbench.stores.base import Applied, Refused, Where, Write
from lockbench.stores.registry import find
from tests.eventually import one_of

SECONDS = 0.5


def where(tmp_path: Path) -> Where:
    return Where(folder=tmp_path / "store")


@pytest.mark.parametrize("guard", ["fence", "compare-and-set", "unguarded"])
def test_a_guard_does_what_its_rule_says(guard: str, tmp_path: Path) -> None:
    store = find(f"file:guard={guard}")
    verdict = check(store, where(tmp_path), tmp_path / "history", seconds=SECONDS)
    assert verdict.result == "valid", verdict.reason


def test_a_generation_that_is_renamed_into_place_replaces_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def renamed(draft: Path, path: Path) -> None:
        draft.replace(path)
        draft.touch()

    monkeypatch.setattr(os, "link", renamed)

    def found(number: int) -> str:
        folder = tmp_path / str(number)
        return check(find("file"), where(folder), folder / "history", seconds=SECONDS).result

    assert one_of(found, "invalid".__eq__, 8) == "invalid"


def test_a_fence_is_applied_once_and_none_below_it(tmp_path: Path) -> None:
    client = find("file").connect(where(tmp_path))

    def write(hold: int, fence: int) -> object:
        return client.write(Write("k0", hold, client.read("k0"), fence))

    assert write(1, 10) == Applied(1)
    assert write(1, 10) == Refused()
    assert write(2, 9) == Refused()
    assert write(3, 11) == Applied(2)
    record = [(one.hold, one.made, one.read, one.fence) for one in client.written()]
    assert record == [(1, 1, 0, 10), (3, 2, 1, 11)]


def test_what_was_not_read_is_not_replaced(tmp_path: Path) -> None:
    client = find("file:guard=compare-and-set").connect(where(tmp_path))
    seen = client.read("k0")
    assert client.write(Write("k0", 1, seen)) == Applied(1)
    assert client.write(Write("k0", 2, seen)) == Refused()
