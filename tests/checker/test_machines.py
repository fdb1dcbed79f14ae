"""Histories of several machines: bounds that hold, clocks that are found out, violations that are
certain, and their innocent neighbours."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, product
from typing import Final

import numpy as np
import pytest

from lockbench.checker.bounds import Bounds
from lockbench.checker.check import check
from lockbench.checker.clocks import Clocks, shifted
from lockbench.checker.rows import Rows
from lockbench.checker.verdict import Verdict
from lockbench.history.builder import Builder
from lockbench.history.columns import History, Ints
from lockbench.history.op import NULL, F, Fault, Object, Type
from perf.machines import ASKEW, LAN, MS, US, WIDE, Clock, Link, Machines, simulated
from tests.budget import tries
from tests.checker.growth import exponent
from tests.checker.reference import rows_of

S: Final = 1_000 * MS
LINKS: Final = {"lan": (LAN,), "wide": (WIDE,), "askew": (ASKEW, Link(5 * MS, 25 * MS, MS))}


def clocks(dice: random.Random, count: int) -> tuple[Clock, ...]:
    """Off by up to 50 ms, or by days, and as wrong as a clock may be."""
    return tuple(
        Clock(
            off_ns=dice.choice((1, 1, 10**7)) * dice.randint(-50 * MS, 50 * MS),
            drift_ppm=dice.uniform(-400, 400),
            wobble_ppm=dice.uniform(0, 90),
            period_s=dice.uniform(0.1, 10),
        )
        for _ in range(count)
    )


def rows_of_machine(history: History, machine: int) -> Rows:
    assert history.machine is not None
    return np.flatnonzero(history.machine == history.machines.index(f"m{machine}"))


# Bounds.


@pytest.mark.random
@pytest.mark.parametrize("links", LINKS)
def test_the_truth_is_always_within_the_bounds(links: str) -> None:
    for seed in range(tries(3)):
        dice = random.Random(f"{links} {seed}")
        fleet = Machines(3, 3, 60, links=LINKS[links], clocks=clocks(dice, 3))
        recorded, true = simulated(fleet, seed)
        end = int(true.complete_ns.max())
        for machine, clock in enumerate(fleet.clocks):
            bounds = Bounds.of(recorded, rows_of_machine(recorded, machine))
            assert bounds.contradiction_ns is None
            moments = [*range(-S, end + S, (end + 2 * S) // 500), *true.applied_ns.tolist()]
            moments = [at for at in moments if at != NULL]
            local = np.array([clock.shows(at) for at in moments])
            low, high, offset = bounds.low(local), bounds.high(local), moments - local
            # What a clock shows is rounded.
            assert np.all((low - 1 <= offset) & (offset <= high + 1))
            assert np.all((low <= bounds.middle(local)) & (bounds.middle(local) <= high))


def test_a_clock_that_drifts_more_than_it_may_contradicts_itself() -> None:
    for drift, wrong in ((490.0, False), (700.0, True)):
        fleet = Machines(2, 2, 300, clocks=(Clock(), Clock(drift_ppm=drift)), idle_ns=10 * MS)
        recorded, _ = simulated(fleet, 1)
        bounds = Bounds.of(recorded, rows_of_machine(recorded, 1))
        assert (bounds.contradiction_ns is not None) == wrong


@pytest.mark.parametrize("planted", [(), (20 * MS,)])
def test_a_clock_that_jumps_voids_everything_also_what_is_broken(planted: tuple[int, ...]) -> None:
    fleet = Machines(2, 2, 100, clocks=(Clock(), Clock(5 * S, jump_s=0.02)), planted_ns=planted)
    expected = "invalid" if planted else "valid"
    assert check(simulated(fleet, 1)[0]).result == expected
    fleet = replace(fleet, clocks=(Clock(), replace(fleet.clocks[1], jump_ns=-2 * MS)))
    report = check(simulated(fleet, 1)[0])
    assert {verdict.result for verdict in report.verdicts.values()} == {"unknown"}
    said = report.verdicts["double-grant"].reason
    assert said == "machine m1's clock contradicts itself at 0.0 s: it jumped or was suspended"


def test_what_was_said_of_a_clock_is_held_against_its_probes() -> None:
    fleet = Machines(2, 1, 50, clocks=(Clock(), Clock(3 * MS)))
    recorded, _ = simulated(fleet, 1)
    assert check(replace(recorded, epsilon_ns=4 * MS)).result == "valid"
    report = check(replace(recorded, epsilon_ns=2 * MS))
    assert report.result == "unknown"
    assert "or is not within its epsilon_ns" in report.verdicts["double-grant"].reason


# What is certain.


def test_the_same_run_on_one_clock_is_full_of_false_double_grants() -> None:
    recorded, true = simulated(Machines(2, 2, 100, clocks=(Clock(), Clock(10 * MS))), 1)
    assert check(true).result == "valid"
    assert check(recorded).result == "valid"
    assert check(replace(recorded, machine=None, machines=())).result == "invalid"


def certainly_double(true: History) -> bool:
    """Whether the stamps of two holds of a key lie in each other, by every pair."""
    rows = rows_of(true)
    stamps: dict[tuple[int, int], list[int]] = {}
    applied = dict(enumerate(true.applied_ns.tolist()))
    for at, row in enumerate(rows):
        if row.f == F.READ:
            stamps.setdefault((int(true.key[at]), int(row.hold)), []).append(applied[at])
    return any(
        a[0] == b[0] and max(min(stamps[a]), min(stamps[b])) < min(max(stamps[a]), max(stamps[b]))
        for a, b in combinations(stamps, 2)
    )


@pytest.mark.random
@pytest.mark.parametrize("links", LINKS)
def test_no_false_violation_and_no_true_one_lost_where_stamps_allow_it(links: str) -> None:
    found = 0
    for seed in range(tries(6)):
        dice = random.Random(f"{links} {seed}")
        planted = (dice.choice((MS, 10 * MS, 100 * MS, 300 * MS)),) if seed % 3 else ()
        fleet = Machines(
            machines=dice.randint(2, 4),
            keys=2,
            grants=30,
            links=LINKS[links],
            clocks=clocks(dice, 4),
            planted_ns=planted,
            own=1,
            deaths=dice.choice((0.0, 0.05)),
        )
        recorded, true = simulated(fleet, seed)
        truth, report = check(true), check(recorded)
        for name, verdict in report.verdicts.items():
            honest = verdict.result != "invalid" or truth.verdicts[name].result == "invalid"
            assert honest, f"{fleet}: {name}: {verdict.reason}"
        if certainly_double(true):
            found += 1
            assert report.verdicts["double-grant"].result == "invalid", fleet
            assert report.verdicts["linearizable"].result == "invalid", fleet
    assert found > 0


class Scene:
    """Grants on machines that are at most 15 away from the clock of the resource, in ms."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.builder.epsilon_ns = 15 * MS
        self.number = 0

    def hold(
        self, machine: str, start: int, end: int, *applied: int, key: str = "k", kind: str = "mutex"
    ) -> Scene:
        """With uses applied at these times, each of which took all of the hold."""
        self.number += 1
        self.builder.objects[key] = Object(kind)
        for f, begin, done, at in (
            (F.ACQUIRE, start, start, None),
            *((F.READ, start, end, at) for at in applied),
            (F.RELEASE, end, end, None),
        ):
            self.builder.add(
                process=self.number, f=int(f), outcome=int(Type.OK), key=key, machine=machine,
                invoke_ns=begin * MS, complete_ns=done * MS, hold=f"h{self.number}",
                numbers={} if at is None else {"applied_ns": at * MS, "value": 0},
            )  # fmt: skip
        return self

    def verdict(self, name: str = "double-grant") -> Verdict:
        return check(self.builder.finish()).verdicts[name]


def test_referee_stamps_show_what_shrinking_hides() -> None:
    """Both hold for 25 ms, less than twice what the clocks may be off."""
    assert Scene().hold("a", 0, 25, 2, 20).hold("b", 10, 35, 15, 30).verdict().result == "invalid"
    neighbour = Scene().hold("a", 0, 25, 2, 14).hold("b", 10, 35, 15, 30).verdict()
    assert neighbour.result == "valid"
    assert neighbour.reason.endswith("clocks agree to ±5.76 ms")
    # One moment of a hold inside another: certain; at its edge it is not.
    assert Scene().hold("a", 0, 25, 2, 20).hold("b", 8, 33, 15).verdict().result == "invalid"
    assert Scene().hold("a", 0, 25, 2, 20).hold("b", 8, 33, 20).verdict().result != "invalid"


def test_an_operation_outside_its_promise_is_no_stamp() -> None:
    scene = Scene().hold("a", 0, 25, 2, 14).hold("b", 10, 35, 15, 30)
    scene.builder.add(
        process=1, f=int(F.READ), outcome=int(Type.OK), key="k", machine="a", hold="h1",
        invoke_ns=26 * MS, complete_ns=60 * MS, numbers={"applied_ns": 40 * MS, "value": 0},
    )  # fmt: skip
    assert scene.verdict().result == "valid"


def test_no_stamps_tell_an_overlap_that_is_shorter_than_the_way_to_the_service() -> None:
    """Nothing but holds of 20 µs, and a stated bound. Between a release and the next grant there
    are two ways of 50 µs, so a clock that is set otherwise by 30 µs explains the same stamps."""
    fleet = Machines(4, 10, 200, uses=0, clocks=(Clock(), Clock(3 * MS)), planted_ns=(20 * US,))
    recorded, true = simulated(fleet, 1)
    assert check(true).verdicts["double-grant"].result == "invalid"

    def with_clocks(other: int, by_ns: int) -> str:
        """With true offsets, but for one machine."""

        def offset(machine: int, at: Ints) -> Ints:
            number = int(recorded.machines[machine][1:])
            off = fleet.clocks[number % 2].off_ns
            return np.full(len(at), (by_ns if number == other else 0) - off)

        told = shifted(recorded, offset)
        told = told.only(np.argsort(told.invoke_ns, kind="stable"))
        return check(told).verdicts["double-grant"].result

    assert with_clocks(0, 0) == "invalid"
    assert "valid" in {with_clocks(*it) for it in product(range(4), (-30 * US, 30 * US))}
    said = check(replace(recorded, epsilon_ns=5 * MS)).verdicts["double-grant"]
    assert said.result == "unknown"


def test_keys_of_one_machine_need_no_bounds() -> None:
    """Also where nothing at all is known of its clock, and where another key is shared."""
    alone = Scene().hold("a", 0, 25, key="own").hold("a", 24, 30, key="own")
    alone.builder.epsilon_ns = 0
    assert alone.verdict().result == "invalid"
    assert alone.verdict("linearizable").result == "invalid"
    kept = Scene().hold("a", 0, 25, key="own").hold("a", 25, 30, key="own")
    kept.builder.epsilon_ns = 0
    assert kept.verdict().result == "valid"
    # Both on one machine: certain, although the key is shared.
    shared = Scene().hold("a", 0, 3).hold("a", 2, 5).hold("b", 500, 600, 550, 560)
    assert shared.verdict().result == "invalid"
    assert Scene().hold("a", 0, 3).hold("b", 2, 5).verdict().result == "unknown"


def test_fences_of_a_key_of_one_machine_need_no_bounds() -> None:
    """1 ms apart, on a clock that may be 15 ms off; on two machines nobody knows their order."""
    for machines, result in (("aa", "invalid"), ("ab", "unknown")):
        scene = Scene().hold("b", -500, -400, -450, -440, key="shared")
        for number, machine in enumerate(machines):
            for f, at in ((F.ACQUIRE, 2 * number), (F.RELEASE, 2 * number + 1)):
                scene.builder.add(
                    process=10 + number, f=int(f), outcome=int(Type.OK), key="k", machine=machine,
                    invoke_ns=at * MS, complete_ns=at * MS, hold=f"h{10 + number}",
                    numbers={"fence": 5 - number} if f is F.ACQUIRE else {},
                )  # fmt: skip
        assert scene.verdict("fence-order").result == result


def test_evidence_of_a_key_of_one_machine_names_its_own_rows() -> None:
    scene = Scene().hold("b", -500, -400, -450, key="k")
    scene.hold("a", 0, 25, key="own").hold("a", 24, 30, key="own")
    history = scene.builder.finish()
    evidence = check(history).verdicts["double-grant"].evidence
    placed = Clocks.of(history).placed
    assert [placed.keys[placed.key[int(str(item["row"]))]] for item in evidence] == ["own", "own"]


def test_too_few_promises_with_a_certain_part_are_never_valid() -> None:
    for short, result in ((1, "valid"), (2, "unknown")):
        scene = Scene()
        for number in range(20):
            begin, uses = 100 * number, () if number < short else (100 * number + 20,)
            end = begin + (10 if number < short else 50)
            scene.hold("ab"[number % 2], begin, end, *uses)
        verdict = scene.verdict()
        assert verdict.result == result
    assert verdict.reason == "clocks agree to ±15 ms; 2 of 20 promises are shorter"


def test_without_probes_and_words_nothing_is_known() -> None:
    scene = Scene().hold("a", 0, 25).hold("b", 100, 125)
    scene.builder.epsilon_ns = 0
    verdict = scene.verdict()
    assert verdict.result == "unknown"
    assert verdict.reason == "nothing says how the clocks are set; 2 of 2 promises are shorter"


def test_what_is_on_no_machine_is_on_the_clock_of_the_resource() -> None:
    scene = Scene().hold("a", 100, 125, 110, 120)
    late = scene.builder
    for f, at in ((F.ACQUIRE, 115), (F.RELEASE, 117)):
        late.add(
            process=9, f=int(f), outcome=int(Type.OK), key="k", hold="h9",
            invoke_ns=at * MS, complete_ns=at * MS,
        )  # fmt: skip
    assert scene.verdict().result == "invalid"


def test_a_stale_holder_is_told_only_beyond_what_the_clocks_may_be_off() -> None:
    for late, result in ((500, "invalid"), (12, "unknown")):
        scene = Scene().hold("a", 0, 100, 50, 60).hold("b", 105, 600, 110, 590)
        scene.builder.add(
            process=1, f=int(F.READ), outcome=int(Type.OK), key="k", machine="a", hold="h1",
            invoke_ns=90 * MS, complete_ns=590 * MS,
            numbers={"applied_ns": (100 + late) * MS, "value": 0},
        )  # fmt: skip
        assert scene.verdict("stale-holder").result == result


def test_answers_inside_one_hold_need_no_clock() -> None:
    scene = Scene().hold("a", 0, 100, 50, 60).hold("b", 200, 300, 250, 260)
    assert scene.verdict("linearizable").result == "valid"
    scene.builder.add(
        process=1, f=int(F.RELEASE), outcome=int(Type.OK), key="k", machine="a", hold="h1",
        invoke_ns=101 * MS, complete_ns=101 * MS,
    )  # fmt: skip
    verdict = scene.verdict("linearizable")
    assert verdict.result == "invalid"
    assert "released twice" in verdict.reason


def test_a_lease_that_ends_between_probes_is_as_uncertain_as_the_clock_is_then() -> None:
    scene = Scene().hold("a", 0, 10, 5).hold("b", 0, 10, 5, key="other")
    scene.builder.epsilon_ns = 0
    scene.hold("a", 100_000, 100_010, 100_005).hold("b", 100_000, 100_010, 100_005, key="other")
    probed = scene.builder.finish()
    assert Clocks.of(probed).epsilon_ns < 6 * MS
    until = np.where(probed.f == F.ACQUIRE, 50_000 * MS, NULL)
    leased = replace(probed, valid_until_ns=until)
    assert Clocks.of(leased).epsilon_ns > 25 * MS


def test_after_something_from_outside_nothing_is_told() -> None:
    scene = Scene().hold("a", 0, 25, 2, 20).hold("b", 10, 35, 15, 30)
    assert scene.verdict().result == "invalid"
    fault = Fault("outside", (), (-200 * MS, -200 * MS), None, facts={"what": "the server died"})
    scene.builder.faults.append(fault)
    assert scene.verdict().result == "unknown"


def test_a_semaphore_is_judged_by_the_certain_parts() -> None:
    def three(*starts: int) -> Scene:
        scene = Scene()
        for machine, start in zip("abc", starts, strict=True):
            scene.hold(machine, start, start + 100, start + 20, start + 80, kind="semaphore")
        scene.builder.objects["k"] = Object("semaphore", permits=2)
        return scene

    assert three(0, 10, 20).verdict().result == "invalid"
    assert three(0, 10, 115).verdict().result == "valid"


def test_time_grows_with_the_operations() -> None:
    """Of a history whose scalar ε would send each operation to a search."""
    links = (Link(5 * MS, 5 * MS, 200 * US),)
    drifting = (Clock(), Clock(S, 50, 5), Clock(-S, -20, 3))
    histories = {
        grants: simulated(Machines(4, 10, grants, links=links, clocks=drifting), 1)[0]
        for grants in (25, 250)
    }

    def judge(grants: int) -> None:
        verdict = check(histories[grants], only=("linearizable",)).verdicts["linearizable"]
        assert verdict.result == "valid"
        assert "clocks agree to ±5" in verdict.reason

    assert exponent(judge, 25, 250) < 1.3


@pytest.mark.parametrize("ahead_s", [0, 1000])
@pytest.mark.parametrize("struck", [True, False])
def test_what_a_fault_left_is_not_counted_by_the_clock_of_one_machine(
    struck: bool, ahead_s: int
) -> None:
    """The heal is on the resource's clock. Client 9 is refused 26 s after the load began, by its
    own."""
    builder = Builder()
    of = Object("mutex", role="contended", lease_ns=3 * S, slack_ns=2 * S)
    builder.objects |= {"k": of, "spare": of}

    def did(f: F, at_s: float, key: str, hold: str = "", outcome: Type = Type.OK) -> None:
        at_ns = int((at_s + ahead_s) * S)
        until = {"valid_until_ns": at_ns + 3 * S} if (f, outcome) == (F.ACQUIRE, Type.OK) else {}
        builder.add(
            process=9, f=int(f), outcome=int(outcome), key=key, machine="b", invoke_ns=at_ns,
            complete_ns=at_ns + S // 10, hold=hold or None, numbers=until,
            error="held" if outcome == Type.FAIL else None,
        )  # fmt: skip

    for key, hold, at_s in (("k", "a", 0.0), ("spare", "s", 27.0), ("k", "z", 42.0)):
        did(F.ACQUIRE, at_s, key, hold)
        did(F.RELEASE, at_s + 0.2, key, hold)
    did(F.QUIET, 20, "k")
    did(F.ACQUIRE, 26, "k", "q", Type.FAIL)
    kill = Fault("kill", ("n1",), (10 * S, 10 * S), (40 * S, 40 * S))
    faults = (kill,) if struck else ()
    result = check(replace(builder.finish(), faults=faults)).verdicts["leaked-lock"].result
    assert result != "invalid" if struck else result == "invalid"
