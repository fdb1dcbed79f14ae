"""The judgement: worst wins, unknown and unexposed are never green, a control must be caught."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.errors import Ending
from bench.judge import CONTRADICTED, MAY, WORSE, Expected, Judgement, judge
from bench.plan import make_case
from bench.run import _required
from checker.follows import FOLLOWS, OF_JOBS, causes_of
from locks.base import VERDICTS, Expectation, System
from locks.registry import find, systems
from nemesis.registry import faults


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
    observed = dict.fromkeys((*VERDICTS, "linearizable"), "valid") | dict.fromkeys(late, "invalid")
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
    usual = dict.fromkeys((*VERDICTS, "linearizable"), "valid")
    for fault in faults():
        expected = Expected(declared, (fault,))
        may = {v for v in FOLLOWS if declared.expectation(fault, v).expected in MAY}
        # Of a semaphore, what is done too late shows in the job alone.
        unseen = set(OF_JOBS) if declared.kind == "semaphore" else set()
        for lie in set(FOLLOWS) - may - unseen:
            found = judged(expected, usual | {lie: "invalid"})
            assert (found.word, found.why.split(":")[0]) == (WORSE, lie), fault
            if causes_of(lie).isdisjoint(may):
                on_top = judged(expected, usual | dict.fromkeys([*may, lie], "invalid"))
                assert (on_top.word, on_top.why.split(":")[0]) == (WORSE, lie), fault


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
        assert other.of("stale-holder").expected == "holds"
    assert Expected(declared, ("pause", "kill"), exact=False).of("double-grant").expected == "holds"


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
        _required(make_case("redis-token", "none", seed=0, workload=workload))
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


KEPT = dict.fromkeys((*VERDICTS, "linearizable"), "valid")


def test_what_no_lease_prevents_is_not_held_against_a_lock_without_expectations() -> None:
    late = KEPT | {"stale-holder": "invalid", "lost-update": "invalid"}
    found = judged(own(), late)
    assert (found.ending, found.word) == (Ending.INCONCLUSIVE, "no expectation declared")
    assert "no lease can prevent it" in found.why
    assert own().words()["stale-holder"] == "no expectation declared"
    # The same of a lock of ours, under another fault, or of its own as declared: worse.
    assert judged(replace(own(), own=False), late).word == WORSE
    assert judged(replace(own(), faults=("wipe",)), late).word == WORSE
    holds = {"client-pause": {"stale-holder": Expectation("holds", "its fence")}}
    assert judged(own(**holds), late).word == WORSE
    may = {"client-pause": {"stale-holder": Expectation("may-break", "its page")}}
    assert judged(own(**may), late).word == "as expected"


@pytest.mark.parametrize("word", ["double-grant", "late-grant", "wrong-release", "linearizable"])
def test_the_word_of_the_service_counts_without_any_declaration(word: str) -> None:
    found = judged(own(), KEPT | {"stale-holder": "invalid", word: "invalid"})
    assert (found.ending, found.word) == (Ending.SAFETY, WORSE)
    assert found.why == f"{word}: expected to hold and broke (no expectation declared)"


def test_a_lost_update_without_a_late_holder_is_no_matter_of_leases() -> None:
    assert judged(own(), KEPT | {"lost-update": "invalid"}).word == WORSE


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
