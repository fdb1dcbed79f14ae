"""Whether figures at stated rates are true: part of ``make perf``.

A lock of known cost (``perf.known_cost``) is measured as every lock is, in cases of their own, on a
cluster that is one process and no container. What it costs in truth follows from when each acquire
was due, without anything that was measured: with c servers, the n-th begins at its arrival or when
the server of the one c before is free. What TCP costs on this machine is part of what is true, too:
it is what a client adds that does nothing else, alone, in a process without gevent (its median).

Two busy loops a core beside it must make the figures void.
"""

from __future__ import annotations

import math
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from unittest import mock

import numpy as np
import psutil

from lockbench.bench import interruption, pressure
from lockbench.bench.plan import Case, make_case, rates_of
from lockbench.bench.run import run_case
from lockbench.clusters.base import HARNESS, Cluster, ClusterPlan
from lockbench.clusters.registry import topologies
from lockbench.history.columns import History, Ints
from lockbench.history.op import NULL, F
from lockbench.history.recording import read_recording
from lockbench.results.documents import CaseResult
from lockbench.results.rates import ROLE, Block, pooled
from lockbench.workloads.fork_server import ForkServer
from lockbench.workloads.load import Rates, Step
from perf import known_cost, known_cost_server
from perf.figures import Figure, show

LOCK: Final = known_cost.__file__
SHARES: Final = (0.1, 0.5, 0.75)
BLOCKS: Final = 3
WARM_S: Final = 2.0
MEASURED_S: Final = 7.0
DUE: Final = 1_000  # in every step at least: what a p99 needs
TRANSITS: Final = 300
CLIENTS: Final = 32
HOGS_PER_CORE: Final = 2
P50, P99 = 500, 990


@dataclass(frozen=True, slots=True)
class Cost:
    """What an acquire costs, and how many are carried. Of all acquires every ``lost_every``-th is
    never answered; 0: none."""

    service_ms: int
    servers: int
    capacity_per_s: int
    lost_every: int = 0

    @property
    def service_ns(self) -> int:
        return self.service_ms * 1_000_000

    @property
    def occupied_ns(self) -> int:
        return self.servers * 1_000_000_000 // self.capacity_per_s


COSTS: Final = (Cost(1, 2, 500), Cost(10, 8, 500))


class KnownCluster(Cluster):
    """One process that serves a lock of known cost, and writes what it did into ``log``."""

    def __init__(self, cost: Cost, log: Path) -> None:
        self._cost = cost
        self._log = log

    def __call__(self, plan: ClusterPlan) -> KnownCluster:
        self.plan = plan
        return self

    @property
    def nodes(self) -> Sequence[int]:
        return (1,)

    def start(self) -> None:
        cost = self._cost
        words = (cost.service_ns, cost.occupied_ns, cost.servers, cost.lost_every, self._log)
        self.process = subprocess.Popen(
            [sys.executable, known_cost_server.__file__, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self._port = int(self.process.stdout.readline())

    def verify(self) -> None:
        """There is no link that could fail."""

    def empty(self) -> None:
        """It keeps nothing but who holds what."""

    def stop(self) -> Sequence[str]:
        self.process.communicate()
        return ()

    def addresses(self, group: int) -> Sequence[tuple[str, int]]:
        return [("127.0.0.1", self._port)]

    def node_name(self, node: int) -> str:
        return f"known-cost-{node}"

    def serves(self, node: int, timeout_s: float, group: int = HARNESS) -> bool:
        return self.process.poll() is None


class Processors(pressure.Processors):
    """Counts the process of a ``KnownCluster`` as a server; those of others are containers."""

    server = 0

    def _look(self) -> None:
        self._grow(self._used, "servers", "known cost", self._cpu_s(self.server))
        self._grow_queued("servers", [self.server])
        super()._look()


@dataclass(frozen=True)
class Played:
    """A case with its steps; none where something from outside disturbed it. Of every step
    ``true_ns`` has the response of each acquire that was due in it, as it would be if nothing but
    the lock cost anything; of a saturated one nothing."""

    cost: Cost
    case: Case
    document: CaseResult
    blocks: Sequence[Block]
    true_ns: Sequence[Sequence[float]]


def rounds(
    blocks: int = BLOCKS,
    measured_s: float | None = None,
    shares: Sequence[float] = SHARES,
    clients: int = CLIENTS,
) -> Rates:
    """As many times: saturated, then at every share of what was carried; each for so long, or for
    ``MEASURED_S`` and until ``DUE`` acquires of the costs here were due."""
    slowest = min(cost.capacity_per_s for cost in COSTS)

    def lasts_s(share: float) -> float:
        return measured_s or max(MEASURED_S, DUE / (share * slowest))

    saturated = Step(WARM_S, lasts_s(1.0) / 2)
    at_shares = (Step(WARM_S, lasts_s(share), share=share) for share in shares)
    return Rates(clients=clients, steps=(saturated, *at_shares) * blocks)


def play(
    cost: Cost, rates: Rates, folder: Path, fork_server: ForkServer, *, lock: str = LOCK
) -> Played:
    """One case of the lock of this cost."""
    case = replace(make_case(lock, "none", seed=0), clients=2, keys=1, time_limit_s=2.0)
    case = replace(case, rates=rates, pace=replace(case.pace, wait_s=1.0))
    log = folder / "known-cost.log"
    cluster = KnownCluster(cost, log)
    declared = replace(topologies()["redis"], make=cluster)

    def processors(*words: object) -> pressure.Processors:
        found = Processors(*words)  # type: ignore[arg-type]
        found.server = cluster.process.pid
        return found

    with ExitStack() as stack:
        stack.enter_context(mock.patch("lockbench.bench.run.topology_of", return_value=declared))
        stack.enter_context(mock.patch("lockbench.bench.outside.Processors", processors))
        outcome = run_case(
            case, folder, run_id="known", fork_server=fork_server, on_progress=lambda _: None
        )
    if not (outcome.blocks or outcome.document.outside):
        raise RuntimeError(f"the case did not run to its end: {outcome.document.why}")
    history = read_recording(folder / "history")
    served = np.fromfile(log, np.int64).reshape(-1, 4)
    lost = frozenset(served[served[:, 2] == 0, 0].tolist())
    true_ns = [
        []
        if block.step.offered_per_s is None
        else responses_ns(
            history,
            (block.step.begin_ns - int(1e9 * step.warm_s), block.step.begin_ns, block.step.end_ns),
            cost,
            lost,
        )
        for step, block in zip(rates.steps, outcome.blocks, strict=False)
    ]
    return Played(cost, case, outcome.document, outcome.blocks, true_ns)


def responses_ns(
    history: History, window_ns: tuple[int, int, int], cost: Cost, lost: frozenset[int]
) -> list[float]:
    """Of every acquire that was due from the middle of ``window_ns`` to its end; those before it
    are waited for. What is lost is never answered, and in nobody's way."""
    begin_ns, measured_ns, end_ns = window_ns
    of_rates = [n for n, key in enumerate(history.keys) if history.object_of(key).role == ROLE]
    rows = np.flatnonzero(
        (history.f == F.ACQUIRE)
        & np.isin(history.key, of_rates)
        & (history.intended_ns != NULL)
        & (history.intended_ns >= begin_ns)
        & (history.intended_ns < end_ns)
    )
    free_ns = deque([0] * cost.servers, maxlen=cost.servers)
    found = []
    for row in rows[np.argsort(history.intended_ns[rows], kind="stable")]:
        arrival_ns = int(history.intended_ns[row])
        response_ns = math.inf
        if int(history.hold[row]) not in lost:
            begun_ns = max(arrival_ns, free_ns[0])
            free_ns.append(begun_ns + cost.occupied_ns)
            response_ns = begun_ns + cost.service_ns - arrival_ns
        if arrival_ns >= measured_ns:
            found.append(response_ns)
    return found


def transits_ns(cost: Cost, gap_s: float, log: Path) -> list[int]:
    """What TCP adds to every acquire of a client that does nothing else, and rests in between."""
    cluster = KnownCluster(cost, log)
    times = []
    with ExitStack() as stack:
        stack.enter_context(cluster(ClusterPlan("redis", 1, 1, "known", 3.0, str(log.parent))))
        (address,) = cluster.addresses(HARNESS)
        client = stack.enter_context(socket.create_connection(address))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(TRANSITS):
            time.sleep(gap_s)
            sent_ns = time.monotonic_ns()
            client.send(b"acquire k %d\n" % number)
            client.recv(64)
            times.append((sent_ns, time.monotonic_ns()))
            client.send(b"release k %d\n" % number)
            client.recv(64)
    served = np.fromfile(log, np.int64).reshape(-1, 4)
    return [
        int(arrival_ns - sent_ns + answered_ns - departure_ns)
        for (sent_ns, answered_ns), (_, arrival_ns, departure_ns, _) in zip(
            times, served, strict=True
        )
    ]


def quantile(values: Sequence[float] | Ints, permille: int) -> float:
    """Nearest rank."""
    return float(sorted(values)[math.ceil(len(values) * permille / 1000) - 1])


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """So many processes that do nothing but use a processor."""
    with ExitStack() as stack:
        for _ in range(count):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
        yield


def main() -> None:
    """One table."""
    show("A lock of known cost: measured ÷ true", measure())


def measure() -> Iterator[Figure]:
    """Every row. Of single blocks the ratio of the samples' quantiles, of all valid ones together
    that of the figure."""
    busy = HOGS_PER_CORE * (psutil.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder, ForkServer("known") as fork_server:
        for cost in COSTS:
            name = f"{cost.service_ms} ms"
            # A worker rests about so long: two of them share the rate.
            transits = {
                share: transits_ns(cost, 2 / (share * cost.capacity_per_s), Path(folder, "log"))
                for share in SHARES
            }
            played = play(cost, rounds(), Path(folder, name), fork_server)
            yield from compared(name, played, transits)
        for cost in COSTS:
            name = f"{cost.service_ms} ms, {busy} busy loops"
            with hogs(busy):
                played = play(cost, rounds(1), Path(folder, name), fork_server)
            void = [float(bool(block.step.why)) for block in played.blocks]
            yield Figure(f"{name}: void", "1", void)


def compared(
    name: str, played: Played, transits: Mapping[float, Sequence[int]]
) -> Iterator[Figure]:
    """The rows of an undisturbed case; ``transits`` by share."""
    cost = played.cost
    found = pooled(rates_of(played.case), played.blocks)
    carried = [
        block.step.granted_per_s / cost.capacity_per_s
        for block in played.blocks
        if block.step.offered_per_s is None
    ]
    yield Figure(f"{name}: capacity", "0.90 to 1.10", carried, 3)
    for at in found.rates:
        share = at.share or 0.0
        tcp_ns = quantile(transits[share], P50)
        steps = [
            (block, cost_ns, [ns + tcp_ns for ns in cost_ns])
            for block, cost_ns in zip(played.blocks, played.true_ns, strict=True)
            if block.step.share == share
        ]
        valid = [step for step in steps if not step[0].step.why]
        if at.blocks != len(valid):  # too few: the figure is one of all, and void
            valid = steps
        every_cost = [ns for _, cost_ns, _ in valid for ns in cost_ns]
        every = [ns for *_, true_ns in valid for ns in true_ns]
        for permille, found_ms in ((P50, at.response_ms.p50), (P99, at.response_ms.p99)):
            measured_ms = math.nan if found_ms is None else found_ms
            cost_ms, true_ms = (quantile(ns, permille) / 1e6 for ns in (every_cost, every))
            yield Figure(
                f"{name}: p{permille // 10} at {100 * share:.0f} %",
                "0.90 to 1.10",
                [
                    quantile(block.samples.took_ns, permille) / quantile(true_ns, permille)
                    for block, _, true_ns in valid
                ],
                3,
                {
                    "together": [measured_ms / true_ms],
                    "measured, ms": [measured_ms],
                    "true, ms": [true_ms],
                    "cost, ms": [cost_ms],
                    "due": [float(at.due)],
                    "void": [float(at.void_blocks)],
                },
            )


if __name__ == "__main__":
    interruption.arm()
    main()
