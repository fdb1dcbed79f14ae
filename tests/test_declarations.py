"""The one registry: what it finds, and what it refuses."""

from __future__ import annotations

import importlib
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from lockbench.declarations import DeclarationError, collected, declared
from lockbench.declarations.lazy import lazy


@dataclass(frozen=True)
class Thing:
    name: str


def module(name: str, **constants: object) -> ModuleType:
    made = ModuleType(name)
    for word, value in constants.items():
        setattr(made, word, value)
    return made


def test_one_or_several_of_a_module_are_found_in_order() -> None:
    several = module("a", THINGS=(Thing("two"), Thing("three")))
    found = collected([module("b", THING=Thing("one")), several, module("c")], "THING", Thing)
    assert list(found) == ["one", "three", "two"]
    assert list(collected([module("a", WAYIES=0, WAIES=[Thing("one")])], "WAY", Thing)) == ["one"]


def test_two_of_one_name_are_an_error() -> None:
    both = [module("a", THING=Thing("one")), module("b", THINGS=[Thing("one")])]
    with pytest.raises(DeclarationError, match=r"two declarations are called 'one': in a and b"):
        collected(both, "THING", Thing)


def test_what_is_no_such_thing_is_an_error() -> None:
    with pytest.raises(DeclarationError, match=re.escape("a declares 7, which is no Thing")):
        collected([module("a", THING=7)], "THING", Thing)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    text = "from tests.test_declarations import Thing\n\nTHING = Thing({!r})\n"
    for path in ("one.py", "deep/er/two.py", "deep/other.py"):
        file = tmp_path / "things" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(path))
    (tmp_path / "things" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("things")


def test_a_file_that_is_added_is_found_at_any_depth(package: ModuleType) -> None:
    assert list(declared(package, "THING", Thing)) == ["deep/er/two.py", "deep/other.py", "one.py"]


def test_files_that_are_skipped_are_not_imported(package: ModuleType) -> None:
    (Path(package.__path__[0]) / "deep" / "adapter.py").write_text("raise ValueError")
    assert list(declared(package, "THING", Thing, skip=("deep/*.py",))) == [
        "deep/er/two.py",
        "one.py",
    ]


# A package that is interrupted after its submodule was imported, as Ctrl-C may do to any.
INTERRUPTED = """
import os
import signal
import interrupted_package.part
os.kill(os.getpid(), signal.{signal})
for _ in range(1000):
    pass
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_an_import_that_was_put_off_is_not_interrupted_half_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / "interrupted_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(INTERRUPTED.format(signal=name))
    (folder / "part.py").write_text("WORD = 'whole'\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.signal(signal.Signals[name], signal.default_int_handler)
    package = lazy("interrupted_package")
    try:
        with pytest.raises(KeyboardInterrupt):
            _ = package.part
        assert package.part.WORD == "whole"
        assert signal.getsignal(signal.Signals[name]) is signal.default_int_handler
    finally:
        signal.signal(signal.Signals[name], before)
        for module_name in ("interrupted_package", "interrupted_package.part"):
            sys.modules.pop(module_name, None)
