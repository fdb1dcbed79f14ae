"""The folder for what has a well-known name: locks and sockets that this user's commands share.

Guaranteed: only this user can enter it, and nobody else can have made it or put another in its
place. Not guaranteed: that it outlives the login or the next start of the machine. Standard library
only: setup uses it before anything is installed.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


class NotPrivate(Exception):
    """The folder cannot be had, or others can enter it: one sentence with the remedy."""


def private_folder() -> Path:
    """Return the folder, which is made if it is not there. Raises NotPrivate.

    ``$XDG_RUNTIME_DIR/lockbench``; where no login has given this user such a folder of its own (XDG
    Base Directory Specification), ``lockbench-UID`` in the temporary folder.
    """
    try:
        folder = _place()
        with suppress(FileExistsError):
            os.mkdir(folder, mode=0o700)  # noqa: PTH102 - its mode from the first moment on
        why_not = _why_not_ours(folder)
    except OSError as error:
        raise NotPrivate(f"this user's folder for locks cannot be made: {error}") from error
    if why_not is not None:
        raise NotPrivate(
            f"{folder} {why_not}, so others may read or change what is in it: remove it, or set"
            " XDG_RUNTIME_DIR to a folder of your own"
        )
    return folder


def _place() -> Path:
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute() and _why_not_ours(runtime) is None:
        return runtime / "lockbench"
    temporary = Path(tempfile.gettempdir())
    mode = temporary.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise NotPrivate(
            f"in {temporary} other users can rename what is not theirs (it has no sticky bit): set"
            " TMPDIR or XDG_RUNTIME_DIR to a folder of your own"
        )
    return temporary / f"lockbench-{os.getuid()}"


def _why_not_ours(folder: Path) -> str | None:
    """Tell why this is not a folder that only this user can enter; a link to one is none."""
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return "is not there"
    if not stat.S_ISDIR(found.st_mode):
        return "is not a folder"
    if found.st_uid != os.getuid():
        return f"belongs to another user ({found.st_uid})"
    if found.st_mode & 0o077:
        return f"can be entered by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return None
