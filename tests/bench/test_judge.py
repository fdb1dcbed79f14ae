"""The judgement: worst wins, unknown and unexposed are never green, a control must be caught."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.document import required_of
from bench.judge import CONTRADICTED, MAY, Expected, Judgement, expectation, judge
from bench.plan import make_case
from checker.catalogue import ALWAYS, OF_JOBS
from checker.follows import FOLLOWS, causes_of
from locks.base import ANY, Expectation, System
from locks.registry import find, systems
from nemesis.registry import faults
from results.errors import Ending
from results.judgements import BROKE_UNDECLARED, HELD_UNDECLARED, WORSE


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


def verdict(
    declared: System,
    observed: dict[str, str],
    *,
    exposed: bool = True,
    failure: str | None = None,
    short: str | None = None,
    shown: frozenset[str] = frozenset(),
) -> Any:
    return judge(
        Expected(declared, ("wipe",)),
        observed,
        exposed=exposed,
        exposure="seen",
        failure=failure,
        short=short,
        shown_before=shown,
    ).ending


ALL_VALID = dict.fromkeys(
    ("double-grant", "late-grant", "stale-holder", "wrong-release", "lost-update"), "valid"
)


def test_kept_promises_are_ok() -> None:
    assert verdict(system(), ALL_VALID) is Ending.OK


def test_a_break_that_should_hold_is_safety_whatever_else_happened() -> None:
    observed = ALL_VALID | {"double-grant": "invalid"}
    assert verdict(system(), observed) is Ending.SAFETY
    assert verdict(system(), observed, exposed=False) is Ending.SAFETY
    assert verdict(system(), observed, failure="the heal failed") is Ending.SAFETY
    assert verdict(system(stale_holder="breaks"), observed) is Ending.SAFETY


def disturbed(observed: dict[str, str], **more: Any) -> Judgement:
    return judge(
        Expected(system(late_grant="breaks"), ("wipe",)),
        ALL_VALID | observed,
        exposure="seen",
        failure="the load failed",
        disturbed="redis-1 met with die",
        **{"exposed": True, **more},
    )


def test_a_disturbed_case_shows_nothing_but_what_broke_untouched() -> None:
    for observed in ({}, {"stale-holder": "unknown"}, {"late-grant": "invalid"}):
        found = disturbed(observed)
        assert (found.ending, found.word) == (Ending.BENCH, "disturbed")
        assert found.why == "redis-1 met with die"
    assert disturbed({}, exposed=False).ending is Ending.BENCH
    # The checker calls it invalid only where the disturbance cannot have been its cause.
    assert disturbed({"double-grant": "invalid"}).ending is Ending.SAFETY


def contradicted(observed: dict[str, str], *verdicts: str) -> Judgement:
    return judge(
        Expected(system(), ("wipe",)),
        ALL_VALID | observed,
        exposed=True,
        exposure="seen",
        failure=None,
        contradicted=dict.fromkeys(verdicts, "the record shows otherwise"),
    )


def test_what_the_service_contradicts_is_the_defect_of_the_bench() -> None:
    found = contradicted({"double-grant": "invalid", "linearizable": "invalid"}, "double-grant")
    assert (found.ending, found.word) == (Ending.BENCH, CONTRADICTED)
    assert found.why == "double-grant: the record shows otherwise"
    # A promise that was recorded too long is one even where it broke nothing.
    assert contradicted({}, "promises").ending is Ending.BENCH


@pytest.mark.parametrize("also", ["wrong-release", "lost-update", "stale-holder"])
def test_a_contradiction_hides_no_other_violation(also: str) -> None:
    broken = {"double-grant": "invalid", "linearizable": "invalid", also: "invalid"}
    found = contradicted(broken, "double-grant")
    assert (found.ending, found.why) == (Ending.SAFETY, f"{also}: expected to hold and broke")


def test_an_expected_break_is_ok_and_its_absence_is_the_bench() -> None:
    declared = system(double_grant="breaks")
    assert verdict(declared, ALL_VALID | {"double-grant": "invalid"}) is Ending.OK
    assert verdict(declared, ALL_VALID) is Ending.BENCH
    assert verdict(declared, ALL_VALID, shown=frozenset({"double-grant"})) is Ending.OK
    unknown = ALL_VALID | {"double-grant": "unknown"}
    assert verdict(declared, unknown) is Ending.BENCH


def test_a_race_may_or_may_not_show() -> None:
    declared = system(lost_update="may-break")
    assert verdict(declared, ALL_VALID) is Ending.OK
    assert verdict(declared, ALL_VALID | {"lost-update": "invalid"}) is Ending.OK


def test_unknown_and_unexposed_are_never_green() -> None:
    assert verdict(system(), ALL_VALID | {"lost-update": "unknown"}) is Ending.INCONCLUSIVE
    assert verdict(system(), ALL_VALID, exposed=False) is Ending.INCONCLUSIVE


def test_another_load_than_was_asked_for_is_never_green_and_hides_no_violation() -> None:
    short = "9,000 of 50,000 jobs were begun"
    assert verdict(system(), ALL_VALID, short=short) is Ending.INCONCLUSIVE
    broken = ALL_VALID | {"double-grant": "invalid"}
    assert verdict(system(), broken, short=short) is Ending.SAFETY


def test_a_verdict_that_was_due_and_is_absent_is_not_green() -> None:
    observed = {v: r for v, r in ALL_VALID.items() if v != "late-grant"}
    assert verdict(system(), observed) is Ending.INCONCLUSIVE
    fenced = replace(system(), fence="revision")
    assert verdict(fenced, ALL_VALID) is Ending.INCONCLUSIVE
    assert verdict(fenced, ALL_VALID | {"fence-order": "valid"}) is Ending.OK


def test_a_failure_is_the_bench() -> None:
    assert verdict(system(), ALL_VALID, failure="no leader") is Ending.BENCH


def test_what_follows_from_an_expected_break_is_expected() -> None:
    declared = system(double_grant="breaks")
    observed = ALL_VALID | {"double-grant": "invalid", "linearizable": "invalid"}
    assert verdict(declared, observed) is Ending.OK
    assert verdict(system(), ALL_VALID | {"linearizable": "invalid"}) is Ending.SAFETY


def test_what_follows_is_excused_only_by_a_cause_that_broke() -> None:
    declared = system(double_grant="may-break")
    assert verdict(declared, ALL_VALID | {"linearizable": "invalid"}) is Ending.SAFETY
    both = {"linearizable": "invalid", "double-grant": "invalid"}
    assert verdict(declared, ALL_VALID | both) is Ending.OK
    # A cause that was not expected to break excuses nothing.
    other = ALL_VALID | {"linearizable": "invalid", "wrong-release": "invalid"}
    assert verdict(declared, other) is Ending.SAFETY


@pytest.mark.parametrize("late", [("stale-holder",), ("stale-holder", "lost-update")])
def test_a_late_holder_excuses_no_answer_of_the_lock(late: tuple[str, ...]) -> None:
    """Whoever is told not-held inside its promise was lied to, whatever a paused client did."""
    pause = Expected(find("redis-token"), ("client-pause",))
    assert pause.excused(late) == set(late)
    assert pause.excused([*late, "linearizable"]) == set(late)
    observed = dict.fromkeys((*ALWAYS, "linearizable"), "valid") | dict.fromkeys(late, "invalid")
    told = [judged(pause, observed), judged(pause, observed | {"linearizable": "invalid"})]
    assert [found.ending for found in told] == [Ending.OK, Ending.SAFETY]
    assert told[1].why == "linearizable: expected to hold and broke"


def test_what_is_declared_of_a_verdict_itself_counts_before_what_it_follows_from() -> None:
    declared = system(double_grant="may-break", lost_update="holds")
    both = ALL_VALID | {"double-grant": "invalid", "lost-update": "invalid"}
    assert verdict(declared, both) is Ending.SAFETY
    assert verdict(system(double_grant="may-break"), both) is Ending.OK


def judged(expected: Expected, observed: dict[str, str]) -> Judgement:
    return judge(expected, observed, exposed=True, exposure="seen", failure=None)


@pytest.mark.parametrize("declared", systems().values(), ids=systems())
def test_one_more_lie_is_caught_in_every_cell(declared: System) -> None:
    """Under each fault, alone and on top of everything that the lock is declared to break."""
    usual = dict.fromkeys((*ALWAYS, "linearizable"), "valid")
    for fault in faults():
        expected = Expected(declared, (fault,))
        may = {v for v in FOLLOWS if expectation(declared, fault, v).expected in MAY}
        # Of a semaphore, what is done too late shows in the job alone.
        unseen = set(OF_JOBS) if declared.kind == "semaphore" else set()
        word = WORSE if fault in declared.expectations else BROKE_UNDECLARED
        for lie in set(FOLLOWS) - may - unseen:
            # That nothing is declared of a fault takes back nothing that is said of all locks.
            told = WORSE if expectation(declared, fault, lie).expected == "n/a" else word
            found = judged(expected, usual | {lie: "invalid"})
            assert found.ending is Ending.SAFETY
            assert (found.word, found.why.split(":")[0]) == (told, lie), fault
            if causes_of(lie).isdisjoint(may):
                on_top = judged(expected, usual | dict.fromkeys([*may, lie], "invalid"))
                assert (on_top.word, on_top.why.split(":")[0]) == (told, lie), fault


@pytest.mark.parametrize(
    ("endings", "worst"),
    [
        ([Ending.OK, Ending.REGRESSION], Ending.REGRESSION),
        ([Ending.REGRESSION, Ending.INCONCLUSIVE], Ending.INCONCLUSIVE),
        ([Ending.INCONCLUSIVE, Ending.BENCH], Ending.BENCH),
        ([Ending.BENCH, Ending.SAFETY], Ending.SAFETY),
        ([Ending.OK, Ending.OK], Ending.OK),
        ([], Ending.INCONCLUSIVE),
    ],
)
def test_one_beats_255_beats_two_beats_three(endings: list[Ending], worst: Ending) -> None:
    assert Ending.worst(endings) is worst


def test_an_expectation_needs_a_source() -> None:
    with pytest.raises(ValueError, match="source"):
        Expectation("holds", "  ")


def test_of_what_no_expectation_was_written_for_nothing_has_to_break() -> None:
    declared = system(double_grant="breaks")
    exact = Expected(declared, ("wipe",))
    assert exact.of("double-grant").expected == "breaks"
    for other in (
        Expected(declared, ("wipe",), exact=False),
        Expected(declared, ("pause", "wipe"), exact=False),
    ):
        assert other.of("double-grant").expected == "may-break"
    silent = Expected(declared, ("pause", "kill"), exact=False)
    assert silent.of("double-grant").expected == "undeclared"
    # Beside a fault of which nothing is declared, what is declared of another claims nothing.
    assert Expected(declared, ("wipe",), exact=False).of("stale-holder").expected == "holds"
    both = Expected(declared, ("pause", "wipe"), exact=False)
    assert both.of("stale-holder").expected == "undeclared"
    assert both.of("double-grant").expected == "may-break"


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
    assert long.of("double-grant").expected == "holds"
    control = Expected(find("redis-no-owner"), ("none",), outlasts=True)
    assert control.of("double-grant").expected == "may-break"


def test_what_is_not_judged_excuses_the_verdicts_of_jobs_alone() -> None:
    shared = Expected(find("zookeeper-read-write"), ("client-pause", "kill"), exact=False)
    assert not shared.excused(["linearizable"])


def test_what_the_workload_does_not_reach_is_not_due() -> None:
    expected = Expected(find("redis-token"), ("client-pause",))
    found = judge(
        expected,
        {"double-grant": "valid", "late-grant": "valid", "wrong-release": "valid"},
        exposed=True,
        exposure="",
        failure=None,
        required=("double-grant", "late-grant", "wrong-release"),
    )
    assert found.word == "as expected"


def test_who_outlasts_its_lease_may_have_nothing_left_to_release() -> None:
    plain, late = (
        required_of(make_case("redis-token", "none", seed=0, workload=workload))
        for workload in ("payment", "long-hold")
    )
    assert set(plain) - set(late) == {"wrong-release", "charged-twice", "lost-charge"}
    observed = dict.fromkeys(
        ("double-grant", "late-grant", "stale-holder", "lost-update", "leaked-lock"), "valid"
    )
    calm = Expected(find("redis-token"), ("none",))
    endings = [
        judge(calm, observed, exposed=True, exposure="", failure=None, required=required).ending
        for required in (late, (*late, "wrong-release"))
    ]
    assert endings == [Ending.OK, Ending.INCONCLUSIVE]


def own(**expectations: Any) -> Expected:
    """A lock from a file of its user's, under a client pause."""
    return Expected(replace(system(), expectations=expectations), ("client-pause",), own=True)


KEPT = dict.fromkeys((*ALWAYS, "linearizable"), "valid")


def test_what_no_lease_prevents_is_not_held_against_a_lock_without_expectations() -> None:
    late = KEPT | {"stale-holder": "invalid", "lost-update": "invalid"}
    found = judged(own(), late)
    assert (found.ending, found.word) == (Ending.INCONCLUSIVE, "no expectation declared")
    assert "no lease can prevent it" in found.why
    assert own().words()["stale-holder"] == "no expectation declared"
    # The same of a lock of ours, or under another fault, is a violation.
    assert judged(replace(own(), own=False), late).word == BROKE_UNDECLARED
    assert judged(replace(own(), faults=("wipe",)), late).word == BROKE_UNDECLARED
    holds = {"client-pause": {"stale-holder": Expectation("holds", "its fence")}}
    assert judged(own(**holds), late).word == WORSE
    may = {"client-pause": {"stale-holder": Expectation("may-break", "its page")}}
    assert judged(own(**may), late).word == "as expected"


@pytest.mark.parametrize("word", ["double-grant", "late-grant", "wrong-release", "linearizable"])
def test_the_word_of_the_service_counts_without_any_declaration(word: str) -> None:
    found = judged(own(), KEPT | {"stale-holder": "invalid", word: "invalid"})
    assert (found.ending, found.word) == (Ending.SAFETY, BROKE_UNDECLARED)
    assert found.why == f"{word}: broke, and nothing is declared under client-pause"


def test_a_lost_update_without_a_late_holder_is_no_matter_of_leases() -> None:
    found = judged(own(), KEPT | {"lost-update": "invalid"})
    assert (found.ending, found.word) == (Ending.SAFETY, BROKE_UNDECLARED)


def under(*faults: str, **verdicts: str) -> Expected:
    """A lock that declares something of ``wipe`` alone."""
    return Expected(system(**verdicts), faults, exact=len(faults) == 1)


def test_silence_is_no_claim_and_hides_no_break() -> None:
    held = judged(under("latency"), KEPT)
    assert (held.ending, held.word) == (Ending.OK, HELD_UNDECLARED)
    assert held.why == "nothing is declared under latency"
    broke = judged(under("latency"), KEPT | {"double-grant": "invalid"})
    assert (broke.ending, broke.word) == (Ending.SAFETY, BROKE_UNDECLARED)
    assert broke.why == "double-grant: broke, and nothing is declared under latency"
    assert "expected to hold" not in broke.why
    assert under("latency").words()["double-grant"] == "undeclared"


def test_what_is_declared_is_judged_as_ever() -> None:
    assert judged(under("wipe"), KEPT).word == "as expected"
    broke = judged(under("wipe"), KEPT | {"double-grant": "invalid"})
    assert (broke.ending, broke.word) == (Ending.SAFETY, WORSE)
    # Without a fault the lock's own source is the claim.
    assert judged(under(), KEPT).word == "as expected"
    assert judged(under(), KEPT | {"double-grant": "invalid"}).word == WORSE


def test_silence_is_never_better_than_unknown_or_unexposed() -> None:
    late = KEPT | {"late-grant": "unknown"}
    assert judged(under("latency"), late).ending is Ending.INCONCLUSIVE
    unexposed = judge(under("latency"), KEPT, exposed=False, exposure="seen", failure=None)
    assert unexposed.ending is Ending.INCONCLUSIVE


def test_of_several_faults_one_that_is_not_declared_makes_a_case_undeclared() -> None:
    both = under("wipe", "latency", double_grant="breaks")
    assert judged(both, KEPT).word == HELD_UNDECLARED
    broke = judged(both, KEPT | {"double-grant": "invalid"})
    assert (broke.ending, broke.word) == (Ending.OK, HELD_UNDECLARED)
    assert broke.why == "nothing is declared under latency; double-grant broke, as expected"
    assert judged(both, KEPT | {"wrong-release": "invalid"}).word == BROKE_UNDECLARED


def test_work_that_outlasts_its_lease_takes_back_no_claim() -> None:
    long = replace(under("wipe"), outlasts=True)
    assert long.of("double-grant").expected == "holds"
    assert judged(long, KEPT | {"double-grant": "invalid"}).word == WORSE


def test_whatever_is_not_named_may_be_declared_at_once() -> None:
    declared = replace(
        system(),
        expectations={
            "kill": {
                ANY: Expectation("holds", "its journal"),
                "late-grant": Expectation("may-break", "its page", "documented-limit"),
            }
        },
    )
    assert expectation(declared, "kill", "double-grant").source == "its journal"
    assert expectation(declared, "kill", "late-grant").expected == "may-break"
    assert expectation(declared, "pause", "double-grant").expected == "undeclared"
    assert expectation(declared, "kill", "fence-order").expected == "n/a"


def test_the_lines_to_declare_can_be_copied_and_ask_for_a_source() -> None:
    lines = own().proposal(["stale-holder", "lost-update"])
    text = "\n".join(lines)
    assert "client-pause" in text
    assert "lost-update" not in text, "it follows"
    with pytest.raises(ValueError, match="without a source"):
        exec(text, {"Expectation": Expectation})
    said: dict[str, Any] = {"Expectation": Expectation}
    exec(text.replace('source=""', 'source="its page"'), said)
    declared = own(**said["expectations"])
    late = KEPT | {"stale-holder": "invalid", "lost-update": "invalid"}
    assert judged(declared, late).ending is Ending.OK
    assert own().proposal([]) == declared.proposal(["stale-holder"]) == []
    assert replace(own(), own=False).proposal(["stale-holder"]) == []
