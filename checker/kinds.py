"""The kinds of objects, which the checks group in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lockbench.history.builder import NAMES_FROM
from lockbench.history.columns import History
from lockbench.history.op import Object

OWNED: Final = frozenset({"mutex", "owner-mutex", "lease", "fenced", "reentrant"})
SHARED: Final = frozenset({"read-write", "semaphore"})
REENTRANT: Final = frozenset({"reentrant"})
# Whose holders act beside each other, so that none of them is overtaken by a later grant.
OTHERS_TOO: Final = frozenset({"semaphore"})
OWNERLESS: Final = "ownerless"
RESOURCES: Final = frozenset({"register", "cas-register", "counter"})

# What ``--model`` calls them. Knossos' mutex has no owner; without a word, a mutex has one.
MODELS: Final[Mapping[str, str]] = {
    "mutex": OWNERLESS,
    "owner-mutex": "mutex",
    "reentrant": "reentrant",
    "fenced": "fenced",
    "semaphore": "semaphore",
    "read-write": "read-write",
    "lease": "lease",
    "register": "register",
    "cas-register": "cas-register",
    "counter": "counter",
}


def keys_of(history: History, kinds: frozenset[str]) -> NDArray[np.bool_]:
    """Which keys are of one of the kinds."""
    if not history.objects:
        return np.full(len(history.keys), "mutex" in kinds)
    return np.array([kind in kinds for kind in history.kinds], np.bool_)


def with_model(
    history: History, model: str, *, permits: int | None = None, initial: str | None = None
) -> History:
    """The same history with every key judged by one model. Raises ValueError for one that is not
    known or that the other arguments do not fit."""
    if model not in MODELS:
        raise ValueError(f"unknown model {model!r}; there are {', '.join(MODELS)}")
    kind = MODELS[model]
    if permits is not None and (kind != "semaphore" or permits < 1):
        raise ValueError("permits is a number from 1 on, and only a semaphore has them")
    if initial is not None and kind not in RESOURCES:
        raise ValueError("only a register or a counter has an initial value")
    names = dict(history.value_names or {})
    first = None if initial is None else _value(initial, names)
    made: dict[Object, Object] = {}  # millions of keys share a few
    objects = {}
    for key in history.keys:
        known = history.object_of(key)
        if known not in made:
            made[known] = replace(
                known,
                kind=kind,
                permits=known.permits if permits is None else permits,
                initial=known.initial if first is None else first,
            )
        objects[key] = made[known]
    return replace(history, objects=objects, value_names=names or None)


def _value(text: str, names: dict[int, str]) -> int:
    """A value as the columns hold it; a name that never occurs there gets a new number."""
    try:
        return int(text)
    except ValueError:
        pass
    for number, name in names.items():
        if name == text:
            return number
    number = NAMES_FROM - len(names) - 1
    names[number] = text
    return number
