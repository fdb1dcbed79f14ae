"""Every lock there is: whatever a module of this package declares as SYSTEM or SYSTEMS.

A lock from elsewhere joins by ``path.py:Name``, where Name is a System or a class that can be
called like ``Connect``.

A lock with parameters is also found under ``name:parameter=value:…``, and is then called so.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import packages_distributions, version
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import locks
from locks import without as package
from locks.base import System


class LockNotFoundError(Exception):
    """No such lock; the message is one sentence that names it and the remedy."""


@cache
def systems() -> MappingProxyType[str, System]:
    """Name → declaration of every lock of this package, in alphabetical order."""
    names = sorted(module.name for module in pkgutil.iter_modules(locks.__path__))
    modules = [importlib.import_module(f"{locks.__name__}.{name}") for name in names]
    return MappingProxyType(collected(modules))


@cache
def without() -> MappingProxyType[str, System]:
    """Name → declaration of every way to do without a lock (``locks.without``). They are named and
    run like locks, but are no locks, and so in no list of locks."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return MappingProxyType(collected(modules))


def collected(modules: Iterable[ModuleType]) -> dict[str, System]:
    """The declarations of these modules by name; two of one name are an error."""
    found: dict[str, System] = {}
    declared_in: dict[str, str] = {}
    for module in modules:
        for system in _declared(module):
            if system.name in found:
                where = f"{declared_in[system.name]} and {module.__name__}"
                raise ValueError(f"two locks are called {system.name!r}: in {where}")
            found[system.name] = system
            declared_in[system.name] = module.__name__
    return dict(sorted(found.items()))


def find(name: str) -> System:
    """A lock by its name, with or without parameters, or by ``path.py:Name``."""
    plain, *settings = name.split(":")
    for known in (systems(), without()):
        if plain in known:
            return _with_parameters(known[plain], name, settings)
    if ":" in name:
        return load(name)
    raise LockNotFoundError(f"unknown lock {name!r}: the locks are {', '.join(systems())}")


def _with_parameters(system: System, spec: str, settings: Sequence[str]) -> System:
    """The lock as ``spec`` wants it: the same declaration, another way to connect."""
    if not settings:
        return system
    chosen: dict[str, str] = {}
    for setting in settings:
        parameter, _, value = setting.partition("=")
        if parameter not in system.parameters:
            known = ", ".join(system.parameters) or "none"
            raise LockNotFoundError(
                f"lock {spec!r}: {system.name} has no parameter {parameter!r}; its parameters: "
                f"{known}"
            )
        if value not in system.parameters[parameter]:
            raise LockNotFoundError(
                f"lock {spec!r}: {parameter} is one of {', '.join(system.parameters[parameter])}"
            )
        chosen[parameter] = value
    connect: Any = system.connect  # the keywords are the lock's own, beyond the contract
    permits = int(chosen["permits"]) if "permits" in chosen else system.permits
    return replace(system, name=spec, connect=partial(connect, **chosen), permits=permits)


@cache
def load(spec: str) -> System:
    """A lock from a file outside this package."""
    path, _, attribute = spec.rpartition(":")
    file = Path(path)
    if not attribute or not file.is_file():
        raise LockNotFoundError(f"lock {spec!r}: there is no file {path or spec!r} (path.py:Class)")
    module = _imported(file, spec)
    thing = getattr(module, attribute, None)
    if isinstance(thing, System):
        return thing
    if not inspect.isclass(thing):
        raise LockNotFoundError(f"lock {spec!r}: {file.name} has no class or System {attribute!r}")
    return _declared_by_class(thing, spec)


def _imported(file: Path, spec: str) -> ModuleType:
    name = f"lockbench_external_{file.stem}"
    found = importlib.util.spec_from_file_location(name, file)
    if found is None or found.loader is None:
        raise LockNotFoundError(f"lock {spec!r}: {file} is not a Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses look their module up here
    try:
        found.loader.exec_module(module)
    except Exception as error:
        raise LockNotFoundError(f"lock {spec!r}: {file} cannot be imported: {error!r}") from error
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


def _declared(module: ModuleType) -> list[System]:
    single = getattr(module, "SYSTEM", None)
    several = getattr(module, "SYSTEMS", ())
    return [*([single] if isinstance(single, System) else []), *several]


def is_own(spec: str) -> bool:
    """Whether a lock comes from a file outside this package."""
    return ".py:" in spec and spec.partition(":")[0] not in {**systems(), **without()}


def origin(spec: str) -> dict[str, object]:
    """What a lock of one's own was, for the record: ``spec`` as it was given, its ``file`` and
    ``sha256``, and the ``libraries`` that the file imports (distribution → version). What these
    files import in turn is not looked at."""
    file = Path(spec.rpartition(":")[0])
    source = file.read_bytes()
    installed = packages_distributions()
    named = {
        distribution
        for module in _imports(source)
        if module != locks.__name__
        for distribution in installed.get(module, ())
    }
    return {
        "spec": spec,
        "file": str(file),
        "sha256": hashlib.sha256(source).hexdigest(),
        "libraries": {name: version(name) for name in sorted(named)},
    }


def _imports(source: bytes) -> set[str]:
    """The top-level names of what a file imports, at any place in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
