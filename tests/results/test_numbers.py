"""The numbers of a case: each latency in its phase, each rate over its time, nothing pooled."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lockbench.history.builder import NUMBERS
from lockbench.history.columns import History, null_column
from lockbench.history.op import F, Fault, Object, Type
from lockbench.results.documents import Quantiles
from lockbench.results.numbers import Phases, measure
from tests.results.load import MS, Load
from tests.results.plain import plain

S = 1_000_000_000
PHASES = Phases(floor=(0, 1 * S), own=(1 * S, 10 * S), contended=(10 * S, 40 * S))


def test_uncontended_acquire_of_known_latencies() -> None:
    load = Load()
    # 1, 2 … 20 ms: the median of twenty by nearest rank is the tenth.
    for n in range(1, 21):
        load.grant("a0", 1000 + 100 * n, 1000 + 100 * n + n)
    found = measure(load.history(), PHASES).latency_ms["acquire"]
    assert list(found) == ["before"]
    assert found["before"].p50 == 10
    assert found["before"].max == 20
    assert found["before"].count == 20


def test_response_runs_from_the_intended_start_and_service_does_not() -> None:
    load = Load()
    # The server took 2 ms each time, but the twentieth was sent 1,998 ms after it was due.
    for n in range(19):
        load.grant("a0", 2000 + 100 * n, 2002 + 100 * n, intended=2000 + 100 * n)
    load.grant("a0", 5998, 6000, intended=4000)
    found = measure(load.history(), PHASES)
    assert found.latency_ms["acquire"]["before"].max == 2
    assert found.response_ms["acquire"]["before"].max == 2000
    assert found.response_ms["acquire"]["before"].count == 20
    assert set(found.response_ms) == {"acquire"}


def test_what_was_given_up_on_a_shared_key_was_waited_for_longer_than_until_then() -> None:
    load = Load()
    load.fault((20_000, 20_050), (25_000, 25_500))
    for n in range(15):
        load.grant("k0", 11_000 + 100 * n, 11_002 + 100 * n)
    for n in range(15):  # as many were refused, after half a second: nobody knows the median
        load.op(F.ACQUIRE, "k0", 13_000 + n, 13_500 + n, type_=Type.FAIL, hold=500 + n)
    load.op(F.ACQUIRE, "k0", 21_000, None, type_=Type.INFO, hold=99)  # into the fault's phase
    found = measure(load.history(), PHASES, unknown_after_s=1.0)
    wait = found.response_ms["wait"]
    assert (wait["before"].count, wait["before"].max) == (30, 500.0)
    assert wait["before"].p50 == 2.0
    assert (wait["during"].count, wait["during"].max) == (1, 1000.0)
    assert wait["before"].above == wait["during"].above == ("max",)
    # Service time is of what was granted.
    assert found.latency_ms["wait"]["before"].count == 15
    assert found.latency_ms["wait"]["during"].count == 0


def test_a_median_wait_that_was_given_up_is_a_lower_bound() -> None:
    load = Load()
    for n in range(20):
        load.grant("k0", 11_000 + 100 * n, 11_002 + 100 * n)
    for n in range(40):
        load.op(F.ACQUIRE, "k0", 13_000 + n, 13_500 + n, type_=Type.FAIL, hold=500 + n)
    wait = measure(load.history(), PHASES).response_ms["wait"]["before"]
    assert (wait.p50, wait.above) == (500.0, ("p50", "max"))


@pytest.mark.parametrize(
    ("kind", "complete", "lasted_ms"),
    [(Type.FAIL, 6700.0, 1700), (Type.INFO, None, 2000)],  # refused; without an answer
)
def test_what_was_given_up_on_an_own_key_took_longer_than_until_then(
    kind: Type, complete: float | None, lasted_ms: float
) -> None:
    load = Load()
    for n in range(20):
        load.grant("a0", 2000 + 100 * n, 2002 + 100 * n, intended=2000 + 100 * n)
    load.op(F.ACQUIRE, "a0", 6000, complete, type_=kind, intended=5000, hold=99)
    load.op(F.ACQUIRE, "k0", 12_000, 12_900, type_=Type.FAIL, hold=98)
    found = measure(load.history(), PHASES, unknown_after_s=1.0)
    response, service = found.response_ms["acquire"], found.latency_ms["acquire"]["before"]
    assert response["before"] == Quantiles(
        count=21, p50=2.0, max=lasted_ms, above=("max",), iqr=response["before"].iqr
    )
    assert (service.count, service.max, service.above) == (20, 2.0, ())
    assert found.latency_ms["wait"]["before"].count == 0
    older = measure(load.history(), PHASES, unknown_after_s=1.0, given_up=())
    assert older.response_ms["acquire"]["before"].count == 20
    assert set(older.response_ms) == {"acquire"}


def test_before_during_and_after_are_never_pooled() -> None:
    """A pooling error would move 1 ms, 500 ms and 3 ms into each other's quantiles."""
    load = Load()
    load.fault((20_000, 20_050), (25_000, 25_500))
    for n in range(40):
        load.grant("k0", 11_000 + 100 * n, 11_001 + 100 * n)
        load.grant("k0", 20_100 + 100 * n, 20_600 + 100 * n)
        load.grant("k0", 26_000 + 100 * n, 26_003 + 100 * n)
    wait = measure(load.history(), PHASES).latency_ms["wait"]
    for phase, ms in (("before", 1), ("during", 500), ("after", 3)):
        assert (wait[phase].p50, wait[phase].max, wait[phase].count) == (ms, ms, 40)


@pytest.mark.parametrize(
    ("invoke", "complete", "phase"),
    [
        (19_990, 19_999, "before"),
        (19_990, 20_000, "during"),  # got caught by the first moment of the fault
        (19_000, 27_000, "during"),  # outlived the whole fault
        (20_010, 20_020, "during"),  # while the fault was still being put on
        (25_400, 25_600, "during"),  # while it was being healed
        (25_500, 25_600, "during"),  # the last moment belongs to the fault
        (25_501, 25_600, "after"),
    ],
)
def test_edges_of_a_fault(invoke: float, complete: float, phase: str) -> None:
    load = Load()
    load.fault((20_000, 20_050), (25_000, 25_500))
    load.grant("k0", invoke, complete)
    wait = measure(load.history(), PHASES).latency_ms["wait"]
    assert {name: q.count for name, q in wait.items() if q.count} == {phase: 1}


@pytest.mark.parametrize(("staged", "phase"), [(None, "before"), (18_500, "during")])
def test_what_waits_while_a_cluster_is_made_ready_for_a_fault_was_not_before_it(
    staged: float | None, phase: str
) -> None:
    load = Load()
    load.fault((20_000, 20_050), (25_000, 25_500), staged=staged)
    load.grant("k0", 18_600, 19_900)
    wait = measure(load.history(), PHASES).latency_ms["wait"]
    assert {name: q.count for name, q in wait.items() if q.count} == {phase: 1}


def test_an_operation_due_during_a_fault_but_sent_after_it_counts_for_the_fault() -> None:
    load = Load()
    load.fault((20_000, 20_050), (25_000, 25_500))
    load.grant("a0", 25_600, 25_601, intended=24_000)
    found = measure(load.history(), PHASES)
    assert found.latency_ms["acquire"]["during"].max == 1
    assert found.response_ms["acquire"]["during"].max == 1601


def test_two_faults_and_the_time_between_them() -> None:
    load = Load()
    load.fault((20_000, 20_000), (21_000, 21_000))
    load.fault((20_500, 20_500), (22_000, 22_000))  # overlaps the first
    load.fault((30_000, 30_000), None)  # never healed
    for at in (12_000, 20_200, 21_500, 25_000, 31_000, 39_000):
        load.grant("k0", at, at + 1)
    wait = measure(load.history(), PHASES).latency_ms["wait"]
    assert {name: q.count for name, q in wait.items()} == {"before": 1, "during": 4, "after": 1}


def test_own_clients_beside_the_load_do_not_enter_the_uncontended_baseline() -> None:
    load = Load()
    load.fault((20_000, 20_000), (25_000, 25_000))
    load.grant("a0", 2_000, 2_001)
    load.grant("a0", 12_000, 12_050)
    load.grant("a0", 21_000, 21_300)
    load.grant("a0", 30_000, 30_007)
    found = measure(load.history(), PHASES).latency_ms
    assert [found["acquire"][p].max for p in ("before", "during", "after")] == [1, 300, 7]
    assert [found["acquire_beside"][p].max for p in ("before", "during", "after")] == [50, 300, 7]


def test_aimed_and_floor_keys_are_in_no_latency() -> None:
    load = Load()
    load.grant("f0", 100, 103)
    load.release("f0", 1, 110, 111)
    load.grant("m0", 12_000, 19_000)
    load.release("m0", 2, 19_000, 19_900)
    found = measure(load.history(), PHASES)
    assert all(q.count == 0 for by in found.latency_ms.values() for q in by.values())
    assert found.floor_acquire_ms.max == 3
    assert found.cycles_per_second == 0


def test_what_happens_at_stated_rates_is_counted_there_and_not_here() -> None:
    load = Load()
    load.grant("k0", 12_000, 12_001)
    without = measure(load.history(), PHASES)
    for n in range(50):
        load.grant("r0", 42_000 + n, 42_001 + n)
        load.op(F.ACQUIRE, "r0", 43_000 + n, 43_001 + n, type_=Type.FAIL, error="gave-up")
    found = measure(load.history(), PHASES)
    assert (
        found.counts == without.counts == {"acquire": {"before": {"ok": 1, "fail": 0, "info": 0}}}
    )
    assert found.errors == without.errors
    load.op(F.ACQUIRE, "k0", 13_000, 13_001, type_=Type.FAIL, error="gave-up")
    assert measure(load.history(), PHASES).errors == {"before": {"gave-up": 1}}


def test_handover_needs_a_waiter() -> None:
    load = Load()
    first = load.grant("k0", 11_000, 11_001)
    second = load.grant("k0", 11_002, 11_015)  # waiting since 11,002
    load.release("k0", first, 11_010, 11_012)  # handed over in 5 ms
    load.release("k0", second, 11_020, 11_021)
    third = load.grant("k0", 11_030, 11_031)  # nobody was waiting: no hand-over
    load.release("k0", third, 11_040, 11_041)
    other = load.grant("k1", 11_035, 11_042)  # another key: not handed over by the third
    load.release("k1", other, 11_050, 11_051)
    handover = measure(load.history(), PHASES).latency_ms["handover"]["before"]
    assert (handover.count, handover.max) == (1, 5)


def test_a_key_granted_twice_over_is_no_handover() -> None:
    load = Load()
    first = load.grant("k0", 11_000, 11_001)
    load.grant("k0", 11_000, 11_005)  # granted while the first was held
    load.release("k0", first, 11_010, 11_011)
    load.grant("k0", 11_002, 11_015)
    assert measure(load.history(), PHASES).latency_ms["handover"]["before"].count == 0


@pytest.mark.parametrize(
    ("kind", "permits", "holders"),
    [("mutex", None, 1), ("reentrant", None, 1), ("semaphore", 3, 3), ("read-write", None, None)],
)
def test_how_many_may_hold_a_contended_key(
    kind: str, permits: int | None, holders: int | None
) -> None:
    load = Load()
    load.grant("k0", 11_000, 11_001)
    load.grant("a0", 11_000, 11_001)
    load.builder.objects["k0"] = Object(kind=kind, permits=permits, role="contended")
    assert measure(load.history(), PHASES).holders_per_key == holders


@pytest.mark.parametrize(("epsilon_ms", "count", "longest"), [(0.39, 2, 8), (0.41, 1, 5)])
def test_a_handover_between_machines_counts_where_their_clocks_agree_to_a_tenth_of_it(
    epsilon_ms: float, count: int, longest: int
) -> None:
    """Each clock is within epsilon of the resource's, so two of them agree to twice as much."""
    load = Load()
    load.machine = "a"
    first = load.grant("k0", 11_000, 11_001)
    load.machine = "b"
    second = load.grant("k0", 11_002, 11_018)
    load.machine = "a"
    load.release("k0", first, 11_010, 11_012)  # handed over to another machine in 8 ms
    load.machine = "b"
    load.grant("k0", 11_019, 11_035)
    load.release("k0", second, 11_030, 11_031)  # handed over within a machine in 5 ms
    history = replace(load.history(), epsilon_ns=round(epsilon_ms * MS))
    handover = measure(history, PHASES).latency_ms["handover"]["before"]
    assert (handover.count, handover.max) == (count, longest)


def test_a_handover_through_a_fault_is_during() -> None:
    load = Load()
    load.fault((20_000, 20_000), (25_000, 25_000))
    first = load.grant("k0", 19_000, 19_001)
    load.grant("k0", 19_500, 24_000)
    load.release("k0", first, 19_990, 19_995)
    handover = measure(load.history(), PHASES).latency_ms["handover"]
    assert handover["during"].max == 4010
    assert handover["before"].count == 0


def test_rates_count_completed_grants_over_the_contended_phase() -> None:
    load = Load()
    load.fault((20_000, 20_000), (25_000, 25_000))
    for n in range(100):  # ten a second for the ten seconds before
        load.grant("k0", 10_000 + 100 * n, 10_050 + 100 * n)
    for n in range(30):  # two a second for the fifteen seconds after
        load.grant("k0", 25_100 + 500 * n - 50, 25_100 + 500 * n)
    load.grant("k0", 39_900, 40_100)  # too late
    load.grant("a0", 12_000, 12_001)  # not contended
    load.grant("a0", 2_000, 2_001)
    found = measure(load.history(), PHASES)
    assert found.cycles_per_second == pytest.approx(130 / 30)
    assert found.cycles_per_second_by_phase == pytest.approx(
        {"before": 10, "during": 0, "after": 2}
    )
    assert found.own_cycles_per_second == pytest.approx(1 / 9)


def test_denied_and_unknown_are_counted_where_they_happened() -> None:
    load = Load()
    load.fault((20_000, 20_000), (25_000, 25_000))
    load.op(F.ACQUIRE, "k0", 12_000, 12_500, type_=Type.FAIL, error="gave-up: waited 0.5 s")
    load.op(F.ACQUIRE, "k0", 12_000, 12_600, type_=Type.FAIL, error="gave-up: waited 0.6 s")
    load.op(F.RELEASE, "k0", 21_000, None, error="timeout: redis-1")
    load.op(F.RELEASE, "k0", 30_000, 30_001, type_=Type.FAIL, error="not-held")
    load.op(F.RELEASE, "m0", 30_000, 30_001, type_=Type.FAIL, error="not-held")
    found = measure(load.history(), PHASES)
    assert found.counts["acquire"]["before"] == {"ok": 0, "fail": 2, "info": 0}
    assert found.counts["release"]["during"] == {"ok": 0, "fail": 0, "info": 1}
    assert found.counts["release"]["after"] == {"ok": 0, "fail": 1, "info": 0}
    assert found.errors == {
        "before": {"gave-up": 2}, "during": {"timeout": 1}, "after": {"not-held": 1}
    }  # fmt: skip
    # Waiting in vain is no error; the unknown and the lost hold are.
    assert sum(found.series.errors) == 2
    assert found.series.errors[11] == 1
    assert found.series.errors[20] == 1


def test_an_unknown_is_in_flight_for_the_client_timeout() -> None:
    load = Load()
    load.fault((20_000, 20_000), (25_000, 25_000))
    load.op(F.ACQUIRE, "k0", 19_500, None, error="timeout")
    load.op(F.ACQUIRE, "k0", 12_000, None, error="timeout")
    assert measure(load.history(), PHASES).counts["acquire"]["before"]["info"] == 2
    found = measure(load.history(), PHASES, unknown_after_s=1.0).counts["acquire"]
    assert (found["before"]["info"], found["during"]["info"]) == (1, 1)


def test_the_series_shows_each_second() -> None:
    load = Load()
    for n in range(20):
        load.grant("k0", 12_000 + n, 12_000 + n + (n + 1))
    load.grant("k0", 14_000, 14_100)
    series = measure(load.history(), PHASES).series
    assert series.start_ns == 10 * S
    assert len(series.grants) == 30
    assert (series.grants[2], series.grants[3], series.grants[4]) == (20, 0, 1)
    assert series.wait_ms_p50[2] == 10
    assert series.wait_ms_p50[3] is None
    assert series.wait_ms_p50[4] is None


def test_an_empty_history_measures_nothing_and_says_so() -> None:
    found = measure(Load().history(), Phases((0, 0), (0, 0), (0, 0)))
    assert found.cycles_per_second is None
    assert found.latency_ms["wait"]["before"].count == 0
    json.dumps(plain(found), allow_nan=False)


def test_numbers_are_plain_json() -> None:
    load = Load()
    load.fault((20_000, 20_000), (25_000, 25_000))
    for n in range(30):
        hold = load.grant("k0", 11_000 + 10 * n, 11_001 + 10 * n)
        load.release("k0", hold, 11_005 + 10 * n, 11_006 + 10 * n)
    text = json.dumps(plain(measure(load.history(), PHASES)), allow_nan=False)
    assert json.loads(text)["latency_ms"]["wait"]["before"]["p50"] == 1


def test_a_million_operations_take_about_a_second() -> None:
    rows = 1_000_000
    rng = np.random.default_rng(7)
    at = np.sort(rng.integers(10 * S, 40 * S, rows))
    missing: dict[str, Any] = {name: null_column(rows) for name in NUMBERS}
    history = History(
        process=np.zeros(rows, np.int64),
        f=rng.integers(0, 2, rows).astype(np.uint8),
        type=rng.integers(1, 4, rows).astype(np.uint8),
        mode=np.zeros(rows, np.uint8),
        key=rng.integers(0, 100, rows).astype(np.int32),
        error=rng.integers(-1, 3, rows).astype(np.int32),
        invoke_ns=at,
        complete_ns=at + rng.integers(1, 100 * MS, rows),
        hold=rng.integers(1, 1000, rows),
        keys=tuple(f"k{n}" for n in range(100)),
        errors=("timeout", "held", "refused: x"),
        objects={f"k{n}": Object(role="contended") for n in range(100)},
        faults=(Fault("kill", (), (20 * S, 20 * S), (21 * S, 21 * S)),),
        **missing,
    )
    begun = time.process_time()
    measure(history, PHASES)
    # A guard against loops in Python (tens of seconds), with room for a busy machine.
    assert time.process_time() - begun < 3
