"""What ``lockbench doctor`` calls missing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rich.console import Console

from lockbench.cli import upkeep
from lockbench.clusters import images
from lockbench.clusters.engine.docker import EngineUnreachable


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Console:
    monkeypatch.setattr(upkeep, "_machine", lambda: (True, "large enough"))
    return Console(record=True, width=200)


def test_an_image_that_a_case_will_build_is_not_missing(
    monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    monkeypatch.setattr(upkeep, "Engine", lambda: SimpleNamespace(version=lambda: "28"))
    monkeypatch.setattr(images, "is_current", lambda _engine, name: name != "etcd")
    assert upkeep.doctor(console) == 0
    said = console.export_text()
    assert "image etcd: the first case that needs it builds it" in said
    assert "image redis\n" in said
    assert "missing" not in said


def test_an_engine_that_is_not_there_is_missing(
    monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    def nobody() -> None:
        raise EngineUnreachable("no Docker engine answers")

    monkeypatch.setattr(upkeep, "Engine", nobody)
    assert upkeep.doctor(console) == 254
    assert "missing  no Docker engine answers" in console.export_text()


def test_an_engine_that_goes_away_while_it_is_asked_is_missing(
    monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    def gone(_engine: object, _name: str) -> bool:
        raise EngineUnreachable("no Docker engine answers")

    monkeypatch.setattr(upkeep, "Engine", lambda: SimpleNamespace(version=lambda: "28"))
    monkeypatch.setattr(images, "is_current", gone)
    assert upkeep.doctor(console) == 254
    assert "missing  no Docker engine answers" in console.export_text()
