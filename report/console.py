"""Where the command line writes, and what may reach a terminal.

Guarantees: of keys, names and what servers said, nothing acts on the terminal. Control characters
(C0 and C1, so every escape sequence), what turns the direction of text and lone surrogates are
shown as ``\\x1b`` and the like, and ``[red]`` or ``:smile:`` are text. What the encoding of the
output has no character for is shown in the same way. Where the output cannot be written, because
nobody reads it any more or because its disk is full, OutputGone is raised from whatever prints.
JSON goes out as ASCII.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final, TextIO, cast

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from lockbench.results.wording import printable

# Tables need room; what is not a terminal has no width of its own.
WIDTH: Final = None if sys.stdout is not None and sys.stdout.isatty() else 120


class OutputGone(Exception):
    """What was to be printed could not be written; the message says why. No OSError: the parser of
    the command line would end the program with 1 for those."""


class _Plain(Console):
    """A console whose text is text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    @property
    def encoding(self) -> str:
        """Of the stream that it writes to now: lines of tables are ASCII where it needs them so."""
        return (getattr(self.file, "encoding", None) or "utf-8").lower()

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        # Before it is laid out, so that it has room.
        if isinstance(renderable, Text):
            said = printable(renderable.plain)
            if said != renderable.plain:
                renderable = Text(said, renderable.style, no_wrap=renderable.no_wrap)
        for segment in super().render(renderable, options):
            # What moves the cursor says so; everything else is somebody's text.
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def plain(**options: Any) -> Console:
    """A console of one's own; ``options`` are those of rich."""
    return _Plain(**options)


out = plain(width=WIDTH)
err = plain(stderr=True)


def say(text: str, end: str = "\n") -> None:
    """Text for people, on standard output as it is: not wrapped to a width."""
    sys.stdout.write(printable(text) + end)


def say_json(value: object) -> None:
    """The one JSON object of ``--json``; documents may stand in it."""
    sys.stdout.write(json.dumps(value, indent=1, default=msgspec.to_builtins) + "\n")


def warn(sentence: str) -> None:
    """A sentence beside the output, on standard error."""
    sys.stderr.write(f"lockbench: {printable(sentence)}\n")


class _Stream:
    """A standard stream that raises OutputGone where it cannot be written; without ``needed`` what
    cannot be written is lost. Everything else it answers as the stream does."""

    def __init__(self, stream: TextIO, *, needed: bool) -> None:
        self._stream = stream
        self._needed = needed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._watched():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._watched():
            self._stream.flush()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # ValueError: it is closed
            if self._needed:
                why = getattr(error, "strerror", None) or str(error)
                raise OutputGone(f"the output cannot be written: {why}") from error


def take_streams() -> None:
    """Makes the standard streams keep the promises above. For the entry point of a program."""
    # A file that is opened later must not become standard output.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the program
    out_, err_ = (_usable(stream, number) for stream, number in ((sys.stdout, 1), (sys.stderr, 2)))
    sys.stdout = cast("TextIO", _Stream(out_, needed=True))
    sys.stderr = cast("TextIO", _Stream(err_, needed=False))


def _usable(stream: TextIO | None, number: int) -> TextIO:
    """A stream that shows what its encoding lacks; of a closed one, one that cannot be written."""
    if stream is None:
        return os.fdopen(number, "w", closefd=False)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


def leave_streams() -> None:
    """Before the program ends: the interpreter writes out what is left in its streams, and would
    end with 120 where that fails."""
    sys.stderr.flush()
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(null, number)
