"""A lock of known cost: figures at stated rates are true, or are void; defects in measuring show.

On a machine that others use, figures may be void, and then nothing is asked of them. How near they
come to the truth on one that is idle is a part of ``make perf``.
"""

from __future__ import annotations

import math
import random
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from lockbench.clusters.base import ClusterPlan
from lockbench.history.columns import History
from lockbench.history.op import F, Type
from lockbench.results.documents import RateStep
from lockbench.results.rates import Block, step_of
from lockbench.workloads.fork_server import ForkServer
from perf.rates import Cost, KnownCluster, hogs, play, quantile, responses_ns, rounds
from tests.perf import sleepy
from tests.results.load import MS, Load

WITHIN = 1.25
LOST_EVERY = 200
SLEEPY = sleepy.__file__
S = 1_000 * MS


def wrong(step: RateStep, true_ns: Sequence[float], p50: float, p99: float) -> list[str]:
    """What of a step's response is not as it is in truth, nor a lower bound of what is endless.
    ``p50`` and ``p99``: how many times the truth each may be; neither is too small."""
    found = []
    for name, permille in (("p50", 500), ("p99", 990), ("max", 1000)):
        measured, true = getattr(step.response_ms, name), quantile(true_ns, permille) / MS
        above = name in step.response_ms.above
        if measured is None:
            continue
        if math.isinf(true):
            right = above
        else:
            # The longest of all is one event of the machine's.
            most = {"p50": p50, "p99": p99}.get(name, math.inf)
            right = name == "max" or (not above and 1 / p50 <= measured / true <= most)
        if not right:
            found.append(f"{name} is {measured:.2f} ms, in truth {true:.2f}")
    return found


# A load that is computed: whatever is wrong with its figures is the measuring's.


def computed(cost: Cost, clients: int, per_s: float, lasts_s: float) -> History:
    """A load of one key a job, on a machine that costs nothing: so many clients serve arrivals in
    their order, and are free once they are answered."""
    draws, load, at_ms = random.Random(1), Load(), 0.0
    free = [0.0] * clients
    free_ms = deque([0.0] * cost.servers, maxlen=cost.servers)
    for number in range(round(per_s * lasts_s)):
        at_ms += draws.expovariate(per_s) * 1e3
        begun_ms = max(at_ms, min(free))
        if cost.lost_every and number % cost.lost_every == 0:
            given_up_ms = begun_ms + 100
            free[free.index(min(free))] = given_up_ms
            load.op(
                F.ACQUIRE,
                f"r{number}",
                begun_ms,
                given_up_ms,
                type_=Type.FAIL,
                intended=at_ms,
                hold=-number - 1,
            )
            continue
        served_ms = max(begun_ms, free_ms[0])
        free_ms.append(served_ms + cost.servers * 1e3 / cost.capacity_per_s)
        free[free.index(min(free))] = served_ms + cost.service_ms
        load.grant(f"r{number}", begun_ms, served_ms + cost.service_ms, intended=at_ms)
    return load.history()


def judged(history: History, truth: History, cost: Cost) -> list[str]:
    """What is wrong with the figures of one, where the other is what happened."""
    end_ns = int(truth.intended_ns.max())
    lost = frozenset(truth.hold[truth.hold < 0].tolist())
    true_ns = responses_ns(truth, (0, 2 * S, end_ns), cost, lost)
    block = step_of(
        history, 2 * S, end_ns, unknown_after_s=1.0, share=0.5, offered_per_s=cost.capacity_per_s
    )
    return wrong(block.step, true_ns, 1.001, 1.001)


def from_the_invocation(history: History) -> History:
    return replace(history, intended_ns=history.invoke_ns)


def without_the_given_up(history: History) -> History:
    return history.only(history.type == Type.OK)


def of_whole_milliseconds(history: History) -> History:
    """Begun by a timer that is late by up to one."""
    late = np.random.default_rng(1).integers(0, MS, len(history))
    began = history.invoke_ns + late
    return replace(history, invoke_ns=began, complete_ns=history.complete_ns + late)


@pytest.mark.parametrize("cost", [Cost(1, 1, 1000), Cost(1, 2, 500, LOST_EVERY), Cost(10, 8, 800)])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.75])
def test_what_is_measured_right_is_true(cost: Cost, share: float) -> None:
    history = computed(cost, 100, share * cost.capacity_per_s, 15)
    assert judged(history, history, cost) == []


def test_a_response_from_the_invocation_is_found() -> None:
    cost = Cost(1, 1, 1000)
    history = computed(cost, 2, 0.75 * cost.capacity_per_s, 15)
    assert judged(history, history, cost) == []
    assert "p99" in str(judged(from_the_invocation(history), history, cost))


def test_a_quantile_without_what_was_given_up_is_found() -> None:
    cost = Cost(1, 1, 1000, LOST_EVERY)
    history = computed(cost, 100, 0.5 * cost.capacity_per_s, 15)
    (only,) = judged(without_the_given_up(history), history, cost)[-1:]
    assert only.startswith("max")
    often = replace(cost, lost_every=50)
    history = computed(often, 100, 0.5 * cost.capacity_per_s, 15)
    assert judged(history, history, often) == []
    assert "p99" in str(judged(without_the_given_up(history), history, often))


def test_a_timer_of_whole_milliseconds_is_found() -> None:
    cost = Cost(1, 1, 1000)
    history = computed(cost, 100, 0.1 * cost.capacity_per_s, 15)
    assert "p50" in str(judged(of_whole_milliseconds(history), history, cost))


# The service itself.


def test_the_service_costs_what_it_says_and_a_hold_ends_with_its_connection(tmp_path: Path) -> None:
    log = tmp_path / "log"
    cluster = KnownCluster(Cost(2, 1, 250, lost_every=7), log)
    plan = ClusterPlan("redis", 1, 1, "test", 3.0, str(tmp_path))
    with cluster(plan):
        (address,) = cluster.addresses(0)
        first, second, third = (socket.create_connection(address, 60) for _ in range(3))
        with second, third:
            with first:
                assert said(first, "acquire a 1") == "granted"
                assert said(first, "release a 2") == "not-held"
                assert said(first, "release a 1") == "released"
                assert said(first, "acquire a 3") == "granted"
                second.sendall(b"acquire a 4\n")
                assert said(first, "acquire b 5") == "granted"
            assert second.recv(64) == b"granted\n"
            assert said(second, "acquire c 6") == "granted"
            assert said(second, "acquire d 7") == "granted"
            second.sendall(b"acquire e 8\n")
            assert said(third, "acquire f 9") == "granted"
    served = np.fromfile(log, np.int64).reshape(-1, 4)
    by_hold = {int(row[0]): row for row in served}
    assert sorted(by_hold) == [1, 3, 4, 5, 6, 7, 8, 9]
    assert by_hold[8][2] == 0, "the seventh is lost"
    assert list(by_hold).index(5) < list(by_hold).index(4), "who waits for a key is in nobody's way"
    of = served[served[:, 2] != 0]
    # One server, occupied for 4 ms.
    free_ns = np.concatenate([[0], of[:-1, 2] - 2 * MS + 4 * MS])
    due_ns = np.maximum(of[:, 1], free_ns) + 2 * MS
    waited = of[:, 0] == 4
    assert (of[~waited, 2] == due_ns[~waited]).all()
    assert (of[waited, 2] >= due_ns[waited]).all()
    assert (of[:, 3] >= of[:, 2]).all(), "nobody is answered early"


def said(to: socket.socket, line: str) -> str:
    to.sendall(f"{line}\n".encode())
    return to.recv(64).decode().strip()


# The whole load.


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer("known") as made:
        yield made


def at_share(steps: Sequence[Block], true_ns: Sequence[Sequence[float]]) -> Iterator[list[str]]:
    """What is wrong with every step at a rate that is not void."""
    for block, true in zip(steps, true_ns, strict=True):
        if block.step.offered_per_s is not None and not block.step.why:
            # Of a hundred acquires one may meet a neighbour on the machine.
            yield wrong(block.step, true, WITHIN, math.inf)


@pytest.mark.slow
def test_what_is_measured_is_true_or_void(tmp_path: Path, fork_server: ForkServer) -> None:
    cost = Cost(10, 4, 400, LOST_EVERY)
    played = play(cost, rounds(1, 6.0, (0.5,)), tmp_path, fork_server)
    if not played.blocks:
        return  # disturbed
    saturated, at_half = (block.step for block in played.blocks)
    assert saturated.granted_per_s <= 1.01 * cost.capacity_per_s
    if not saturated.why:
        assert saturated.granted_per_s >= cost.capacity_per_s / WITHIN
    assert at_half.due == len(played.true_ns[1])
    assert not any(at_share(played.blocks, played.true_ns)), at_half


@pytest.mark.slow
def test_a_timer_of_whole_milliseconds_is_found_in_a_load(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    played = play(Cost(1, 1, 1000), rounds(1, 3.0, (0.1,)), tmp_path, fork_server, lock=SLEEPY)
    for found in at_share(played.blocks, played.true_ns):
        assert "p50" in str(found), played.blocks


@pytest.mark.slow
def test_beside_busy_loops_figures_are_void(tmp_path: Path, fork_server: ForkServer) -> None:
    with hogs(2 * (psutil.cpu_count() or 1)):
        played = play(Cost(1, 1, 1000), rounds(1, 3.0, (0.5,)), tmp_path, fork_server)
    assert all(block.step.why for block in played.blocks), played.blocks
