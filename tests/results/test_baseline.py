"""The pooled table: only what was before the fault, only quantiles that n carries."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from lockbench.history.columns import History
from lockbench.history.op import F, Type
from lockbench.report.facts import BASELINE
from lockbench.results.baseline import Baselines, of_cases
from lockbench.results.documents import CaseResult, Floor, Quantiles, Spread
from lockbench.results.numbers import Phases, before
from lockbench.results.wording import NONE
from tests.results.load import MS, Load


def history(*faults: tuple[float, float]) -> History:
    load = Load()
    for f, key, hold, invoke, complete in ROWS:
        load.op(f, key, invoke, complete, hold=hold)
    load.op(F.ACQUIRE, "a1", 60, 63, intended=50, hold=8)  # late: 13 ms from when it was due
    load.op(F.ACQUIRE, "a1", 70, 73, type_=Type.FAIL, hold=9)
    load.op(F.ACQUIRE, "a1", 80, None, hold=10)  # never answered
    load.op(F.ACQUIRE, "k0", 225, 255, type_=Type.FAIL, hold=11)
    for begin, heal in faults:
        load.fault((begin, begin + 1), (heal, heal + 1))
    return load.history()


KINDS = (
    "acquire", "acquire_response", "acquire_given_up", "handover",
    "wait", "wait_response", "wait_given_up",
)  # fmt: skip
PHASES = Phases((0, 10 * MS), (10 * MS, 100 * MS), (100 * MS, 1000 * MS))
ROWS = [
    (F.ACQUIRE, "a1", 1, 20, 23),  # own phase: 3 ms
    (F.ACQUIRE, "a1", 2, 150, 190),  # beside the load: not the uncontended lock
    (F.ACQUIRE, "k0", 3, 200, 201),  # 1 ms
    (F.ACQUIRE, "k0", 4, 202, 217),  # waits 15 ms
    (F.RELEASE, "k0", 3, 210, 212),  # handed over in 217 - 210 = 7 ms
    (F.RELEASE, "k0", 4, 220, 221),
    (F.ACQUIRE, "k0", 5, 480, 700),  # stuck in the fault
    (F.ACQUIRE, "k0", 6, 800, 801),  # after it
]


def test_only_what_ended_before_the_fault_counts() -> None:
    found = before(history((500, 600)), PHASES, unknown_after_s=0.04)
    assert {kind: (ns / MS).tolist() for kind, ns in found.items()} == {
        "acquire": [3.0, 3.0],
        "acquire_response": [3.0, 13.0],
        "acquire_given_up": [3.0, 40.0],
        "handover": [7.0],
        "wait": [1.0, 15.0],
        "wait_response": [1.0, 15.0],
        "wait_given_up": [30.0],
    }


def test_without_a_fault_everything_is_before_it() -> None:
    assert (before(history(), PHASES)["wait"] / MS).tolist() == [1.0, 15.0, 220.0, 1.0]


def test_cases_add_up_to_quantiles_that_one_does_not_carry() -> None:
    gathered = Baselines()
    samples = {kind: np.full(600, 2 * MS) for kind in KINDS}
    samples |= {"acquire_given_up": np.full(9, 900 * MS), "wait_given_up": np.full(2, 500 * MS)}
    case = CaseResult(
        lock="etcd",
        fault="none",
        cycles_per_second_by_phase={"before": 100.0},
        floor=Floor(cycles=9, acquire_ms_p50=1.0, cpu_us_per_cycle=500.0),
    )
    gathered.add(case, samples)
    assert gathered.locks()[0].latency_ms.acquire.p99 is None
    gathered.add(replace(case, cycles_per_second_by_phase={"before": 140.0}), samples)
    (row,) = gathered.locks()
    assert row.latency_ms.acquire == Quantiles(p50=2.0, p99=2.0, max=2.0, count=1200, iqr=0.0)
    assert row.response_ms == Quantiles(
        p50=2.0, p99=900.0, max=900.0, count=1218, iqr=0.0, above=("p99", "max")
    )
    assert row.wait_response_ms == Quantiles(
        p50=2.0, p99=2.0, max=500.0, count=1204, iqr=0.0, above=("max",)
    )
    assert row.cycles_per_second == Spread(count=2, median=120.0, min=100.0, max=140.0)
    assert BASELINE.rows([row])[0].values["lock"] == "etcd"
    assert BASELINE.narrow([]) is None


def test_a_failed_case_has_no_rate_and_no_floor() -> None:
    gathered = Baselines()
    none = {kind: np.empty(0, np.int64) for kind in KINDS}
    gathered.add(CaseResult(lock="etcd", fault="none", floor=Floor(cycles=0)), none)
    grid = BASELINE.narrow(BASELINE.rows(gathered.locks()))
    assert grid is not None
    assert {cell.text for cell in grid.rows[0][1:4]} == {NONE}


def test_another_network_is_another_experiment() -> None:
    gathered = Baselines()
    samples = {kind: np.full(5, MS) for kind in KINDS}
    for network in ("loopback", "region", None):
        gathered.add(CaseResult(lock="etcd", fault="none", network=network), samples)
    assert [(row.lock, row.cases) for row in gathered.locks()] == [("etcd", 2), ("etcd, region", 1)]


def test_another_workload_is_another_experiment() -> None:
    gathered = Baselines()
    samples = {kind: np.full(5, MS) for kind in KINDS}
    for workload in ("mutex", "payment", "mutex"):
        gathered.add(CaseResult(lock="etcd", fault="none", workload=workload), samples)
    assert [(row.lock, row.cases) for row in gathered.locks()] == [
        ("etcd", 2),
        ("etcd, payment", 1),
    ]


def gathered(*cases: CaseResult) -> list[tuple[str, int]]:
    found = Baselines()
    for case in cases:
        found.add(case, {kind: np.full(5, MS) for kind in KINDS})
    return [(row.lock, row.cases) for row in found.locks()]


def test_another_topology_is_another_experiment_and_so_is_another_size() -> None:
    redis, fsync = (
        CaseResult(lock="redis-token", fault="none", topology=name, size=1)
        for name in ("redis", "redis-fsync")
    )
    etcd = [CaseResult(lock="etcd", fault="none", topology="etcd", size=n) for n in (3, 5, 3)]
    assert gathered(redis, fsync, redis, *etcd) == [
        ("redis-token, redis", 2),
        ("redis-token, redis-fsync", 1),
        ("etcd, 3 nodes", 2),
        ("etcd, 5 nodes", 1),
    ]
    assert gathered(redis, etcd[0]) == [("redis-token", 1), ("etcd", 1)], "it has one"


def test_the_range_of_a_row_is_that_of_its_own_cases() -> None:
    """Also where a case stays out that would have told them apart."""

    def took(ms: float, topology: str, **changes: str) -> CaseResult:
        cell = {"acquire": {"before": Quantiles(p50=ms, count=1000)}}
        case = CaseResult(lock="redis-token", fault="none", topology=topology, latency_ms=cell)
        return replace(case, **changes)

    plain, slow = [took(1.0, "redis"), took(2.0, "redis")], [took(9.0, "redis-fsync")] * 2
    found = of_cases([*plain, *slow], "redis-token, redis")["acquire"]
    assert (found.min, found.max) == (1.0, 2.0)
    void = [replace(case, numbers="void") for case in slow]
    assert of_cases([*plain, *void], "redis-token")["acquire"].max == 2.0
