"""What locks that live beside their workers are made of, as ``versions.json`` has it: ``clients``.

    "jvm-sidecar": {"locks": ["redisson-rlock"], "fingerprint": "1f2e…", "pins": {name: version, …},
                    "ref": …, "id": …, "digest": …, "versions": {"redisson": "4.7.0", …}}
    "redis_py":    {"locks": ["redis-py"], "fingerprint": "93ab…", "pins": {…},
                    "versions": {"redis": "8.1.0"}}

A client image is recorded as every other image is, and with all that is pinned in it; an
environment of Python with its pins. Guarantees that two that differ in what we decide have another
fingerprint. An image that is not built has no ``id``: its locks could not run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from msgspec.structs import replace

from lockbench.clusters import images
from lockbench.clusters.engine.docker import Engine
from lockbench.locks import registry
from lockbench.locks.base import LockUnusableError, System
from lockbench.locks.registry import LockNotFoundError
from lockbench.locks.shared import pins
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.library import AnyLibrary, library_of
from lockbench.results.documents import Client, Versions, known, made


def declared(lock: str) -> AnyLibrary | None:
    """The library of a lock, by the lock's name; None without one, and for a lock that is not
    declared here: a file that it names is never run."""
    try:
        return library_of(registry.declared(lock))
    except LockNotFoundError:
        return None


def name_of(library: AnyLibrary) -> str:
    """What its environment is called: an image, or a folder of adapters."""
    return library.image if isinstance(library, ContainerLibrary) else library.name


def as_pinned(library: AnyLibrary) -> dict[str, Any]:
    """What this tree decides of it: ``fingerprint``, ``pins`` and the ``versions`` among them that
    were asked for by name."""
    if isinstance(library, ContainerLibrary):
        everything = pins.of_image(library.image)
        return {"fingerprint": images.fingerprint(library.image), "pins": everything}
    return {
        "fingerprint": library.environment.name.rpartition("-")[2],
        "pins": pins.requirements(library.requirements),
        "versions": pins.requirements(library.requirements.with_suffix(".in")),
    }


def recorded(systems: Iterable[System], engine: Engine) -> dict[str, Client]:
    """The object of ``clients``. Raises EngineError where the engine does not answer."""
    found: dict[str, dict[str, Any]] = {}
    for system in sorted(systems, key=lambda each: each.name):
        library = library_of(system)
        if library is None:
            continue
        entry = found.get(name_of(library))
        if entry is None:
            try:
                pinned = as_pinned(library)
            except LockUnusableError:  # each of its cases will say why
                continue
            entry = found[name_of(library)] = {"locks": [], **pinned}
            if isinstance(library, ContainerLibrary):
                entry |= _built(library.image, engine)
        if system.name not in entry["locks"]:
            entry["locks"].append(system.name)
    return {name: made(Client, entry) for name, entry in found.items()}


def _built(image: str, engine: Engine) -> dict[str, object]:
    if not images.is_current(engine, image):
        return {}
    return asdict(images.describe([image], engine=engine)[image])


def as_known_to(versions: Versions, was: Versions) -> Versions:
    """``versions`` without what a run that was begun earlier could not know: an image that was not
    there then and is now."""
    servers = {n: one for n, one in (versions.images or {}).items() if n in (was.images or {})}
    versions = replace(versions, images=servers)
    if not versions.clients:
        return versions
    before = was.clients or {}
    known_then = {
        name: Client(**{n: v for n, v in known(entry).items() if n in known(before[name])})
        if name in before
        else Client()
        for name, entry in versions.clients.items()
    }
    return replace(versions, clients=known_then)
