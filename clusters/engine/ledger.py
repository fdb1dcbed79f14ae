"""What this process has made on the Docker engine and has not seen removed, by name.

So that what may be left can be named when no engine answers. A name is noted before the call that
makes the thing, because the answer may be lost; so a name here is no proof that the thing exists.
May be used from several threads.
"""

from __future__ import annotations

_names: dict[str, None] = {}


def made(name: str) -> None:
    """It may exist from now on."""
    _names[name] = None


def gone(name: str) -> None:
    """It no longer exists; no error when it was never noted."""
    _names.pop(name, None)


def names(prefix: str = "") -> list[str]:
    """What may exist, in the order in which it was made."""
    return [name for name in list(_names) if name.startswith(prefix)]
