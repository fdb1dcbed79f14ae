"""exploration.json: every event of a lock's traffic, what was tried at it, and what was found."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from results.documents.part import Count, Document, FolderName, Name, Part, Real, Seconds, Seed

Positive = Annotated[int, Meta(ge=1, le=100_000)]
# broke: a finding has it. not reached: its event never came. could not run: the bench's affair.
Outcome = Literal["kept", "broke", "not reached", "could not run"]


class EventPlace(Part, frozen=True):
    """The ``number``-th event of its kind on all links of the victim. ``node`` and ``at_s``: where
    and when it was in the play without a fault."""

    kind: Literal["connect", "request", "reply", "end"]
    number: Positive
    node: Positive
    at_s: Real = 0.0


class StrikeAt(Part, frozen=True):
    """A fault (``explore.faults``) at an event."""

    place: EventPlace
    fault: Name


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
    one fault at one event, ``state``: as that of the scenario; ``then``: the events after it."""

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
    pages of the track record that tell of it."""

    verdicts: tuple[Name, ...]
    why: Name
    scenario: Name
    strikes: tuple[StrikeAt, ...]
    declared: bool
    broke: Count
    plays: Count
    recording: FolderName
    known: tuple[Name, ...] = ()


class Exploration(Document, frozen=True, kw_only=True):
    """``pairs``: of two faults, how many there are, tried or not. ``ended``: everything that was
    planned was tried."""

    lock: Name
    topology: Name
    seed: Seed
    depth: Positive
    lease_s: Seconds
    scenarios: tuple[ExploredScenario, ...] = ()
    tried: tuple[Tried, ...] = ()
    findings: tuple[Finding, ...] = ()
    pairs: Count = 0
    took_s: Seconds = 0.0
    ended: bool = False
