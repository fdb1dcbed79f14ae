"""How a file that somebody else wrote is opened: the one rule for run folders, recordings and
histories.

Guarantees: what is opened is a regular file. Nothing waits (a FIFO does not), no device is read,
and no more than a bound is taken into memory. With ``inside``, every step below that folder is made
without following a link, so nothing outside of it is reached, whatever is exchanged meanwhile. What
was looked at is what is read: checks are made on the descriptor. Text is UTF-8. Every refusal is a
``BadFile``: one sentence with the file's name and the reason.

Without ``inside`` the path is one that the user named, so links are followed. Only ``open_named``
takes a pipe, and only one without a name in a file system: ``check <(zcat history.gz)`` and
``/dev/stdin`` are files to whoever types them, a FIFO may never have a writer.

Not guaranteed: that two files of a folder belong together, and anything about writing.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import msgspec

BYTES_MAX: Final = 64 << 20  # of a file that is read as a whole
TOML_BYTES_MAX: Final = 64 << 10
# tomllib takes time with the cube of the parts of a dotted key: 27 s for 32,000.
DOTS_MAX: Final = 64

_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}
_PAIR: Final = re.compile(rb"(?i)\\\\|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}")
_HALF: Final = re.compile(rb"(?i)\\ud[89a-f][0-9a-f]{2}")

T = TypeVar("T")


class BadFile(Exception):
    """A file that is not read. ``str`` is one sentence: the path, and ``why``."""

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class MissingFile(BadFile):
    """A file that is not there."""


def open_file(path: Path, *, inside: Path | None = None, most: int | None = None) -> BinaryIO:
    """A regular file of at most ``most`` bytes, buffered. Raises BadFile, MissingFile."""
    return os.fdopen(_readable(path, inside, most), "rb")


def open_named(path: Path) -> BinaryIO:
    """What the user named on the command line: a regular file, or a pipe of the shell. Raises
    BadFile, MissingFile."""
    return os.fdopen(_readable(path, None, None, pipes=True), "rb")


def read_bytes(path: Path, *, inside: Path | None = None, most: int = BYTES_MAX) -> bytes:
    """A whole regular file. Raises BadFile, MissingFile."""
    try:
        with open_file(path, inside=inside, most=most) as file:
            data = file.read(most + 1)
    except OSError as error:
        raise BadFile(path, _reason(error)) from None
    if len(data) > most:  # it grew, or says nothing of its size, as files of /proc
        raise BadFile(path, _too_large(most))
    return data


def read_text(path: Path, *, inside: Path | None = None, most: int = BYTES_MAX) -> str:
    """A whole regular file in UTF-8. Raises BadFile, MissingFile."""
    try:
        return read_bytes(path, inside=inside, most=most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadFile(path, f"not text in UTF-8 ({error.reason}, byte {error.start})") from None


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file that somebody wrote by hand. Raises BadFile, MissingFile."""
    return toml_of(path, read_text(path, most=TOML_BYTES_MAX))


def toml_of(path: Path, text: str) -> dict[str, Any]:
    """What was read of a TOML file. Raises BadFile."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > DOTS_MAX:
            raise BadFile(path, f"line {number} has more than {DOTS_MAX} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise BadFile(path, "nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits is no TOMLDecodeError
        raise BadFile(path, str(error)) from None


def read_json(path: Path, kind: type[T], *, inside: Path | None = None) -> T:
    """A JSON file as a ``kind`` that msgspec knows. Raises BadFile that names the field."""
    data = read_bytes(path, inside=inside)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadFile(path, json_error(error, data)) from None


def json_error(error: Exception, data: bytes) -> str:
    """What msgspec has against ``data``, as a part of a sentence. ``error``: DecodeError,
    UnicodeError or RecursionError."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, msgspec.ValidationError):
        # As in: Expected `int`, got `str` - at `$.objects[...].permits`
        what, _, where = str(error).replace("`", "").partition(" - at ")
        where = where.removeprefix("$").removeprefix(".")
        return f"{where}: {what}" if where else what
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as wrong:
        return f"not text in UTF-8 ({wrong.reason})"
    if _HALF.search(_PAIR.sub(b"", data)):
        return "not text: half of a surrogate pair (\\ud800 to \\udfff)"
    return str(error)


def is_file(path: Path, *, inside: Path | None = None) -> bool:
    """Whether ``open_file`` would open it."""
    try:
        os.close(_readable(path, inside, None))
    except BadFile:
        return False
    return True


def is_folder(path: Path, *, inside: Path | None = None) -> bool:
    """Whether ``names`` would list it."""
    try:
        with open_folder(path, inside=inside):
            return True
    except BadFile:
        return False


def names(folder: Path, *, inside: Path | None = None) -> list[str]:
    """The names in a folder, sorted. Raises BadFile, MissingFile."""
    with open_folder(folder, inside=inside) as descriptor, os.scandir(descriptor) as entries:
        return sorted(entry.name for entry in entries)


@contextmanager
def open_folder(path: Path, *, inside: Path | None = None) -> Iterator[int]:
    """A descriptor of a folder, for the ``dir_fd`` of ``os.open`` and its like. Raises BadFile,
    MissingFile."""
    descriptor = _open(path, inside, os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _readable(path: Path, inside: Path | None, most: int | None, *, pipes: bool = False) -> int:
    descriptor = _open(path, inside)
    why = _unfit(os.fstat(descriptor), most, pipes)
    if why is not None:
        os.close(descriptor)
        raise BadFile(path, why)
    os.set_blocking(descriptor, True)
    return descriptor


def _unfit(found: os.stat_result, most: int | None, pipes: bool) -> str | None:
    if pipes and stat.S_ISFIFO(found.st_mode) and _nameless(found):
        return None
    if not stat.S_ISREG(found.st_mode):
        return f"is {_kind(found.st_mode)}, not a file"
    if most is not None and found.st_size > most:
        return _too_large(most)
    return None


def _open(path: Path, inside: Path | None, more: int = 0) -> int:
    """A descriptor of anything; of what is inside, reached without a link below ``inside``."""
    if inside is None:
        return _step(path, path, _FLAGS | more, None)
    try:
        parts = path.relative_to(inside).parts
    except ValueError:
        raise BadFile(path, f"not in {inside}") from None
    if ".." in parts:
        raise BadFile(path, f"leads out of {inside}")
    at = _step(path, inside, _FLAGS | os.O_DIRECTORY, None)
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        try:
            flags = _FLAGS | os.O_NOFOLLOW | (more if last else os.O_DIRECTORY)
            below = _step(path, part, flags, at)
        finally:
            os.close(at)
        at = below
    return at


def _step(path: Path, name: Path | str, flags: int, folder: int | None) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        raise MissingFile(path, "no such file or folder") from None
    except (OSError, ValueError) as error:  # ValueError: a null in the name
        raise BadFile(path, _refusal(error, name, folder)) from None


def _refusal(error: OSError | ValueError, name: Path | str, folder: int | None) -> str:
    """Why something could not be opened: by what it is, if that says more than the error."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=folder is None).st_mode
    except (OSError, ValueError):
        return _reason(error)
    kind = stat.S_IFMT(mode)
    if kind in {stat.S_IFLNK, stat.S_IFSOCK}:
        return f"{name} is {_kind(mode)}, which is not followed or read"
    return _reason(error)


def _nameless(found: os.stat_result) -> bool:
    """Whether a pipe has no name in a file system, and so had a writer from its beginning."""
    ends = os.pipe()
    try:
        return os.fstat(ends[0]).st_dev == found.st_dev
    finally:
        for end in ends:
            os.close(end)


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "of an unknown kind")


def _too_large(most: int) -> str:
    return f"larger than {most} bytes"


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
