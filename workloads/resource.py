"""The guarded resource: a register per key, on a server of its own, outside every fault's reach.

It checks nothing and applies everything in the order of arrival, as a resource without fencing
does. It keeps a log of what it applied (a recording of its own). A write names the version that was
read; versions of a key grow by one with every applied write, so that the checker can work out what
a fence would have refused.

What jobs need beyond that: an *effect* does one numbered thing (a charge, a run, a call) as often
as it is asked for, unless it is asked for *once* (an idempotency key); a write may *mark* a number
as done; a read may ask for a mark, or how many effects there were lately. And it delivers messages:
numbered ones per key, each as often as is asked for, and again when they are handed back.

This is the side of the clients; ``lockbench.workloads.resource_server`` is the program.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from lockbench.history.op import NULL, F

# What is asked, length of key, how, hold, version read, fence, number.
REQUEST: Final = struct.Struct("<BBBxxxxxqqqq")
REPLY: Final = struct.Struct("<qqq")  # version, applied_ns, what was asked for beside them
# Asked beside READ, WRITE and EFFECT, and not logged: they are no part of what is guarded.
DELIVER: Final = 100
HAND_BACK: Final = 101
# How it is asked.
PLAINLY: Final = 0
ONCE: Final = 1  # an effect that was done already is refused
LATELY: Final = 2  # a read counts the effects of the last so many nanoseconds
EFFECTS_KEPT: Final = 1000  # of a key: no more than the newest ones are counted


class Resource:
    """A client's connection. Not reached by any fault, so an error here is the bench's own."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read(
        self, key: str, hold: int, number: int = NULL, *, how: int = PLAINLY
    ) -> tuple[int, int, int]:
        """Returns (version, applied_ns, whether ``number`` was marked or, LATELY, how many effects
        the last ``number`` nanoseconds saw)."""
        return self._ask(F.READ, key, hold, number=number, how=how)

    def write(
        self, key: str, hold: int, version: int, fence: int | None, number: int = NULL
    ) -> tuple[int, int]:
        """Writes on top of the version that had been read, and marks ``number``. Returns (version
        made, applied_ns)."""
        return self._ask(F.WRITE, key, hold, version=version, fence=or_null(fence), number=number)[
            :2
        ]

    def effect(
        self, key: str, hold: int, number: int, fence: int | None, *, once: bool
    ) -> tuple[bool, int, int]:
        """Does the thing ``number``. Returns (whether it was done, the version that it met,
        applied_ns)."""
        version, at_ns, answer = self._ask(
            F.EFFECT,
            key,
            hold,
            version=number,
            fence=or_null(fence),
            number=number,
            how=ONCE if once else PLAINLY,
        )
        return answer >= 0, version, at_ns

    def deliver(self, key: str, copies: int) -> int:
        """The next message of a key; every message is delivered ``copies`` times."""
        return self._ask(DELIVER, key, NULL, number=copies)[2]

    def hand_back(self, key: str, message: int) -> None:
        """A message that was not worked on is delivered again."""
        self._ask(HAND_BACK, key, NULL, number=message)

    def _ask(
        self,
        asked: int,
        key: str,
        hold: int,
        *,
        version: int = NULL,
        fence: int = NULL,
        number: int = NULL,
        how: int = PLAINLY,
    ) -> tuple[int, int, int]:
        name = key.encode()
        head = REQUEST.pack(asked, len(name), how, hold, version, fence, number)
        self._socket.sendall(head + name)
        reply = self._socket.recv(REPLY.size)
        while len(reply) < REPLY.size:
            more = self._socket.recv(REPLY.size - len(reply))
            if not more:
                raise ConnectionError("the guarded resource went away")
            reply += more
        found: tuple[int, int, int] = REPLY.unpack(reply)
        return found

    def close(self) -> None:
        self._socket.close()


def or_null(number: int | None) -> int:
    """As a history and the resource write a number that may be missing."""
    return NULL if number is None else number
