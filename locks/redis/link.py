"""What the Redis locks share: the scripts, and one connection that repeats nothing by itself.

Why a bare ``redis.Connection`` and not ``redis.Redis``: redis-py 8's client class hides when a
connection is made, and with it whether a command was sent at all; it also costs more CPU.
Retries are zero. redis-py 8 defaults to ten, and a SET NX sent twice answers "not set" for a key
that the first copy has set.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lockbench.locks.bare import KEY, TOKEN, TTL_MS
from lockbench.locks.base import Address
from lockbench.locks.redis.client import backoff, exceptions, quiet, redis, retry

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script, the name under which a server remembers it, and how many keys it takes."""

    text: str
    sha: str
    keys: int

    @classmethod
    def of(cls, text: str, keys: int = 1) -> Script:
        """SHA-1 is what EVALSHA asks for; nothing rests on its strength."""
        sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        return cls(text, sha, keys)

    def called(self, *words: str | int) -> str:
        """The command that runs it, as ``lockbench.locks.bare`` has commands."""
        return " ".join(map(str, ("EVALSHA", self.sha, self.keys, *words)))


# https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
DELETE_OWN = Script.of(
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) "
    "else return 0 end"
)
EXTEND_OWN = Script.of(
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) "
    "else return 0 end"
)
# What most recipes come to where nobody is in their way (``lockbench.locks.bare``).
BARE_SET = f"SET {KEY} {TOKEN} NX PX {TTL_MS}"
BARE_CYCLE = (BARE_SET, DELETE_OWN.called(KEY, TOKEN))


RESTED_S = 0.1  # a connection unused for so long may have been ended


class NotSent(Exception):
    """There is no connection, so the command never left this process."""


class Link:
    """One connection to one Redis. A broken one is made anew by the next call."""

    def __init__(self, address: Address, *, timeout_s: float) -> None:
        self._connection: Any = redis.Connection(  # type: ignore[no-untyped-call]
            host=address.host,
            port=address.port,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=retry.Retry(backoff.NoBackoff(), 0),
            health_check_interval=0,
            protocol=2,
            **quiet(),
        )
        self.sent_ns = 0  # when the last command was sent
        self._used_s = 0.0  # when it last answered

    def open(self) -> None:
        """Raises NotSent unless a server answers here.

        A proxy in front of a dead server accepts connections. The PING finds that out while nothing
        is at stake; without it the first command on the new connection would have an unknown fate.
        """
        if self.ready():
            return
        try:
            self._connection.connect()
            self._connection.send_command("PING")
            self._connection.read_response()
        except exceptions.RedisError as error:
            self._connection.disconnect()
            raise NotSent(f"{type(error).__name__}: {error}") from error

    def ready(self) -> bool:
        """Whether there is a connection that the server has not ended, as far as this side was
        told. redis-py's pool looks before every command; that costs, so here only after a rest."""
        if self._connection._sock is None:  # noqa: SLF001 - what 8 calls is_connected
            return False
        if time.monotonic() - self._used_s > RESTED_S:
            try:
                self._connection.can_read(0)
            except exceptions.RedisError:
                self._connection.disconnect()
                return False
        return True

    def call(self, *command: str | int) -> Any:
        """One attempt. Raises RedisError; whatever is not an answer also closes the connection."""
        self.sent_ns = time.monotonic_ns()
        self._connection.send_command(*command)
        answer = self._connection.read_response()
        self._used_s = time.monotonic()
        return answer

    def run(self, script: Script, *words: str | int) -> Any:
        """Runs a script by its name; ``words`` are its keys and then its arguments. NOSCRIPT is a
        refusal, so sending the text is no retry of anything that might have happened."""
        try:
            return self.call("EVALSHA", script.sha, script.keys, *words)
        except exceptions.NoScriptError:
            return self.call("EVAL", script.text, script.keys, *words)

    def heard(self, limit_s: float) -> Any:
        """What the server says unasked, or None if it says nothing for ``limit_s``. Raises
        RedisError when the connection has ended."""
        if not self._connection.can_read(max(0.0, limit_s)):
            return None
        return self._connection.read_response()

    def close(self) -> None:
        """Never raises."""
        self._connection.disconnect()


class Guides:
    """Nodes that know where another one is. Who answered last is asked first. No connection to any
    is kept, as it would be one more that can hang."""

    def __init__(self, nodes: Sequence[Address], *, limit_s: float) -> None:
        self._links = [Link(node, timeout_s=limit_s) for node in nodes]

    def find(self, ask: Callable[[Link], T]) -> T:
        """What the first says that can tell. ``ask`` raises LookupError or ValueError where one
        cannot. Raises NotSent, with the last one's reason."""
        failed = "none was asked"
        for link in list(self._links):
            try:
                link.open()
                found = ask(link)
            except NotSent as error:
                failed = str(error)
            except (exceptions.RedisError, LookupError, TypeError, ValueError) as error:
                failed = f"{type(error).__name__}: {error}"
            else:
                self._links.remove(link)
                self._links.insert(0, link)
                return found
            finally:
                link.close()
        raise NotSent(failed)
