"""Tries a store's guard without any lock: is its check right, and what does it cost?

``check``: writers that nobody keeps apart write to few keys, with fences of which many are too old,
and send some writes twice. What the store did is judged from its own record, as that of a case is
(``lockbench.checker.guard``). A check that is not one step with its write shows here: under a lock
two writers rarely meet.

``prices``: what a write through each guard takes at a stated load, beside the unguarded one in
turns, so that what else the machine does strikes all alike. No record is kept meanwhile.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from lockbench.bench.guarded import guarded, written
from lockbench.checker.check import check as judge
from lockbench.checker.verdict import Verdict
from lockbench.history.guarded import write_guarded
from lockbench.history.recorder import Recorder
from lockbench.history.recording import read_recording, write_meta
from lockbench.locks import registry as locks
from lockbench.locks.base import Granted, Hold, NoObserver, new_hold_id
from lockbench.results.documents import Quantiles
from lockbench.results.quantiles import quantiles
from lockbench.stores.base import Applied, Away, Guard, GuardedStore, Refused, Where, Write
from lockbench.stores.registry import Asked
from lockbench.workloads import guarded as recorded

KEYS: Final = 2
WRITERS: Final = 4
# A fence is up to so many older than the newest that was given out.
OLDER_MAX: Final = 4
CHECK_S: Final = 2.0
READY_S: Final = 30.0
WARM: Final = 5
LEASE_S: Final = 120.0


@dataclass
class _Writer:
    """``lockbench.workloads.guarded.Recording``."""

    recorder: Recorder
    process: int
    sends_again: bool


def check(store: Asked, where: Where, folder: Path, *, seconds: float = CHECK_S) -> Verdict:
    """``broken-guard`` of a store that is written to without a lock; ``folder`` gets the history.
    Raises Away."""
    folder.mkdir(parents=True, exist_ok=True)
    write_meta(folder, {}, wall_minus_monotonic_ns=0)
    keys = [f"{store.guard.name}-{n}" for n in range(KEYS)]
    fences = itertools.count(1)
    ready = threading.Barrier(WRITERS)
    failed: list[Exception] = []

    def work(number: int) -> None:
        draws = random.Random(number)
        recorder = Recorder(folder, number)
        writer = _Writer(recorder, recorder.new_process(), store.guard.once)
        try:
            with closing(store.connect(where)) as client:
                for key in keys:
                    client.read(key)
                ready.wait(READY_S)
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    fence = max(1, next(fences) - draws.randrange(OLDER_MAX))
                    with suppress(Away):
                        _once(writer, client, draws.choice(keys), fence)
        except threading.BrokenBarrierError:
            return  # another one has failed, and says why
        except Exception as error:  # noqa: BLE001 - told by the one who waits
            failed.append(error)
            ready.abort()
        finally:
            recorder.close()

    _all_at_once(work)
    if failed:
        raise failed[0]
    # Of a store that keeps all of its past, only what is of this trial.
    mine = tuple(one for one in written(store, where) if one.key in keys)
    write_guarded(folder, guarded(store, mine))
    return judge(read_recording(folder), only={"broken-guard"}).verdicts["broken-guard"]


def _once(writer: _Writer, client: GuardedStore, key: str, fence: int) -> None:
    hold = Hold(new_hold_id(), key)
    seen = recorded.read(writer, client, hold)
    recorded.write(writer, client, Granted(hold, fence, time.monotonic_ns(), None), seen)


@dataclass(frozen=True)
class Price:
    """What one guard's writes took, in milliseconds from when each was due; ``late``: how many were
    begun more than a millisecond after that. ``refused`` and ``failed`` are 0 in a good trial."""

    guard: Guard
    ms: Quantiles
    late: int
    refused: int
    failed: int


def prices(
    guards: Sequence[Asked], where: Where, *, rate: float, seconds: float, rounds: int
) -> list[Price]:
    """Of each guard, ``rounds`` times ``seconds`` at ``rate`` writes a second, in turns. Each of
    WRITERS has a key of its own. A holder's read comes before its write and is not counted."""
    with ExitStack() as stack:
        desks = [_Desk(asked, where, stack) for asked in guards]
        for turn in range(rounds):
            # Whoever is first in one round is last in another.
            for desk in desks if turn % 2 == 0 else reversed(desks):
                _all_at_once(desk.writes(rate / WRITERS, seconds))
        return [desk.price() for desk in desks]


class _Desk:
    """The writers of one guard."""

    def __init__(self, asked: Asked, where: Where, stack: ExitStack) -> None:
        self._asked = asked
        self._clients = [asked.connect(where, recorded=False) for _ in range(WRITERS)]
        for client in self._clients:
            stack.callback(client.close)
        self._keys = [f"price-{asked.guard.name}-{n}" for n in range(WRITERS)]
        self._holds = [self._hold(key, where, stack) for key in self._keys]
        self._fence = itertools.count(1)
        self._ns: list[list[int]] = [[] for _ in range(WRITERS)]
        self._late = self._refused = self._failed = 0
        for client, key, hold in zip(self._clients, self._keys, self._holds, strict=True):
            for _ in range(WARM):
                client.write(self._write(client, key, hold))

    def writes(self, rate: float, seconds: float) -> Callable[[int], None]:
        """What one writer does in one turn."""
        begin_ns = time.monotonic_ns() + 50_000_000
        step_ns = int(1e9 / rate)

        def work(number: int) -> None:
            client, key, hold = self._clients[number], self._keys[number], self._holds[number]
            due_ns = begin_ns + number * step_ns // WRITERS
            while due_ns < begin_ns + seconds * 1e9:
                write = self._write(client, key, hold)
                time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
                begun_ns = time.monotonic_ns()
                outcome = client.write(write)
                self._ns[number].append(time.monotonic_ns() - due_ns)
                self._late += begun_ns - due_ns > 1_000_000
                self._refused += isinstance(outcome, Refused)
                self._failed += not isinstance(outcome, Applied | Refused)
                due_ns += step_ns

        return work

    def price(self) -> Price:
        """Of all turns."""
        took = np.array([ns for one in self._ns for ns in one], np.int64)
        ms = quantiles(took, 1e6)
        return Price(self._asked.guard, ms, self._late, self._refused, self._failed)

    def _write(self, client: GuardedStore, key: str, hold: Granted | None) -> Write:
        seen = client.read(key)
        if hold is None:
            return Write(key, new_hold_id(), seen, next(self._fence))
        return Write(key, hold.hold.id, seen, hold.fence, hold.hold.handle)

    def _hold(self, key: str, where: Where, stack: ExitStack) -> Granted | None:
        """A grant of the lock that the guard asks for, for as long as all of this lasts."""
        if not self._asked.guard.locks:
            return None
        system = locks.find(self._asked.guard.locks[0])
        lock: Any = system.connect(
            where.nodes, timeout_s=where.timeout_s, ttl_s=LEASE_S, observer=NoObserver()
        )
        stack.callback(lock.close)
        granted = lock.acquire(key, hold_id=new_hold_id(), ttl_s=LEASE_S, wait_s=10.0)
        if not isinstance(granted, Granted):
            raise Away(f"{system.name} was not granted for {key}: {granted}")
        return granted


def _all_at_once(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
