"""machine.json and versions.json: what a run ran on, and of which versions."""

from __future__ import annotations

from typing import Final

from lockbench.results.documents.part import (
    Count,
    Document,
    Name,
    Part,
    Quantiles,
    Real,
    Sha256,
    Versioned,
)


class Machine(Document, frozen=True, kw_only=True):
    """``lockbench.results.machine.facts``."""

    cpu: str | None = None
    cores: Count | None = None
    cores_usable: Count | None = None
    cores_limit: Real | None = None
    memory_bytes: Count | None = None
    memory_available_bytes: Count | None = None
    kernel: str | None = None
    architecture: str | None = None
    os: str | None = None
    python: str | None = None
    engine: str | None = None
    load_average: tuple[Real, ...] = ()
    virtual: tuple[str, ...] | None = ()
    fsync_ms: Quantiles | None = None
    loop_ms: Quantiles | None = None


class Image(Part, frozen=True):
    """An image that took part; ``versions`` of the packages in it, and what ``differs`` from those
    that are locked: package → "locked → built with"."""

    ref: str | None = None
    id: str | None = None
    digest: str | None = None
    versions: Versioned | None = None
    differs: Versioned | None = None


class Client(Image, frozen=True):
    """What locks that live beside their workers are made of (``lockbench.bench.clients``)."""

    locks: tuple[Name, ...] = ()
    fingerprint: str | None = None
    pins: Versioned | None = None


class Own(Part, frozen=True):
    """A lock of one's own, as ``--lock`` takes it, and the libraries that its file imports."""

    spec: Name | None = None
    file: Name | None = None
    sha256: Sha256 | None = None
    libraries: Versioned | None = None


CURRENT: Final = "current"  # the REF of this tree with what is pinned here
WITH: Final = "with"  # the only side of a run that was made with another version


class VersionsSide(Part, frozen=True):
    """A side of a change; ``library`` are those of another version, as ``name==version``,
    ``commit`` that of a baseline."""

    ref: str
    library: str | None = None
    commit: str | None = None

    @property
    def installed(self) -> dict[str, str]:
        """Library → version, of those of another version."""
        pairs = self.library.split(", ") if self.library else []
        return dict(pair.split("==", 1) for pair in pairs)


class Versions(Document, frozen=True, kw_only=True):
    """Versions of all that took part."""

    libraries: Versioned | None = None
    images: dict[str, Image] | None = None
    engine: str | None = None
    clients: dict[str, Client] | None = None
    own: dict[str, Own] | None = None
    sides: dict[str, VersionsSide] | None = None
    servers: dict[str, str] | None = None  # of somebody else, by the name of the topology

    @property
    def instead(self) -> str | None:
        """The REF that a run or an exploration was made with (``--with``)."""
        side = (self.sides or {}).get(WITH)
        return None if side is None else side.ref

    def packages(self) -> dict[str, str]:
        """Package → version of everything in the images, and of the lock libraries."""
        return {
            package: str(version)
            for part in (self.images, self.clients)
            for one in (part or {}).values()
            for package, version in (one.versions or {}).items()
        }
