"""A machine that others keep busy is told apart from one that is busy with us."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockbench.bench.generator import generator_health
from lockbench.bench.pressure import (
    OTHERS_MAX,
    PARTS,
    WAITING_MAX,
    Counters,
    Ours,
    Processors,
    pressure,
)
from lockbench.history.op import Fault
from lockbench.results import documents
from tests.bench.test_generator import line
from tests.eventually import eventually

S = 10**9


def used(
    seconds: int = 10,
    *,
    busy: float = 0.0,
    ours: float = 0.0,
    waited: float = 0.0,
    stolen: float = 0.0,
    cores: int = 2,
) -> list[Counters]:
    """Every second uses so many seconds of processors; a loop runs a tenth of the time."""
    return [
        Counters(
            at_ns=n * S,
            busy_s=n * busy,
            stolen_s=n * stolen,
            used_s={part: n * ours / len(PARTS) for part in PARTS},
            queued_s=dict.fromkeys(PARTS, n * 0.02),
            ran_s=n * 0.1,
            waited_s=n * waited,
            some_s={"cpu": n * 0.5, "io": n * 0.1, "memory": 0.0},
            within_s={
                ("servers", "a", "cpu"): n * 0.1,
                ("servers", "b", "cpu"): n * 0.3,
                ("servers", "a", "io"): n * 0.2,
            },
            cores=cores,
        )
        for n in range(seconds + 1)
    ]


OTHERS = 2 * OTHERS_MAX / 100
WAITED = 0.1 * WAITING_MAX / (100 - WAITING_MAX)
HOG: dict[str, Any] = {"busy": 2.0, "ours": 0.9, "waited": 0.1}


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (HOG, "other programs used 55 % of the processors, .* 50 % of the time"),
        # A machine that is full of our own is as it should be.
        ({"busy": 2.0, "ours": 1.9, "waited": 0.3}, None),
        # Others on a machine with room for all take nothing from us.
        ({"busy": 8.0, "ours": 1.0, "waited": 0.001, "cores": 16}, None),
        # Both have to pass their bounds.
        ({"busy": 1 + OTHERS * 1.1, "ours": 1.0, "waited": WAITED * 1.1}, "other programs"),
        ({"busy": 1 + OTHERS * 0.9, "ours": 1.0, "waited": WAITED * 1.1}, None),
        ({"busy": 1 + OTHERS * 1.1, "ours": 1.0, "waited": WAITED * 0.9}, None),
        ({"stolen": 0.05}, None),
        ({"stolen": 0.3}, "the hypervisor took 15 % of the processors"),
    ],
)
def test_who_took_the_processors_is_named(use: dict[str, Any], said: str | None) -> None:
    _, why = pressure(used(**use), lambda begin, end: True)
    assert len(why) == (said is not None)
    assert said is None or re.match(said, why[0])


def test_the_record_is_of_the_time_that_counts() -> None:
    nothing = dict.fromkeys(PARTS, 0.0)
    busy_then_idle = [
        *used(5, busy=2.0),
        *(Counters(n * S, 10.0, 0.0, nothing, nothing, 0.5, 0.0, {}, {}, 2) for n in range(6, 11)),
    ]
    record, _ = pressure(busy_then_idle, lambda begin, end: begin >= 5 * S)
    assert record is not None
    assert record.others_percent == 0.0
    assert record.pressure_percent is None
    assert pressure(busy_then_idle, lambda begin, end: False) == (None, [])


def test_a_container_that_is_replaced_is_counted_from_its_first_look() -> None:
    before, after = used(5), used(10)[6:]
    came = [
        replace(c, within_s={**c.within_s, ("servers", "new", "cpu"): n * 0.9})
        for n, c in enumerate(after)
    ]
    record, _ = pressure([*before, *came], lambda begin, end: True)
    assert record is not None
    assert record.parts is not None
    # The new one waited 3.6 s of these 10, more than the 3 of the one that was there all the time.
    assert record.parts["servers"].pressure_percent == 36.0


def test_it_voids_the_numbers_outside_of_faults(tmp_path: Path) -> None:
    (tmp_path / "worker-1.jsonl").write_text(line(1))
    hog = used(**HOG)
    span = (0, 10 * S)
    health = generator_health(tmp_path, (), span, 1, pressure=hog)
    assert health.ok is False
    assert health.processors == documents.Processors(
        others_percent=55.0,
        ours_percent=45.0,
        steal_percent=0.0,
        waiting_percent=50.0,
        pressure_percent=50.0,
        io_percent=10.0,
        memory_percent=0.0,
        parts={
            **{part: documents.Processed(11.2, 1.0) for part in PARTS},
            "servers": documents.Processed(11.2, 1.0, pressure_percent=30.0, io_percent=20.0),
        },
    )
    all_the_time = Fault("pause", (), (0, 0), (10 * S, 10 * S))
    assert generator_health(tmp_path, (all_the_time,), span, 1, pressure=hog).processors is None
    assert generator_health(tmp_path, (), span, 1).ok is True


@pytest.mark.parametrize(("hog", "void"), [(range(7, 10), True), (range(10, 12), False)])
def test_the_last_reading_of_a_span_is_a_little_later_than_that(
    tmp_path: Path, hog: range, *, void: bool
) -> None:
    """And what it tells is of the span; what begins after it is not."""
    (tmp_path / "worker-1.jsonl").write_text(line(1))
    calm, busy = {"busy": 0.5, "ours": 0.5, "waited": 0.01}, HOG
    read = chained([busy if n in hog else calm for n in range(12)])
    late = [replace(one, at_ns=one.at_ns + (S // 20 if n else 0)) for n, one in enumerate(read)]
    parts = {"contended": (6 * S, 10 * S)}
    health = generator_health(tmp_path, [], (0, 10 * S), 1, pressure=late, parts_ns=parts)
    assert health.processors_by_phase is not None
    others = health.processors_by_phase["contended"].others_percent
    assert others == (pytest.approx(41.25, abs=1) if void else 0.0)


def hog_between(begin: int, end: int) -> list[Counters]:
    """Ten seconds of which some had a hog."""
    calm = {"busy": 0.5, "ours": 0.5, "waited": 0.01}
    return chained([HOG if begin <= n < end else calm for n in range(10)])


def chained(uses: Sequence[dict[str, Any]]) -> list[Counters]:
    """Readings a second apart; ``uses`` are of the seconds between them."""
    seconds = [used(1, **use) for use in uses]
    at = seconds[0][0]
    found = [at]
    for a, b in seconds:
        at = replace(
            at,
            at_ns=at.at_ns + S,
            busy_s=at.busy_s + b.busy_s - a.busy_s,
            used_s={part: at.used_s[part] + b.used_s[part] for part in PARTS},
            ran_s=at.ran_s + b.ran_s,
            waited_s=at.waited_s + b.waited_s,
        )
        found.append(at)
    return found


@pytest.mark.parametrize(
    ("hog", "fault", "why"),
    [
        ((0, 0), None, None),
        # Of ten seconds two are too few for the whole, and most of what own keys had.
        ((0, 2), None, r"other programs used 5\d % .* \(own keys\)"),
        ((8, 10), None, None),
        ((4, 10), None, r"other programs used 3\d % .* of the time$"),
        ((4, 7), (4, 7), None),  # what a fault does to the machine is no other program
    ],
)
def test_the_machine_is_judged_in_each_phase(
    tmp_path: Path, hog: tuple[int, int], fault: tuple[int, int] | None, why: str | None
) -> None:
    (tmp_path / "worker-1.jsonl").write_text(line(1))
    faults = []
    if fault is not None:
        begin_ns, heal_ns = fault[0] * S, fault[1] * S
        faults = [Fault("pause", (), (begin_ns, begin_ns), (heal_ns, heal_ns))]
    health = generator_health(
        tmp_path,
        faults,
        (0, 10 * S),
        1,
        pressure=hog_between(*hog),
        parts_ns={"own": (0, 2 * S), "contended": (2 * S, 10 * S)},
    )
    assert health.ok is (why is None), health.why
    assert why is None or re.search(why, health.why[0])
    assert health.processors_by_phase is not None
    others = {name: of.others_percent for name, of in health.processors_by_phase.items()}
    own = 55.0 if hog == (0, 2) else 0.0
    assert others["own"] == own
    assert others.get("during") == (55.0 if fault else None)


def test_processes_of_ours_are_ours_and_others_are_not() -> None:
    """Two that spin: one of ours, one of somebody else's. What ends takes nothing back."""
    spin = [sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(spin) as mine, subprocess.Popen(spin) as theirs:
        one = frozenset({mine.pid})
        looking = Processors(lambda: Ours(one, one, {}), ())
        try:
            looking.look()

            def spun() -> bool:
                looking.look()
                return looking.read[-1].ours_s > 0.2

            eventually(spun)
        finally:
            mine.kill()
            theirs.kill()
            mine.wait()
    before, after = looking.read[0], looking.read[-1]
    assert after.busy_s - before.busy_s > after.ours_s
    assert after.ran_s > 0.1
    assert after.used_s["clients"] > 0.1
    looking.look()
    assert looking.read[-1].ours_s >= after.ours_s
