"""What locks that live beside their workers are made of, as ``versions.json`` has it: ``clients``.

    "jvm-sidecar": {"locks": ["redisson-rlock"], "fingerprint": "1f2e…", "pins": {name: version, …},
                    "ref": …, "id": …, "digest": …, "versions": {"redisson": "4.7.0", …}}
    "redis_py":    {"locks": ["redis-py"], "fingerprint": "93ab…", "pins": {…},
                    "versions": {"redis": "8.1.0"}}

A client image is recorded as every other image is, and with all that is pinned in it; an
environment of Python with its pins. Guarantees that two that differ in what we decide have another
fingerprint. An image that could not be built has no ``id``: its locks could not run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from bench.usable import why_unusable
from clusters import images
from clusters.docker import Engine
from locks import pins
from locks.base import System
from locks.client_container import ContainerLibrary
from locks.library import ADAPTERS, Library
from locks.registry import LockNotFoundError, find

Versions = Mapping[str, Any]
Beside = Library | ContainerLibrary


def library_of(system: System) -> Beside | None:
    """What a lock is an adapter of; None: its client runs inside the worker."""
    owner = system.connect.__self__ if inspect.ismethod(system.connect) else None
    return owner if isinstance(owner, Library | ContainerLibrary) else None


def declared(lock: str) -> Beside | None:
    """The same by a lock's name; None also for one that is not declared here any more."""
    try:
        return library_of(find(lock))
    except LockNotFoundError:
        return None


def name_of(library: Beside) -> str:
    """What its environment is called: an image, or a folder of adapters."""
    return library.image if isinstance(library, ContainerLibrary) else library.folder


def as_pinned(library: Beside) -> dict[str, Any]:
    """What this tree decides of it: ``fingerprint``, ``pins`` and the ``versions`` among them that
    were asked for by name."""
    if isinstance(library, ContainerLibrary):
        everything = pins.of_image(library.image)
        return {"fingerprint": images.fingerprint(library.image), "pins": everything}
    folder = ADAPTERS / library.folder
    return {
        "fingerprint": library.environment.name.rpartition("-")[2],
        "pins": pins.requirements(folder / "requirements.txt"),
        "versions": pins.requirements(folder / "requirements.in"),
    }


def recorded(
    systems: Iterable[System], engine: Engine, say: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """The object of ``clients``. Builds images that are missing, which takes minutes. Raises
    EngineError where the engine does not answer."""
    found: dict[str, dict[str, Any]] = {}
    for system in sorted(systems, key=lambda each: each.name):
        library = library_of(system)
        if library is None:
            continue
        entry = found.get(name_of(library))
        if entry is None:
            entry = found[name_of(library)] = {"locks": [], **as_pinned(library)}
            if isinstance(library, ContainerLibrary):
                entry |= _built(library.image, system, engine, say)
        if system.name not in entry["locks"]:
            entry["locks"].append(system.name)
    return found


def _built(
    image: str, system: System, engine: Engine, say: Callable[[str], None]
) -> dict[str, object]:
    if not images.is_current(engine, image):
        say(f"{image}, for {system.name}: is built")
        why_unusable(system)  # each of its cases will say why
    if not images.is_current(engine, image):
        return {}
    return asdict(images.describe([image], engine=engine)[image])


def as_known_to(versions: Versions, was: Versions) -> Versions:
    """``versions`` without what a run that was begun earlier could not know: an image that was not
    there then and is now."""
    clients, before = versions.get("clients"), was.get("clients", {})
    if not clients:
        return versions
    known = {
        name: {k: v for k, v in entry.items() if k in before.get(name, ())}
        for name, entry in clients.items()
    }
    return {**versions, "clients": known}
