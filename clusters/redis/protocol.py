"""Redis' protocol for probes: one command, one answer of any shape, one time limit.

See ``lockbench.clusters.wire`` for why no client library. Beside it stands the probe that every
topology of Redis servers shares.
"""

from __future__ import annotations

import secrets

import hiredis

from lockbench.clusters.wire import Address, Line, ProbeFailed

Answer = str | int | list["Answer"] | None

PROBE_KEY_TTL_MS = 10_000
PREFIX = "lockbench:"  # of probes, on servers of our own


def ask(line: Line, *words: str) -> Answer:
    """One command; an error that the server answers raises ProbeFailed."""
    line.send(hiredis.pack_command(words))  # type: ignore[arg-type]  # its stub means tuple[X, ...]
    return receive(line)


def receive(line: Line) -> Answer:
    """The answer to a command that was sent before, on a connection where only one is due."""
    reader = hiredis.Reader(protocolError=ProbeFailed, replyError=ProbeFailed, encoding="utf-8")
    while (answer := reader.gets()) is False:
        reader.feed(line.some())
    if isinstance(answer, ProbeFailed):
        # A new one: what is raised keeps this frame, and the frame what was answered.
        raise ProbeFailed(str(answer))
    found: Answer = answer
    return found


def ask_once(address: Address, limit_s: float, *words: str) -> Answer:
    """One command on a connection of its own. Raises OSError or ProbeFailed."""
    with Line(address, limit_s) as line:
        return ask(line, *words)


def items(answer: Answer) -> list[Answer]:
    """An answer that has to be a list."""
    if not isinstance(answer, list):
        raise ProbeFailed(f"expected a list, got {answer!r}")
    return answer


def fields(said: str) -> dict[str, str]:
    """The values of an INFO, by name."""
    lines = (line.strip().partition(":") for line in said.splitlines())
    return {key: value for key, _, value in lines}


def mapping(answer: Answer) -> dict[str, str]:
    """An answer that alternates names and values."""
    flat = [str(item) for item in items(answer)]
    return dict(zip(flat[::2], flat[1::2], strict=True))


def write_and_delete(
    line: Line, *, prefix: str = PREFIX, tag: str = "", read: bool, replicas: int = 0
) -> None:
    """Write a key (with ``tag`` in its name), wait for replicas, read it back, delete it."""
    key, value = f"{prefix}probe:{tag}{secrets.token_hex(8)}", secrets.token_hex(8)
    # It also ends by itself, should the delete be lost.
    ask(line, "SET", key, value, "PX", str(PROBE_KEY_TTL_MS))
    if replicas and (reached := ask(line, "WAIT", str(replicas), "500")) != replicas:
        raise ProbeFailed(f"a write reached {reached} of {replicas} replicas")
    if read and (found := ask(line, "GET", key)) != value:
        raise ProbeFailed(f"wrote {value} and read {found}")
    ask(line, "DEL", key)
