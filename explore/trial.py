"""What a play is: a script, strikes at events, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lockbench.explore import link
from lockbench.explore.faults import FAULTS, OF_CLIENTS
from lockbench.explore.link import Kind
from lockbench.locks.base import System
from lockbench.results.documents.exploration import EventPlace, StrikeAt, Tried
from lockbench.workloads.load import Pace, slack_s

Key = tuple[str, tuple[tuple[str, int, str], ...]]  # scenario, and what is struck how

SIZES_APART: Final = 8  # bytes
SIZES_APART_SHARE: Final = 0.1
CLIENT_TIMEOUT_S: Final = 0.8  # how long a client waits for an answer


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """An event of a play without a fault, the ``number``-th of its kind on all links of the victim.
    ``node``: where it was. ``at_s``: since the script began. ``size``: its bytes.
    ``begins``: those of them that came at once. ``varies``: it has several sizes without any fault,
    so it need not be the same message."""

    kind: Kind
    number: int
    node: int = field(default=1, compare=False)
    at_s: float = field(default=0.0, compare=False)
    size: int = field(default=0, compare=False)
    begins: int = field(default=0, compare=False)
    varies: bool = field(default=False, compare=False)

    def is_alike(self, other: Place) -> bool:
        """Whether the other one may be the same message by its size, or begin with it: what is held
        up grows if its sender says more meanwhile. Numbers in it may have a few digits more or
        less."""
        apart = max(SIZES_APART, SIZES_APART_SHARE * self.size)
        return not self.size or other.begins - apart <= self.size <= other.size + apart

    def is_as_large_as(self, other: Place) -> bool:
        """Whether both may be the same message by their sizes alone."""
        larger = max(self.size, other.size)
        apart = abs(self.size - other.size)
        return not (self.size and other.size) or apart <= max(
            SIZES_APART, SIZES_APART_SHARE * larger
        )


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault of ``lockbench.explore.faults`` at a place."""

    place: Place
    fault: str

    def order(self, setting: Setting) -> link.Order:
        """What the link is told. Who asks several nodes at once asks them in another order each
        time, and a strike at servers is for one of them."""
        how, place = FAULTS[self.fault], self.place
        at_one = how.of_servers and place.node in setting.interchangeable
        seconds = how.seconds or setting.lasts_s(how.leases)
        return link.Order(
            place.kind,
            place.number,
            how.strike,
            seconds,
            node=place.node if at_one else None,
            stills=how.act in OF_CLIENTS,
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """One play of a script; without strikes nothing goes wrong. ``pair``: two faults, one after the
    other; otherwise one, at an event or at that of each of several nodes. ``again``: it has shown
    a finding, and is played for how often it does."""

    scenario: str
    strikes: tuple[Strike, ...] = ()
    pair: bool = False
    again: bool = False


def clients_of(system: System, wanted: int) -> int:
    """How many processes a play needs, each with a client: the victim's, rivals' and the helper's.
    There are more who want the key than there is room for, however few are ``wanted``."""
    rivals = (system.permits or 1) + wanted - 2
    return 1 + rivals + 1


@dataclass(frozen=True)
class Setting:
    """What all plays of an exploration share. ``victim``, ``others``: where the victim's links and
    the other clients reach the nodes. ``seed``: of the victim's own draws, so that its plays
    are alike. ``clients``: as of ``lockbench.explore.asked.Asked``. ``interchangeable``:
    nodes that know nothing of each other. ``of_one_quorum``: a client may ask any of the nodes;
    they are numbered in the order in which the victim connects to them, so that those who choose
    one by lot have all chosen the same. ``independent``: nodes that know nothing of each other,
    beside which there may be those of another system."""

    lock: str
    system: System
    pace: Pace
    victim: Sequence[tuple[str, int]]
    others: Sequence[tuple[str, int]]
    seed: int = 0
    clients: int = 3
    interchangeable: Sequence[int] = ()
    of_one_quorum: bool = False
    independent: Sequence[int] = ()

    @property
    def lease_s(self) -> float:
        return self.pace.lease_ttl_s

    def lasts_s(self, leases: float) -> float:
        """How long so many leases are: more than one is longer than the service keeps what nobody
        renews, by as much."""
        kept = self.system.kept_leases - 1.0 if leases > 1.0 else 0.0
        return (leases + kept) * self.lease_s

    @property
    def permits(self) -> int:
        return self.system.permits or 1

    @property
    def rivals_and_helper(self) -> int:
        """How many processes a play needs beside the victim's."""
        return clients_of(self.system, self.clients) - 1

    @property
    def slack_s(self) -> float:
        return slack_s(self.system, self.pace)


@dataclass
class Played:
    """``places``: the events inside the focus. ``missed``: strikes that never met their event;
    ``met``: of the others, what they met.
    ``hangs``: calls that had to be ended, a sentence each. ``grants``: of the victim. ``unable``:
    why it was no play at all. ``in_parts``: several servers that are no quorum were asked.
    ``ahead_ns``: of this machine's wall clock against its monotonic one."""

    trial: Trial
    folder: Path
    key: str
    places: list[Place] = field(default_factory=list)
    missed: list[Strike] = field(default_factory=list)
    met: dict[Strike, Place] = field(default_factory=dict)
    hangs: list[str] = field(default_factory=list)
    grants: int = 0
    unable: str = ""
    in_parts: bool = False
    ahead_ns: int = 0

    @property
    def strayed(self) -> bool:
        """Whether something was struck that is of another size than the planned event: another
        message, as where a heartbeat came in between. Nothing strays from one that varies."""
        met = self.met.items()
        return any(not s.place.varies and not s.place.is_alike(place) for s, place in met)


def key_of(one: Trial | Tried) -> Key:
    """What tells trials apart."""
    return one.scenario, tuple((s.place.kind, s.place.number, s.fault) for s in one.strikes)


def place_of(event: EventPlace) -> Place:
    """From a document."""
    return Place(event.kind, event.number, event.node, event.at_s, event.size, varies=event.varies)


def event_of(place: Place) -> EventPlace:
    """As documents have it."""
    at_s = round(place.at_s, 6)
    return EventPlace(place.kind, place.number, place.node, at_s, place.size, place.varies)


def at_event(strike: Strike) -> StrikeAt:
    """As documents have it."""
    return StrikeAt(event_of(strike.place), strike.fault)


def struck(trial: Trial) -> tuple[StrikeAt, ...]:
    """Its strikes, as documents have them."""
    return tuple(map(at_event, trial.strikes))
