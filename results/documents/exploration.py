"""exploration.json and map.json: the events of a lock, what was tried at them, what was found.

The map is what is kept of an exploration: without the states that plays were left in.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from lockbench.results.documents.environment import Versions
from lockbench.results.documents.part import (
    Count,
    Document,
    FolderName,
    Name,
    Part,
    Real,
    Seconds,
    Seed,
)

Positive = Annotated[int, Meta(ge=1, le=100_000)]
CLIENTS: Final = 3  # that may want the key at once, unless it is said: the victim and two rivals
# broke: a finding has it. not reached: its event never came. could not run: the bench's affair.
Outcome = Literal["kept", "broke", "not reached", "could not run"]


class EventPlace(Part, frozen=True):
    """The ``number``-th event of its kind on all links of the victim. ``node``, ``at_s``, ``size``
    (bytes): where it was in the first play without a fault, when at the earliest, and how large it
    was in most of them. ``varies``: it has several sizes, so it need not be the same message."""

    kind: Literal["connect", "request", "reply", "end"]
    number: Positive
    node: Positive
    at_s: Real = 0.0
    size: Count = 0
    varies: bool = False


class StrikeAt(Part, frozen=True):
    """A fault (``lockbench.explore.faults``) at an event."""

    place: EventPlace
    fault: Name

    def __str__(self) -> str:
        """As ``lockbench explore --strike`` takes it."""
        return f"{self.fault}@{self.place.kind}:{self.place.number}"


class ExploredScenario(Part, frozen=True):
    """``why``: it was not explored; nothing passes in it, or it does not work without a fault.
    ``state``: what the victim met and answered in it, where that was the same in every play."""

    name: Name
    summary: Name
    events: tuple[EventPlace, ...] = ()
    state: Name | None = None
    why: str | None = None
    worked: bool = True


class Tried(Part, frozen=True):
    """``pair``: of two faults, one after the other; otherwise one fault, at an event or at that of
    each of several nodes. ``plays``: how often it was played until it met its events, or given up.
    ``finding``: the place of what it found among the findings. ``why``: of what could not run. Of
    one fault at one event, ``state``: as that of the scenario; ``then``: the events after it, where
    pairs are asked for."""

    scenario: Name
    strikes: tuple[StrikeAt, ...]
    outcome: Outcome
    pair: bool = False
    plays: Count = 1
    finding: Count | None = None
    why: str | None = None
    state: Name | None = None
    then: tuple[EventPlace, ...] = ()


class Finding(Part, frozen=True):
    """Something that went wrong. ``verdicts``: of the catalogue, or ``hangs``, ``raises``.
    ``declared``: the lock's declaration says that it may. ``broke`` of ``plays``: how often it
    showed in plays of the same strikes. ``recording``: the folder of one that shows it. ``known``:
    pages of the track record that tell of it. ``errors``: what was raised, one of each class."""

    verdicts: tuple[Name, ...]
    why: Name
    scenario: Name
    strikes: tuple[StrikeAt, ...]
    declared: bool
    broke: Count
    plays: Count
    recording: FolderName
    known: tuple[Name, ...] = ()
    errors: tuple[Name, ...] = ()


class Exploration(Document, frozen=True, kw_only=True):
    """``clients``: how many may want the key at once, of a lock that admits one. ``at``: when it
    began (UTC). ``tree``: the digest of the modules that decide what is found.
    ``planned``: how many are to be tried, as far as is known. ``pairs``: of two faults, how many
    there are, tried or not. ``ended``: everything that was planned was tried. ``unjudged``: what
    could not be held against the lock, for want of a declaration."""

    lock: Name
    topology: Name
    seed: Seed
    depth: Positive
    lease_s: Seconds
    clients: Positive = CLIENTS
    at: str = ""
    versions: Versions | None = None
    tree: Name | None = None
    scenarios: tuple[ExploredScenario, ...] = ()
    tried: tuple[Tried, ...] = ()
    findings: tuple[Finding, ...] = ()
    planned: Count = 0
    pairs: Count = 0
    took_s: Seconds = 0.0
    ended: bool = False
    unjudged: tuple[Name, ...] = ()

    @property
    def ref(self) -> str | None:
        """What it was made with instead of what is pinned (``--with``)."""
        return None if self.versions is None else self.versions.instead


# What came of a fault at an event; a number above counts the findings from 1.
KEPT = 0
MISSED = -1  # not reached, or could not run
Came = Annotated[int, Meta(ge=MISSED, le=100_000)] | None


class MappedScenario(Part, frozen=True):
    """``why``: it was not explored. ``tried`` maps a fault to what came of it at each event: null
    where it does not fit."""

    name: Name
    summary: Name
    events: tuple[EventPlace, ...] = ()
    tried: dict[Name, tuple[Came, ...]] = field(default_factory=dict)
    why: str | None = None
    worked: bool = True


class ExplorationMap(Document, frozen=True, kw_only=True):
    """``versions``: package → version of all that decides what was found. ``ref``: what it was made
    with instead of what is pinned (``--with``). ``faults``: what each fault does. ``polls``: how
    many of the events are those of polls like others, and were not struck. ``singles``:
    faults at one event, or at a round of them; ``missed``: of those and of the pairs, how many did
    not come about. ``pairs`` there are, ``pairs_tried`` were tried: the others are like these.
    ``whole``: of every scenario that fits the lock. ``seed``, ``clients``, ``unjudged``: as of
    ``Exploration``."""

    lock: Name
    topology: Name
    seed: Seed = 0
    clients: Positive = CLIENTS
    depth: Positive
    lease_s: Seconds
    at: str
    versions: dict[Name, Name]
    ref: str | None = None
    faults: dict[Name, Name]
    scenarios: tuple[MappedScenario, ...]
    polls: Count = 0
    singles: Count
    missed: Count = 0
    pairs: Count = 0
    pairs_tried: Count = 0
    findings: tuple[Finding, ...] = ()
    took_s: Seconds = 0.0
    ended: bool = False
    whole: bool = False
    unjudged: tuple[Name, ...] = ()
