"""A hash of Redis. The guard is a script: Redis runs one at a time, so what it has looked at does
not change before it has written.

The record is a list beside the hash, to which the same script appends.

Does not guarantee: that a write is still there once the primary has failed over (``sentinel``);
replication is asynchronous, and a highest fence that is lost lets older ones in again.
"""

from __future__ import annotations

from lockbench.locks.base import Unknown
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.expectations import PERSISTENCE_DOC
from lockbench.locks.redis.link import Link, NotSent, Script
from lockbench.locks.redis.sentinel_link import SentinelLink
from lockbench.locks.shared.expectations import RESTARTED
from lockbench.stores.base import (
    PREFIX,
    UNGUARDED,
    UNGUARDED_PROMISES,
    Applied,
    Away,
    Entry,
    Guard,
    Outcome,
    Refused,
    Seen,
    Store,
    Where,
    Write,
    entry,
)

FENCE = """\
local newest = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if tonumber(ARGV[1]) <= newest then return 0 end
redis.call('HSET', KEYS[1], 'value', ARGV[2], 'fence', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'version', 1)"""

COMPARE_AND_SET = """\
local version = tonumber(redis.call('HGET', KEYS[1], 'version') or 0)
if tonumber(ARGV[1]) ~= version then return 0 end
redis.call('HSET', KEYS[1], 'value', ARGV[2])
return redis.call('HINCRBY', KEYS[1], 'version', 1)"""

PLAIN = """\
redis.call('HSET', KEYS[1], 'value', ARGV[2])
return redis.call('HINCRBY', KEYS[1], 'version', 1)"""

# The guard as it stands, and an element for the record in the same step.
RECORDED = """\
local made = (function()
%s
end)()
if made > 0 then redis.call('RPUSH', KEYS[1] .. ':written', made .. ' ' .. ARGV[2]) end
return made"""


class Redis:
    """One client: a connection to the server, or to whom the Sentinels call the primary."""

    def __init__(self, where: Where, guard: Guard, recorded: bool) -> None:
        if where.topology == "sentinel":
            self._link: Link = SentinelLink(where.nodes, timeout_s=where.timeout_s)
        else:
            self._link = Link(where.nodes[0], timeout_s=where.timeout_s)
        self._needs_fence = guard.needs_fence
        self._script = Script.of(RECORDED % guard.snippet if recorded else guard.snippet)

    def read(self, key: str) -> Seen:
        try:
            self._link.open()
            return Seen(int(self._link.call("HGET", _named(key), "version") or 0))
        except (NotSent, exceptions.RedisError) as error:
            self._link.close()
            raise Away(f"{type(error).__name__}: {error}") from error

    def write(self, write: Write) -> Outcome:
        condition = write.fence or 0 if self._needs_fence else write.seen.version
        try:
            self._link.open()
            made = int(self._link.run(self._script, _named(write.key), condition, write.value))
        except NotSent as error:
            raise Away(str(error)) from error
        except exceptions.ResponseError as error:  # READONLY, LOADING, MASTERDOWN: it did not run
            raise Away(f"{type(error).__name__}: {error}") from error
        except exceptions.RedisError as error:
            self._link.close()
            return Unknown(f"{type(error).__name__}: {error}")
        return Applied(made) if made else Refused()

    def written(self) -> list[Entry]:
        found: list[Entry] = []
        try:
            self._link.open()
            for name in sorted(self._link.call("KEYS", f"{PREFIX}:*:written")):
                key = name.decode().removeprefix(f"{PREFIX}:").removesuffix(":written")
                elements = self._link.call("LRANGE", name, 0, -1)
                for place, element in enumerate(elements):
                    made, _, value = element.decode().partition(" ")
                    found.append(entry(key, place, int(made), value))
        except (NotSent, exceptions.RedisError) as error:
            raise Away(f"{type(error).__name__}: {error}") from error
        return found

    def close(self) -> None:
        self._link.close()


def _named(key: str) -> str:
    return f"{PREFIX}:{key}"


SCRIPTS_DOC = (
    "https://redis.io/docs/latest/develop/programmability/eval-intro/: 'Redis guarantees the "
    "script's atomic execution'"
)
REPLICATION_DOC = (
    "https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/: 'does not guarantee "
    "that acknowledged writes are retained during failures, since Redis uses asynchronous "
    "replication'"
)

STORE = Store(
    name="redis",
    summary="a hash of Redis",
    topologies=("redis", "sentinel"),
    connect=Redis,
    record="a list to which the same script appends",
    loses={"sentinel": REPLICATION_DOC},
    forgets=dict.fromkeys(("wipe", *RESTARTED), PERSISTENCE_DOC),
    guards=(
        Guard(
            "fence",
            "newer",
            "lua",
            FENCE,
            "A write is applied if its fence (ARGV[1]) is above every fence applied before.",
            SCRIPTS_DOC,
        ),
        Guard(
            "compare-and-set",
            "unchanged",
            "lua",
            COMPARE_AND_SET,
            "A write is applied if the hash still has the version (ARGV[1]) that it was made from; "
            "needs no fence.",
            SCRIPTS_DOC,
        ),
        Guard(UNGUARDED, "any", "lua", PLAIN, UNGUARDED_PROMISES, SCRIPTS_DOC),
    ),
)
