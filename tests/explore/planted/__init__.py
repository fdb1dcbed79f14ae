"""Locks with exactly one wrong step each, which no run without a fault shows, and beside each the
same lock with that step right.

A module of this folder declares both, ``right-WHAT`` and ``wrong-WHAT``; what differs between them
is the step. Its docstring says what the step is, and which fault at which event shows it. An event
is named as the client sees it: a request that is lost never arrives, one that is orphaned arrives
late while the client is reset and goes on with a new connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent


@dataclass(frozen=True)
class Planted:
    """What is to be known of a wrong lock. ``right`` is its neighbour. ``depth``: how many faults
    it takes to show the step in one run of ``scenario``. ``found``: what says so, at least one of
    these. Each is a verdict of the checker, or

    - ``opposite-answer``: the server's record shows the opposite of what the client was told;
    - ``lost-wakeup``: a waiter waits on although the key is free.
    """

    right: str
    depth: int
    scenario: str
    found: tuple[str, ...]


def _planted(
    what: str, scenario: str, *found: str, depth: int = 1, beside: str = ""
) -> tuple[str, Planted]:
    return f"wrong-{what}", Planted(f"right-{beside or what}", depth, scenario, found)


PLANTED: Final[Mapping[str, Planted]] = dict(
    [
        _planted("release-owner", "release", "double-grant", "linearizable"),
        _planted("release-at-once", "release", "double-grant", "linearizable"),
        _planted("failed-release", "release", "opposite-answer"),
        _planted("second-release", "release", "opposite-answer", depth=2),
        _planted("token-per-hold", "release", "double-grant"),
        _planted("lease-start", "free acquire", "double-grant"),
        _planted("late-answer", "free acquire", "late-grant"),
        _planted("fence-draw", "free acquire", "fence-order"),
        _planted("second-try", "free acquire", "opposite-answer"),
        _planted("second-silence", "free acquire", "opposite-answer", depth=2, beside="second-try"),
        _planted("clean-up", "free acquire", "opposite-answer"),
        _planted("silence-is-no", "free acquire", "opposite-answer"),
        _planted("silence-is-yes", "free acquire", "double-grant"),
        _planted("expiry", "free acquire", "leaked-lock"),
        _planted("extend-owner", "extend", "double-grant"),
        _planted("extend-existing", "extend", "double-grant", "linearizable"),
        _planted("renewal-end", "release", "leaked-lock"),
        _planted("renewal-failed", "background renewal", "double-grant"),
        _planted("listen-first", "hand-over to a waiter", "lost-wakeup"),
        _planted("redlock-majority", "free acquire", "double-grant"),
        _planted("redlock-validity", "free acquire", "double-grant"),
        _planted("redlock-undo", "free acquire", "opposite-answer"),
        _planted("etcd-keepalive", "extend", "double-grant"),
        _planted("zookeeper-own-node", "contended acquire", "leaked-lock"),
        _planted("zookeeper-clean-up", "release", "leaked-lock"),
        _planted("zookeeper-watch", "hand-over to a waiter", "lost-wakeup"),
        _planted("postgres-loss", "free acquire", "double-grant"),
    ]
)


def spec(name: str) -> str:
    """A planted lock as ``locks.registry.find`` takes it. A wrong one is declared beside its
    neighbour."""
    right = PLANTED[name].right if name in PLANTED else name
    return f"{HERE / right.removeprefix('right-').replace('-', '_')}.py:{name}"
