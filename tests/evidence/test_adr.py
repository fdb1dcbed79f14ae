"""The decision record: what it may claim, what it has to say, where each claim is from."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as with_fields
from rich.console import Console

from lockbench.bench.plan import Case
from lockbench.bench.suites import faults_of
from lockbench.cli import adr, main, running
from lockbench.cli.options import Done
from lockbench.evidence.adr import TRIES, Option, evidence_of, options, untried
from lockbench.evidence.adr_plan import breaks, considered, first_looks, likely, needed
from lockbench.evidence.adr_text import cited, kept, record, recoveries
from lockbench.evidence.adr_tree import Answers, Decision, decide
from lockbench.evidence.observations import load
from lockbench.locks.registry import systems
from lockbench.results.digests import whole_digest
from lockbench.results.documents import (
    Bounds,
    LockRates,
    Machine,
    PooledRate,
    Quantiles,
    RatesOf,
    Results,
    Spread,
    Statistic,
    Versions,
    made,
)
from lockbench.results.errors import BadInput
from lockbench.results.statistics import share
from lockbench.results.store import RunFolder, slug
from lockbench.results.stored import Stored
from lockbench.stores.registry import declared
from tests.results.plain import typed, write_plan

CANONICAL = faults_of("full")
QUIET = Console(quiet=True)
# No clock of an etcd can be moved here.
CORRECT = Answers(needs="correctness", without=("clock-jump",))
FAST = replace(CORRECT, p99_ms=50.0, ops_per_second=200.0)
EFFICIENT = Answers(needs="efficiency")
KEPT = ("double-grant", "late-grant", "wrong-release", "fence-order", "stale-holder", "lost-update")
SIZES = {"redis": 1, "redis-fsync": 1, "redlock": 5}
FENCED: dict[str, Any] = {"fence": "revision", "consensus": True}
NOT_OF_QUORUMS = {"failover", "wipe"}
NOT_OF_ETCD = {*NOT_OF_QUORUMS, "clock-jump"}
Plain = dict[str, Any]


def case(lock: str, fault: str, *broken: str, topology: str = "", **changes: Any) -> Plain:
    """A case in which ``broken`` broke and all else held."""
    names = dict.fromkeys((*KEPT, *broken))
    verdicts = {v: {"result": "invalid" if v in broken else "valid"} for v in names}
    fencing = {"unfenced": {"stale_applied": 1}}
    if changes.get("fence"):
        fencing["fence-on-read-and-write"] = {"stale_applied": 0}
    of = topology or ("redis" if lock.startswith("redis-") else lock)
    return {
        "lock": lock,
        "topology": of,
        "family": "redis" if of in SIZES else of,
        "size": SIZES.get(of, 3),
        "fault": fault,
        "workload": "mutex",
        "network": "loopback",
        "clients": 8,
        "seed": 7,
        "exposed": True,
        "numbers": "valid",
        "fence": None,
        "consensus": False,
        "verdicts": verdicts,
        "expected": dict.fromkeys(KEPT, "holds"),
        "measurements": {"fencing": fencing},
        "cycles_per_second": 5000.0,
        "recovery_seconds": None if fault == "none" else 0.5,
        "history_sha256": {"b": "2" * 64, "a": "1" * 64},
        "folder": slug(f"01-{lock}-{fault}"),
    } | changes


def proven(lock: str, *, without: Iterable[str] = NOT_OF_ETCD) -> list[Plain]:
    """``TRIES`` exposed tries of every required fault, in which it kept its word and its fence
    stopped every stale holder."""
    faults = [fault for fault in ("none", *CANONICAL) if fault not in without]
    stale = {"client-pause": ("stale-holder", "lost-update")}
    return [
        case(lock, fault, *stale.get(fault, ()), **FENCED, seed=seed)
        for fault in faults
        for seed in range(TRIES)
    ]


def swept(
    lock: str,
    p99: tuple[float, float] = (4.0, 4.4),
    carried: tuple[float, float] = (900.0, 1000.0),
    *,
    p50: tuple[float, float] = (1.0, 1.1),
    at: float = 200.0,
    why: tuple[str, ...] = (),
    above: tuple[Statistic, ...] = (),
    count: int = 2400,
) -> LockRates:
    """Three rounds; ranges are where those of a repeated run are expected."""
    topology = "redis" if lock.startswith("redis-") else lock
    stated = Spread(3, at, at, at)
    rate = PooledRate(
        offered_per_s=stated,
        granted_per_s=stated,
        due=count,
        granted=count,
        response_ms=Quantiles(
            count, p50[0], p99[0] if count >= 1000 else None, max=p99[1], above=above
        ),
        p50_ms_range=Bounds(*p50),
        p99_ms_range=Bounds(*p99),
        blocks=3,
        void_blocks=0,
        why=why,
    )
    return LockRates(
        of=RatesOf(lock, topology, SIZES.get(topology, 3), "loopback", 32, 0, 0.0),
        carried_per_s=Spread(3, sum(carried) / 2, *carried),
        carried_range_per_s=Bounds(*carried),
        rates=(rate,),
    )


def run_of(tmp_path: Path, *cases: Plain, rates: Sequence[LockRates] = ()) -> Stored:
    run = RunFolder.create(tmp_path, "quick")
    write_plan(run, {"cases": [{"images": []} for _ in cases]})
    images = {"etcd": {"id": "sha256:" + "e" * 64}, "toxiproxy": {"id": "sha256:" + "d" * 64}}
    results = Results(cases=tuple(typed(cases)), rates=tuple(rates))
    machine = Machine(cpu="Some CPU", cores_usable=2)
    return Stored(run, results, machine, made(Versions, {"images": images}))


SOME = (
    case("redis-token", "none"),
    case("redis-token", "client-pause", "stale-holder", "lost-update"),
    case("redis-token", "wipe", "double-grant"),
    case("etcd", "none", **FENCED),
    case("etcd", "client-pause", "stale-holder", "lost-update", **FENCED),
    case("etcd", "kill", **FENCED),
)


def decided(
    tmp_path: Path, answers: Answers, *cases: Plain, rates: Sequence[LockRates] = ()
) -> tuple[Decision, list[Option], str]:
    run = run_of(tmp_path, *cases, rates=rates)
    evidence = evidence_of([run])
    found = considered(options([run], evidence), answers)
    decision = decide(found, answers)
    text = record(decision, found, evidence, machines=[run.machine], notes=[], date="2026-01-02")
    return decision, found, text


def name_of(decision: Decision) -> str | None:
    return None if decision.chosen is None else decision.chosen.name


# What a claim takes.


def test_correctness_takes_twenty_tries_of_every_required_fault(tmp_path: Path) -> None:
    decision, _, text = decided(tmp_path, CORRECT, *SOME[:3], *proven("etcd"))
    assert name_of(decision) == "etcd"
    why = decision.steps[0].found["redis-token"]
    assert why == ("no", "double-grant under wipe, 1 of 1")
    assert "# Use etcd as the distributed lock" in text
    assert "the resource refuses lower ones" in text
    said = decision.steps[0].found["etcd"][1]
    # 0 of 20: 1 - 0.05^(1/20) = 13.9 %
    assert "at least 20 exposed tries (broken in at most 14 %)" in said
    # No sum over different faults.
    assert "140" not in said


@pytest.mark.parametrize("fault", ["none", "kill", "partition-stall"])
def test_one_try_fewer_of_one_fault_is_not_enough(tmp_path: Path, fault: str) -> None:
    cases = proven("etcd")
    cases.remove(next(one for one in cases if one["fault"] == fault))
    decision, _, text = decided(tmp_path, CORRECT, *cases)
    assert name_of(decision) is None
    word, why = decision.steps[0].found["etcd"]
    assert word == "not shown"
    assert f"there were: {'without a fault' if fault == 'none' else fault} 19" in why
    assert "# No lock is chosen yet" in text


def test_redis_fence_is_not_chosen_from_two_faults_alone(tmp_path: Path) -> None:
    """``none`` and ``client-pause`` say nothing of ``wipe``, which breaks it."""
    two = [c for c in proven("redis-fence", without=()) if c["fault"] in {"none", "client-pause"}]
    decision, _, text = decided(tmp_path, CORRECT, *two)
    assert name_of(decision) is None
    assert ", wipe 0" in decision.steps[0].found["redis-fence"][1]
    wiped = case("redis-fence", "wipe", "fence-order", **FENCED)
    decision, _, text = decided(tmp_path, CORRECT, *two, wiped)
    assert decision.steps[0].found["redis-fence"][0] == "no"
    assert "redis-fence broke its word only under wipe" in text


def test_the_required_faults_are_the_same_for_all(tmp_path: Path) -> None:
    """A fault that was tried on etcd alone is missing from the other, and one that cannot be
    applied is told."""
    less = list(proven("zookeeper", without=NOT_OF_QUORUMS))
    less = [c for c in less if c["fault"] != "partition-stall"]
    decision, _, text = decided(tmp_path, CORRECT, *proven("etcd"), *less)
    assert name_of(decision) == "etcd"
    assert "partition-stall 0" in decision.steps[0].found["zookeeper"][1]
    assert re.search(r"\* etcd: wipe, because wipe does not apply to etcd", text)
    page = text.split("\n# Evidence\n")[0]
    assert "It was not exposed to failover and wipe: it has nothing to lose by them" in page


def test_a_fence_that_stopped_one_stale_holder_is_not_shown_to_stop_them(tmp_path: Path) -> None:
    cases = proven("zookeeper", without=NOT_OF_QUORUMS)
    paused = [c for c in cases if c["fault"] == "client-pause"]
    for one in paused[1:]:
        one["verdicts"]["stale-holder"]["result"] = "valid"
    decision, _, text = decided(tmp_path, CORRECT, *cases)
    assert name_of(decision) is None
    assert decision.steps[0].found["zookeeper"][0] == "not shown"
    assert "there were: client-pause 1" in decision.steps[0].found["zookeeper"][1]
    assert "0 of 1" in text
    assert "0 of 1 (" not in text  # one try carries no bound


def test_a_fence_that_let_a_stale_holder_write_is_not_enough(tmp_path: Path) -> None:
    leaky = {"fencing": {"fence-on-read-and-write": {"stale_applied": 1}}}
    bad = case("etcd", "pause", "stale-holder", **(FENCED | {"measurements": leaky}))
    decision, _, _ = decided(tmp_path, CORRECT, *proven("etcd"), bad)
    assert decision.steps[0].found["etcd"] == (
        "no",
        "its fence, checked on reads and writes, let stale holders write under pause, 1 of 1",
    )


def test_an_undecided_verdict_is_never_green(tmp_path: Path) -> None:
    vague = case("etcd", "kill", **FENCED)
    vague["verdicts"]["double-grant"]["result"] = "unknown"
    decision, _, text = decided(tmp_path, CORRECT, *proven("etcd"), vague)
    assert name_of(decision) is None
    assert decision.steps[0].found["etcd"] == ("not shown", "double-grant under kill is undecided")
    assert "undecided: double-grant" in text


@pytest.mark.parametrize(
    ("also", "found"),
    [((), "yes"), (("wrong-release",), "no")],
)
def test_what_a_job_did_is_not_the_locks_word(
    tmp_path: Path, also: tuple[str, ...], found: str
) -> None:
    broke = ("stale-holder", "charged-twice", *also)
    payment = case("etcd", "client-pause", *broke, **FENCED, workload="payment")
    decision, _, text = decided(tmp_path, CORRECT, *proven("etcd"), payment)
    assert "charged-twice 1 of 1, expected: undeclared" in text
    assert "--workload payment " in text
    word, why = decision.steps[0].found["etcd"]
    assert word == found
    assert found == "yes" or why.startswith("wrong-release under client-pause, 1 of 21 ")


@pytest.mark.parametrize("judgement", ["disturbed", "failed", "contradicted"])
def test_what_counts_for_nothing_is_no_try(tmp_path: Path, judgement: str) -> None:
    cases = proven("etcd")
    next(c for c in cases if c["fault"] == "kill")["judgement"] = judgement
    decision, _, _ = decided(tmp_path, CORRECT, *cases)
    assert "kill 19" in decision.steps[0].found["etcd"][1]


def test_what_was_not_exposed_is_no_try(tmp_path: Path) -> None:
    _, found, text = decided(tmp_path, CORRECT, *SOME, case("etcd", "pause", exposed=False))
    assert found[1].exposed("pause").n == 0
    assert re.search(r"^\| pause \| not tried \| not exposed \[E\d\]", text, re.MULTILINE)


def test_efficiency_takes_tries_without_a_fault(tmp_path: Path) -> None:
    answers = Answers(needs="efficiency", already_have=("redis-token",))
    quiet = [case("redis-token", "none", seed=seed) for seed in range(TRIES)]
    decision, _, _ = decided(tmp_path, answers, *quiet, *SOME[1:])
    assert name_of(decision) == "redis-token"
    decision, _, _ = decided(tmp_path, answers, *quiet[1:], *SOME[1:])
    assert name_of(decision) is None
    broke = case("redis-token", "none", "double-grant")
    decision, _, _ = decided(tmp_path, answers, *quiet, broke)
    assert decision.steps[0].found["redis-token"][0] == "no"


def test_a_control_is_never_chosen(tmp_path: Path) -> None:
    decision, _, text = decided(tmp_path, EFFICIENT, case("wrong", "none", control=True))
    assert name_of(decision) is None
    assert "no option but controls" in decision.why
    assert "known to be broken, to show that the bench detects it" in text


def test_without_an_answer_nothing_is_chosen(tmp_path: Path) -> None:
    decision, _, text = decided(tmp_path, Answers(), *SOME)
    assert name_of(decision) is None
    assert "--needs is missing" in decision.why
    assert "not answered" in text


# Which faults are required.


@pytest.mark.parametrize(
    ("lock", "impossible", "out_of_reach"),
    [
        ("etcd", {"failover", "wipe"}, {"clock-jump"}),
        ("zookeeper", {"failover", "wipe"}, set()),
        ("redis-fence", {"failover"}, set()),
        ("redis-setnx", {"clock-jump", "failover"}, set()),
        ("redis-sentinel", set(), {"wipe"}),
    ],
)
def test_only_what_has_nothing_to_lose_is_excused(
    lock: str, impossible: set[str], out_of_reach: set[str]
) -> None:
    """A declaration excuses nothing: that of etcd has nothing to judge under a lost reply."""
    of = untried(systems()[lock], systems()[lock].topologies[0], 3)
    assert (set(of.impossible), set(of.out_of_reach)) == (impossible, out_of_reach)


def test_what_the_bench_cannot_do_is_not_shown(tmp_path: Path) -> None:
    strict = Answers(needs="correctness")
    decision, _, text = decided(tmp_path, strict, *proven("etcd"))
    assert name_of(decision) is None
    word, why = decision.steps[0].found["etcd"]
    assert word == "not shown"
    assert "clock-jump cannot be applied to etcd" in why
    assert "--without clock-jump would accept that for every option" in why
    assert not needed(decision)
    assert "does not settle that" in text
    assert "| clock-jump | cannot be tried |" in text


def test_a_fault_that_the_reader_accepts_is_accepted_for_every_option(tmp_path: Path) -> None:
    jumped = case("zookeeper", "clock-jump:by_s=5", "double-grant", **FENCED)
    cases = (*proven("zookeeper", without=NOT_OF_QUORUMS), jumped)
    decision, _, _ = decided(tmp_path, Answers(needs="correctness"), *cases)
    assert decision.steps[0].found["zookeeper"][0] == "no"
    decision, _, text = decided(tmp_path, CORRECT, *cases)
    assert name_of(decision) == "zookeeper"
    page = text.split("\n# Evidence\n")[0]
    assert "* Accepted, whatever it does to any option: **clock-jump**" in page
    (said,) = re.findall(r"^\*\*Use zookeeper\*\*.*", page, re.MULTILINE)
    assert "Nothing is claimed under clock-jump, which the reader accepts" in said
    # What it accepts is told all the same.
    assert r"Under clock-jump:by\_s=5 comes double-grant, in 1 of 1" in page


@pytest.mark.parametrize("word", ["clock-jumb", "client-pause"])
def test_what_cannot_be_accepted_is_refused(word: str) -> None:
    with pytest.raises(BadInput, match=word):
        adr.answers("correctness", None, None, None, without=word)


# Limits.


def limited(tmp_path: Path, *rates: LockRates) -> tuple[str, str]:
    """What is found of the acquire's p99, and of 200 per second."""
    answers = Answers("efficiency", p99_ms=50.0, ops_per_second=200.0)
    quiet = [case("etcd", "none", **FENCED, seed=seed) for seed in range(TRIES)]
    decision, _, _ = decided(tmp_path, answers, *quiet, rates=rates)
    found = [decision.steps[at].found.get("etcd", ("", ""))[0] for at in (1, 2)]
    assert (name_of(decision) == "etcd") is (found == ["yes", "yes"])
    return found[0], found[1]


def test_two_sweeps_on_both_sides_of_a_limit_show_nothing(tmp_path: Path) -> None:
    """The same lock minutes apart: 22.4 ms and 117.5 ms."""
    fast, slow = swept("etcd", (19.0, 22.4)), swept("etcd", (110.0, 117.5))
    assert limited(tmp_path, fast) == ("yes", "yes")
    assert limited(tmp_path, slow) == ("no", "yes")
    assert limited(tmp_path, fast, slow) == ("not shown", "yes")


@pytest.mark.parametrize(
    ("rates", "p99", "rate"),
    [
        (swept("etcd", (49.0, 50.0)), "yes", "yes"),
        (swept("etcd", (49.0, 50.1)), "not shown", "yes"),
        (swept("etcd", (50.1, 60.0)), "no", "yes"),
        # What was given up took longer than it is known to have taken.
        (swept("etcd", (20.0, 30.0), above=("p99",)), "not shown", "yes"),
        (swept("etcd", (20.0, 30.0), count=900), "not shown", "yes"),
        (swept("etcd", (20.0, 30.0), why=("the machine was saturated",)), "not shown", "not shown"),
        (swept("etcd", at=20.0), "not shown", "not shown"),
        (swept("etcd", carried=(150.0, 190.0)), "yes", "no"),
        (swept("etcd", carried=(150.0, 250.0)), "yes", "not shown"),
        (with_fields(swept("etcd", carried=(150.0, 190.0)), why=("busy",)), "yes", "not shown"),
    ],
)
def test_a_limit_is_compared_with_all_rounds(
    tmp_path: Path, rates: LockRates, p99: str, rate: str
) -> None:
    assert limited(tmp_path, rates) == (p99, rate)


def test_a_sweep_in_which_the_lock_fell_short_is_not_left_out(tmp_path: Path) -> None:
    """Nobody knows how slow those would have been that were not granted."""
    good = swept("etcd", (20.0, 30.0))
    (rate,) = good.rates
    short = with_fields(rate, granted=int(0.8 * rate.due), why=("1,920 of 2,400 were granted",))
    assert limited(tmp_path, good, with_fields(good, rates=(short,)))[0] == "not shown"
    machine = with_fields(rate, why=("the machine was saturated",))
    assert limited(tmp_path, good, with_fields(good, rates=(machine,)))[0] == "yes"


def test_without_a_rate_all_sweeps_count_too(tmp_path: Path) -> None:
    fast, slow = swept("etcd", (19.0, 22.4), at=36.0), swept("etcd", (110.0, 117.5), at=34.0)
    quiet = [case("etcd", "none", **FENCED, seed=seed) for seed in range(TRIES)]
    for rates, found in (([fast], "yes"), ([slow], "no"), ([fast, slow], "not shown")):
        decision, _, _ = decided(tmp_path, Answers("efficiency", 50.0), *quiet, rates=rates)
        assert decision.steps[1].found["etcd"][0] == found


def test_more_nodes_are_not_there_already(tmp_path: Path) -> None:
    """Redlock takes five Redis; a Redis that syncs every write takes a setting."""
    answers = Answers("efficiency", already_have=("redis",))
    decision, _, _ = decided(tmp_path, answers, case("redlock", "none"))
    had = decision.steps[3].found
    assert had["redlock"][0] == "no"
    assert had["redis-token (redis-fsync, 1 node)"][0] == "yes"


def test_the_closed_loop_answers_nothing(tmp_path: Path) -> None:
    assert limited(tmp_path) == ("not shown", "not shown")
    contended = with_fields(swept("etcd"), of=with_fields(swept("etcd").of, keys=1))
    assert limited(tmp_path, contended) == ("not shown", "not shown")


# Between options that meet every need.

BOTH = (*proven("etcd"), *proven("zookeeper", without=NOT_OF_QUORUMS))


@pytest.mark.parametrize(
    ("more", "zookeeper", "chosen", "why"),
    [
        # 25 % slower at the median is a tie, which nothing breaks.
        ({}, (1.1, 1.375), None, "nothing that was answered tells them apart"),
        ({}, (1.4, 1.5), "etcd", "zookeeper meets every need too, and is slower"),
        ({"already_have": ("zookeeper",)}, (1.1, 1.3), "zookeeper", "it ties with etcd"),
        ({"already_have": ("zookeeper",)}, (1.4, 1.5), "zookeeper", "and is faster by more"),
        ({"costs": (("etcd", 3.0), ("zookeeper", 2.0))}, (1.1, 1.3), "zookeeper", "costs least"),
        ({"costs": (("zookeeper", 2.0),)}, (1.1, 1.3), None, "tells them apart"),
        ({"skills": ("zookeeper",)}, (1.1, 1.3), "zookeeper", "your people know it"),
    ],
)
def test_a_tie_is_a_tie_and_says_what_breaks_it(
    tmp_path: Path, more: Plain, zookeeper: tuple[float, float], chosen: str | None, why: str
) -> None:
    answers = replace(FAST, **more)
    rates = (swept("etcd", p50=(1.0, 1.1)), swept("zookeeper", p50=zookeeper))
    decision, _, text = decided(tmp_path, answers, *BOTH, rates=rates)
    assert name_of(decision) == chosen
    assert why in decision.why
    assert why in text
    assert ("`--costs`, `--skills`" in text) is (chosen is None)


HAD: Plain = {"already_have": ("etcd", "zookeeper"), "skills": ("zookeeper",)}


@pytest.mark.parametrize(
    ("more", "chosen"),
    [
        # What would have to be run is left out before costs are compared.
        (HAD | {"costs": (("etcd", 2.0), ("zookeeper", 3.0), ("third", 1.0))}, "etcd"),
        # Of the third nobody said what it costs: it may be the cheapest, and zookeeper is not.
        ({"skills": ("zookeeper",), "costs": (("etcd", 2.0), ("zookeeper", 3.0))}, None),
    ],
)
def test_an_option_that_is_not_chosen_makes_nobody_else_win(
    tmp_path: Path, more: Plain, chosen: str | None
) -> None:
    answers = replace(CORRECT, **more)
    decision, found, _ = decided(tmp_path, answers, *BOTH)
    assert name_of(decision) == "etcd"
    third = replace(found[0], name="third", lock="third", topology="third", family="third")
    for order in permutations((*found, third)):
        decision = decide(order, answers)
        assert len(decision.met) == 3
        assert name_of(decision) == chosen


# What is not known, and what would settle it.


def test_it_prints_what_would_settle_it_and_how_long_that_takes(tmp_path: Path) -> None:
    answers = FAST
    decision, _, text = decided(tmp_path, answers, *SOME)
    wanted = needed(decision)
    assert {one.option.name for one in wanted} == {"etcd"}  # the other is ruled out
    sweep, screen, tries = wanted
    assert sweep.command == "lockbench sweep --lock etcd --rate 200 --seconds 5"
    assert sweep.minutes < 3
    # One try of each fault that was not tried, before many of any.
    assert {one.fault for one in screen.cases} == set(CANONICAL) - NOT_OF_ETCD - {
        "client-pause",
        "kill",
    }
    assert tries.runs == 19
    assert {one.fault for one in tries.cases} == {"none", *CANONICAL} - NOT_OF_ETCD
    assert 30 < tries.minutes < 60
    for one in wanted:
        assert one.command in text
        assert f"{one.minutes:.0f} minutes" in text or f"{one.minutes:.1f} minutes" in text


def test_what_could_not_change_the_decision_is_not_asked_for(tmp_path: Path) -> None:
    answers = replace(CORRECT, already_have=("etcd",))
    one = case("zookeeper", "none", **FENCED)
    decision, found, _ = decided(tmp_path, answers, *proven("etcd"), one)
    ours = [o for o in found if o.name in {"etcd", "zookeeper"}]
    decision = decide(ours, answers)
    assert name_of(decision) == "etcd"
    assert not needed(decision)
    # Without that answer zookeeper would tie or be faster, which nobody asked for.
    decision = decide(ours, CORRECT)
    assert name_of(decision) == "etcd"
    assert not needed(decision)
    # Only what the reader prefers keeps the decision open.
    decision = decide(ours, replace(CORRECT, skills=("zookeeper",)))
    assert {one.option.name for one in needed(decision)} == {"zookeeper"}


def test_no_tries_are_asked_of_what_crosses_a_limit(tmp_path: Path) -> None:
    answers = FAST
    crosses, within = swept("etcd", (49.0, 50.1)), swept("etcd", (19.0, 22.4))
    one = case("etcd", "none", **FENCED)
    decision, _, text = decided(tmp_path, answers, one, rates=[crosses])
    assert not needed(decision)
    assert "Measuring it again on this machine does not settle that." in text
    decision, _, text = decided(tmp_path, answers, one, rates=[within])
    assert needed(decision)
    assert "does not settle" not in text
    # One that was not measured is measured; one that was void again is not tried for nothing.
    decision, (etcd, *_), _ = decided(tmp_path, answers, one, rates=[])
    assert needed(decision)[0].is_sweep
    assert not needed(decision, {etcd.key})


def test_what_needs_no_new_system_is_proposed_with_its_command(tmp_path: Path) -> None:
    answers = replace(CORRECT, already_have=("redis",))
    _, found, text = decided(tmp_path, answers, *SOME)
    assert [o.name for o in found if not o.evidence] == [
        "redis-fence (redis, 1 node)",
        "redis-fence (redis-fsync, 1 node)",
    ]
    assert "run --brief --lock redis-fence --topology redis-fsync --fault none," in text
    _, found, _ = decided(tmp_path, CORRECT, *SOME)
    assert all(o.evidence for o in found)


def test_from_nothing_it_considers_a_recipe_and_a_go_client_of_each_system(tmp_path: Path) -> None:
    decision = decide(considered([], CORRECT, anew=True), CORRECT)
    found = {one.option.lock for one in needed(decision)}
    assert found == {"etcd", "etcd-concurrency", "zookeeper"}  # the others have no fence
    text = record(decision, [], [], machines=[], notes=[], date="2026-01-02")
    assert "Nothing was measured" in text


def test_the_commands_are_those_of_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed and what ``--collect`` runs is one thing."""
    ran: list[Case] = []

    def play(cases: list[Case], *_: object, **__: object) -> None:
        ran.extend(cases)
        raise Done(0)

    monkeypatch.setattr(running, "play", play)
    answers = replace(FAST, ops_per_second=20.0, already_have=("redis",))
    wanted = needed(decide(considered([], answers, anew=True), answers))
    assert {one.command.split()[1] for one in wanted if one.runs == 1} == {"run", "sweep"}
    for one in wanted:
        loop = re.fullmatch(r"for seed in \$\(seq (\d+) (\d+)\); do (.*); done", one.command)
        command = one.command
        if loop:
            first, last, inner = int(loop[1]), int(loop[2]), loop[3]
            assert last - first + 1 == one.runs
            command = inner.replace("$seed", str(one.cases[0].seed))
        ran.clear()
        with pytest.raises(Done):
            main.app(shlex.split(command)[1:], standalone_mode=False)
        assert tuple(ran) == one.cases


def test_what_broke_it_before_is_tried_first() -> None:
    """Redis is there, correctness, 200 locks/s, p99 50 ms, with what was published."""
    published = {("redis-fence", "wipe"): "1 of 1 on redis, last in some-run"}
    answers = replace(FAST, already_have=("redis",))
    decision = decide(considered([], answers, anew=True), answers)
    wanted = needed(decision, published=published)
    assert [one.option.topology for one in first_looks(wanted)[:3]] == [
        "redis",
        "redis-fsync",
        "etcd",
    ]
    for one in first_looks(wanted)[:2]:
        assert [case.fault for case in one.cases] == ["wipe"]
        assert "1 of 1 on redis, last in some-run" in one.what
        assert one.minutes < 1
    option, minutes = likely(wanted)
    assert option.lock == "etcd"
    assert minutes < 60
    assert sum(one.minutes for one in wanted) > 150
    text = record(decision, [], [], published, machines=[], notes=[], date="2026-01-02")
    assert re.search(r"About \d\d minutes .* if etcd \(etcd, 3 nodes\) holds, at most \d{3} ", text)
    # Nothing is claimed from what was published.
    assert all(step.found["redis-fence (redis, 1 node)"][0] != "no" for step in decision.steps[:3])


def test_what_was_published_of_a_lock_is_what_broke_its_word() -> None:
    found = breaks(load())
    assert "on redis, last in" in found["redis-fence", "wipe"]
    assert ("redis-fence", "kill") not in found
    # A holder that acts too late breaks no word of the lock.
    assert ("redis-fence", "client-pause") not in found


def test_what_was_never_measured_is_said_once(tmp_path: Path) -> None:
    answers = Answers("efficiency", 50.0, 200.0)
    _, _, text = decided(tmp_path, answers, case("etcd", "client-kill", **FENCED))
    (line,) = re.findall(r"^\* \*\*etcd\*\* is neither .*", text, re.MULTILINE)
    assert "it was not tried without a fault; no sweep measured it." in line
    _, _, text = decided(tmp_path, answers, case("etcd", "none", **FENCED))
    assert "there were: without a fault 1;" in text


class Bench:
    """Answers for the bench: every case is exposed and breaks what it is told to; the first
    ``void`` sweeps of each lock are void."""

    def __init__(
        self,
        tmp_path: Path,
        breaks: dict[tuple[str, str], str],
        *,
        exposed: bool = True,
        void: int = 0,
    ) -> None:
        self.tmp_path, self.breaks, self.exposed, self.void = tmp_path, breaks, exposed, void
        self.made: dict[Path, Stored] = {}
        self.ran: list[tuple[str, tuple[str, ...]]] = []

    def run(self, cases: Sequence[Case], name: str) -> Path:
        lock = cases[0].lock
        if cases[0].rates.steps:
            self.ran.append((lock, ("sweep",)))
            void = self.ran.count((lock, ("sweep",))) <= self.void
            of = swept(lock, why=("the machine was saturated",) if void else ())
            where = {"topology": cases[0].topology}
            plain = [case(lock, "none", **FENCED, **where)]
            rates = [with_fields(of, of=with_fields(of.of, **where))]
        else:
            self.ran.append((lock, tuple(one.fault for one in cases)))
            plain, rates = [self._case(one) for one in cases], []
        run = run_of(self.tmp_path, *plain, rates=rates)
        self.made[run.path] = run
        return run.path

    def _case(self, one: Case) -> Plain:
        broke = self.breaks.get((one.lock, one.fault))
        found = [broke] if broke else []
        found += ["stale-holder"] if one.fault == "client-pause" else []
        more = {"topology": one.topology, "seed": one.seed, "exposed": self.exposed}
        return case(one.lock, one.fault, *found, **(FENCED | more))


def test_collect_runs_what_is_missing_until_it_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis is there, correctness, 200 locks/s, p99 50 ms."""
    answers = replace(FAST, already_have=("redis",))
    breaks = {("redis-fence", "wipe"): "fence-order"}
    bench = Bench(tmp_path, breaks)
    monkeypatch.setattr(adr, "stored", bench.made.__getitem__)
    runs: list[Stored] = []
    adr.collect(runs, answers, bench.run, QUIET, {}, anew=True)
    found = considered(options(runs, evidence_of(runs)), answers, anew=True)
    assert name_of(decide(found, answers)) == "etcd"
    # What is there was tried first, and no more once it was ruled out.
    assert bench.ran[0] == ("redis-fence", ("sweep",))
    tries = [lock for lock, faults in bench.ran if faults != ("sweep",)]
    assert tries.count("redis-fence") == 2  # once on each of its topologies
    assert tries.count("etcd") == TRIES
    assert "zookeeper" not in {lock for lock, _ in bench.ran}  # nothing prefers it


def test_collect_gives_up_on_what_is_never_exposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, {}, exposed=False)
    monkeypatch.setattr(adr, "stored", bench.made.__getitem__)
    to = tmp_path / "record.md"
    adr.adr([], CORRECT, anyway=False, output=to, as_json=False, out=QUIET, runner=bench.run)
    # One after the other, three times each.
    tried = [lock for lock in ("etcd", "zookeeper", "etcd-concurrency") for _ in range(3)]
    assert [lock for lock, _ in bench.ran] == tried
    assert "# No lock is chosen yet" in to.read_text()


def test_collect_goes_on_after_a_try_that_was_not_exposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = replace(FAST, already_have=("etcd",))
    bench = Bench(tmp_path, {})
    monkeypatch.setattr(adr, "stored", bench.made.__getitem__)
    runs: list[Stored] = []

    def now_and_then(cases: Sequence[Case], name: str) -> Path:
        bench.exposed = len(bench.ran) % 4 != 0
        return bench.run(cases, name)

    adr.collect(runs, answers, now_and_then, QUIET, {}, anew=True)
    found = considered(options(runs, evidence_of(runs)), answers, anew=True)
    assert name_of(decide(found, answers)) == "etcd"


@pytest.mark.parametrize(("void", "sweeps", "name"), [(0, 1, "etcd"), (1, 2, "etcd"), (9, 2, None)])
def test_a_void_sweep_is_made_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, void: int, sweeps: int, name: str | None
) -> None:
    answers = replace(FAST, already_have=("etcd",))
    bench = Bench(tmp_path, {}, void=void)
    monkeypatch.setattr(adr, "stored", bench.made.__getitem__)
    runs: list[Stored] = []
    adr.collect(runs, answers, bench.run, QUIET, {}, anew=True)
    assert bench.ran.count(("etcd", ("sweep",))) == sweeps
    found = considered(options(runs, evidence_of(runs)), answers, anew=True)
    assert name_of(decide(found, answers)) == name


# The document.


def test_the_first_page_decides_and_the_rest_is_behind_it(tmp_path: Path) -> None:
    answers = FAST
    _, _, text = decided(tmp_path, answers, *proven("etcd"), rates=[swept("etcd")])
    page, evidence = text.split("\n# Evidence\n")
    headings = re.findall(r"^## (.*)", page, re.MULTILINE)
    assert headings == ["Context", "Decision", "Consequences", "What would change it"]
    assert page.count("\n") < 60
    (decision,) = re.findall(r"^\*\*Use etcd\*\*.*", page, re.MULTILINE)
    # The limits of the machine stand where the claim stands.
    assert "on one machine with 2 cores, over loopback" in decision
    assert "on one machine with 2 cores" in evidence


@pytest.mark.parametrize(
    ("lock", "answers", "guard"),
    [
        ("etcd", FAST, "fence"),
        ("redis-token", replace(FAST, needs="efficiency"), "compare-and-set"),
    ],
)
def test_a_record_shows_what_to_put_at_the_resource(
    tmp_path: Path, lock: str, answers: Answers, guard: str
) -> None:
    """The text of each store that the lock can use: with its fence, or without one."""
    tried = [one | {"fence": systems()[lock].fence} for one in proven(lock)]
    _, _, text = decided(tmp_path, answers, *tried, rates=[swept(lock)])
    assert f"# Use {lock} as the distributed lock" in text
    for name, store in declared().items():
        assert f"--resource {name}:guard={guard}" in text
        assert store.guard(guard).snippet in text
    # What can be done without a fence depends on the work.
    assert ("--resource mariadb:guard=idempotency-key" in text) == (lock == "redis-token")
    _, _, text = decided(tmp_path, answers, case(lock, "none"))
    assert "## What to put at the resource" not in text


def test_every_claim_leads_to_its_evidence(tmp_path: Path) -> None:
    _, _, text = decided(tmp_path, CORRECT, *proven("etcd"), *SOME[:3])
    assert "[E1 to E163]" not in text  # each claim its own
    assert re.search(r"^\| kill \| kept in 20 tries \(.*\) \[E\d+ to E\d+\]", text, re.MULTILINE)
    listed = re.findall(r"^\| E(\d+) \|", text, re.MULTILINE)
    assert listed == [str(n) for n in range(1, 164)]
    assert "lockbench run --lock etcd --fault kill" in text
    assert "--seed SEED" in text
    assert "eeeeeeeeeeee" in text  # the image


def test_evidence_is_cited_in_ranges() -> None:
    assert cited(["E3", "E1", "E2", "E7"]) == "[E1 to E3, E7]"
    assert cited([]) == ""


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (0, "not exposed"),
        (1, "kept in one try"),
        (2, "kept in 2 tries"),
        # 1 - 0.05^(1/3) = 63.2 %
        (3, "kept in 3 tries (broken in at most 64 %)"),
    ],
)
def test_kept_stands_with_its_n(n: int, said: str) -> None:
    assert kept(share(0, n)) == said


def test_silence_is_no_expectation(tmp_path: Path) -> None:
    broke = case("etcd", "kill", "double-grant", **FENCED, expected={})
    _, _, text = decided(tmp_path, CORRECT, broke)
    assert re.search(r"double-grant 1 of 1, expected: undeclared", text)
    assert "expected: holds" not in text


def test_the_evidence_of_a_library_names_what_it_lives_in(tmp_path: Path) -> None:
    jvm = {"locks": ["redisson-fair"], "id": "sha256:" + "a" * 64, "fingerprint": "f" * 12}
    py = {"locks": ["redis-py"], "fingerprint": "b" * 12}
    plain = {"images": {}, "clients": {"jvm-sidecar": jvm, "redis_py": py}}
    versions = made(Versions, plain)
    run = run_of(tmp_path, case("redisson-fair", "none"), case("redis-py", "none"))
    run = replace(run, versions=versions)
    found = {one.lock: one.images for one, _ in evidence_of([run])}
    assert found["redisson-fair"] == f"jvm-sidecar {'a' * 12}"
    assert found["redis-py"] == f"redis_py {'b' * 12}"


def test_the_evidence_of_a_lock_on_two_systems_names_both(tmp_path: Path) -> None:
    both = case("both", "none") | {"topology": "redlock-zookeeper", "family": "hybrid"}
    run = run_of(tmp_path, both, case("etcd", "none") | {"topology": "etcd", "family": "etcd"})
    names = ("etcd", "redis", "toxiproxy", "zookeeper")
    images = {name: {"id": f"sha256:{number}" * 12} for number, name in enumerate(names)}
    found = {
        one.lock: one.images
        for one, _ in evidence_of([replace(run, versions=made(Versions, {"images": images}))])
    }
    assert all(name in found["both"] for name in ("redis", "toxiproxy", "zookeeper"))
    assert "zookeeper" not in found["etcd"]


def test_several_faults_of_one_case_were_all_tried(tmp_path: Path) -> None:
    both = case("etcd", "kill:after=1+pause then latency", **FENCED)
    _, _, text = decided(tmp_path, Answers(needs="correctness"), *SOME, both)
    absent = text.split("## What was not tested")[1].split("## Sources")[0]
    assert {"kill", "pause", "latency"}.isdisjoint(re.split(", |: ", absent.split("\n")[2]))


@pytest.mark.parametrize("how", ["over hosts", "two machines"])
def test_several_machines_are_not_called_one(tmp_path: Path, how: str) -> None:
    over = {"topology": "etcd-over-hosts"} if how == "over hosts" else {}
    run = run_of(tmp_path, *SOME[:3], *({**one, **over} for one in proven("etcd")))
    others = [run.machine] if over else [run.machine, with_fields(run.machine, cores_usable=64)]
    evidence = evidence_of([run])
    found = considered(options([run], evidence), CORRECT)
    text = record(
        decide(found, CORRECT), found, evidence, machines=others, notes=[], date="2026-01-02"
    )
    for said in ("on one machine", "more than one machine: all nodes", "shared one kernel"):
        assert said not in text
    assert "on more than one machine, over " in text


def test_it_says_what_was_not_tested(tmp_path: Path) -> None:
    _, _, text = decided(tmp_path, Answers(needs="correctness"), *SOME)
    absent = text.split("## What was not tested")[1].split("## Sources")[0]
    assert re.search(r"on no option: .*partition-drop", absent)
    names = re.split(", |: ", absent.split("\n")[2])
    assert "kill" not in names
    assert "client-pause" not in names
    assert {"pause", "client-kill"} <= set(names), "that others end so is no try of them"
    assert "any network but loopback" in absent
    assert "more than one machine" in absent
    row = next(line for line in text.splitlines() if line.startswith("| clock-jump |"))
    assert row == "| clock-jump | not tried | cannot be tried |"
    row = next(line for line in text.splitlines() if line.startswith("| failover |"))
    assert row == "| failover | does not apply | does not apply |"


def test_the_digest_is_what_sha256sum_gives() -> None:
    lines = f"{'1' * 64}  a\n{'2' * 64}  b\n"
    assert whole_digest(SOME[0]["history_sha256"]) == hashlib.sha256(lines.encode()).hexdigest()


def test_names_are_escaped(tmp_path: Path) -> None:
    _, _, text = decided(tmp_path, EFFICIENT, case("<script>x</script>", "none"))
    assert "<script>" not in re.sub(r"^    .*$", "", text, flags=re.MULTILINE)


def test_a_lock_on_two_clusters_is_two_options(tmp_path: Path) -> None:
    _, found, _ = decided(tmp_path, CORRECT, *SOME[:1], case("redis-token", "none", size=5))
    assert [o.name for o in found] == [
        "redis-token (redis, 1 node)",
        "redis-token (redis, 5 nodes)",
    ]


def test_who_never_recovered_is_told_beside_who_did(tmp_path: Path) -> None:
    cases = [case("etcd", "kill", **FENCED, seed=seed) for seed in range(3)]
    cases[0] |= {"recovery_seconds": None, "unrecovered_seconds": 4.0}
    (found,) = options([run := run_of(tmp_path, *cases)], evidence_of([run]))
    assert recoveries(found) == ["kill 0.50 s (n = 2)", "kill not within the load in 1 of 3"]


@pytest.mark.parametrize(
    "judgement", ["failed", "disturbed", "could not run", "contradicted", "not as asked"]
)
def test_that_something_held_says_nothing_where_something_was_amiss(
    tmp_path: Path, judgement: str
) -> None:
    fine, amiss = case("etcd", "kill", **FENCED), case("etcd", "kill", **FENCED, seed=8)
    amiss["judgement"] = judgement
    run = run_of(tmp_path, fine, amiss)
    (found,) = options([run], evidence_of([run]))
    assert found.exposed("kill").n == 1


def test_a_run_that_is_named_twice_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path / "runs", case("etcd", "kill", **FENCED))
    link = tmp_path / "latest"
    link.symlink_to(run.path)
    monkeypatch.setattr(adr, "stored_set", lambda path: [with_path(run, path)])
    monkeypatch.setattr(adr, "countable", lambda runs: None)
    counted: list[int] = []

    def seen(runs: Sequence[Stored], *_: object) -> None:
        counted.append(len(runs))
        raise KeyboardInterrupt

    monkeypatch.setattr(adr, "evidence_of", seen)
    with pytest.raises(KeyboardInterrupt):
        adr.adr([run.path, link], CORRECT, anyway=False, output=None, as_json=False, out=QUIET)
    assert counted == [1]


def with_path(run: Stored, path: Path) -> Stored:
    """The same run, by another name."""
    return replace(run, run=RunFolder(path))


def test_runs_are_held_against_each_other_and_not_against_the_first_alone(tmp_path: Path) -> None:
    def etcd(name: str, digest: str) -> Stored:
        run = run_of(tmp_path / name, case("etcd", "kill", **FENCED))
        images = {"etcd": {"id": f"sha256:{digest * 64}"}}
        return replace(run, versions=made(Versions, {"images": images}))

    first = run_of(tmp_path / "redis", case("redis-fence", "kill", fence="counter"))
    first = replace(first, versions=made(Versions, {"images": {}}))
    with pytest.raises(BadInput, match="not one experiment"):
        adr._not_one_experiment([first, etcd("a", "a"), etcd("b", "b")], anyway=False)
    adr._not_one_experiment([first, etcd("c", "a"), etcd("d", "a")], anyway=False)
