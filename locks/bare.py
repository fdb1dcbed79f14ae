"""What a recipe sends for an acquire and a release of a free key, as data. ``perf.bare`` sends it
with nothing around it: the recipe's own cost is measured against that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

KEY: Final = "perf"
TOKEN: Final = "{token}"  # noqa: S105 - the token of the hold goes here
TTL_S, TIMEOUT_S, WAIT_S = 5.0, 1.0, 1.0
TTL_MS: Final = int(1e3 * TTL_S)


class Bare(NamedTuple):
    """``says`` is sent to these of the nodes by ``speaks``, one of ``perf.bare.SPEAKERS``, which
    decides what it is made of: commands, statements, or a part of a node's or a key's name."""

    speaks: str
    says: tuple[str, ...]
    nodes: slice = slice(None)
