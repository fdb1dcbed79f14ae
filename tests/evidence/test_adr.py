"""The decision record: what it may claim, what it has to say, where each claim is from."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evidence.adr import Option, evidence_of, options
from evidence.adr_text import record
from evidence.adr_tree import Answers, Decision, decide
from results.digests import whole_digest
from results.documents import Machine, Results, Versions, made
from results.store import RunFolder, slug
from results.stored import Stored
from tests.results.plain import typed, write_plan

CORRECT = Answers(needs="correctness")
EFFICIENT = Answers(needs="efficiency")
KEPT = ("double-grant", "late-grant", "wrong-release", "fence-order", "stale-holder", "lost-update")


def case(lock: str, fault: str, *broken: str, **changes: Any) -> dict[str, Any]:
    """A case in which ``broken`` broke and all else held."""
    names = dict.fromkeys((*KEPT, *broken))
    verdicts = {v: {"result": "invalid" if v in broken else "valid"} for v in names}
    fencing = {"unfenced": {"stale_applied": 1}}
    if changes.get("fence"):
        fencing["fence-on-read-and-write"] = {"stale_applied": 0}
    return {
        "lock": lock,
        "topology": lock,
        "size": 3,
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
        "latency_ms": {"acquire": {"before": {"p50": 1.0, "p99": 4.0, "count": 2000}}},
        "cycles_per_second": 200.0,
        "recovery_seconds": None if fault == "none" else 0.5,
        "history_sha256": {"b": "2" * 64, "a": "1" * 64},
        "folder": slug(f"01-{lock}-{fault}"),
    } | changes


def run_of(tmp_path: Path, *cases: dict[str, Any]) -> Stored:
    run = RunFolder.create(tmp_path, "quick")
    write_plan(run, {"cases": [{"images": []} for _ in cases]})
    images = {"etcd": {"id": "sha256:" + "e" * 64}, "toxiproxy": {"id": "sha256:" + "d" * 64}}
    results = Results(cases=tuple(typed(cases)))
    return Stored(run, results, Machine(cpu="Some CPU"), made(Versions, {"images": images}))


FENCED = {"fence": "revision", "consensus": True}
SOME = (
    case("redis-token", "none"),
    case("redis-token", "client-pause", "stale-holder", "lost-update"),
    case("redis-token", "wipe", "double-grant"),
    case("etcd", "none", **FENCED),
    case("etcd", "client-pause", "stale-holder", "lost-update", **FENCED),
    case("etcd", "kill", **FENCED),
)


def decided(
    tmp_path: Path, answers: Answers, *cases: dict[str, Any]
) -> tuple[Decision, list[Option], str]:
    run = run_of(tmp_path, *cases)
    evidence = evidence_of([run])
    found = options([run], evidence)
    decision = decide(found, answers)
    text = record(decision, found, evidence, machine=run.machine, notes=[], date="2026-01-02")
    return decision, found, text


def test_correctness_takes_the_fence_that_was_seen_to_work(tmp_path: Path) -> None:
    decision, _, text = decided(tmp_path, CORRECT, *SOME)
    assert decision.chosen is not None
    assert decision.chosen.name == "etcd"
    why = decision.steps[0].found["redis-token"]
    assert why == ("no", "double-grant under wipe, 1 of 1 (at least 5 %)")
    assert "# Use etcd as the distributed lock" in text
    assert "the resource refuses lower ones" in text


def test_efficiency_takes_what_is_already_there(tmp_path: Path) -> None:
    answers = Answers(needs="efficiency", already_have=("redis-token",))
    decision, _, _ = decided(tmp_path, answers, *SOME)
    assert decision.chosen is not None
    assert decision.chosen.name == "redis-token"
    assert "already there" in decision.why


def test_a_fence_that_was_never_tried_is_not_shown(tmp_path: Path) -> None:
    decision, _, text = decided(
        tmp_path, CORRECT, case("etcd", "none", **FENCED), case("etcd", "kill", **FENCED)
    )
    assert decision.chosen is None
    assert decision.steps[0].found["etcd"][0] == "not shown"
    assert "# No lock is chosen yet" in text


def test_a_fence_that_let_a_stale_holder_write_is_not_enough(tmp_path: Path) -> None:
    leaky = {"fencing": {"fence-on-read-and-write": {"stale_applied": 1}}}
    decision, _, _ = decided(
        tmp_path,
        CORRECT,
        case("etcd", "none", **FENCED),
        case("etcd", "client-pause", "stale-holder", **(FENCED | {"measurements": leaky})),
    )
    assert decision.chosen is None


def test_an_undecided_verdict_is_never_green(tmp_path: Path) -> None:
    vague = case("etcd", "kill", **FENCED)
    vague["verdicts"]["double-grant"]["result"] = "unknown"
    decision, _, text = decided(tmp_path, CORRECT, *SOME[3:5], vague)
    assert decision.chosen is None
    assert decision.steps[0].found["etcd"] == ("not shown", "double-grant under kill is undecided")
    assert "undecided: double-grant" in text


@pytest.mark.parametrize(
    ("also", "found"),
    [
        ((), None),
        (("wrong-release",), ("no", "wrong-release under client-pause, 1 of 2 (1 to 99 %)")),
    ],
)
def test_what_a_job_did_is_not_the_locks_word(
    tmp_path: Path, also: tuple[str, ...], found: tuple[str, str] | None
) -> None:
    broke = ("stale-holder", "charged-twice", *also)
    payment = case("etcd", "client-pause", *broke, **FENCED, workload="payment")
    decision, _, text = decided(tmp_path, CORRECT, *SOME, payment)
    assert "charged-twice broke, 1 of 1" in text
    assert re.search(r"E7: lockbench run .* --workload payment ", text)
    if found is None:
        assert decision.chosen is not None
        assert decision.chosen.name == "etcd"
    else:
        assert decision.steps[0].found["etcd"] == found


def test_silence_is_no_expectation(tmp_path: Path) -> None:
    _, _, text = decided(
        tmp_path, CORRECT, case("etcd", "kill", "double-grant", **FENCED, expected={})
    )
    assert re.search(r"double-grant broke, .*; expected: undeclared", text)
    assert "expected: holds" not in text


def test_what_was_not_exposed_is_no_try(tmp_path: Path) -> None:
    _, found, text = decided(tmp_path, CORRECT, *SOME, case("etcd", "pause", exposed=False))
    tried = [t for t in found[1].tried if t.fault == "pause"]
    assert {t.share.n for t in tried} == {0}
    assert "pause: not exposed" in text
    assert "Neutral: under pause nothing is known" in text


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (Answers("efficiency", p99_ms=4.0), "yes"),
        (Answers("efficiency", p99_ms=3.9), "no"),
        (Answers("efficiency", ops_per_second=200.0), "yes"),
        # A closed loop with pauses never shows what could not be reached.
        (Answers("efficiency", ops_per_second=5000.0), "not shown"),
    ],
)
def test_numbers_answer_only_what_was_measured(
    tmp_path: Path, answers: Answers, found: str
) -> None:
    decision, _, _ = decided(tmp_path, answers, *SOME)
    step = decision.steps[1] if answers.p99_ms else decision.steps[2]
    assert step.found["etcd"][0] == found
    assert (decision.chosen is not None) is (found == "yes")


def test_a_p99_that_its_n_does_not_carry_is_not_shown(tmp_path: Path) -> None:
    few = {"latency_ms": {"acquire": {"before": {"p50": 1.0, "p99": None, "count": 300}}}}
    decision, _, _ = decided(
        tmp_path, Answers("efficiency", p99_ms=100.0), case("etcd", "none", **few)
    )
    assert decision.steps[1].found["etcd"] == (
        "not shown",
        "n = 300 carries no p99 (1,000 are needed)",
    )
    assert decision.chosen is None


def test_without_an_answer_nothing_is_chosen(tmp_path: Path) -> None:
    decision, _, text = decided(tmp_path, Answers(), *SOME)
    assert decision.chosen is None
    assert "--needs is missing" in decision.why
    assert "not answered" in text


def test_a_control_is_never_chosen(tmp_path: Path) -> None:
    decision, _, text = decided(tmp_path, EFFICIENT, case("wrong", "none", control=True))
    assert decision.chosen is None
    assert "only controls" in decision.why
    assert "known to be broken, to show that the bench detects it" in text


def test_every_claim_leads_to_its_evidence(tmp_path: Path) -> None:
    _, _, text = decided(tmp_path, CORRECT, *SOME)
    claimed = set(re.findall(r"E\d+", text.split("## More Information")[0]))
    listed = set(re.findall(r"^\| (E\d+) \|", text, re.MULTILINE))
    assert claimed == listed == {f"E{n}" for n in range(1, 7)}
    for line in text.splitlines():
        if line.startswith(("* Good:", "* Bad:")) and "together with" not in line:
            assert re.search(r"\[E\d", line), line
    assert "E6: lockbench run --lock etcd --fault kill" in text
    assert "--seed 7" in text
    assert "eeeeeeeeeeee" in text  # the image


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


def test_it_says_what_was_not_tested(tmp_path: Path) -> None:
    _, _, text = decided(tmp_path, CORRECT, *SOME)
    missing = text.split("## What was not tested")[1].split("## More")[0]
    assert re.search(r"redis-token: .*partition-drop", missing)
    assert "any network but loopback" in missing
    assert "more than one machine" in missing
    table = next(line for line in text.splitlines() if line.startswith("| etcd |"))
    assert "not tried" in table  # clock skew


def test_the_digest_is_what_sha256sum_gives() -> None:
    lines = f"{'1' * 64}  a\n{'2' * 64}  b\n"
    assert whole_digest(SOME[0]["history_sha256"]) == hashlib.sha256(lines.encode()).hexdigest()


def test_names_are_escaped(tmp_path: Path) -> None:
    _, _, text = decided(tmp_path, EFFICIENT, case("<script>x</script>", "none"))
    assert "<script>" not in re.sub(r"^    .*$", "", text, flags=re.MULTILINE)


def test_a_lock_on_two_clusters_is_two_options(tmp_path: Path) -> None:
    _, found, _ = decided(tmp_path, CORRECT, *SOME[:1], case("redis-token", "none", size=5))
    assert [o.name for o in found] == [
        "redis-token (redis-token, 3 nodes)",
        "redis-token (redis-token, 5 nodes)",
    ]
