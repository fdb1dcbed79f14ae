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
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from lockbench.bench.duties import GROUP
from lockbench.bench.guarded import SESSION_S, guarded, written
from lockbench.bench.plan import images_of
from lockbench.checker.check import check as judge
from lockbench.checker.verdict import Verdict
from lockbench.clusters import images
from lockbench.clusters.base import ClusterPlan
from lockbench.clusters.engine.docker import EngineError
from lockbench.clusters.engine.reaper import reap
from lockbench.clusters.registry import topologies
from lockbench.history.guarded import write_guarded
from lockbench.history.recorder import Recorder
from lockbench.history.recording import read_recording, write_meta
from lockbench.locks import registry as locks
from lockbench.locks.base import Address, Granted, Hold, NoObserver, new_hold_id
from lockbench.results.documents import Quantiles
from lockbench.results.errors import BadInput
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
# More would be a trial of the threads that send.
RATE_MAX: Final = 1000
TIMEOUT_S: Final = 5.0
LEASE_S: Final = 120.0


@dataclass(frozen=True)
class Checked:
    """What the trial of one guard's check said."""

    guard: Guard
    verdict: Verdict


@dataclass(frozen=True)
class Tried:
    """All guards of a store."""

    checks: Sequence[Checked]
    prices: Sequence[Price]

    def as_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "checks": [
                {"guard": one.guard.name, "result": one.verdict.result, "why": one.verdict.reason}
                for one in self.checks
            ],
            "prices": [
                {
                    "guard": one.guard.name,
                    "ms": one.ms,
                    "late": one.late,
                    "refused": one.refused,
                    "failed": one.failed,
                }
                for one in self.prices
            ],
        }


def try_all(
    store: Asked, *, rate: float, seconds: float, rounds: int, say: Callable[[str], None]
) -> Tried:
    """Starts the store's servers, checks every guard, and measures all of them. Guards that ask for
    a lock's own entry are measured only: nobody holds a lock here that could be lost. Raises
    BadInput where the servers cannot be started, Away."""
    guards = [replace(store, guard=guard) for guard in store.store.guards]
    checks: list[Checked] = []
    with tempfile.TemporaryDirectory(prefix="lockbench-") as folder, ExitStack() as stack:
        where = stack.enter_context(_servers(store, Path(folder), say))
        for asked in guards:
            if asked.guard.locks:
                continue
            verdict = check(asked, where, Path(folder, "history", asked.guard.name))
            checks.append(Checked(asked.guard, verdict))
            say(f"{asked.guard.name:<16} {verdict.result:<8} {verdict.reason}")
        found = prices(guards, where, rate=rate, seconds=seconds, rounds=rounds)
    plain = next(one for one in found if one.guard.rule == "any")
    for price in found:
        say(priced(price, plain))
    return Tried(checks, found)


def priced(price: Price, plain: Price) -> str:
    """One guard's price, for the terminal."""

    def ms(value: object, of: object) -> str:
        if not isinstance(value, float) or not isinstance(of, float):
            return "–"
        return f"{value:.2f} ms" + ("" if price is plain else f" ({value / of:.2f} times)")

    if price.refused or price.failed:
        said = f"of {price.ms.count} writes {price.refused} were refused and {price.failed} failed"
        return f"{price.guard.name:<16} no price: {said}"
    p50, p99 = ms(price.ms.p50, plain.ms.p50), ms(price.ms.p99, plain.ms.p99)
    return f"{price.guard.name:<16} p50 {p50:<20} p99 {p99:<22} n {price.ms.count}"


@contextmanager
def _servers(store: Asked, folder: Path, say: Callable[[str], None]) -> Iterator[Where]:
    """Where a store is, for as long as this lasts. Raises BadInput."""
    if not store.topology:
        yield Where(folder=folder / "store", timeout_s=TIMEOUT_S)
        return
    topology = topologies()[store.topology]
    try:
        images.ensure(images_of([topology]), say=say)
        reap()
    except EngineError as error:
        raise BadInput(str(error)) from error
    plan = ClusterPlan(
        topology=topology.name,
        size=topology.default_size,
        groups=GROUP,
        run_id=uuid.uuid4().hex[:12],
        lease_ttl_s=SESSION_S,
        log_dir=str(folder / "logs"),
    )
    with topology.make(plan) as cluster:
        nodes = [Address(*address) for address in cluster.addresses(GROUP)]
        yield Where(nodes, topology=topology.name, timeout_s=TIMEOUT_S)


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
                        _once(writer, client, draws.choice(keys), fence, store.guard)
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


def _once(writer: _Writer, client: GuardedStore, key: str, fence: int, guard: Guard) -> None:
    hold = Hold(new_hold_id(), key)
    granted = Granted(hold, fence, time.monotonic_ns(), None)
    if guard.rule == "once":
        recorded.do(writer, client, granted, fence)  # the same number again is the same thing
        return
    recorded.write(writer, client, granted, recorded.read(writer, client, hold))


@dataclass(frozen=True)
class Price:
    """What one guard's writes took, in milliseconds from when each was due; ``late``: how many were
    begun more than a millisecond after that. It is no price where any was ``refused`` or
    ``failed``."""

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
                desk.take_locks()
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
        self._locks = [self._lock(where, stack) for _ in self._keys]
        self._holds: list[Granted | None] = [None] * WRITERS
        self.take_locks()
        self._fence = itertools.count(1)
        self._ns: list[list[int]] = [[] for _ in range(WRITERS)]
        self._late = self._refused = self._failed = 0
        for client, key, hold in zip(self._clients, self._keys, self._holds, strict=True):
            for _ in range(WARM):
                client.write(self._write(client, key, hold))

    def take_locks(self) -> None:
        """Those that the guard asks for, anew: nobody renews them. Raises Away."""
        for number, (lock, key) in enumerate(zip(self._locks, self._keys, strict=True)):
            before = self._holds[number]
            if lock is None:
                continue
            if before is not None:
                lock.release(before.hold)
            granted = lock.acquire(key, hold_id=new_hold_id(), ttl_s=LEASE_S, wait_s=10.0)
            if not isinstance(granted, Granted):
                name = self._asked.guard.locks[0]
                raise Away(f"{name} was not granted for {key}: {granted}")
            self._holds[number] = granted

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
            fence = next(self._fence)
            return Write(key, new_hold_id(), seen, fence, thing=fence)
        return Write(key, hold.hold.id, seen, hold.fence, hold.hold.handle)

    def _lock(self, where: Where, stack: ExitStack) -> Any:
        """A client of the lock that the guard asks for, if it asks for one."""
        if not self._asked.guard.locks:
            return None
        system = locks.find(self._asked.guard.locks[0])
        lock: Any = system.connect(
            where.nodes, timeout_s=where.timeout_s, ttl_s=LEASE_S, observer=NoObserver()
        )
        stack.callback(lock.close)
        return lock


def _all_at_once(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
