"""One registry: what the modules of a package declare, found by looking at its files.

A module declares a thing as a constant, ``FAULT = Fault(…)``, or several as a tuple, ``FAULTS``
(``TOPOLOGIES``).
Whoever adds a file has added a thing: there is no list to be edited.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeVar


class Named(Protocol):
    """What can be declared."""

    @property
    def name(self) -> str:
        """By what it is asked for; no two of a kind share it."""
        ...


T = TypeVar("T", bound=Named)


class DeclarationError(TypeError):
    """Two things of one name, or a constant of the wrong kind; a sentence that names the module."""


def declared(
    package: ModuleType, word: str, kind: type[T], *, skip: Sequence[str] = ()
) -> dict[str, T]:
    """Name → thing, in alphabetical order, of all modules in a package and in the folders below it.

    ``word`` is the constant (``FAULT``; several are ``FAULTS``), ``skip`` names files that are not
    imported, as patterns of ``Path.match``. DeclarationError."""
    return collected(modules(package, skip), word, kind)


def modules(package: ModuleType, skip: Sequence[str] = ()) -> list[ModuleType]:
    """Every module in a package and in the folders below it, imported."""
    found: dict[str, None] = {}
    for root in map(Path, package.__path__):
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root)
            if not any(inside.match(pattern) for pattern in ("__init__.py", *skip)):
                found[".".join((package.__name__, *inside.with_suffix("").parts))] = None
    return [importlib.import_module(name) for name in found]


def collected(declaring: Iterable[ModuleType], word: str, kind: type[T]) -> dict[str, T]:
    """What these modules declare, by name, in alphabetical order. DeclarationError."""
    found: dict[str, T] = {}
    where: dict[str, str] = {}
    for module in declaring:
        single = [getattr(module, word)] if hasattr(module, word) else []
        for thing in (*single, *getattr(module, _plural(word), ())):
            if not isinstance(thing, kind):
                raise DeclarationError(
                    f"{module.__name__} declares {thing!r}, which is no {kind.__name__}"
                )
            if thing.name in found:
                places = f"{where[thing.name]} and {module.__name__}"
                raise DeclarationError(f"two declarations are called {thing.name!r}: in {places}")
            found[thing.name] = thing
            where[thing.name] = module.__name__
    return dict(sorted(found.items()))


def _plural(word: str) -> str:
    return f"{word[:-1]}IES" if word.endswith("Y") else f"{word}S"
