"""An open load shows an outage that a closed one hides, and says how much of it was served."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from lockbench.bench.generator import generator_health
from lockbench.history.op import Fault
from lockbench.results.documents import Generator
from lockbench.results.numbers import measure
from lockbench.workloads.fleet import Fleet
from lockbench.workloads.load import Pace
from tests.eventually import one_of
from tests.locks.fakes import FakeRedis
from tests.workloads.playing import Played, S, all_played, play

pytestmark = pytest.mark.slow
OUTAGE_S = 2.0
HIDDEN_MS = 1000 * OUTAGE_S / 4
CONTENDED_S = 10.0
# No request is to fail in the outage: it is to be late.
PACE = Pace(lease_ttl_s=8.0, client_timeout_s=5.0, aimed_hold_s=0.05)


def with_an_outage(folder: Path, workload: str) -> Played:
    def freeze(fleet: Fleet, begin_ns: int) -> Sequence[Fault]:
        while time.monotonic_ns() < begin_ns + 4 * S:
            time.sleep(0.01)
        server.freeze()
        time.sleep(OUTAGE_S)
        server.thaw()
        return ()

    with FakeRedis() as server:
        return play(
            folder,
            workload,
            address=server.address,
            clients=8,
            keys=8,
            contended_s=CONTENDED_S,
            pace=PACE,
            meanwhile=freeze,
        )


def health_of(played: Played) -> Generator:
    span = (played.spans.floor[1], played.spans.contended[1])
    return generator_health(played.logs, (), span, 3)


def test_an_open_load_shows_an_outage_that_a_closed_one_hides(tmp_path: Path) -> None:
    loads = ("mutex", "mutex:rate=120")

    def once(number: int) -> list[Played]:
        plays = {load: partial(with_an_outage, workload=load) for load in loads}
        played = all_played(tmp_path / str(number), plays)
        return [played[load] for load in loads]

    def undisturbed(played: list[Played]) -> bool:
        closed, opened = played
        p99 = measure(closed.history, closed.spans).latency_ms["wait"]["before"].p99
        load = health_of(opened).load
        hidden = p99 is not None and p99 < HIDDEN_MS
        return hidden and load is not None and load.begun >= 0.9 * load.due

    closed, opened = one_of(once, undisturbed, 3)
    latency = measure(closed.history, closed.spans).latency_ms
    hidden = latency["wait"]["before"]
    assert hidden.p99 is not None
    assert hidden.p99 < HIDDEN_MS, "eight late ones among thousands"
    slowest = [latency[kind]["before"].max or 0.0 for kind in ("wait", "release")]
    assert max(slowest) > 1000 * OUTAGE_S * 0.9
    numbers = measure(opened.history, opened.spans)
    shown = numbers.response_ms["wait"]["before"]
    # A fifth of all jobs arrived in the outage; one in a hundred waited for all but 0.1 s of it.
    assert shown.p99 is not None
    assert shown.p99 >= 1000 * 0.9 * OUTAGE_S
    service = numbers.latency_ms["wait"]["before"]
    assert service.p99 is not None
    assert shown.count == service.count
    load = health_of(opened).load
    assert load is not None
    assert load.due > 1000
    # Without the fifth that arrived in the outage it would be 0.8.
    assert load.begun >= 0.9 * load.due, "what was delayed was caught up with"


def test_a_rate_that_cannot_be_served_is_said(tmp_path: Path) -> None:
    with FakeRedis() as server:
        # One key and holds of 50 ms: twenty a second, and no more.
        played = play(
            tmp_path,
            "mutex:rate=100:arrivals=constant",
            address=server.address,
            pace=Pace(hold_s=0.05, aimed_hold_s=0.05),
        )
    health = health_of(played)
    assert not health.ok
    assert any("jobs that were due were begun" in str(reason) for reason in health.why)
    assert "jobs that were due were begun" in str(health.short)
