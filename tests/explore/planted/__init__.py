"""Locks with exactly one wrong step each, which the duties of every lock do not show, and beside
each the same lock with that step right.

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

from lockbench.explore.judge import DENIED_YET_TAKEN, LOST_WAKEUP, RAISES, RELEASED_YET_KEPT
from lockbench.results.documents.exploration import CLIENTS

HERE: Final = Path(__file__).parent


@dataclass(frozen=True)
class Planted:
    """What is to be known of a wrong lock. ``right`` is its neighbour. ``depth``: how many faults
    it takes to show the step in a play of one of ``scenarios``. ``found``: what says so, at least
    one of these. ``play``: a scenario and the faults that show it in nearly every play, on one
    Redis. ``clients``: as of ``explore``."""

    right: str
    scenarios: tuple[str, ...]
    found: tuple[str, ...]
    depth: int = 1
    play: tuple[str, ...] = ()
    clients: int = CLIENTS


OPPOSITE: Final = (DENIED_YET_TAKEN, RELEASED_YET_KEPT, LOST_WAKEUP)


def _planted(
    what: str, scenarios: str, *found: str, beside: str = "", play: str = "", **more: int
) -> tuple[str, Planted]:
    """``more``: depth, clients."""
    where, shown = tuple(scenarios.split()), tuple(play.split())
    return f"wrong-{what}", Planted(
        right=f"right-{beside or what}", scenarios=where, found=found, play=shown, **more
    )


PLANTED: Final[Mapping[str, Planted]] = dict(
    [
        _planted(
            "release-owner",
            "free twice",
            "double-grant",
            "linearizable",
            play="twice very-late@request:1",
        ),
        _planted(
            "release-at-once",
            "free twice",
            "double-grant",
            "linearizable",
            play="free client-frozen@reply:3",
        ),
        _planted("failed-release", "free twice", *OPPOSITE, play="free request-lost@request:3"),
        _planted(
            "second-release",
            "free twice",
            *OPPOSITE,
            depth=2,
            play="free reset-before@request:3 reset-before@request:5",
        ),
        _planted("token-per-hold", "free twice", "double-grant", play="twice very-late@request:1"),
        _planted("lease-start", "free", "double-grant", play="twice client-frozen@reply:2"),
        _planted("late-answer", "free", "late-grant", play="twice client-frozen@reply:2"),
        _planted("fence-draw", "free", "fence-order", clients=2, play="free client-frozen@reply:2"),
        _planted("second-try", "free", *OPPOSITE, play="alone reply-lost@reply:1"),
        _planted(
            "second-silence",
            "free",
            *OPPOSITE,
            depth=2,
            beside="second-try",
            play="alone reset-before@reply:1 reset-before@reply:3",
        ),
        _planted("clean-up", "alone", *OPPOSITE, play="alone doubled@request:1"),
        _planted("silence-is-no", "free", *OPPOSITE, play="alone reply-lost@reply:1"),
        _planted("silence-is-yes", "free", "double-grant", play="free request-lost@request:2"),
        _planted("expiry", "free", "leaked-lock", play="free client-killed@reply:2"),
        _planted(
            "extend-owner",
            "extended extended-late",
            "double-grant",
            "wrong-extend",
            play="extended-late",
        ),
        _planted(
            "extend-existing", "extended", "double-grant", "linearizable", play="extended-late"
        ),
        _planted("renewal-end", "free twice", "leaked-lock", play="free request-lost@request:3"),
        _planted("renewal-failed", "renewed", "double-grant", play="renewed client-frozen@reply:1"),
        _planted(
            "listen-first", "handed-over", LOST_WAKEUP, play="handed-over client-paused@reply:1"
        ),
        _planted("redlock-majority", "free", "double-grant"),
        _planted("redlock-validity", "twice", "double-grant"),
        _planted("redlock-undo", "alone", *OPPOSITE),
        _planted("etcd-keepalive", "extended-late", "double-grant", "wrong-extend"),
        _planted("zookeeper-own-node", "refused gives-up handed-over", "leaked-lock"),
        _planted("zookeeper-clean-up", "free twice", "leaked-lock"),
        _planted("zookeeper-watch", "handed-over", LOST_WAKEUP),
        _planted("postgres-loss", "free", "double-grant"),
        _planted("undocumented-error", "free", RAISES),
    ]
)


def spec(name: str) -> str:
    """A planted lock as ``lockbench.locks.registry.find`` takes it. A wrong one is declared beside
    its neighbour."""
    right = PLANTED[name].right if name in PLANTED else name
    return f"{HERE / right.removeprefix('right-').replace('-', '_')}.py:{name}"
