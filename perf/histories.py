"""Histories for measuring the checker: made as columns at once, correct unless told otherwise."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from history.builder import Builder
from history.columns import History, Ints, null_column
from history.op import NULL, F, Object, Type

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


def lock_history(load: Load, *, seed: int = 1) -> History:
    """Clients that wait in turn for their locks. Of the unknown operations half are releases that
    took effect, half acquires that did not; the process retires after each."""
    dice = np.random.default_rng(seed)
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
    rows = _joined(
        (F.ACQUIRE, key, process, start - dice.integers(1, WAIT_NS, n), start + GRANTED_NS),
        (F.RELEASE, key, process, release, released),
        (
            F.ACQUIRE,
            key[at_once],
            np.arange(lost) + int(process.max()) + 1,
            start[at_once],
            np.full(lost, NULL),
        ),
    )
    columns, order = rows
    size = len(order)
    nothing = null_column(size)
    hold = fence = valid = nothing
    if load.holds:
        ids = dice.integers(1, 2**62, n)
        other = dice.integers(1, 2**62, lost)
        nulls = np.full(n, NULL)
        hold = np.concatenate([ids, ids, other])[order]
        fence = np.concatenate([np.arange(n), nulls, np.full(lost, NULL)])[order]
        leases = start + LEASE_NS
        valid = np.concatenate([leases, nulls, np.full(lost, NULL)])[order]
    known = columns["complete_ns"] != NULL
    return History(
        process=columns["process"],
        f=columns["f"].astype(np.uint8),
        type=np.where(known, Type.OK, Type.INFO).astype(np.uint8),
        mode=np.zeros(size, np.uint8),
        key=columns["key"].astype(np.int32),
        error=np.full(size, -1, np.int32),
        invoke_ns=columns["invoke_ns"],
        intended_ns=nothing,
        complete_ns=columns["complete_ns"],
        hold=hold,
        value=nothing,
        old=nothing,
        version=nothing,
        fence=fence,
        sent_ns=nothing,
        valid_until_ns=valid,
        applied_ns=nothing,
        owner=nothing,
        keys=tuple(f"k{i}" for i in range(load.keys)),
    )


def _joined(*parts: tuple[F, Ints, Ints, Ints, Ints]) -> tuple[dict[str, Ints], Ints]:
    """The parts one after the other, sorted by invocation, and that order."""
    invoke = np.concatenate([part[3] for part in parts])
    order = np.argsort(invoke, kind="stable")
    functions = np.concatenate([np.full(len(part[1]), part[0]) for part in parts])
    columns = {
        "f": functions[order],
        "key": np.concatenate([part[1] for part in parts])[order],
        "process": np.concatenate([part[2] for part in parts])[order],
        "invoke_ns": invoke[order],
        "complete_ns": np.concatenate([part[4] for part in parts])[order],
    }
    return columns, order


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
    for number in range(operations):
        free.sort()
        begin, client, process = free.pop(0)
        taken, end = begin + dice.randint(1, 20), begin + dice.randint(21, 40)
        f = dice.choice((F.READ, F.WRITE, F.CAS))
        value, old = dice.randint(0, 4), dice.randint(0, 4)
        rows.append((taken, number, int(f), value, old, begin, end))
        lost = f is not F.READ and dice.random() < unknown
        free.append((end + dice.randint(1, 20), client, process + 5 if lost else process))
        rows[-1] = (taken, process, int(f), value, old, begin, NULL if lost else end)
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
