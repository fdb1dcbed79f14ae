"""Whether figures at stated rates are true: part of ``make perf``.

A lock of known cost (``perf.known_cost``) is measured as every lock is, in cases of their own, on a
cluster that is one process and no container. What is true follows from its cost and from when each
acquire was due, without anything that was measured: with c servers and a fixed service time, the
n-th acquire departs at max(its arrival, the departure of the one c before) plus the service time.

Two busy loops a core beside it must make the figures void.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from unittest import mock

import numpy as np
import psutil

from bench import interruption, pressure
from bench.plan import Case, make_case, rates_of
from bench.run import run_case
from clusters.base import HARNESS, Cluster, ClusterPlan
from clusters.registry import topologies
from history.columns import History, Ints
from history.op import NULL, F
from history.recording import read_recording
from perf import known_cost, known_cost_server
from perf.figures import Figure, show
from results.documents import CaseResult
from results.rates import ROLE, Block, pooled
from workloads.fork_server import ForkServer
from workloads.load import Rates, Step

LOCK: Final = known_cost.__file__
SHARES: Final = (0.1, 0.5, 0.75)
BLOCKS: Final = 3
WARM_S: Final = 2.0
MEASURED_S: Final = 5.0
CLIENTS: Final = 32
HOGS_PER_CORE: Final = 2
P50, P99 = 500, 990


@dataclass(frozen=True, slots=True)
class Cost:
    """What an acquire costs. Of all acquires every ``lost_every``-th is never answered; 0: none."""

    service_ms: int
    servers: int
    lost_every: int = 0

    @property
    def service_ns(self) -> int:
        return self.service_ms * 1_000_000

    @property
    def capacity_per_s(self) -> float:
        return self.servers * 1e3 / self.service_ms


COSTS: Final = (Cost(1, 1), Cost(10, 8))


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
        words = (cost.service_ns, cost.servers, cost.lost_every, self._log)
        self.process = subprocess.Popen(
            [sys.executable, known_cost_server.__file__, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self._port = int(self.process.stdout.readline())

    def verify(self) -> None:
        """There is no link that could fail."""

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
    measured_s: float = MEASURED_S,
    shares: Sequence[float] = SHARES,
    clients: int = CLIENTS,
) -> Rates:
    """As many times: saturated, then at every share of what was carried."""
    saturated = Step(WARM_S, measured_s / 2)
    at_shares = (Step(WARM_S, measured_s, share=share) for share in shares)
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
        stack.enter_context(mock.patch("bench.run.topology_of", return_value=declared))
        stack.enter_context(mock.patch("bench.outside.Processors", processors))
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
    departed = deque([0] * cost.servers, maxlen=cost.servers)
    found = []
    for row in rows[np.argsort(history.intended_ns[rows], kind="stable")]:
        arrival_ns = int(history.intended_ns[row])
        response_ns = math.inf
        if int(history.hold[row]) not in lost:
            departed.append(max(arrival_ns, departed[0]) + cost.service_ns)
            response_ns = departed[-1] - arrival_ns
        if arrival_ns >= measured_ns:
            found.append(response_ns)
    return found


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
            name = f"{cost.service_ms} ms, {cost.servers} at once"
            played = play(cost, rounds(), Path(folder, name), fork_server)
            yield from compared(name, played)
        for cost in COSTS:
            name = f"{cost.service_ms} ms, {cost.servers} at once, {busy} busy loops"
            with hogs(busy):
                played = play(cost, rounds(1), Path(folder, name), fork_server)
            void = [float(bool(block.step.why)) for block in played.blocks]
            yield Figure(f"{name}: void", "1", void)


def compared(name: str, played: Played) -> Iterator[Figure]:
    """The rows of an undisturbed case."""
    cost = played.cost
    found = pooled(rates_of(played.case), played.blocks)
    carried = [
        block.step.granted_per_s / cost.capacity_per_s
        for block in played.blocks
        if block.step.offered_per_s is None
    ]
    yield Figure(f"{name}: capacity", "0.90 to 1.10", carried, 3)
    for at in found.rates:
        steps = [
            (block, true_ns)
            for block, true_ns in zip(played.blocks, played.true_ns, strict=True)
            if block.step.share == at.share
        ]
        valid = [pair for pair in steps if not pair[0].step.why] or steps
        every = [true for _, true_ns in valid for true in true_ns]
        for permille, measured in ((P50, at.response_ms.p50), (P99, at.response_ms.p99)):
            true_ms = quantile(every, permille) / 1e6
            measured_ms = measured or math.nan
            yield Figure(
                f"{name}: p{permille // 10} at {100 * (at.share or 0):.0f} %",
                "≤ 1.10",
                [
                    quantile(block.samples.took_ns, permille) / quantile(true_ns, permille)
                    for block, true_ns in valid
                ],
                3,
                {
                    "all": [measured_ms / true_ms],
                    "true, ms": [true_ms],
                    "measured, ms": [measured_ms],
                    "due": [float(at.due)],
                    "void": [float(at.void_blocks)],
                },
            )


if __name__ == "__main__":
    interruption.arm()
    main()
