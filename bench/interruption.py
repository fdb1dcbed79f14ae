"""Ctrl-C, SIGTERM and a closed terminal (SIGHUP): raised at once, once, and remembered.

All three end a command alike: KeyboardInterrupt in the main thread, after which what was started is
cleared away. Guarantees: a second signal cuts nothing off; one that arrives while something is
``held`` waits for its end. Python drops an exception that a signal's handler raises while a
finalizer or a callback of the collector runs; loops that wait therefore also call
``raise_if_asked``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from lockbench.clusters.engine import ledger

STREAMS = (0, 1, 2)

_asked = False
_over = False
_held = 0
_terminals: tuple[int, ...] = ()


def arm() -> None:
    """Makes the three signals raise KeyboardInterrupt. Every command that starts something calls
    this first. A SIGHUP that is ignored stays so: that is what ``nohup`` asks for."""
    global _terminals  # noqa: PLW0603 - a signal's handler has no other place
    _terminals = tuple(stream for stream in STREAMS if os.isatty(stream))
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)


def raise_if_asked() -> None:
    """Raises KeyboardInterrupt if a signal has arrived, whatever became of its own exception."""
    if _asked and not _held:
        raise KeyboardInterrupt


@contextmanager
def held() -> Iterator[None]:
    """What must come to its end, because it clears away or writes how a run ended: a signal that
    arrives meanwhile interrupts afterwards. Only in the main thread, and bounded in time."""
    global _held  # noqa: PLW0603 - as above
    _held += 1
    try:
        yield
    finally:
        _held -= 1
    raise_if_asked()


def asked() -> bool:
    """Whether a signal has arrived."""
    return _asked


def cleared() -> str | None:
    """For the end of every program: whatever this process made and has not seen removed is removed
    once more. A sentence that names what is left, None as a rule. No signal cuts anything off from
    here on."""
    global _over  # noqa: PLW0603 - as above
    _over = True
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Python gives up a handler of its own before the process ends, and the signal would end it.
        if signal.getsignal(number) is _interrupt:
            signal.signal(number, signal.SIG_IGN)
    if not ledger.names():
        return None
    # Not above: nobody who starts nothing shall wait for the import.
    from lockbench.clusters.engine.removal import left_behind, remove_own

    left = remove_own()
    return left_behind(left) if left else None


def _interrupt(number: int, _frame: FrameType | None) -> None:
    global _asked  # noqa: PLW0603 - as above
    if number == signal.SIGHUP:
        _let_go_of_a_closed_terminal()
    if _asked or _over:
        return
    _asked = True
    if not _held:
        raise KeyboardInterrupt


def _let_go_of_a_closed_terminal() -> None:
    """Whatever is written to it or read from it is an error, which must not stop the clearing away
    either. A closed one no longer says that it is a terminal."""
    gone = [stream for stream in _terminals if not os.isatty(stream)]
    if gone:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in gone:
            os.dup2(nowhere, stream)
        os.close(nowhere)
