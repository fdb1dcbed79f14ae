"""The headline of a run: three short lines, and a sentence for each lock."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest

from lockbench.checker.catalogue import CATALOGUE
from lockbench.checker.jobs import VERDICTS_OF
from lockbench.report import headline as headlines
from tests.report.test_tables import case, fenced_case, terminal
from tests.results.plain import plainly

headline = plainly(headlines.headline)


def of_lock(*cases: dict[str, Any]) -> str:
    """The sentence of the only lock."""
    (said,) = headline(list(cases)).by_lock
    return str(said)


def worse(lock: str) -> dict[str, Any]:
    bad = case(lock, "kill", broke=("double-grant",), judgement="worse than expected")
    bad["expected"]["double-grant"] = "holds"
    return bad


def test_what_comes_of_a_job_is_said_in_words() -> None:
    paid = case("redis-token", "client-pause", broke=("stale-holder", "lost-update"))
    paid["verdicts"]["charged-twice"] = {"result": "invalid"}
    paid["expected"]["charged-twice"] = "may-break"
    assert of_lock(paid) == (
        "redis-token: Let a holder act after its time under a client pause (1 of 1, as declared); "
        "charged a payment twice under a client pause (1 of 1, as declared)."
    )
    own = {verdict for verdicts in VERDICTS_OF.values() for verdict in verdicts}
    assert own <= set(CATALOGUE)


def during(found: dict[str, Any], verdict: str, at_s: float, *names: str) -> dict[str, Any]:
    """The case with evidence of a verdict at a time, while faults were on; its schedule begins two
    seconds after its load."""
    found["series"] = {"start_ns": 0}
    at_ns = int(at_s * 1e9)
    steps = found["fault"].replace("+", " then ").split(" then ")
    if found["fault"] != "none":
        found["injections"] = [{"fault": step, "begin_s": 2.0, "duration_s": 1.0} for step in steps]
    found["verdicts"][verdict]["evidence"] = [
        {"what": "operation", "text": "", "invoke_ns": at_ns, "complete_ns": at_ns},
        *({"what": "fault", "text": "", "name": name} for name in names),
    ]
    return found


@pytest.mark.parametrize(
    ("fault", "at_s", "names", "told"),
    [
        ("pause:for=1 then wipe", 5, ("wipe",), "when nodes lost their data"),
        ("pause:for=1 then wipe", 5, ("pause",), "when servers froze"),
        (
            "pause:for=1 then wipe",
            5,
            ("pause", "wipe"),
            "while several faults were on (pause and wipe)",
        ),
        (
            "pause:for=1 then wipe",
            5,
            (),
            "in a schedule of several faults (pause then wipe), during none of them",
        ),
        ("pause:for=1 then wipe", 1, (), "before any fault"),
        ("wipe:at=7", 5, ("wipe",), "when nodes lost their data"),
        ("wipe:at=7", 5, (), "when nodes lost their data"),
        ("wipe:at=7", 1, (), "before any fault"),
        ("random:count=3", 5, ("latency",), "under latency"),
        ("none", 5, (), "without any fault"),
    ],
)
def test_the_cause_is_the_fault_of_the_violation_itself(
    fault: str, at_s: float, names: tuple[str, ...], told: str
) -> None:
    broke = during(
        case("redis-token", fault, broke=("double-grant",)), "double-grant", at_s, *names
    )
    assert of_lock(broke).endswith(f"Gave the lock away twice {told} (1 of 1, as declared).")


def test_everything_as_declared() -> None:
    cases = [
        case("etcd"),
        case("etcd", "kill"),
        fenced_case(applied=0),
        case("redis-no-owner", "client-pause", broke=("wrong-release",), control=True),
    ]
    found = headline(cases)
    assert found.lines == (
        "All 4 cases ended as declared.",
        "Known to be broken, and caught: redis-no-owner.",
    )
    assert found.by_lock[0] == (
        "etcd: Let a holder act after its time under a client pause (1 of 1, as declared); its "
        "fence, checked on reads and writes, let 0 of 2 such acts through. Kept its promises under "
        "kill and without a fault (one try each)."
    )


def test_tries_are_counted_for_one_lock_under_one_fault_and_never_added_up() -> None:
    cases = [
        case(lock, fault) for lock in ("etcd", "redlock") for fault in ("none", "kill", "wipe")
    ]
    for said in (*headline(cases).lines, *headline(cases).by_lock):
        assert " of 6" not in said
        assert "6 tries" not in said
    assert "never" not in " ".join(headline(cases).by_lock)


def test_kept_has_a_bound_from_three_tries_on() -> None:
    """0 of 3 excludes shares above 1 - 0.05^(1/3), and two tries are two tries."""
    assert of_lock(*[case("etcd", "kill")] * 2) == (
        "etcd: Kept its promises under kill (two tries)."
    )
    most = math.ceil(100 * (1 - 0.05 ** (1 / 3)))
    assert of_lock(*[case("etcd", "kill")] * 3) == (
        f"etcd: Kept its promises under kill (3 tries, so it breaks in at most {most} % of "
        "such, with 95 % confidence)."
    )


def test_without_a_fault_counts_for_nothing_under_one() -> None:
    said = of_lock(*[case("etcd")] * 3, case("etcd", "kill"))
    assert "under kill (one try)" in said
    assert "without a fault (3 tries" in said


def test_what_was_not_exposed_is_no_evidence() -> None:
    missed = case("zookeeper", "client-pause", exposed=False, judgement="not exposed")
    found = headline([case("redlock", "kill"), missed])
    assert found.lines == (
        "1 of 2 cases ended as declared, none of them worse.",
        "Proof of nothing: not exposed: zookeeper under client-pause.",
    )
    assert found.by_lock[1] == "zookeeper: Nothing is known under client-pause."


def test_an_undecided_verdict_is_no_evidence_and_is_said() -> None:
    undecided = case("etcd", "kill", open_=("double-grant",), judgement="undecided")
    assert headline([undecided]).lines == ("Proof of nothing: undecided: etcd under kill.",)


@pytest.mark.parametrize(
    ("judgement", "said"),
    [
        ("undecided", "undecided"),
        ("not exposed", "not exposed"),
        ("not as asked", "not the load that was asked for"),
        ("did not show", "a declared break did not show"),
        ("no expectation declared", "nothing is declared of what broke"),
    ],
)
def test_what_broke_as_it_may_makes_no_case_green(judgement: str, said: str) -> None:
    half = case("redis", "kill", broke=("stale-holder",), judgement=judgement)
    lines = headline([case("etcd", "kill"), half]).lines
    assert lines[1] == f"Proof of nothing: {said}: redis under kill."


def test_a_control_that_broke_otherwise_than_it_must_is_not_caught() -> None:
    control = partial(case, "redis-no-owner", "kill", broke=("stale-holder",), control=True)
    otherwise = control(judgement="did not show")
    lines = " ".join(headline([otherwise]).lines)
    assert "not caught: redis-no-owner under kill" in lines
    assert "and caught" not in lines
    assert "and caught: redis-no-owner" in " ".join(headline([control()]).lines)


@pytest.mark.parametrize(
    ("judgement", "expected", "said"),
    [
        ("no expectation declared", "no expectation declared", "undeclared"),
        ("as expected", None, "as declared"),
        ("broke, undeclared", None, "undeclared"),
    ],
)
def test_a_break_is_as_declared_only_where_its_case_says_so(
    judgement: str, expected: str | None, said: str
) -> None:
    broke = case("mine", "kill", broke=("wrong-release",), judgement=judgement)
    broke["expected"].pop("wrong-release", None)
    if expected is not None:
        broke["expected"]["wrong-release"] = expected
    assert f"(1 of 1, {said})" in of_lock(broke)


def test_a_fence_that_did_not_help_is_counted() -> None:
    said = of_lock(fenced_case(applied=0), fenced_case(applied=1))
    assert "(2 of 2, as declared); its fence, checked on reads and writes, let 1 of 4" in said


def test_a_fence_gets_no_credit_where_nothing_broke_without_it() -> None:
    held = fenced_case(applied=0)
    held["verdicts"]["stale-holder"]["result"] = "valid"
    assert "let 0 of 2 such acts" in of_lock(fenced_case(applied=0), held)
    assert "fence" not in of_lock(held)


def test_an_unexpected_violation_comes_first() -> None:
    found = headline([case("etcd"), worse("etcd")])
    assert found.lines[0] == (
        "Not as declared: broke what it is expected to keep: etcd under kill (double-grant)."
    )
    assert "(1 of 1, NOT as declared)" in found.by_lock[0]


def test_of_many_some_are_named_and_the_rest_are_counted() -> None:
    many = [worse(f"lock-{n}") for n in range(9)]
    (line,) = headline(many).lines
    assert line.endswith("lock-2 under kill (double-grant) and 6 more.")


def test_a_break_under_a_fault_that_nobody_declared_is_not_called_unexpected() -> None:
    bad = case("etcd", "slicer", broke=("double-grant",), judgement="broke, undeclared")
    bad["expected"]["double-grant"] = "undeclared"
    assert headline([bad]).lines == (
        "Not as declared: broke, and nothing is declared: etcd under slicer (double-grant).",
    )
    assert "(1 of 1, undeclared)" in of_lock(bad)
    told = terminal([bad])
    assert "(undeclared)" in told
    assert "(expected)" not in told
    assert "(NOT expected)" not in told


def test_what_held_under_a_fault_that_nobody_declared_is_told_apart() -> None:
    held = case("etcd", "slicer", judgement="held, undeclared")
    assert "kept, and nothing is declared: etcd under slicer" in headline([held]).lines[-1]
    told = terminal([held])
    assert "? held," in told
    assert "✓ kept" not in told


def test_a_control_that_was_not_caught_is_said_first() -> None:
    missed = case("redis-no-owner", "client-pause", control=True, judgement="did not show")
    found = headline([missed])
    assert found.lines[0] == (
        "Not as declared: known to be broken, and not caught: redis-no-owner under client-pause."
    )
    assert "and caught" not in " ".join(found.lines)


def test_a_control_that_was_never_run_is_not_caught() -> None:
    unbuilt = {"lock": "redis-no-owner", "fault": "kill", "control": True}
    unbuilt |= {"judgement": "could not run", "why": "its image cannot be built"}
    assert "and caught" not in " ".join(headline([unbuilt]).lines)
    caught = case("redis-no-owner", "client-pause", broke=("wrong-release",), control=True)
    assert "and caught: redis-no-owner" in " ".join(headline([unbuilt, caught]).lines)
    elsewhere = case("redis-no-owner", "kill", control=True, judgement="disturbed")
    said = " ".join(headline([elsewhere]).lines)
    assert "not caught" not in said
    assert "and caught" not in said


@pytest.mark.parametrize("judgement", ["failed", "disturbed", "contradicted"])
def test_a_case_that_failed_with_results_kept_nothing(judgement: str) -> None:
    found = headline([case("etcd", "kill", judgement=judgement)])
    assert "Kept" not in " ".join(found.by_lock)
    assert "etcd under kill" in " ".join(found.lines)


def test_what_the_service_refutes_is_no_break() -> None:
    refuted = case("etcd", "kill", broke=("double-grant",), judgement="contradicted")
    said = {"what": "service", "text": "contradicted: it was not so", "says": "contradicted"}
    refuted["verdicts"]["double-grant"]["evidence"] = [said]
    found = headline([refuted])
    assert "twice" not in " ".join(found.by_lock)
    assert "refuted by the service's own record: etcd under kill" in " ".join(found.lines)


def test_of_what_nobody_declared_nothing_ended_as_declared() -> None:
    held = headline([case("etcd", "slicer", judgement="held, undeclared")])
    assert "as declared" not in " ".join(held.lines)


def test_what_was_tried_with_one_lock_only_is_told_apart() -> None:
    """A job is a row of its own, and no difference between locks."""
    paid = case("redis-token", "client-pause", workload="payment")
    found = headline([case("redis-token", "client-pause"), paid, case("etcd", "client-pause")])
    assert [said.partition(":")[0] for said in found.by_lock] == [
        "redis-token, mutex",
        "redis-token, payment",
        "etcd",
    ]


def test_nothing_at_all() -> None:
    assert headline([]).lines == (headlines.NOTHING,)
    failed = {"lock": "etcd", "fault": "none", "judgement": "failed", "why": "no leader"}
    assert headline([failed]).lines == ("Proof of nothing: failed: etcd without a fault.",)


def test_there_are_never_more_than_three_lines() -> None:
    cases = [
        worse("etcd"),
        case("zookeeper", "kill", exposed=False, judgement="not exposed"),
        case("a", "kill", judgement="could not run"),
        case("b", "kill", judgement="disturbed"),
        case("redis-no-owner", "kill", broke=("double-grant",), control=True),
        case("redis-early", "kill", control=True, judgement="did not show"),
    ]
    assert len(headline(cases).lines) == 3
