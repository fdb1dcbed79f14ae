"""Stored runs side by side: what is refused, what counts, what only informs."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from lockbench.evidence.compare import compare
from lockbench.history.op import F, Object, Type
from lockbench.history.recorder import Recorder
from lockbench.history.recording import write_faults, write_meta
from lockbench.report.comparison_text import junit, markdown
from lockbench.results import comparison
from lockbench.results.comparison import (
    Comparison,
    compare_stored,
    differences,
)
from lockbench.results.documents import (
    CaseResult,
    Results,
    VerdictChange,
    Versions,
    VersionsSide,
)
from lockbench.results.errors import BadInput, endings_named, exit_code, worst_first
from lockbench.results.gate import Cell, change_words
from lockbench.results.judgements import (
    CONTRADICTED,
    HELD_UNDECLARED,
    NOT_AS_ASKED,
    NOTHING_DECLARED,
)
from lockbench.results.store import NotARun, RunFolder
from lockbench.results.stored import Edited, Stored, countable, stored, stored_set
from lockbench.workloads.load import Phases
from tests.results.plain import (
    plain,
    plainly,
    typed,
    write_case,
    write_machine,
    write_plan,
    write_results,
    write_versions,
)

verdict_changes = plainly(comparison.verdict_changes)
endings_of_verdicts = plainly(comparison.endings_of_verdicts)
sentences = plainly(comparison.sentences)

HELD, BROKEN = "valid", "invalid"
MS = 1_000_000


def recorded(folder: Path, *, twice: bool, given_up: bool = False) -> None:
    """A history of one key: held by one after the other, or by two at a time. ``given_up``: of two
    acquires of an own key that were due, one was granted and one refused after 700 ms."""
    objects = {"k0": Object(role="contended"), "a0": Object(role="own")}
    write_meta(folder, objects, wall_minus_monotonic_ns=5)
    write_faults(folder, [])
    recorder = Recorder(folder, 0)
    for n in range(4):
        process = recorder.new_process()
        begin = n * 100 * MS
        end = begin + (150 if twice else 50) * MS
        grant = recorder.invoke(process, F.ACQUIRE, "k0", hold=n + 1, invoke_ns=begin + MS)
        recorder.complete(
            grant,
            Type.OK,
            sent_ns=begin + MS,
            valid_until_ns=begin + 3000 * MS,
            complete_ns=begin + 2 * MS,
        )
        given_back = recorder.invoke(process, F.RELEASE, "k0", hold=n + 1, invoke_ns=end)
        recorder.complete(given_back, Type.OK, complete_ns=end + MS)
    for ms, outcome in ((1, Type.OK), (700, Type.FAIL)) if given_up else ():
        asked = recorder.invoke(9, F.ACQUIRE, "a0", hold=90 + ms, invoke_ns=MS, intended_ns=MS)
        recorder.complete(asked, outcome, complete_ns=MS + ms * MS)
    recorder.close()


def case(result: str = HELD, **changes: Any) -> dict[str, Any]:
    return {
        "lock": "etcd",
        "fault": "none",
        "workload": "mutex",
        "numbers": "valid",
        "exposed": True,
        "ending": "ok" if result == HELD else "safety",
        "judgement": "as expected" if result == HELD else "worse than expected",
        "why": "",
        "expected": {"double-grant": "holds"},
        "verdicts": {"double-grant": {"result": result, "reason": "", "evidence": []}},
        "latency_ms": {"acquire": {"before": {"p50": 1.0}}, "handover": {"before": {"p50": 3.0}}},
        "cycles_per_second": 200.0,
    } | changes


Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Stores a finished run of one case whose history breaks or holds."""

    def made(name: str, *, twice: bool = False, given_up: bool = False, **changes: Any) -> Path:
        from lockbench.checker.check import check
        from lockbench.history.recording import read_recording

        run = RunFolder.create(tmp_path / "runs", name)
        folder = run.case(1, "etcd", "none")
        recorded(folder.history, twice=twice, given_up=given_up)
        verdicts = check(read_recording(folder.history)).to_json()["verdicts"]
        document = case(BROKEN if twice else HELD) | {
            "folder": folder.path.name,
            "history_sha256": folder.history_sha256(),
            "verdicts": verdicts,
        }
        document |= changes.pop("case", {})
        write_case(folder, document)
        write_plan(run, {"cases": [{"images": changes.pop("images", [])}]})
        write_machine(run, {"cpu": "A", "memory_bytes": 2**33} | changes.pop("machine", {}))
        write_versions(run, {"libraries": {"redis": "8.1.0"}} | changes.pop("versions", {}))
        write_results(run, {"cases": [document], "ending": document["ending"]})
        run.finish(str(document["ending"]))
        return run.path

    return made


def timed(*, beside: int = 0, **changes: Any) -> dict[str, Any]:
    """The numbers of ``recorded``: four grants in one second, and nothing that carries a quantile.
    ``beside``: how many acquires of own keys were granted."""
    counts = {"acquire": 0, "handover": 0, "wait": 4, "acquire_beside": beside, "release": 4}
    return {
        "phases_s": {"floor_s": 0.0, "own_s": 0.0, "contended_s": 1.0},
        "series": {"start_ns": 0},
        "latency_ms": {
            kind: {"before": {"count": count} | ({"max": 1.0} if count else {})}
            for kind, count in counts.items()
        },
        "cycles_per_second": 4.0,
    } | changes


def both_files(path: Path) -> tuple[Path, Path]:
    return path / "results.json", path / "cases" / "01-etcd-none" / "case.json"


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the case in both files."""
    for file in both_files(path):
        document = json.loads(file.read_text())
        change(document["cases"][0] if "cases" in document else document)
        file.write_text(json.dumps(document))


def compared(base: Path, new: Path, *, anyway: bool = False) -> tuple[Comparison, list[str]]:
    return compare_stored(stored_set(base), stored_set(new), anyway=anyway, repeat="again")


def test_a_break_that_nobody_declared_is_worse_and_not_called_expected_to_hold(make: Make) -> None:
    expected = dict.fromkeys(("double-grant", "linearizable"), "undeclared")
    silent = {"expected": expected, "judgement": "broke, undeclared"}
    made, _ = compared(make("a"), make("b", twice=True, case=silent))
    (change,) = [c for c in made.changes if c.verdict == "double-grant"]
    assert (made.ending, change.direction) == ("safety", "worse")
    assert change.words == "nothing is declared, and it broke"
    assert "double-grant 1 of 1 (nothing is declared, and it broke)" in made.headline
    assert "expected" not in made.headline
    both, _ = compared(*(make(name, twice=True, case=silent) for name in "cd"))
    assert "in base too (broke, undeclared)" in both.headline
    assert "expected" not in both.headline


def test_who_never_recovers_is_no_number_that_is_left_out() -> None:
    def recovers(after_s: float | None) -> CaseResult:
        never: Any = {"unrecovered_seconds": 9.0}
        never = never if after_s is None else {"recovery_seconds": after_s}
        return cast("CaseResult", typed(case(fault="kill", **never)))

    def told(base: Sequence[float | None], new: Sequence[float | None]) -> Cell:
        sides = ([recovers(s) for s in base], [recovers(s) for s in new])
        (cell,) = [c for c in comparison.shown(("etcd", "kill"), sides) if c.metric == "recovery"]
        return cell

    some = told([2.0] * 3, [None, None, 2.0, None])
    assert (some.base, some.new, some.change) == (2.0, None, None)
    assert some.words == (
        "not judged; nobody was granted after the heal in 3 of 4 runs, base 0 of 3"
    )
    assert told([2.0], [None]).new is None
    assert told([2.0], [3.0]).change == 0.5


def test_the_same_lock_with_and_without_a_store_is_two_experiments(make: Make) -> None:
    guarded = make("b", case={"resource": "postgres:guard=fence"})
    _, differs = compared(make("a"), guarded)
    assert any("resource" in sentence for sentence in differs)


def test_the_same_twice_is_ok(make: Make) -> None:
    made, differs = compared(make("a"), make("b"))
    assert (made.ending, differs, list(made.changes)) == ("ok", [], [])
    assert {cell.word for cell in made.cells} == {"not judged"}


def test_a_run_is_not_compared_with_itself(make: Make, tmp_path: Path) -> None:
    """It would end ok, whatever is in it."""
    run = make("a")
    (tmp_path / "link").symlink_to(run)
    for other in (run, tmp_path / "link", run.parent):
        with pytest.raises(BadInput, match="is on both sides: a run is not compared with itself"):
            compare(run, other, anyway=True, as_json=False, junit=None, out=Console(quiet=True))


def test_a_verdict_that_got_worse_counts_although_numbers_do_not(make: Make) -> None:
    slow = {"cycles_per_second": 50.0}
    assert compared(make("a"), make("b", case=slow))[0].ending == "ok"
    made, _ = compared(make("c"), make("d", twice=True))
    assert made.ending == "safety"
    assert "double-grant" in {c.verdict for c in made.changes if c.direction == "worse"}
    assert "double-grant 1 of 1 (expected to hold, and broke)" in made.headline


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"machine": {"cpu": "B"}}, "other machine: cpu A and B"),
        ({"versions": {"libraries": {"redis": "8.0.1"}}}, "library redis 8.1.0 and 8.0.1"),
        ({"case": {"fault": "kill"}}, "other suite: only base has etcd under none"),
        ({"case": {"clients": 9}}, "other settings of the same cases: clients None and 9"),
    ],
)
def test_other_experiments_are_named(make: Make, changes: dict[str, Any], said: str) -> None:
    base, new = stored_set(make("a")), stored_set(make("b", **changes))
    assert said in " ".join(differences(base, new)).replace("8.0.1 and 8.1.0", "8.1.0 and 8.0.1")


def of(run: Path, *cases: dict[str, Any]) -> list[Stored]:
    """A stored set with other cases."""
    return [replace(stored(run), results=Results(cases=typed(cases)))]


def test_workloads_of_a_lock_are_compared_apart(make: Make) -> None:
    """One broke where it had held, and the other the other way round."""
    base = of(make("a"), case(BROKEN), case(workload="payment"))
    new = of(make("b"), case(), case(BROKEN, workload="payment"))
    made, differs = compare_stored(base, new, anyway=False, repeat="")
    assert differs == []
    assert [(c.lock, c.direction) for c in made.changes] == [
        ("etcd, payment", "worse"),
        ("etcd, mutex", "better"),
    ]
    assert {cell.lock for cell in made.cells} == {"etcd, mutex", "etcd, payment"}


def test_other_settings_of_any_case_of_a_lock_are_named(make: Make) -> None:
    base = of(make("a"), case(clients=8), case(workload="payment", clients=3))
    new = of(make("b"), case(clients=9), case(workload="payment", clients=3))
    assert differences(base, new) == ["other settings of the same cases: clients 8 and 9"]
    assert differences(base, base) == []
    short, long = (case(settings={"hold_s": hold_s}) for hold_s in (0.1, 2.5))
    base, new = of(make("c"), long, short), of(make("d"), short)
    assert differences(base, new) == ["other settings of the same cases: hold_s 0.1/2.5 and 0.1"]
    mixed = of(make("e"), short, long)
    (said,) = differences(mixed, base)
    assert said == "other settings of the same cases: hold_s 0.1/2.5 and 0.1/2.5"
    assert differences(new, new) == []


ONE = {"operations": 1, "grants": 1, "acquire_ms": {}}


def test_a_load_from_other_machines_is_another_experiment(make: Make) -> None:
    here, both = case(), case(machines=[ONE | {"name": "here"}, ONE | {"name": "a"}])
    (said,) = differences(of(make("a"), here), of(make("b"), both))
    assert said == "other settings of the same cases: machines this one and here, a"
    base = of(make("c"), both)
    assert differences(base, base) == []


def test_another_version_of_somebody_elses_servers_is_another_version(make: Make) -> None:
    theirs: tuple[dict[str, str], ...] = ({"redis": "6.2.1"}, {"redis": "8.2.0"}, {})
    old, new, none = ({"libraries": {}, "servers": servers} for servers in theirs)
    base = stored_set(make("a", versions=old))
    (said,) = differences(base, stored_set(make("b", versions=new)))
    assert said == "other versions: servers of redis 6.2.1 and 8.2.0"
    assert differences(base, stored_set(make("c", versions=none))) == []


def test_what_one_side_has_alone_is_named_with_what_tells_it_apart(make: Make) -> None:
    both = case(topology="redis", size=1), case(topology="redis-fsync", size=1)
    base, new = of(make("a"), *both), of(make("b"), both[0])
    assert differences(base, new) == [
        "other suite: only base has etcd, redis-fsync under none",
    ]
    made, _ = compare_stored(base, new, anyway=True, repeat="")
    assert {cell.lock for cell in made.cells} == {"etcd, redis"}


def test_a_topology_that_differs_between_the_sides_is_a_difference_and_no_name(
    make: Make,
) -> None:
    base, new = of(make("a"), case(topology="redis")), of(make("b"), case(topology="redis-fsync"))
    made, differs = compare_stored(base, new, anyway=True, repeat="")
    assert differs == ["other settings of the same cases: topology redis and redis-fsync"]
    assert {cell.lock for cell in made.cells} == {"etcd"}


def test_another_image_is_another_version_and_one_more_is_not(make: Make) -> None:
    redis, etcd = ({"versions": {"server": version}} for version in ("8.0", "3.6"))
    old = {"libraries": {}, "images": {"redis": redis}}
    swapped = {"libraries": {}, "images": {"redis:7.4": {"id": "sha256:abc"}}}
    more = {"libraries": {}, "images": {"redis": redis, "etcd": etcd}}
    base = stored_set(make("a", versions=old))
    other = stored_set(make("b", versions=swapped, images=[["redis", "redis:7.4"]]))
    assert "image redis server 8.0 and sha256:abc" in " ".join(differences(base, other))
    assert differences(base, stored_set(make("c", versions=more))) == []


def test_other_pins_of_a_library_are_another_version_and_one_more_library_is_not(
    make: Make,
) -> None:
    def clients(fingerprint: str, **more: Any) -> dict[str, Any]:
        jvm = {"versions": {"redisson": "4.7.0"}, "fingerprint": fingerprint}
        return {"libraries": {}, "clients": {"jvm-sidecar": jvm, **more}}

    base = stored_set(make("a", versions=clients("aa")))
    said = " ".join(differences(base, stored_set(make("b", versions=clients("bb")))))
    assert "clients in jvm-sidecar redisson 4.7.0 (aa) and redisson 4.7.0 (bb)" in said
    more = clients("aa", kazoo={"versions": {"kazoo": "2.11.0"}, "fingerprint": "cc"})
    assert differences(base, stored_set(make("c", versions=more))) == []
    assert differences(base, stored_set(make("d", versions={"libraries": {}}))) == []


def test_an_edited_verdict_is_refused(make: Make) -> None:
    path = make("a", twice=True)
    edit(path, lambda case: [v.update(result="valid") for v in case["verdicts"].values()])
    with pytest.raises(Edited, match="is stored as valid, and the history is judged invalid"):
        stored(path)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("cycles_per_second", '"cycles_per_second": 4.0', '"cycles_per_second": 5.0'),
        ("latency_ms.wait.before.max", '"max": 1.0', '"max": 0.5'),
        ("latency_ms.wait.before.max", '"max": 1.0', '"max": null'),
        ("latency_ms.wait.before.p99", '"max": 1.0', '"max": 1.0, "p99": 1.0'),
        ("latency_ms.wait", '"wait": {', '"waited": {'),
        ("latency_ms.acquire", '"latency_ms": {', '"latency_ms": null, "response_ms": {'),
    ],
)
def test_a_number_that_was_edited_in_both_files_is_refused(
    make: Make, name: str, old: str, new: str
) -> None:
    path = make("a", case=timed())
    assert stored(path).cases[0].cycles_per_second == 4.0
    for file in both_files(path):
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))
    with pytest.raises(Edited, match=f"{name} is not what its history gives"):
        stored(path)


@pytest.mark.parametrize("lengths_s", [(1.0, 3.1, 11.4), (1.0, 2.3000000000000003, 8.2)])
def test_a_rate_is_measured_again_in_the_nanoseconds_of_the_run(
    make: Make, lengths_s: tuple[float, float, float]
) -> None:
    """Cut off one by one, the lengths come to a nanosecond more or less."""
    lengths = Phases(*lengths_s)
    start_ns = -lengths.ends_ns(0)[1]
    _, contended_ns, end_ns, _ = lengths.ends_ns(start_ns)
    document = timed(
        phases_s=asdict(lengths),
        series={"start_ns": contended_ns},
        cycles_per_second=4 * 1e9 / (end_ns - contended_ns),
    )
    stored(make("a", case=document))


@pytest.mark.parametrize(
    ("count", "most", "waits", "known"),
    [
        (2, 700.0, 4, True),  # what was given up counts
        (2, 700.0, None, True),  # in an older version on own keys alone
        (1, 1.0, None, True),  # and in older ones nowhere
        (1, 1.0, 4, False),
        (2, 700.0, 3, False),
        (1, 700.0, None, False),
        (2, 1.0, None, False),
    ],
)
def test_a_response_time_of_an_older_version_is_known_and_an_edited_one_is_not(
    make: Make, count: int, most: float, waits: int | None, known: bool
) -> None:
    beside = {"max": most, "count": count, "above": ["max"] if count == 2 else []}
    response: dict[str, Any] = {"acquire_beside": {"before": beside}}
    if waits is not None:
        response["wait"] = {"before": {"max": 1.0, "count": waits, "above": []}}
    document = timed(beside=1, response_ms=response)
    path = make("a", given_up=True, case=document)
    if known:
        assert stored(path).cases[0].response_ms is not None
        return
    with pytest.raises(Edited, match=r"response_ms\..* is not what its"):
        stored(path)


def test_a_verdict_that_was_cut_out_is_missed(make: Make) -> None:
    path = make("a", twice=True)
    edit(path, lambda case: case["verdicts"].pop("double-grant"))
    with pytest.raises(Edited, match="double-grant is stored as None"):
        stored(path)


def test_what_was_undecided_then_may_be_decided_now(make: Make) -> None:
    path = make("a")
    edit(path, lambda case: case["verdicts"]["double-grant"].update(result="unknown"))
    (case,) = stored(path).cases
    assert case.verdicts["double-grant"].result == "unknown", "and stays undecided"


def test_both_sides_of_a_change_are_no_one_run(make: Make) -> None:
    with pytest.raises(NotARun, match="holds both sides of a change"):
        countable([stored(make("a", case={"side": "new"}))])


def test_a_run_of_another_version_is_not_counted_as_one_of_this(make: Make) -> None:
    run = stored(make("a"))
    other = replace(run, versions=Versions(sides={"with": VersionsSide("redis==8.0.1")}))
    with pytest.raises(NotARun, match=r"was made with redis==8\.0\.1"):
        countable([run, other])


def test_results_that_were_edited_alone_are_refused(make: Make) -> None:
    path = make("a")
    file = path / "results.json"
    file.write_text(file.read_text().replace("200.0", "900.0"))
    with pytest.raises(Edited, match=r"disagree on cycles_per_second"):
        stored(path)


def test_an_edited_history_is_refused(make: Make) -> None:
    path = make("a")
    (file,) = (path / "cases" / "01-etcd-none" / "history").glob("0.0.ops")
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(Edited, match=r"the history is not the one that was judged: .* was changed"):
        stored(path)
    file.unlink()
    with pytest.raises(Edited, match="is missing"):
        stored(path)


def test_a_half_written_run_and_an_empty_folder_are_refused(make: Make, tmp_path: Path) -> None:
    path = make("a")
    (path / "ending").write_text("running\n")
    with pytest.raises(NotARun, match="half-written; its bench died: run it again"):
        stored(path)
    with pytest.raises(NotARun, match="neither a run folder nor a folder of runs"):
        stored_set(tmp_path)
    with pytest.raises(NotARun, match="does not exist"):
        stored_set(tmp_path / "nowhere")


def test_a_folder_of_runs_is_a_set(make: Make) -> None:
    make("a")
    folder = make("b").parent
    assert len(stored_set(folder)) == 2


@pytest.mark.parametrize(
    ("expected", "ending", "direction", "words", "endings"),
    [
        ("may-break", "ok", "as may happen", "expected: may-break", set()),
        ("holds", "safety", "worse", "expected to hold, and broke", {"safety"}),
        ("undeclared", "safety", "worse", "nothing is declared, and it broke", {"safety"}),
        (None, "safety", "worse", "nothing is declared, and it broke", {"safety"}),
        # Documents do not name every verdict, and the case says that it may break.
        (None, "ok", "as may happen", "expected: may-break", set()),
        # No case was judged for it, and it got worse.
        ("holds", "ok", "more often", "expected to hold, and broke", {"regression"}),
    ],
)
def test_a_break_is_named_by_what_was_declared_and_silence_is_no_claim(
    expected: str | None, ending: str, direction: str, words: str, endings: set[str]
) -> None:
    said = {} if expected is None else {"double-grant": expected}
    new = case(BROKEN, expected=said, ending=ending)
    sides = {("redlock", "pause"): ([case(expected=said)], [new])}
    (change,) = verdict_changes(sides)
    assert (change.base, change.new) == ("0 of 1", "1 of 1")
    assert (change.direction, change.words) == (direction, words)
    assert endings_of_verdicts(sides) == endings


def paused(broke: int, of: int) -> list[dict[str, Any]]:
    """Runs of a lock of one's own that declares nothing, under a pause of its clients."""
    expected = {"stale-holder": NOTHING_DECLARED}
    ends = {True: ("inconclusive", NOTHING_DECLARED), False: ("ok", HELD_UNDECLARED)}
    return [
        case(
            expected=expected,
            verdicts={"stale-holder": {"result": BROKEN if n < broke else HELD}},
            ending=ends[n < broke][0],
            judgement=ends[n < broke][1],
            why="stale-holder broke; no lease can prevent it" if n < broke else "",
        )
        for n in range(of)
    ]


@pytest.mark.parametrize(
    ("base", "new", "direction", "endings"),
    [
        (0, 10, "more often", {"regression", "inconclusive"}),
        (0, 1, "open", {"inconclusive"}),
        (10, 10, None, {"inconclusive"}),
        (10, 0, "better", set()),
        (0, 0, None, set()),
    ],
)
def test_what_no_lease_prevents_is_worse_once_it_breaks_more_often(
    base: int, new: int, direction: str | None, endings: set[str]
) -> None:
    """Nobody has promised anything, so a single break is no violation; and never green."""
    sides = {("mylock", "client-pause"): (paused(base, 10), paused(new, 10))}
    changes = verdict_changes(sides)
    assert [change.direction for change in changes] == ([] if direction is None else [direction])
    assert endings_of_verdicts(sides) == endings
    assert all("expected to hold" not in change.words for change in changes)
    if "regression" in endings:
        assert exit_code(list(endings), list(endings)) == 3
        said = sentences(["regression"], changes, [], sides)["regression"]
        assert said.endswith("stale-holder 10 of 10, base 0 of 10")


@pytest.mark.parametrize("short", [1, 10])
def test_a_load_that_did_not_take_place_is_never_green(short: int) -> None:
    """Neither of all runs nor of one; that a fault missed in one is a try less."""
    why = "7 of 40 clients got nothing done"
    idle = case(ending="inconclusive", judgement=NOT_AS_ASKED, why=why)
    new = [idle if n < short else case() for n in range(10)]
    sides = {("etcd", "none"): (tried(0, 10, "holds"), new)}
    assert endings_of_verdicts(sides) == {"inconclusive"}
    said = sentences(["inconclusive"], verdict_changes(sides), [], sides)
    assert f"etcd under none: {why}" in said["inconclusive"]
    missed = case(ending="inconclusive", judgement="not exposed", exposed=False)
    one = [missed, *(case() for _ in range(9))]
    assert endings_of_verdicts({("etcd", "none"): (tried(0, 10, "holds"), one)}) == set()


def test_a_verdict_that_is_gone_is_no_longer_decided() -> None:
    both = {"double-grant": {"result": HELD}, "wrong-release": {"result": HELD}}
    sides = {("etcd", "none"): ([case(verdicts=both)], [case()])}
    assert endings_of_verdicts(sides) == {"inconclusive"}
    said = sentences(["inconclusive"], verdict_changes(sides), [], sides)["inconclusive"]
    assert said == "Inconclusive: etcd under none: wrong-release is no longer decided"
    more = {("etcd", "none"): ([case()], [case(verdicts=both)])}
    assert endings_of_verdicts(more) == set()


def test_what_the_record_refutes_is_no_regression() -> None:
    says = {"what": "service", "text": "it was not so", "says": "contradicted"}
    verdicts = {"double-grant": {"result": BROKEN, "evidence": [says]}}
    new = case(verdicts=verdicts, ending="bench", judgement=CONTRADICTED)
    sides = {("etcd", "none"): (tried(0, 10, "holds"), [new] * 10)}
    assert endings_of_verdicts(sides) == {"bench", "inconclusive"}


def tried(broke: int, of: int, expected: str) -> list[dict[str, Any]]:
    return [
        case(BROKEN if n < broke else HELD, expected={"double-grant": expected}, ending="ok")
        for n in range(of)
    ]


@pytest.mark.parametrize(
    ("expected", "base", "new", "direction", "endings"),
    [
        ("may-break", (1, 20), (20, 20), "more often", {"regression"}),
        ("may-break", (0, 10), (10, 10), "more often", {"regression"}),
        ("may-break", (1, 20), (3, 20), "as may happen", set()),
        ("may-break", (20, 20), (1, 20), "as may happen", set()),
        ("may-break", (0, 0), (1, 1), "as may happen", set()),
        ("may-break", (5, 10), (10, 20), None, set()),
        ("breaks", (1, 20), (20, 20), "as may happen", set()),
        ("holds", (1, 20), (20, 20), "more often", {"regression"}),
        ("holds", (1, 20), (2, 20), "open", set()),
    ],
)
def test_what_breaks_more_often_than_chance_is_a_regression(
    expected: str,
    base: tuple[int, int],
    new: tuple[int, int],
    direction: str | None,
    endings: set[str],
) -> None:
    sides = {("redlock", "pause"): (tried(*base, expected), tried(*new, expected))}
    found = [(c.direction, c.base, c.new) for c in verdict_changes(sides)]
    told = [f"{k} of {n}" for k, n in (base, new)]
    assert found == ([] if direction is None else [(direction, *told)])
    assert endings_of_verdicts(sides) == endings


def test_of_many_verdicts_one_that_breaks_a_little_more_often_is_no_regression() -> None:
    one = {("lock-0", "pause"): (tried(0, 10, "may-break"), tried(6, 10, "may-break"))}
    more = {
        (f"lock-{n}", "pause"): (tried(5, 10, "may-break"), tried(5, 10, "may-break"))
        for n in range(1, 10)
    }
    assert endings_of_verdicts(one) == {"regression"}
    assert endings_of_verdicts(one | more) == set()


def test_what_breaks_more_often_is_told_with_both_and_fails_in_ci() -> None:
    change = VerdictChange(
        "etcd", "kill", "double-grant", "1 of 20", "20 of 20", "more often", "breaks more often"
    )
    slower = Cell("etcd", "none", "throughput", "no difference shown", 20, p_worse=0.5)
    said = comparison.sentences(["regression"], [change], [], {})
    assert said == {
        "regression": "Breaks more often: etcd under kill: double-grant 20 of 20, base 1 of 20"
    }
    made = Comparison("regress", "a", "b", ["regression"], said, [change], [slower])
    assert ET.fromstring(junit(made)).get("failures") == "1"
    # Numbers that are corrected once more do not take it back.
    barely = replace(slower, word="worse", p_worse=0.5)
    (again,) = comparison.rejudged([replace(made, cells=[barely])])
    assert again.endings == ("regression", "inconclusive")


def test_numbers_that_are_corrected_once_more_change_nothing_that_was_said_of_runs() -> None:
    """The runs are not known there any more."""
    barely = Cell("etcd", "none", "throughput", "worse", 20, 2.0, 1.0, -0.5, p_worse=0.5)
    said = {
        "safety": "Safety: two held it",
        "regression": "Slower: etcd",
        "bench": "The bench failed: no room",
        "inconclusive": "Inconclusive: etcd under kill: a verdict is unknown",
    }
    made = Comparison("regress", "a", "b", [*said], said, [], [barely])
    (again,) = comparison.rejudged([made])
    assert again.endings == ("safety", "bench", "inconclusive")
    kept = {e: s for e, s in said.items() if e in {"safety", "bench"}}
    assert kept.items() <= again.sentences.items()
    # What looked slower is told in the sentence of what is not known.
    told = again.sentences["inconclusive"]
    assert told.startswith("Inconclusive: etcd under kill: a verdict is unknown; uncertain ")
    assert change_words(barely) in told


def test_an_earlier_try_that_was_undecided_stays_so() -> None:
    def tried_before(result: str) -> dict[str, Any]:
        return case(earlier_tries=[{"observed": {"double-grant": result}, "exposed": True}])

    for before, expected in (("unknown", {"inconclusive"}), ("valid", set())):
        sides = {("etcd", "none"): ([case()], [tried_before(before)])}
        assert endings_of_verdicts(sides) == expected


def test_what_is_no_longer_decided_is_never_green() -> None:
    unknown = case("unknown", ending="inconclusive")
    sides = {("etcd", "none"): ([case()], [unknown])}
    (change,) = verdict_changes(sides)
    assert (change.direction, change.words) == ("open", "no longer decided")
    assert endings_of_verdicts(sides) == {"inconclusive"}


def test_a_run_that_was_not_exposed_is_a_try_less_and_not_the_end() -> None:
    missed = case(exposed=False, ending="inconclusive", judgement="not exposed")
    assert endings_of_verdicts({("etcd", "kill"): ([case()], [case(), missed])}) == set()
    assert endings_of_verdicts({("etcd", "kill"): ([case()], [missed])}) == {"inconclusive"}


def test_what_broke_before_and_holds_now_is_better() -> None:
    sides = {("etcd", "none"): ([case(BROKEN)], [case()])}
    (change,) = verdict_changes(sides)
    assert change.direction == "better"
    assert endings_of_verdicts(sides) == set()


@pytest.mark.parametrize(
    ("endings", "found"),
    [
        ("inconclusive bench regression safety", "safety regression bench inconclusive"),
        ("inconclusive regression inconclusive", "regression inconclusive"),
        ("ok inconclusive", "inconclusive"),
        ("ok ok", "ok"),
        ("", "ok"),
    ],
)
def test_every_ending_that_occurred_is_kept_the_worst_first(endings: str, found: str) -> None:
    assert worst_first(endings.split()) == tuple(found.split())


@pytest.mark.parametrize(
    ("endings", "fail_on", "code"),
    [
        ("inconclusive regression", "safety,regression", 3),
        ("regression bench safety", "safety,regression", 1),
        ("inconclusive bench", "safety,regression", 0),
        ("inconclusive bench", "inconclusive", 2),
        ("ok", "safety,regression,bench,inconclusive", 0),
    ],
)
def test_whatever_is_to_fail_fails_whatever_else_there_is(
    endings: str, fail_on: str, code: int
) -> None:
    assert exit_code(endings.split(), endings_named(fail_on)) == code


def test_a_gate_that_nothing_fails_is_none() -> None:
    for nothing in ("", " , "):
        with pytest.raises(BadInput, match="name an ending"):
            endings_named(nothing)
    with pytest.raises(BadInput, match="no ending is called 'ok'"):
        endings_named("ok")


def test_two_stored_runs_have_no_interval(make: Make) -> None:
    """It would say that most pairs of runs of the same thing differ."""
    made, _ = compared(make("a"), make("b"))
    assert made.cells
    assert {(cell.low, cell.high) for cell in made.cells} == {(None, None)}
    assert "there is no interval" in markdown(made)


def judged(ending: str, *cells: Cell) -> Comparison:
    said = {ending: "head <i>"}
    return Comparison("regress", "a|b", "<b>", [ending], said, [], cells, ["note"], "again x")


def test_junit_fails_for_worse_and_errs_for_too_few() -> None:
    text = junit(
        judged(
            "inconclusive",
            Cell("etcd", "none", "throughput", "worse", 20, 200.0, 100.0, -0.5, -0.6, -0.4),
            Cell("etcd", "none", "acquire-p50", "too few pairs", 3, needed=6),
            Cell("et<cd", "none", "handover-p50", "no difference shown", 20, 1.0, 1.0, 0.0),
        )
    )
    suite = ET.fromstring(text)
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "4",
        "failures": "1",
        "errors": "2",
    }
    failure = suite.find(".//failure")
    assert failure is not None
    assert "cycles per second" in str(failure.get("message"))
    assert failure.text == "again x"


def test_markdown_escapes_and_says_how_to_repeat_it() -> None:
    text = markdown(judged("ok", Cell("<x>", "none", "throughput", "improved", 9, 1.0, 2.0, 1.0)))
    assert "<b>" not in text
    assert "<x>" not in text
    assert "<i>" not in text
    assert "again x" in text
    assert "▲ improved" in text


def test_the_json_is_json(make: Make) -> None:
    made, _ = compared(make("a"), make("b"))
    found = json.loads(json.dumps(plain(made.document()), allow_nan=False))
    assert found["cells"][0]["verdict"] == "not judged"
    assert found["ending"] == "ok"
