"""What this process has made on Docker engines and has not seen removed, by host and name. The host
of this machine's own engine is empty.

So that what may be left can be named when no engine answers. A name is noted before the call that
makes the thing, because the answer may be lost; so a name here is no proof that the thing exists.
May be used from several threads.
"""

from __future__ import annotations

_names: dict[tuple[str, str], None] = {}


def made(name: str, host: str = "") -> None:
    """It may exist from now on."""
    _names[host, name] = None


def gone(name: str, host: str = "") -> None:
    """It no longer exists; no error when it was never noted."""
    _names.pop((host, name), None)


def names(prefix: str = "", host: str = "") -> list[str]:
    """What may exist on a host, in the order in which it was made."""
    return [name for at, name in list(_names) if at == host and name.startswith(prefix)]
