"""The word under a prefix that says which bench works there: who comes later stays away.

It stands there from before the first key until all are gone, and has no end of its own: a bench may
be frozen for long. What a killed bench has left, ``lockbench clean --cluster FILE`` takes away.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Final

from lockbench.clusters.engine import owner

NAME: Final = "lockbench-claim"  # behind the prefix


def new() -> str:
    """A claim of this process, unlike any other one."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{owner.me()} {now} {secrets.token_hex(8)}"


def is_dead(claim: str) -> bool:
    """Whether the process that made it has certainly ended. When that cannot be known from here, it
    lives."""
    return owner.is_dead(claim.partition(" ")[0])


def is_here(claim: str) -> bool:
    """Whether the process that made it runs on this machine."""
    return claim.partition(" ")[0].rpartition(":")[2] == owner.place() and not is_dead(claim)


def told(claim: str) -> str:
    """Who made it, for a sentence."""
    who, _, rest = claim.partition(" ")
    pid, _, where = who.partition(":")
    host = where.rpartition(":")[2].partition("/")[0]
    since = rest.partition(" ")[0]
    if not (pid.isdigit() and host and since):
        return "somebody"
    return f"the bench with process {pid} on {host}, since {since}"
