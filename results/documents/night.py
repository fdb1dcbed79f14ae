"""nights.jsonl: what each night came to, one line a night."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from lockbench.results.documents.part import Document, Name, Real, Versioned

# Lock → fault → metric (``lockbench.results.gate``) → value in the metric's unit.
Figures = dict[Name, dict[Name, dict[Name, Real | None]]]


class Night(Document, frozen=True, kw_only=True):
    """``endings`` are all that occurred, the worst first. ``void``: why its numbers must not be
    used, a sentence for each control that failed; it then has no figures. ``commit`` is what was
    checked out, ``baseline`` the commit it was compared with. ``machine`` and ``versions`` are name
    → value, of libraries and of what the images hold."""

    date: Name
    endings: Annotated[tuple[Name, ...], Meta(min_length=1)]
    void: tuple[str, ...] = ()
    commit: str | None = None
    baseline: str | None = None
    machine: Versioned = field(default_factory=dict)
    versions: Versioned = field(default_factory=dict)
    figures: Figures = field(default_factory=dict)
