"""Every guarded store there is: each module of ``lockbench.stores`` with a ``STORE``.

A store is found under ``name:guard=…:on=…``: with one of its guards, on one of its topologies.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from lockbench import declarations, stores
from lockbench.declarations.parameters import Parameter, ParameterError, decided, split
from lockbench.stores.base import Guard, GuardedStore, Store, Where


class StoreError(Exception):
    """No such store, guard or topology; the message is one sentence that names it and the
    remedy."""


@dataclass(frozen=True)
class Asked:
    """A store with its guard, and what its servers are: a topology, or "" for a folder."""

    store: Store
    guard: Guard
    topology: str

    @property
    def spec(self) -> str:
        """As it is asked for, with everything decided."""
        where = f":on={self.topology}" if len(self.store.topologies) > 1 else ""
        return f"{self.store.name}:guard={self.guard.name}{where}"

    def connect(self, where: Where, *, recorded: bool = True) -> GuardedStore:
        """One more client."""
        return self.store.connect(where, self.guard, recorded)


@cache
def declared() -> Mapping[str, Store]:
    """Name → store, in alphabetical order."""
    return MappingProxyType(declarations.declared(stores, "STORE", Store))


def guards_of(lock: str, fence: str | None) -> list[Asked]:
    """Every guard that can be put at a store for a lock of this name, with its fence; the unguarded
    writes left out."""
    return [
        Asked(store, guard, next(iter(store.topologies), ""))
        for store in declared().values()
        for guard in store.guards
        if guard.rule != "any" and why_not(guard, lock, fence) is None
    ]


def why_not(guard: Guard, lock: str, fence: str | None) -> str | None:
    """Why a guard is not for a lock of this name, with its fence; None: it is."""
    if guard.locks and lock not in guard.locks:
        return f"the guard {guard.name} is made for {' and '.join(guard.locks)}"
    if guard.needs_fence and fence is None:
        needed = f"{lock} offers no fence, which the guard {guard.name} needs"
        return f"{needed}; compare-and-set needs none"
    return None


@cache
def find(spec: str) -> Asked:
    """A store by its name, with or without parameters. Raises StoreError."""
    known = declared()
    try:
        name, said = split(spec)
        store = known.get(name)
        if store is None:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise StoreError(f"no resource is called {name!r}; {hint}")
        values = decided(name, parameters(store), said)
    except ParameterError as error:
        raise StoreError(str(error)) from error
    return Asked(store, store.guard(str(values["guard"])), str(values.get("on", "")))


def parameters(store: Store) -> Mapping[str, Parameter]:
    """What may be chosen of a store."""
    guards = tuple(guard.name for guard in store.guards)
    found = {"guard": Parameter("what decides whether a write is applied", guards[0], guards)}
    if store.topologies:
        where = Parameter("on which servers", store.topologies[0], store.topologies)
        found["on"] = where
    return found
