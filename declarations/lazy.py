"""Libraries that are imported when they are first used.

What declares a lock or a cluster is read by every command; the client library that it speaks
through is needed by those alone that speak. So that a checker of types knows the module:

    if TYPE_CHECKING:
        from redis import exceptions
    else:
        exceptions = lazy("redis.exceptions")

An ``except exceptions.RedisError`` asks for the name only when something was raised.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

_made: Final[list[_Lazy]] = []


class _Lazy:
    def __init__(self, name: str) -> None:
        self._name = name
        _made.append(self)

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, found)  # from now on nothing is looked up
        return found


def lazy(name: str) -> Any:
    """The module of this name, not yet imported. Used from several threads it is imported once."""
    return _Lazy(name)


def load_all() -> None:
    """Imports everything that was put off, for a process in which it must not happen later: one
    that forks, or that measures."""
    for module in _made:
        importlib.import_module(module._name)  # noqa: SLF001
