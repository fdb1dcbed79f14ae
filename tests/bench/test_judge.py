"""The judgement: worst wins, unknown and unexposed are never green, a control must be caught."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lockbench.bench.document import required_of
from lockbench.bench.judge import MAY, Expected, Judgement, expectation, judge
from lockbench.bench.plan import make_case
from lockbench.checker.catalogue import ALWAYS, OF_JOBS, OF_LOCKS
from lockbench.checker.follows import FOLLOWS, causes_of
from lockbench.locks.base import ANY, Expectation, System
from lockbench.locks.registry import find, systems
from lockbench.nemesis.registry import faults
from lockbench.results.errors import Ending
from lockbench.results.judgements import BROKE_UNDECLARED, CONTRADICTED, HELD_UNDECLARED, WORSE


def system(**verdicts: str) -> System:
    expectations = {
        name.replace("_", "-"): Expectation(word, "a source")  # type: ignore[arg-type]
        for name, word in verdicts.items()
    }
    return System(
        name="some",
        topologies=("redis",),
        family="redis",
        fence=None,
        waits_by="polling",
        source="the documentation",
        connect=lambda *_, **__: None,  # type: ignore[arg-type]
        outcomes={},
        expectations={"wipe": expectations},
    )


def under(*faults: str, **verdicts: str) -> Expected:
    """A lock that declares something of ``wipe`` alone."""
    return Expected(system(**verdicts), faults, exact=len(faults) == 1)


KEPT = dict.fromkeys((*ALWAYS, "linearizable"), "valid")


def judged(expected: Expected, *broken: str, unknown: Sequence[str] = (), **more: Any) -> Judgement:
    """Of a case in which everything else was kept."""
    observed = KEPT | dict.fromkeys(broken, "invalid") | dict.fromkeys(unknown, "unknown")
    usual: dict[str, Any] = {"exposed": True, "exposure": "seen", "failure": None}
    return judge(expected, observed, **usual | more)


DOUBLE, LATE, LOST, WRONG = "double-grant", "late-grant", "lost-update", "wrong-release"
BREAKS: dict[str, Any] = {"double_grant": "breaks"}
MAY_BREAK: dict[str, Any] = {"double_grant": "may-break"}
SHORT = {"short": "9,000 of 50,000 jobs were begun"}


@pytest.mark.parametrize(
    ("declared", "broken", "more", "ending"),
    [
        ({}, (), {}, Ending.OK),
        # A break that should hold is safety, whatever else happened.
        ({}, (DOUBLE,), {}, Ending.SAFETY),
        ({}, (DOUBLE,), {"exposed": False}, Ending.SAFETY),
        ({}, (DOUBLE,), {"failure": "the heal failed"}, Ending.SAFETY),
        ({}, (DOUBLE,), SHORT, Ending.SAFETY),
        ({"stale_holder": "breaks"}, (DOUBLE,), {}, Ending.SAFETY),
        # An expected break is ok, and its absence is the bench.
        (BREAKS, (DOUBLE,), {}, Ending.OK),
        (BREAKS, (), {}, Ending.BENCH),
        (BREAKS, (), {"shown_before": frozenset({DOUBLE})}, Ending.OK),
        (BREAKS, (), {"unknown": (DOUBLE,)}, Ending.BENCH),
        # A race may or may not show.
        ({"lost_update": "may-break"}, (), {}, Ending.OK),
        ({"lost_update": "may-break"}, (LOST,), {}, Ending.OK),
        # Unknown, unexposed, and another load than was asked for are never green.
        ({}, (), {"unknown": (LOST,)}, Ending.INCONCLUSIVE),
        ({}, (), {"exposed": False}, Ending.INCONCLUSIVE),
        ({}, (), SHORT, Ending.INCONCLUSIVE),
        ({}, (), {"failure": "no leader"}, Ending.BENCH),
        # What follows from an expected break is excused, but only by a cause that broke.
        (BREAKS, (DOUBLE, "linearizable"), {}, Ending.OK),
        ({}, ("linearizable",), {}, Ending.SAFETY),
        (MAY_BREAK, ("linearizable",), {}, Ending.SAFETY),
        (MAY_BREAK, ("linearizable", DOUBLE), {}, Ending.OK),
        (MAY_BREAK, ("linearizable", WRONG), {}, Ending.SAFETY),
        # What is declared of a verdict itself counts before what it follows from.
        (MAY_BREAK | {"lost_update": "holds"}, (DOUBLE, LOST), {}, Ending.SAFETY),
        (MAY_BREAK, (DOUBLE, LOST), {}, Ending.OK),
    ],
)
def test_the_worst_wins(
    declared: dict[str, str], broken: tuple[str, ...], more: dict[str, Any], ending: Ending
) -> None:
    assert judged(under("wipe", **declared), *broken, **more).ending is ending


def test_a_disturbed_case_shows_nothing_but_what_broke_untouched() -> None:
    expected = under("wipe", late_grant="breaks")
    disturbed: dict[str, Any] = {"failure": "the load failed", "disturbed": "redis-1 met with die"}
    for found in (
        judged(expected, **disturbed),
        judged(expected, unknown=["stale-holder"], **disturbed),
        judged(expected, LATE, **disturbed),
        judged(expected, exposed=False, **disturbed),
    ):
        assert (found.ending, found.word) == (Ending.BENCH, "disturbed")
        assert found.why == "redis-1 met with die"
    # The checker calls it invalid only where the disturbance cannot have been its cause.
    assert judged(expected, DOUBLE, **disturbed).ending is Ending.SAFETY


def test_what_the_service_contradicts_is_the_defect_of_the_bench() -> None:
    otherwise = {DOUBLE: "the record shows otherwise"}
    found = judged(under("wipe"), DOUBLE, "linearizable", contradicted=otherwise)
    assert (found.ending, found.word) == (Ending.BENCH, CONTRADICTED)
    assert found.why == "double-grant: the record shows otherwise"
    # A promise that was recorded too long is one even where it broke nothing.
    assert judged(under("wipe"), contradicted={"promises": "too long"}).ending is Ending.BENCH


@pytest.mark.parametrize("also", [WRONG, LOST, "stale-holder"])
def test_a_contradiction_hides_no_other_violation(also: str) -> None:
    otherwise = {DOUBLE: "the record shows otherwise"}
    found = judged(under("wipe"), DOUBLE, "linearizable", also, contradicted=otherwise)
    assert (found.ending, found.why) == (Ending.SAFETY, f"{also}: expected to hold and broke")


def test_a_verdict_that_was_due_and_is_absent_is_not_green() -> None:
    without = {v: r for v, r in KEPT.items() if v != LATE}
    found = judge(under("wipe"), without, exposed=True, exposure="seen", failure=None)
    assert found.ending is Ending.INCONCLUSIVE
    fenced = Expected(replace(system(), fence="revision"), ("wipe",))
    assert judged(fenced).ending is Ending.OK
    assert judged(fenced, unknown=["fence-order"]).ending is Ending.INCONCLUSIVE


@pytest.mark.parametrize("late", [("stale-holder",), ("stale-holder", LOST)])
def test_a_late_holder_excuses_no_answer_of_the_lock(late: tuple[str, ...]) -> None:
    """Whoever is told not-held inside its promise was lied to, whatever a paused client did."""
    pause = Expected(find("redis-token"), ("client-pause",))
    assert pause.excused(late) == set(late)
    assert pause.excused([*late, "linearizable"]) == set(late)
    assert judged(pause, *late).ending is Ending.OK
    lied = judged(pause, *late, "linearizable")
    assert lied.ending is Ending.SAFETY
    assert lied.why == "linearizable: expected to hold and broke"


@pytest.mark.parametrize("declared", systems().values(), ids=systems())
def test_one_more_lie_is_caught_in_every_cell(declared: System) -> None:
    """Under each fault, alone and on top of everything that the lock is declared to break."""
    for fault in faults():
        expected = Expected(declared, (fault,))
        may = {v for v in FOLLOWS if expectation(declared, fault, v).expected in MAY}
        # Of a semaphore, what is done too late shows in the job alone.
        unseen = set(OF_JOBS) if declared.kind == "semaphore" else set()
        word = WORSE if fault in declared.expectations else BROKE_UNDECLARED
        for lie in set(FOLLOWS) - may - unseen:
            # That nothing is declared of a fault takes back nothing that is said of all locks.
            told = WORSE if expectation(declared, fault, lie).expected == "n/a" else word
            found = judged(expected, lie)
            assert found.ending is Ending.SAFETY
            assert (found.word, found.why.split(":")[0]) == (told, lie), fault
            if causes_of(lie).isdisjoint(may):
                on_top = judged(expected, *may, lie)
                assert (on_top.word, on_top.why.split(":")[0]) == (told, lie), fault


@pytest.mark.parametrize(
    ("endings", "worst"),
    [
        ([Ending.OK, Ending.REGRESSION], Ending.REGRESSION),
        ([Ending.REGRESSION, Ending.INCONCLUSIVE], Ending.REGRESSION),
        ([Ending.BENCH, Ending.REGRESSION], Ending.REGRESSION),
        ([Ending.INCONCLUSIVE, Ending.BENCH], Ending.BENCH),
        ([Ending.BENCH, Ending.SAFETY], Ending.SAFETY),
        ([Ending.OK, Ending.OK], Ending.OK),
        ([], Ending.INCONCLUSIVE),
    ],
)
def test_one_beats_three_beats_255_beats_two(endings: list[Ending], worst: Ending) -> None:
    assert Ending.worst(endings) is worst


def test_an_expectation_needs_a_source() -> None:
    with pytest.raises(ValueError, match="source"):
        Expectation("holds", "  ")


def test_of_what_no_expectation_was_written_for_nothing_has_to_break() -> None:
    declared = system(double_grant="breaks")
    exact = Expected(declared, ("wipe",))
    assert exact.of(DOUBLE).expected == "breaks"
    for other in (
        Expected(declared, ("wipe",), exact=False),
        Expected(declared, ("pause", "wipe"), exact=False),
    ):
        assert other.of(DOUBLE).expected == "may-break"
    silent = Expected(declared, ("pause", "kill"), exact=False)
    assert silent.of(DOUBLE).expected == "undeclared"
    # Beside a fault of which nothing is declared, what is declared of another claims nothing.
    assert Expected(declared, ("wipe",), exact=False).of("stale-holder").expected == "holds"
    both = Expected(declared, ("pause", "wipe"), exact=False)
    assert both.of("stale-holder").expected == "undeclared"
    assert both.of(DOUBLE).expected == "may-break"


def test_what_comes_of_a_workload_is_as_good_as_its_lock() -> None:
    pause = Expected(find("redis-token"), ("client-pause",))
    assert pause.of("charged-twice").expected == "may-break"
    assert "charged-twice" in pause.excused(["stale-holder", "charged-twice"])
    assert not pause.excused(["charged-twice"]), "nothing that would explain it"
    calm = Expected(find("redis-token"), ("none",))
    assert calm.of("charged-twice").expected == "holds"
    assert not calm.excused(["stale-holder", "charged-twice"])
    assert pause.of("lost-charge").expected == "holds"


def test_a_permit_that_comes_too_late_is_excused_though_semaphores_know_no_stale_holder() -> None:
    pause = Expected(find("zookeeper-semaphore"), ("client-pause",))
    assert pause.of("stale-holder").expected == "n/a"
    assert pause.of("over-capacity").expected == "may-break"
    assert pause.excused(["over-capacity"])
    calm = Expected(find("zookeeper-semaphore"), ("none",))
    assert not calm.excused(["over-capacity"])


def test_work_that_outlasts_its_lease_may_do_what_a_paused_holder_does() -> None:
    long = Expected(find("redis-token"), ("none",), outlasts=True)
    assert long.of("stale-holder").expected == "may-break"
    assert long.of(DOUBLE).expected == "holds"
    control = Expected(find("redis-no-owner"), ("none",), outlasts=True)
    assert control.of(DOUBLE).expected == "may-break"


def test_a_lock_that_renews_itself_is_not_late_without_a_fault() -> None:
    """Work may last as long as it likes, while nothing happens to its client."""
    watched, leased, session, own_file = (
        Expected(find(name), ("none",), outlasts=True, own=own)
        for name, own in (
            ("redisson-rlock", False),
            ("redisson-redlock", False),
            ("curator-mutex", False),
            ("curator-mutex", True),
        )
    )
    for lock in (watched, session):
        assert lock.of("stale-holder").expected == "holds"
        assert judged(lock, "stale-holder").word == WORSE
    for lock in (leased, own_file):
        assert lock.of("stale-holder").expected == "may-break"
        assert judged(lock, "stale-holder").ending == Ending.OK
    paused = replace(watched, faults=("client-pause",))
    assert judged(paused, "stale-holder").ending == Ending.OK


def test_what_is_not_judged_excuses_the_verdicts_of_jobs_alone() -> None:
    shared = Expected(find("zookeeper-read-write"), ("client-pause", "kill"), exact=False)
    assert not shared.excused(["linearizable"])


def test_what_the_workload_does_not_reach_is_not_due() -> None:
    expected = Expected(find("redis-token"), ("client-pause",))
    found = judge(
        expected,
        {DOUBLE: "valid", LATE: "valid", WRONG: "valid"},
        exposed=True,
        exposure="",
        failure=None,
        required=(DOUBLE, LATE, WRONG),
    )
    assert found.word == "as expected"


def test_who_outlasts_its_lease_may_have_nothing_left_to_release() -> None:
    plain, late = (
        required_of(make_case("redis-token", "none", seed=0, workload=workload))
        for workload in ("payment", "long-hold")
    )
    assert set(plain) - set(late) == {WRONG, "charged-twice", "lost-charge"}
    observed = dict.fromkeys((DOUBLE, LATE, "stale-holder", LOST, "leaked-lock"), "valid")
    calm = Expected(find("redis-token"), ("none",))
    endings = [
        judge(calm, observed, exposed=True, exposure="", failure=None, required=required).ending
        for required in (late, (*late, WRONG))
    ]
    assert endings == [Ending.OK, Ending.INCONCLUSIVE]


def own(**expectations: Any) -> Expected:
    """A lock from a file of its user's, under a client pause."""
    return Expected(replace(system(), expectations=expectations), ("client-pause",), own=True)


def test_what_no_lease_prevents_is_not_held_against_a_lock_without_expectations() -> None:
    late = ("stale-holder", LOST)
    found = judged(own(), *late)
    assert (found.ending, found.word) == (Ending.INCONCLUSIVE, "no expectation declared")
    assert "no lease can prevent it" in found.why
    assert own().words()["stale-holder"] == "no expectation declared"
    # The same of a lock of ours, or under another fault, is a violation.
    assert judged(replace(own(), own=False), *late).word == BROKE_UNDECLARED
    assert judged(replace(own(), faults=("wipe",)), *late).word == BROKE_UNDECLARED
    holds = {"client-pause": {"stale-holder": Expectation("holds", "its fence")}}
    assert judged(own(**holds), *late).word == WORSE
    may = {"client-pause": {"stale-holder": Expectation("may-break", "its page")}}
    assert judged(own(**may), *late).word == "as expected"


@pytest.mark.parametrize("word", [DOUBLE, LATE, WRONG, "linearizable"])
def test_the_word_of_the_service_counts_without_any_declaration(word: str) -> None:
    found = judged(own(), "stale-holder", word)
    assert (found.ending, found.word) == (Ending.SAFETY, BROKE_UNDECLARED)
    assert found.why == f"{word}: broke, and nothing is declared under client-pause"


def test_a_lost_update_without_a_late_holder_is_no_matter_of_leases() -> None:
    found = judged(own(), LOST)
    assert (found.ending, found.word) == (Ending.SAFETY, BROKE_UNDECLARED)


def test_silence_is_no_claim_and_hides_no_break() -> None:
    held = judged(under("latency"))
    assert (held.ending, held.word) == (Ending.OK, HELD_UNDECLARED)
    assert held.why == "nothing is declared under latency"
    broke = judged(under("latency"), DOUBLE)
    assert (broke.ending, broke.word) == (Ending.SAFETY, BROKE_UNDECLARED)
    assert broke.why == "double-grant: broke, and nothing is declared under latency"
    assert "expected to hold" not in broke.why
    assert under("latency").words()[DOUBLE] == "undeclared"


def test_a_document_says_of_every_verdict_of_a_lock_what_is_expected() -> None:
    """Of wrong-extend, too: what is declared of it is no break that nobody declared."""
    may = {"client-pause": {"wrong-extend": Expectation("may-break", "its page")}}
    assert own(**may).words()["wrong-extend"] == "may-break"
    assert set(own().words()) == set(OF_LOCKS)


def test_what_is_declared_is_judged_as_ever() -> None:
    assert judged(under("wipe")).word == "as expected"
    broke = judged(under("wipe"), DOUBLE)
    assert (broke.ending, broke.word) == (Ending.SAFETY, WORSE)
    # Without a fault the lock's own source is the claim.
    assert judged(under()).word == "as expected"
    assert judged(under(), DOUBLE).word == WORSE


def test_silence_is_never_better_than_unknown_or_unexposed() -> None:
    for unproven in ({"unknown": [LATE]}, {"exposed": False}):
        assert judged(under("latency"), **unproven).ending is Ending.INCONCLUSIVE


def test_of_several_faults_one_that_is_not_declared_makes_a_case_undeclared() -> None:
    both = under("wipe", "latency", double_grant="breaks")
    assert judged(both).word == HELD_UNDECLARED
    broke = judged(both, DOUBLE)
    assert (broke.ending, broke.word) == (Ending.OK, HELD_UNDECLARED)
    assert broke.why == "nothing is declared under latency; double-grant broke, as expected"
    assert judged(both, WRONG).word == BROKE_UNDECLARED


def test_work_that_outlasts_its_lease_takes_back_no_claim() -> None:
    long = replace(under("wipe"), outlasts=True)
    assert long.of(DOUBLE).expected == "holds"
    assert judged(long, DOUBLE).word == WORSE


def test_whatever_is_not_named_may_be_declared_at_once() -> None:
    declared = replace(
        system(),
        expectations={
            "kill": {
                ANY: Expectation("holds", "its journal"),
                LATE: Expectation("may-break", "its page", "documented-limit"),
            }
        },
    )
    assert expectation(declared, "kill", DOUBLE).source == "its journal"
    assert expectation(declared, "kill", LATE).expected == "may-break"
    assert expectation(declared, "pause", DOUBLE).expected == "undeclared"
    assert expectation(declared, "kill", "fence-order").expected == "n/a"


def test_the_lines_to_declare_can_be_copied_and_ask_for_a_source() -> None:
    lines = own().proposal(["stale-holder", LOST])
    text = "\n".join(lines)
    assert "client-pause" in text
    assert LOST not in text, "it follows"
    with pytest.raises(ValueError, match="without a source"):
        exec(text, {"Expectation": Expectation})
    said: dict[str, Any] = {"Expectation": Expectation}
    exec(text.replace('source=""', 'source="its page"'), said)
    declared = own(**said["expectations"])
    assert judged(declared, "stale-holder", LOST).ending is Ending.OK
    assert own().proposal([]) == declared.proposal(["stale-holder"]) == []
    assert replace(own(), own=False).proposal(["stale-holder"]) == []
