"""Histories for measuring the checker: made as columns at once, correct unless told otherwise."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockbench.history.builder import NUMBERS, Builder
from lockbench.history.columns import History, Ints, null_column
from lockbench.history.op import NULL, F, Object, Type

GAP_NS = (2_000, 6_000)  # from grant to grant of one key
WAIT_NS = 40_000  # clients wait up to this long, so some ten of them wait at any time
GRANTED_NS = 100
HELD_NS = (200, 900)
LEASE_NS = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """``holds`` with hold ids, fences and leases, as our own recordings have them; without, bare
    acquires and releases, as foreign files have them."""

    operations: int
    keys: int = 1
    processes: int = 20
    holds: bool = False
    unknown: float = 0.0  # share of the operations
    double_grants: int = 0


def lock_history(load: Load) -> History:
    """Clients that wait in turn for their locks. Of the unknown operations half are releases that
    took effect, half acquires that did not; the process retires after each."""
    dice = np.random.default_rng(1)
    n = load.operations // 2
    lost = int(n * load.unknown)
    key: Ints = np.sort(dice.integers(0, load.keys, n))
    start: Ints = np.cumsum(dice.integers(*GAP_NS, n))
    # Every key begins at nought: keys run side by side.
    start -= start[np.searchsorted(key, key)]
    release = start + GRANTED_NS + dice.integers(*HELD_NS, n)
    for i in range(load.double_grants):
        at = n * (i + 1) // (load.double_grants + 1)
        release[at] = start[at] + 2 * GAP_NS[1]
    released = release + dice.integers(*HELD_NS, n)
    unknown_release = dice.random(n) < load.unknown
    released[unknown_release] = NULL
    process = np.arange(n) % load.processes
    generation = np.zeros(n, np.int64)
    for p in range(load.processes):
        mine = np.flatnonzero(process == p)
        generation[mine[1:]] = np.cumsum(unknown_release[mine])[:-1]
    process = process + load.processes * generation
    at_once = dice.choice(n, lost, replace=False)
    grants: dict[str, Ints | int] = {
        "f": F.ACQUIRE,
        "key": key,
        "process": process,
        "invoke_ns": start - dice.integers(1, WAIT_NS, n),
        "complete_ns": start + GRANTED_NS,
    }
    releases = {**grants, "f": F.RELEASE, "invoke_ns": release, "complete_ns": released}
    refused: dict[str, Ints | int] = {
        "f": F.ACQUIRE,
        "key": key[at_once],
        "process": np.arange(lost) + int(process.max()) + 1,
        "invoke_ns": start[at_once],
        "complete_ns": NULL,
    }
    if load.holds:
        ids = dice.integers(1, 2**62, n)
        grants |= {"hold": ids, "fence": np.arange(n), "valid_until_ns": start + LEASE_NS}
        releases["hold"] = ids
        refused["hold"] = dice.integers(1, 2**62, lost)
    columns = _joined(grants, releases, refused)
    size = len(columns["invoke_ns"])
    nothing = dict.fromkeys(NUMBERS, null_column(size))
    known = columns["complete_ns"] != NULL
    small: dict[str, Any] = {
        "f": columns["f"].astype(np.uint8),
        "type": np.where(known, Type.OK, Type.INFO).astype(np.uint8),
        "mode": np.zeros(size, np.uint8),
        "key": columns["key"].astype(np.int32),
        "error": np.full(size, -1, np.int32),
    }
    names = tuple(f"k{i}" for i in range(load.keys))
    return History(**{**nothing, "hold": null_column(size), **columns, **small}, keys=names)


def _joined(*parts: Mapping[str, Ints | int]) -> dict[str, Ints]:
    """The parts one after the other, sorted by invocation. What a part does not have is NULL."""
    sizes = [np.size(part["invoke_ns"]) for part in parts]
    columns = {
        name: np.concatenate(
            [np.broadcast_to(part.get(name, NULL), n) for part, n in zip(parts, sizes, strict=True)]
        )
        for name in parts[0]
    }
    order = np.argsort(columns["invoke_ns"], kind="stable")
    return {name: column[order] for name, column in columns.items()}


def register_history(*, operations: int, seed: int, wrong: bool, unknown: float) -> History:
    """A compare-and-set register used by five processes; ``wrong`` makes one read impossible or at
    least unlikely."""
    dice = random.Random(seed)
    builder = Builder()
    builder.objects["r"] = Object("cas-register")
    free = [(dice.randint(0, 20), p, p) for p in range(5)]
    state: int | None = None
    reads: list[int] = []
    rows: list[tuple[int, int, int, int, int, int, int]] = []
    for _ in range(operations):
        free.sort()
        begin, client, process = free.pop(0)
        taken, end = begin + dice.randint(1, 20), begin + dice.randint(21, 40)
        f = dice.choice((F.READ, F.WRITE, F.CAS))
        value, old = dice.randint(0, 4), dice.randint(0, 4)
        lost = f is not F.READ and dice.random() < unknown
        free.append((end + dice.randint(1, 20), client, process + 5 if lost else process))
        rows.append((taken, process, int(f), value, old, begin, NULL if lost else end))
    for _, process, f_number, value, old, begin, done in sorted(rows):
        outcome = Type.INFO if done == NULL else Type.OK
        numbers: dict[str, int] = {}
        if f_number == F.READ:
            if state is None:
                continue
            numbers["value"] = state
            reads.append(len(builder))
        elif f_number == F.WRITE:
            numbers["value"] = state = value
        else:
            if state != old:
                continue
            numbers |= {"old": old, "value": value}
            state = value
        if wrong and f_number == F.READ and len(reads) == operations // 6:
            numbers["value"] = (numbers["value"] + 1) % 5
        builder.add(
            process=process,
            f=f_number,
            outcome=int(outcome),
            key="r",
            invoke_ns=begin,
            complete_ns=done,
            numbers=numbers,
        )
    return builder.finish()
