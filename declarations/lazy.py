"""Libraries that are imported when they are first used.

What declares a lock or a cluster is read by every command; the client library that it speaks
through is needed by those alone that speak. So that a checker of types knows the module:

    if TYPE_CHECKING:
        from redis import exceptions
    else:
        exceptions = lazy("redis.exceptions")

An ``except exceptions.RedisError`` asks for the name only when something was raised.

A signal that would interrupt such an import interrupts right after it: a package that was imported
by half is not whole when it is imported again, and what clears away after Ctrl-C needs it.
"""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_made: Final[list[_Lazy]] = []


class _Lazy:
    def __init__(self, name: str) -> None:
        self._name = name
        _made.append(self)

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(_imported(self._name), attribute)
        setattr(self, attribute, found)  # from now on nothing is looked up
        return found


def lazy(name: str) -> Any:
    """The module of this name, not yet imported. Used from several threads it is imported once."""
    return _Lazy(name)


def load_all() -> None:
    """Imports everything that was put off, for a process in which it must not happen later: one
    that forks, or that measures."""
    for module in _made:
        _imported(module._name)  # noqa: SLF001


def _imported(name: str) -> ModuleType:
    with _uninterrupted():
        return importlib.import_module(name)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Handlers of signals, which Python runs in the main thread, run when this has ended."""
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        found = {number: signal.getsignal(number) for number in _INTERRUPTING}
        handlers = {number: handler for number, handler in found.items() if callable(handler)}
    arrived: list[signal.Signals] = []
    for number in handlers:
        signal.signal(number, lambda said, _: arrived.append(signal.Signals(said)))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in arrived:
            handlers[number](number, None)
