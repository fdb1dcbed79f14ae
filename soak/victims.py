"""Whom a kill from outside strikes, and how: processes, containers, the connection to the engine.

Guarantees: only what belongs to the given bench is struck. Does not guarantee: that whom it strikes
ends of it; ``there`` tells.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import psutil

from lockbench.clusters.engine import owner
from lockbench.clusters.engine.docker import Container, Engine, EngineError
from soak.engine_link import EngineLink
from soak.parts import BENCH, parts

ENGINE: Final = "engine"
LINK, SERVER, WORKER, MASTER = "link", "server", "worker", "master"
SIGNALS: Final = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT")
# What happens to the connection to the engine: for good, or for AWAY_S.
AWAY_S: Final = 8.0
GONE, GONE_AWHILE, HANGS = "gone", f"gone {AWAY_S:g} s", f"hangs {AWAY_S:g} s"
HOW_ENGINE: Final = (GONE, GONE_AWHILE, HANGS)


class Victim(Protocol):
    """Something that can be struck."""

    def there(self) -> bool:
        """Whether it has not ended."""

    def strike(self, how: str) -> None:
        """One of SIGNALS, of the engine one of HOW_ENGINE. No error when it has ended."""


class Victims:
    """Finds them. ``link`` is what a bench has in place of the engine's socket."""

    def __init__(self, engine: Engine, link: EngineLink) -> None:
        self._engine = engine
        self._link = link

    def find(self, target: str, bench: int, name: str, draw: float) -> Victim | None:
        """One of this kind, drawn (0 to 1) where there are several; None while there is none.
        ``name`` is the bench as ``lockbench.clusters.engine.owner.me`` names it."""
        if target == ENGINE:
            return _Connection(self._link)
        if target in (LINK, SERVER):
            mine = sorted(self._engine.containers({owner.OWNER: name}), key=lambda c: c.name)
            some = [c for c in mine if c.name.endswith("-link") == (target == LINK)]
            some = [c for c in some if _runs(self._engine, c)]
            return _Contained(self._engine, some[int(draw * len(some))]) if some else None
        there = parts(bench)
        names = sorted(n for n in there if n == target or n.startswith(f"{target}-"))
        if not names:
            return None
        return _Process(there[names[int(draw * len(names))]], leads=target == BENCH)


@dataclass(frozen=True)
class _Process:
    """``leads``: Ctrl-C and hang-up reach its whole group, as from a terminal."""

    process: psutil.Process
    leads: bool

    def there(self) -> bool:
        return self.process.is_running() and owner.start_ticks(self.process.pid) is not None

    def strike(self, how: str) -> None:
        number = signal.Signals[how]
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if self.leads and how in ("SIGINT", "SIGHUP"):
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)


@dataclass(frozen=True)
class _Contained:
    engine: Engine
    container: Container

    def there(self) -> bool:
        return _runs(self.engine, self.container)

    def strike(self, how: str) -> None:
        with suppress(EngineError):  # it is just being removed
            self.engine.kill(self.container, how)


@dataclass(frozen=True)
class _Connection:
    link: EngineLink

    def there(self) -> bool:
        return self.link.flows()

    def strike(self, how: str) -> None:
        if how == HANGS:
            self.link.hang()
        else:
            self.link.cut()
        if how != GONE:
            self.link.restore_in(AWAY_S)


def _runs(engine: Engine, container: Container) -> bool:
    try:
        state = engine.state(container)
    except EngineError:
        return False
    return state is not None and state.running
