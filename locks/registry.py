"""Every lock there is: whatever a module of this package declares as ``SYSTEM`` or ``SYSTEMS``.

A lock from elsewhere joins by its file or, for a library, by its folder (see
``lockbench.locks.shared.library``), with the name of the lock behind it where several are declared:
``path.py``, ``path.py:NAME``, ``path/to/folder``, ``path/to/folder:NAME``. NAME may also be a
variable that is a System, or a class that can be called like ``Connect``. ``find``, ``each`` and
``load`` run that file, so they take only a name that the user gave. A name that stands in a stored
run is looked up by ``declared``, which opens nothing.

A lock with parameters is also found under ``name:parameter=value:…``, and is then called so.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final

from lockbench import declarations, locks
from lockbench.clusters.registry import topologies
from lockbench.declarations.parameters import ParameterError, decided, split
from lockbench.locks import without as package
from lockbench.locks.base import System
from lockbench.locks.shared import pins


class LockNotFoundError(Exception):
    """No such lock; the message is one sentence that names it and the remedy."""


# Of the folder of a library, in this order; its declaration first.
LIBRARY_FILES: Final = ("lock.py", "adapter.py", "requirements.txt")
# Not imported by the scan: ways to do without a lock, which are none; what runs in the environments
# of libraries; and what imports kazoo.
NO_LOCKS: Final = (
    *("without/*.py", "libraries/*/adapter.py", "libraries/shared/*.py"),
    "zookeeper/session.py",
)


@cache
def systems() -> Mapping[str, System]:
    """Name → declaration of every lock of this package, in alphabetical order."""
    found = declarations.declared(locks, "SYSTEM", System, skip=NO_LOCKS)
    return MappingProxyType({name: _everywhere(system) for name, system in found.items()})


@cache
def without() -> Mapping[str, System]:
    """Name → declaration of every way to do without a lock (``lockbench.locks.without``). They are
    named and run like locks, but are no locks, and so in no list of locks."""
    return MappingProxyType(declarations.declared(package, "SYSTEM", System))


def _everywhere(system: System) -> System:
    """The lock on other servers of the same protocol, too (``Topology.in_place_of``)."""
    others = [t.name for t in topologies().values() if t.in_place_of in system.topologies]
    return replace(system, topologies=(*system.topologies, *others))


def find(name: str) -> System:
    """A lock by its name, with or without parameters, or one of one's own: its file is run."""
    return _everywhere(load(name)) if is_own(name) else declared(name)


def declared(name: str) -> System:
    """A lock of this package by its name, with or without parameters. No file that the name leads
    to is opened."""
    plain = name.partition(":")[0]
    for known in (systems(), without()):
        if plain in known:
            return _with_parameters(known[plain], name)
    raise LockNotFoundError(f"unknown lock {name!r}: the locks are {', '.join(systems())}")


def _with_parameters(system: System, spec: str) -> System:
    """The lock as ``spec`` wants it: the same declaration, another way to connect."""
    if spec == system.name:
        return system
    try:
        chosen = decided(system.name, system.parameters, split(spec)[1])
    except ParameterError as error:
        raise LockNotFoundError(f"lock {spec!r}: {error}") from error
    connect: Any = system.connect  # the keywords are the lock's own, beyond the contract
    permits = int(chosen["permits"]) if "permits" in chosen else system.permits
    return replace(system, name=spec, connect=partial(connect, **chosen), permits=permits)


def each(spec: str) -> list[str]:
    """What a name stands for: a file or folder of one's own for every lock that it declares; any
    other name for itself. Raises LockNotFoundError."""
    place, name = _place(spec)
    if name or not is_own(spec):
        return [spec]
    _, found = _declared_in(place)
    return [f"{place}:{known}" for known in found] if len(found) > 1 else [spec]


@cache
def load(spec: str) -> System:
    """A lock from a file or folder outside this package."""
    place, name = _place(spec)
    module, found = _declared_in(place)
    if not name and len(found) == 1:
        return next(iter(found.values()))
    if name in found:
        return found[name]
    thing = getattr(module, name, None) if name else None
    if isinstance(thing, System):
        return thing
    if inspect.isclass(thing):
        return _declared_by_class(thing, spec)
    if name:
        wanted = ", ".join(found) or "no SYSTEM"
        raise LockNotFoundError(
            f"lock {spec!r}: {place} has no class or System {name!r}; it declares {wanted}"
        )
    if found:
        raise LockNotFoundError(
            f"lock {spec!r}: {place} declares {', '.join(found)}; say which, as in "
            f"{place}:{next(iter(found))}"
        )
    raise LockNotFoundError(
        f"lock {spec!r}: {place} declares no SYSTEM; a class in it is named as {place}:Class"
    )


def _place(spec: str) -> tuple[str, str]:
    """The file or folder of a lock of one's own, and the name there; empty: none is given."""
    place, _, name = spec.partition(":")
    return place, name


@cache
def _declared_in(place: str) -> tuple[ModuleType, Mapping[str, System]]:
    """The module of a file or folder, and what it declares, in alphabetical order."""
    file = _file_at(place)
    if not os.path.isfile(file):  # noqa: PTH113 - a name of 5,000 letters is no file, and no error
        what = f"no file {place}" if place.endswith(".py") else f"no lock.py in {place}"
        raise LockNotFoundError(
            f"lock {place!r}: there is {what} (path.py, path.py:NAME or the folder of a library)"
        )
    module = _imported(file)
    try:
        return module, declarations.collected([module], "SYSTEM", System)
    except declarations.DeclarationError as error:
        raise LockNotFoundError(f"lock {place!r}: {error}") from error


def _imported(file: Path) -> ModuleType:
    whole = file.resolve()
    # Every library's file is called lock.py.
    name = f"lockbench_external_{whole.stem}_{hashlib.sha256(bytes(whole)).hexdigest()[:12]}"
    found = importlib.util.spec_from_file_location(name, whole)
    if found is None or found.loader is None:
        raise LockNotFoundError(f"lock {str(file)!r}: it is not a Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses look their module up here
    try:
        found.loader.exec_module(module)
    except Exception as error:
        raise LockNotFoundError(f"lock {str(file)!r}: it cannot be imported: {error!r}") from error
    return module


def _declared_by_class(thing: Any, spec: str) -> System:
    """A bare class says what cannot be guessed: its ``topologies``."""
    missing = [name for name in ("acquire", "release", "close") if not hasattr(thing, name)]
    topologies = getattr(thing, "topologies", None)
    if missing or not topologies:
        lacking = [*missing, *([] if topologies else ["topologies"])]
        raise LockNotFoundError(f"lock {spec!r}: the class lacks {', '.join(lacking)}")
    return System(
        name=spec,
        topologies=tuple(topologies),
        family=getattr(thing, "family", "external"),
        fence=getattr(thing, "fence", None),
        waits_by=getattr(thing, "waits_by", "not declared"),
        source=getattr(thing, "source", spec),
        connect=thing,
        outcomes=getattr(thing, "outcomes", {}),
        expectations=getattr(thing, "expectations", {}),
    )


def is_own(spec: str) -> bool:
    """Whether a name is that of a file or folder outside this package. Looks at nothing but the
    name: it has a slash, is ``.`` or ``..``, or ends with ``.py``."""
    place, _ = _place(spec)
    return place.endswith(".py") or "/" in place or place in {".", ".."}


def files_of(spec: str) -> list[Path]:
    """The files that a lock of one's own runs and is installed from, absolute and without links;
    the first is its declaration. They need not be there."""
    place, _ = _place(spec)
    file = _file_at(place).resolve()
    return [file] if place.endswith(".py") else [file.with_name(name) for name in LIBRARY_FILES]


def _file_at(place: str) -> Path:
    """The file that declares."""
    return Path(place) if place.endswith(".py") else Path(place) / LIBRARY_FILES[0]


def digest(files: Sequence[Path]) -> str:
    """The SHA-256 of a file. Of several: that of what ``sha256sum`` prints of them in their folder.
    Raises OSError."""
    lines = []
    for path in files:
        with path.open("rb") as file:
            lines.append((hashlib.file_digest(file, "sha256").hexdigest(), path.name))
    if len(lines) == 1:
        return lines[0][0]
    return hashlib.sha256("".join(f"{one}  {name}\n" for one, name in lines).encode()).hexdigest()


def origin(spec: str) -> dict[str, object]:
    """What a lock of one's own was, for the record: ``spec`` as it was given, its ``file`` (or its
    folder) and ``sha256`` (``digest``), and the ``libraries`` that the file imports, or that its
    environment was asked for (distribution → version). What these import in turn is not told."""
    files = files_of(spec)
    place, _ = _place(spec)
    here = [path for path in files if path.is_file()]
    return {
        "spec": spec,
        "file": place,
        "sha256": digest(here),
        "libraries": _imported_by(files[0]) if len(files) == 1 else _asked_for(files[0].parent),
    }


def _imported_by(file: Path) -> dict[str, str]:
    from importlib.metadata import packages_distributions, version

    installed = packages_distributions()
    named = {
        distribution
        for module in imports(file.read_bytes())
        if module != "lockbench"
        for distribution in installed.get(module, ())
    }
    return {name: version(name) for name in sorted(named)}


def _asked_for(folder: Path) -> dict[str, str]:
    wanted, pinned = folder / "requirements.in", folder / "requirements.txt"
    if not (wanted.is_file() and pinned.is_file()):
        return {}
    names = pins.names(wanted)
    return {name: version for name, version in pins.requirements(pinned).items() if name in names}


def imports(source: bytes) -> set[str]:
    """The top-level names of what a file imports, at any place in it."""
    import ast

    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
