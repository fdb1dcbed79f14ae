"""Redis' append-only file as a record: what took effect on keys of text, in the order in which it
did.

Redis writes effects, not requests: a SET that was refused is not in it, a time to live stands as
the wall clock's millisecond at which it ends (PXAT, PEXPIREAT), and a key that ran out is taken
away when Redis notices: by UNLINK, as our servers are set (``lockbench.clusters.redis.nodes``). A
script's effects stand between MULTI and EXEC.

Does not tell: who asked, and when. What a client takes away by UNLINK is told as what time did. A
file that Redis has rewritten begins in the middle and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import hiredis

from lockbench.clusters.base import Change

FIRST: Final = ".1.incr.aof"
SET_OPTIONS_FROM: Final = 3
TAKEN_AWAY: Final[Mapping[str, Literal["deleted", "expired"]]] = {
    "DEL": "deleted",
    "UNLINK": "expired",
}


class UnreadableFile(Exception):
    """The files do not tell all since the server's start; the message says why."""


def changes(files: Mapping[str, bytes]) -> list[Change]:
    """What the files below a server's data folder (path → content) say, from its first start on.
    Raises UnreadableFile."""
    parts = [path for path in files if path.endswith(".incr.aof")]
    if len(parts) != 1 or not parts[0].endswith(FIRST):
        raise UnreadableFile(
            "its append-only file was rewritten" if parts else "it has no append-only file"
        )
    found: list[Change] = []
    alive: dict[str, str] = {}
    for place, words in enumerate(_commands(files[parts[0]])):
        found += _effects(place, words, alive)
    return found


def _effects(place: int, words: list[bytes], alive: dict[str, str]) -> list[Change]:
    """What a command did to keys; ``alive`` is what they are before it, and after it on return."""
    command, *names = [word.decode(errors="replace") for word in words[:SET_OPTIONS_FROM]]
    command = command.upper()
    if command in TAKEN_AWAY:
        every = [word.decode(errors="replace") for word in words[1:]]
        gone = [name for name in every if alive.pop(name, None)]
        return [Change(place, TAKEN_AWAY[command], name) for name in gone]
    if command in {"FLUSHALL", "FLUSHDB"}:
        every = list(alive)
        alive.clear()
        return [Change(place, "deleted", name) for name in every]
    if command in {"SET", "SETNX"} and len(names) == SET_OPTIONS_FROM - 1:
        name, value = names
        until_ms = _option(words, b"PXAT")
        renews = alive.get(name) == value
        alive[name] = value
        return [Change(place, "renewed" if renews else "made", name, value, until_ms)]
    if command in {"PEXPIREAT", "PERSIST"} and names and names[0] in alive:
        until_ms = _whole(words[2]) if command == "PEXPIREAT" else None
        return [Change(place, "renewed", names[0], alive[names[0]], until_ms)]
    return []


def _option(words: list[bytes], name: bytes) -> int | None:
    options = [word.upper() for word in words[SET_OPTIONS_FROM:]]
    if name not in options[:-1]:
        return None
    return _whole(words[SET_OPTIONS_FROM + options.index(name) + 1])


def _commands(data: bytes) -> Iterator[list[bytes]]:
    """The commands of a file; one that was being written at its end is left out, as Redis does."""
    reader = hiredis.Reader(protocolError=UnreadableFile)
    reader.feed(data)
    while (words := reader.gets()) is not False:
        if not isinstance(words, list) or not all(isinstance(word, bytes) for word in words):
            raise UnreadableFile(f"its append-only file has {str(words)[:80]} for a command")
        if words:
            yield words


def _whole(word: bytes) -> int:
    try:
        return int(word)
    except ValueError:
        raise UnreadableFile(f"its append-only file has {word[:20]!r} for a number") from None
