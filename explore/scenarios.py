"""The scripts that an exploration plays: what the victim does, step by step, on one key.

Beside the victim there are *rivals*, who ask for the key once the script says so or a fault has
struck, and a *helper*, who holds it first where the script needs somebody else. Whatever a script
leaves undone, the rivals are granted the key in the end, or it leaked.

Only events inside ``stage.focus()`` are struck: what other scenarios show already is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lockbench.locks.base import System

if TYPE_CHECKING:
    from lockbench.explore.stage import Stage

# In leases.
MOMENT: Final = 0.1
WAIT: Final = 1.5
LONG_WAIT: Final = 2.5  # for so long after a fault that it shows who is not woken
HOLDS: Final = 0.8  # longer than what is late needs to arrive
# At most: who is frozen briefly is so when the helper gives back.
HELPER_S: Final = 0.4


@dataclass(frozen=True, slots=True)
class Scenario:
    """``grants``: how many acquires of the victim are granted where nothing goes wrong.
    ``outlasts``: the victim works for longer than its lease. ``from_the_start``: its connections
    are struck, too. ``undisturbed``: rivals ask when the script says so, not when a fault strikes:
    it is to be seen that the victim's wait ends, and what is late is to meet its next hold,
    or a key that nobody has."""

    name: str
    summary: str
    script: Callable[[Stage], None]
    grants: int = 1
    outlasts: bool = False
    from_the_start: bool = False
    undisturbed: bool = False
    kinds: frozenset[str] = frozenset({"mutex", "reentrant", "read-write", "semaphore"})

    def fits(self, system: System) -> bool:
        """Whether the lock is of a kind that it is made for."""
        return system.kind in self.kinds


def _free(stage: Stage) -> None:
    with stage.focus():
        stage.victim.acquire()
        stage.rivals_ask()
        stage.pass_time(MOMENT)
        stage.victim.release()


def _warm_up(stage: Stage) -> None:
    """The victim is connected to all. Who asks several servers goes on before all have answered, so
    it takes a moment until nothing is on its way."""
    stage.victim.acquire()
    stage.victim.release()
    stage.pass_time(MOMENT)


def _alone(stage: Stage) -> None:
    _warm_up(stage)
    with stage.focus():
        stage.victim.acquire()
    stage.victim.release()
    stage.settle()


def _refused(stage: Stage) -> None:
    _warm_up(stage)
    stage.helper_holds(6 * MOMENT)
    with stage.focus():
        stage.victim.acquire()
    stage.rivals_ask()
    stage.victim.release()


def _gives_up(stage: Stage) -> None:
    _warm_up(stage)
    stage.helper_holds(7 * MOMENT)
    with stage.focus():
        stage.victim.acquire(2 * MOMENT)
    stage.rivals_ask()
    stage.victim.release()


def _handed_over(stage: Stage) -> None:
    _warm_up(stage)
    stage.helper_holds(min(2 * MOMENT, HELPER_S / stage.setting.lease_s))
    with stage.focus():
        stage.victim.acquire(LONG_WAIT)
        stage.rivals_ask()
        stage.pass_time(MOMENT)
        stage.victim.release()


def _extended(stage: Stage) -> None:
    stage.victim.acquire()
    stage.rivals_ask()
    stage.pass_time(2 * MOMENT)
    with stage.focus():
        stage.victim.extend()
        stage.pass_time(MOMENT)
    stage.victim.release()


def _extended_late(stage: Stage) -> None:
    stage.victim.acquire()
    stage.rivals_ask()
    stage.outlast(2 * MOMENT)
    with stage.focus():
        stage.victim.extend()
    stage.victim.release()


def _renewed(stage: Stage) -> None:
    stage.victim.acquire()
    stage.rivals_ask()
    with stage.focus():
        stage.pass_time(WAIT)
    stage.settle()
    if stage.struck:
        # A hold that is not renewed any more has ended by then, and rivals have asked again.
        stage.pass_time(WAIT)
    stage.victim.touch()
    stage.victim.release()


def _released_late(stage: Stage) -> None:
    stage.victim.acquire()
    stage.rivals_ask()
    stage.outlast(2 * MOMENT)
    with stage.focus():
        stage.victim.release()


def _twice(stage: Stage) -> None:
    _warm_up(stage)
    stage.victim.acquire()
    stage.pass_time(MOMENT)
    with stage.focus():
        stage.victim.release()
        stage.pass_time(MOMENT)
        stage.disturb()
        stage.victim.acquire(WAIT)
    stage.rivals_ask()
    stage.pass_time(HOLDS)
    stage.victim.release()


def _reentered(stage: Stage) -> None:
    stage.victim.acquire()
    stage.rivals_ask()
    with stage.focus():
        stage.victim.acquire()
        stage.victim.release()
    stage.pass_time(2 * MOMENT)
    stage.victim.release()


def _read(stage: Stage) -> None:
    stage.helper_holds(3 * MOMENT, reads=True)
    with stage.focus():
        stage.victim.acquire(reads=True)
        stage.rivals_ask()
        stage.pass_time(MOMENT)
        stage.victim.release()


_SCENARIOS: Final = (
    Scenario("free", "a free key is acquired and released", _free, from_the_start=True),
    Scenario(
        "alone",
        "a free key is acquired, and nobody else asks for it until the fault is over",
        _alone,
        grants=2,
        undisturbed=True,
    ),
    Scenario("refused", "one try at a key that somebody holds", _refused),
    Scenario("gives-up", "a wait that runs out", _gives_up),
    Scenario(
        "handed-over",
        "a waiter is given the key that its holder releases",
        _handed_over,
        grants=2,
        undisturbed=True,
    ),
    Scenario(
        "twice",
        "released, and acquired again by the same client",
        _twice,
        grants=3,
        undisturbed=True,
    ),
    Scenario("extended", "a hold is extended by its holder", _extended),
    Scenario("extended-late", "an extension when the lease is over", _extended_late, outlasts=True),
    Scenario("renewed", "a hold that lasts longer than a lease", _renewed, outlasts=True),
    Scenario("released-late", "a release when the lease is over", _released_late, outlasts=True),
    Scenario(
        "re-entered",
        "the holder enters again",
        _reentered,
        grants=2,
        kinds=frozenset({"reentrant"}),
    ),
    Scenario("read", "readers share a key", _read, kinds=frozenset({"read-write"})),
)
SCENARIOS: Final = {scenario.name: scenario for scenario in _SCENARIOS}
