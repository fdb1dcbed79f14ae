"""Text that can always be written as UTF-8, and files of it that are whole.

What a server or a client answers may hold half of a surrogate pair (bytes decoded with
``surrogateescape``), which no UTF-8 file and no JSON reader takes. One such answer must not lose a
run, so whatever writes files spells it out: ``\\udcff`` as six characters.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import TextIO

from lockbench.history.files import BadFile, open_folder

HALF = re.compile("[\ud800-\udfff]")


def writable(text: str) -> str:
    """The text, with every half of a surrogate pair spelled out."""
    return HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def json_text(value: object, *, indent: int | None = None) -> str:
    """A value as JSON in which every text is writable."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return HALF.sub(lambda half: f"\\\\u{ord(half[0]):04x}", text)


def write_whole(path: Path, text: str, *, inside: Path | None = None) -> None:
    """Written beside, synced, renamed: a reader or a crash never sees half a file. What was a link
    becomes a file; with ``inside`` no folder below it is a link. Raises OSError."""
    data = writable(text).encode()
    try:
        with open_folder(path.parent, inside=inside) as folder:
            _replace(folder, path.name, data)
    except BadFile as error:
        raise OSError(None, str(error)) from error


def create_named(path: Path) -> TextIO:
    """A file to write that the user named: a link is followed, a device such as ``/dev/stdout`` is
    written to, and a FIFO that nobody reads is an error where it would be waited for for ever.
    Raises OSError."""

    def opener(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_NONBLOCK, 0o666)
        os.set_blocking(descriptor, True)
        return descriptor

    return open(path, "w", encoding="utf-8", opener=opener)


def write_named(path: Path, text: str) -> None:
    """Writes a file that the user named (see ``create_named``). Raises OSError."""
    with create_named(path) as file:
        file.write(writable(text))


def _replace(folder: int, name: str, data: bytes) -> None:
    beside = f".{name}.{os.getpid()}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beside, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
