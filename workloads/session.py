"""What all users of one worker process share: the load, the recorder, the clock of the phases.

``Session.here`` builds it from the environment. Under plain ``locust -f`` there is no bench that
says when to start, so the first phase begins when the session is made, and every start of Locust
records into a folder of its own. The workers of ``--processes`` share it, so that they are judged
together.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from time import monotonic_ns
from typing import Final

import gevent

from lockbench.history.clocks import wall_minus_monotonic_ns
from lockbench.history.recorder import Recorder
from lockbench.history.recording import is_recording, write_meta
from lockbench.locks.base import Address, Observer
from lockbench.locks.base import Lock as LockClient
from lockbench.locks.registry import find
from lockbench.locks.shared.prefixed import prefixed
from lockbench.stores.base import GuardedStore, Where
from lockbench.stores.registry import find as find_store
from lockbench.workloads.arrivals import POISSON, Arrivals
from lockbench.workloads.control import Control
from lockbench.workloads.load import CLIENT_FAILED, ENVIRONMENT, WORKER_ENVIRONMENT, Load
from lockbench.workloads.registry import find as find_workload
from lockbench.workloads.timer import Timer
from lockbench.workloads.use import Lasting

log = logging.getLogger("lockbench.session")

POLL_S: Final = 0.005
# Of plain Locust, where each is started alone.
STARTED_ALONE_MAX: Final = 100
# Of a heavy-tailed hold (Pareto): its index, and how many times the mean it may last.
HEAVY_INDEX: Final = 1.5
HEAVY_TIMES_MAX: Final = 100.0


class Session:
    """One per worker process. ``processes``: of plain Locust, how many one start of it has; None
    for a worker that was started alone."""

    def __init__(
        self, load: Load, worker: int, *, started_by_bench: bool, processes: int | None = None
    ) -> None:
        self.started_by_bench = started_by_bench
        self.worker = self._group = worker
        self._processes = processes or 1
        if not started_by_bench:
            # Plain Locust may have more workers than the load has client groups.
            self._group = 1 + (worker - 1) % load.workers
            among = processes if processes and worker <= processes else STARTED_ALONE_MAX
            load = replace(load, workers=among, elsewhere=0)
        self.load = load
        self.system = find(load.lock)
        self.asked = find_workload(load.workload)
        self._store = find_store(load.store) if load.store else None
        history = load.history
        if not started_by_bench:
            history = _own_history(history, worker)
            if not is_recording(history):
                ahead_ns = wall_minus_monotonic_ns()
                write_meta(history, load.objects(), wall_minus_monotonic_ns=ahead_ns)
        self.recorder = Recorder(history, worker)
        self._first_number = worker
        self._step = load.workers + 1
        self.control = Control(load.control)
        self._numbers: dict[str, Iterator[int]] = {}
        self.page = self.control.worker(self._group)
        self.busy = 0
        self.show_busy = self.page.busy_setter()
        self.progress: dict[str, int] = {}
        self._timer = Timer()
        self._steps: dict[int, Arrivals] = {}
        if not started_by_bench:
            self.control.start_ns = monotonic_ns()

    @classmethod
    def here(cls, place: int | None = None, processes: int | None = None) -> Session:
        """From the environment variables that the bench (or a person) set. ``place``: that of a
        worker of plain Locust, from 1 on; ``processes``: how many were started with it."""
        path = os.environ.get(ENVIRONMENT)
        if path is None:
            raise SystemExit(
                f"{ENVIRONMENT} is not set: start a cluster with `lockbench break --topology T` "
                "and use the line that it prints"
            )
        worker = os.environ.get(WORKER_ENVIRONMENT)
        # The bench starts its processes before the addresses are known.
        while worker is not None and not Path(path).exists():
            gevent.sleep(POLL_S)
        number = int(worker or place or 1)
        return cls(
            Load.read(Path(path)),
            number,
            started_by_bench=worker is not None,
            processes=processes,
        )

    def number(self, kind: str) -> int:
        """A number for the next user of a kind, that no other worker gives out."""
        numbers = itertools.count(self._first_number, self._step)
        return next(self._numbers.setdefault(kind, numbers))

    def connect(self, observer: Observer) -> LockClient:
        """A client of the lock under test, through the links of this worker's group."""
        nodes = [Address(host, port) for host, port in self.load.nodes[self._group]]
        pace = self.load.pace

        def connect(to: Observer) -> LockClient:
            return self.system.connect(
                nodes, timeout_s=pace.client_timeout_s, ttl_s=pace.lease_ttl_s, observer=to
            )

        prefix = self.load.key_prefix
        return prefixed(prefix, observer, connect) if prefix else connect(observer)

    def guarded_store(self) -> GuardedStore | None:
        """One more client of the store that the lock guards; None: it is the plain resource."""
        load, store = self.load, self._store
        if store is None:
            return None
        mine = load.store_nodes[self._group] if load.store_nodes else ()
        nodes = [Address(host, port) for host, port in mine]
        timeout_s = load.pace.client_timeout_s
        return store.connect(Where(nodes, load.store_folder, store.topology, timeout_s))

    @property
    def sends_again(self) -> bool:
        """Whether clients send some writes to the store twice."""
        return self._store is not None and self._store.guard.once

    @cached_property
    def arrivals(self) -> Arrivals | None:
        """This worker's share of an open load, from the contended phase on; None for a closed."""
        rate = float(self.asked.options.get("rate", 0))
        share = 1 / self._processes
        if self.started_by_bench:
            clients = self.load.allotment[self.worker].get("ContendedUser", 0)
            share = clients / self.load.clients if clients else 0.0
        if rate * share == 0:
            return None
        return Arrivals(
            rate * share,
            str(self.asked.options["arrivals"]),
            self.phase_end_ns(2),
            f"{self.load.seed} {self.worker}",
            late=self.worker / (self.load.workers + 1),
        )

    def arrivals_of(self, number: int) -> Arrivals:
        """This worker's share of a step at a stated rate; waits until that rate is known: a share
        is that of the saturated step before it."""
        step, load = self.load.rates.steps[number], self.load
        begin_ns, _, _ = load.windows_ns(self.control.start_ns)[number]
        before = sum(one.saturated for one in load.rates.steps[:number])
        while step.share and self.control.saturated < before:
            gevent.sleep(POLL_S)
        if number not in self._steps:
            rate = step.rate or step.share * self.control.carried_per_1000_s / 1000
            clients = load.allotment[self.worker]["RateUser"]
            self._steps[number] = Arrivals(
                rate * clients / load.rates.clients,
                POISSON,
                begin_ns,
                f"{load.seed} {number} {self.worker}",
            )
        return self._steps[number]

    def lasting(self) -> Callable[[float], Lasting]:
        """Draws how long a hold of a mean length lasts, as the workload asks for it."""
        shape = str(self.asked.options.get("hold", "fixed"))
        draws = random.Random(f"{self.load.seed} {self.recorder.new_process()}")

        def lasting(seconds: float) -> Lasting:
            if shape == "exponential" and seconds:
                seconds = draws.expovariate(1 / seconds)
            elif shape == "heavy":
                lowest = seconds * (HEAVY_INDEX - 1) / HEAVY_INDEX
                heavy = lowest * draws.paretovariate(HEAVY_INDEX)
                seconds = min(heavy, HEAVY_TIMES_MAX * seconds)
            return Lasting(seconds)

        return lasting

    def wait_for_start(self) -> None:
        while self.control.start_ns == 0:
            gevent.sleep(POLL_S)
        self.sleep_until(self.control.start_ns)

    def phase_end_ns(self, phases: int) -> int:
        """When the first ``phases`` phases are over."""
        return self.load.phases.ends_ns(self.control.start_ns)[phases - 1]

    def sleep_until(self, at_ns: int) -> None:
        self._timer.sleep_until(at_ns)

    def count_failed(self, error: Exception) -> None:
        """Of a client. The bench reads the error in this worker's log."""
        log.error("%s%s: %s", CLIENT_FAILED, type(error).__name__, error, exc_info=error)
        self.page.failed += 1

    def count_busy(self, step: int) -> None:
        self.busy += step
        self.show_busy(self.busy)


def _own_history(folder: Path, worker: int) -> Path:
    """Where a worker of plain Locust records: with its siblings, unless somebody did before."""
    shared = folder / f"locust-{os.getppid()}-{os.getpgid(0)}"
    shared.mkdir(parents=True, exist_ok=True)
    if not (shared / f"{worker}.strings").exists():
        return shared
    own = folder / f"locust-{os.getpid()}"
    own.mkdir(parents=True)
    return own
