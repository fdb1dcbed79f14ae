"""``lockbench regress`` without clusters: the order, the second measurement, every ending."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from lockbench.bench import plan
from lockbench.bench.run import Outcome
from lockbench.evidence import baseline, sides
from lockbench.evidence import regress as module
from lockbench.evidence.regress import regress
from lockbench.evidence.regress_plan import BASE, NEW, Order, order, turns
from lockbench.evidence.sides import install, library_path, parse
from lockbench.locks.shared.library import INSTEAD, Library, python_path
from lockbench.results import machine
from lockbench.results.documents import (
    CaseResult,
    Client,
    Machine,
    Versions,
    VersionsSide,
    known,
    made,
)
from lockbench.results.errors import BadInput
from tests.results.measured_noise import case as case_of

Play = Callable[[str, int], CaseResult]


def asked(base: str = "current", new: str = "current", **changes: Any) -> Order:
    given: dict[str, Any] = {
        "locks": ["redis-token"],
        "faults": ["none"],
        "pairs": 6,
        "time_limit_s": 8.0,
        "seed": 0,
    }
    return order(base, new, **(given | changes))


def document(acquire_ms: float, **changes: Any) -> CaseResult:
    """A case in which every promise was kept."""
    plain = {
        "lock": "redis-token",
        "exposed": True,
        "verdicts": {"double-grant": {"result": "valid", "reason": "", "evidence": []}},
        "expected": {"double-grant": "holds"},
        "judgement": "as expected",
        "why": "every promise was kept",
        "ending": "ok",
    } | changes
    case = case_of(acquire_ms, 3.0, 200.0)
    return replace(case, **known(made(CaseResult, {"fault": case.fault} | plain)))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Order, Play], Any]:
    """Runs the command with ``play(side, pair)`` in place of clusters."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        module, "_ready", lambda *_: (SimpleNamespace(version=lambda: "1"), Versions())
    )
    started: list[str] = []

    def server(run_id: str) -> Any:
        started.append(run_id)
        return nullcontext(len(started))

    monkeypatch.setattr(module, "ForkServer", server)
    monkeypatch.setattr(machine, "facts", lambda *_, **__: Machine())

    def go(wanted: Order, play: Play) -> Any:
        count = {"base": 0, "new": 0}

        forked: list[int] = []

        def run_case(_case: Any, folder: Path, *, fork_server: int, **_: Any) -> Outcome:
            forked.append(fork_server)
            side = folder.name.split("-")[1]
            count[side] += 1
            return Outcome(play(side, count[side]), {})

        monkeypatch.setattr(module, "run_case", run_case)
        finished, made = regress(wanted, Console(quiet=True))
        assert len(forked) == len(set(forked)), "every run has processes of its own"
        stored = json.loads((finished.folder / "results.json").read_text())
        assert stored["ending"] == made.ending == (finished.folder / "ending").read_text().strip()
        assert (finished.folder / "comparison.md").read_text().startswith("### Lockbench regress")
        return made, stored, count

    return go


def test_the_same_on_both_sides_is_no_difference(played: Any) -> None:
    made, stored, count = played(asked(), lambda side, n: document(1.0 + (n % 3) / 100))
    assert made.ending == "ok"
    assert count == {"base": 6, "new": 6}
    assert [case["side"] for case in stored["cases"]].count("base") == 6
    assert "no difference shown" in made.headline


def test_a_slowdown_is_measured_again_and_then_a_regression(played: Any) -> None:
    def play(side: str, n: int) -> CaseResult:
        return document((1.3 if side == "new" else 1.0) + n / 1000)

    made, _, count = played(asked(), play)
    assert made.ending == "regression"
    assert made.headline.startswith("Slower: redis-token uncontended acquire")
    assert count == {"base": 12, "new": 12}
    worse = [cell.metric for cell in made.cells if cell.word == "worse"]
    assert worse == ["acquire-p50"]


def test_a_slowdown_that_does_not_come_back_is_none(played: Any) -> None:
    def play(side: str, n: int) -> CaseResult:
        slow = side == "new" and n <= 6
        return document((1.3 if slow else 1.0) * (1 + (n % 5) / 50 * (1 if side == "base" else -1)))

    made, _, count = played(asked(), play)
    assert count == {"base": 12, "new": 12}
    assert made.ending == "ok"


def test_a_slowdown_is_told_whatever_else_happened(played: Any) -> None:
    """One run of base fell over, and another was not decided."""

    def play(side: str, n: int) -> CaseResult:
        value = (1.3 if side == "new" else 1.0) + n / 1000
        if (side, n) == ("base", 3):
            return document(value, numbers="void", verdicts={}, ending="bench", why="it fell over")
        if (side, n) == ("new", 5):
            unknown = {"double-grant": {"result": "unknown", "reason": "?", "evidence": []}}
            return document(value, verdicts=unknown, ending="inconclusive", why="who knows")
        return document(value)

    made, stored, _ = played(asked(pairs=10), play)
    assert made.endings == ("regression", "bench", "inconclusive")
    assert stored["endings"] == list(made.endings)
    assert made.headline.startswith("Slower: redis-token")
    assert "it fell over" in made.headline
    assert "who knows" in made.headline


def test_too_few_pairs_are_inconclusive(played: Any) -> None:
    made, _, _ = played(asked(pairs=3), lambda *_: document(1.0))
    assert made.ending == "inconclusive"
    assert "need n ≥ 6" in made.headline


def test_what_is_void_and_what_is_not_judged_is_told_by_side(played: Any) -> None:
    def play(side: str, n: int) -> CaseResult:
        return document(1.0, numbers="void" if side == "new" and n % 2 else "valid")

    made, _, _ = played(asked(pairs=10), play)
    assert made.endings == ("inconclusive",)
    assert "missing more often (8 of 15 runs, base 0 of 15)" in made.headline
    assert "the numbers of 8 of 30 runs are void (base 0, new 8)" in made.notes
    assert (
        "not judged: acquire p99 of redis-token (n = 0 of 1,000), "
        "handover p99 of redis-token (n = 0 of 1,000)"
    ) in made.notes


def test_a_void_pair_is_measured_once_more(played: Any) -> None:
    """The generator was the bottleneck for a moment; that decides nothing about the lock."""

    def once(side: str, n: int) -> CaseResult:
        return document(1.0, numbers="void" if (side, n) == ("new", 4) else "valid")

    made, _, count = played(asked(), once)
    assert (made.ending, count) == ("ok", {"base": 7, "new": 7})
    assert {cell.pairs for cell in made.cells} == {6}
    always, _, count = played(asked(), lambda *_: document(1.0, numbers="void"))
    assert (always.ending, count) == ("inconclusive", {"base": 12, "new": 12})


@pytest.mark.parametrize("violated", [False, True])
def test_a_violation_beats_a_failed_run_and_that_beats_the_rest(
    played: Any, violated: bool
) -> None:
    broken = {"double-grant": {"result": "invalid", "reason": "two", "evidence": []}}

    def play(side: str, n: int) -> CaseResult:
        if violated and (side, n) == ("new", 2):
            return document(1.0, verdicts=broken, judgement="worse than expected", ending="safety")
        if (side, n) == ("base", 3):
            return document(9.0, numbers="void", verdicts={}, ending="bench", why="it fell over")
        return document(1.0)

    made, _, _ = played(asked(pairs=10), play)
    if not violated:
        assert made.ending == "bench"
        assert "it fell over" in made.headline
        return
    assert made.ending == "safety"
    (change,) = [c for c in made.changes if c.verdict == "double-grant"]
    assert (change.direction, change.new) == ("worse", "1 of 11")


def test_under_a_workload_verdicts_alone_are_compared(played: Any) -> None:
    """Its numbers are those of its work, and nobody knows their noise."""
    broken = {"double-grant": {"result": "invalid", "reason": "two", "evidence": []}}
    worse = {"verdicts": broken, "judgement": "worse than expected", "ending": "safety"}
    long = asked(workload="long-hold:renew=yes", pairs=2)
    assert [case.workload for both in long.cases.values() for case in both] == [long.workload] * 2
    assert "--workload long-hold:renew=yes" in long.repeat

    def slower(side: str, _: int) -> CaseResult:
        return document(9.0 if side == "new" else 1.0, numbers="void")

    made, _, count = played(long, slower)
    assert (made.ending, list(made.cells), count) == ("ok", [], {"base": 2, "new": 2})
    made, _, _ = played(long, lambda side, _: document(1.0, **worse if side == "new" else {}))
    assert made.ending == "safety"
    assert "double-grant 2 of 2" in made.headline


@pytest.mark.parametrize(("violated", "ending"), [(False, "bench"), (True, "safety")])
def test_an_interruption_leaves_an_ending_and_hides_no_violation(
    played: Any, tmp_path: Path, violated: bool, ending: str
) -> None:
    def play(side: str, n: int) -> CaseResult:
        if n == 3:
            raise KeyboardInterrupt
        return document(1.0, ending="safety" if violated and side == "new" else "ok")

    with pytest.raises(KeyboardInterrupt):
        played(asked(), play)
    assert (tmp_path / "runs" / "latest" / "ending").read_text().strip() == ending


def test_sides_take_turns_and_neither_is_always_first() -> None:
    for seed in range(20):
        found = turns(10, seed)
        assert sorted(found) == [(pair, side) for pair in range(10) for side in (BASE, NEW)]
        firsts = [side for _, side in found[::2]]
        assert all(a != b for a, b in zip(firsts[::2], firsts[1::2], strict=True))
    assert len({turns(10, seed)[0] for seed in range(20)}) == 2


def test_thirty_cells_need_ten_pairs() -> None:
    assert asked(pairs=None).pairs == 10
    many = asked(locks=["redis-token", "redlock", "zookeeper", "etcd"], faults=["none", "kill"],
                 time_limit_s=20.0)  # fmt: skip
    assert len(many.cases) == 8
    assert many.needed == 9  # 4 locks with 3 numbers each, and 4 times recovery


@pytest.mark.parametrize(
    ("base", "new", "changes", "said"),
    [
        ("current", "nothing", {}, "names nothing that could be run"),
        ("current", "redis==8.0.1", {"locks": []}, "name them with --lock"),
        ("current", "numpyx==1.0", {}, "no library that the locks use is called 'numpyx'"),
        ("current", "etcd=mine:1", {}, "none of these cases runs the image etcd"),
        ("current", "topology:moon", {}, "no topology is called 'moon'"),
        ("current", "topology:etcd", {}, "redis-token does not run on etcd"),
        ("redis=a:1", "redis=a:1", {}, "there is nothing to compare"),
        ("current", "nowhere.py:Lock", {}, "there is no file"),
        ("etcd", "current", {"locks": ["etcd", "redlock"]}, "name the one lock"),
        ("current", "redis=a:1", {"pairs": 0}, "--pairs is 0"),
        ("current", "redis=a:1", {"workload": "published"}, "decides nothing"),
        ("current", "redis=a:1", {"workload": "nothing"}, "no workload is called 'nothing'"),
        ("current", "redis=a:1", {"time_limit_s": 2.0}, "too short"),
    ],
)
def test_what_cannot_be_done_is_refused(
    base: str, new: str, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        asked(base, new, **changes)


def test_a_time_that_is_too_short_for_a_later_schedule_is_refused_before_the_first() -> None:
    fault: dict[str, Any] = {"locks": ["redis-py-safe"], "faults": ["client-pause"]}
    assert asked(pairs=1, time_limit_s=15.0, **fault).pairs == 1
    with pytest.raises(BadInput, match="at least 15 s"):
        asked(pairs=2, time_limit_s=14.0, **fault)  # the first four schedules fit


def test_an_image_and_a_lock_are_told_apart() -> None:
    assert parse("redis=redis:7.4").image == ("redis", "redis:7.4")
    assert parse("image:redis=redis:7.4").image == ("redis", "redis:7.4")
    assert parse("redis==8.0.1").library == ("redis", "8.0.1")
    assert parse("etcd").lock == "etcd"
    assert parse("topology:etcd").topology == "etcd"
    assert list(asked("redlock", "redis-token", locks=[]).cases) == [
        ("redlock → redis-token", "none")
    ]


def test_the_command_that_repeats_it_stands_in_the_order() -> None:
    assert asked(seed=7).repeat == (
        "lockbench regress --base current --new current --lock redis-token --pairs 6 "
        "--time-limit 8 --seed 7"
    )


def test_the_command_that_repeats_it_lets_nobody_into_a_repository() -> None:
    source = "git+https://{}example.org/redis-py@v5"
    found = asked(new=source.format("token:secret@"))
    assert found.repeat.startswith(
        f"lockbench regress --base current --new {source.format('')} --lock redis-token"
    )


def installed(folder: Path, name: str, version: str, code: str = "") -> None:
    """As pip leaves a library behind."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(code)
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_a_source_tree_a_wheel_and_a_commit_are_told_apart_from_a_lock_s_folder(
    tmp_path: Path,
) -> None:
    tree, lock = tmp_path / "redis-py", tmp_path / "mine"
    for folder in (tree, lock):
        folder.mkdir()
        (folder / "pyproject.toml").write_text("")
    (lock / "lock.py").write_text("nothing = 1\n")
    wheel = tmp_path / "redis-9.0-py3-none-any.whl"
    wheel.write_bytes(b"")
    assert parse(str(tree)).source == str(tree)
    assert parse(str(wheel)).source == str(wheel)
    assert parse("git+https://host/redis-py@main").source == "git+https://host/redis-py@main"
    with pytest.raises(BadInput, match="declares no SYSTEM"):
        parse(str(lock))
    with pytest.raises(BadInput, match="there is no wheel"):
        parse(str(tmp_path / "other.whl"))


@pytest.mark.parametrize(
    ("name", "lock", "said"),
    [
        ("leftpad", "redis-token", "is leftpad 9.0, which redis-token does not use"),
        ("python_redis_lock", "redis-token", "which redis-token does not use"),
        ("python_redis_lock", "python-redis-lock", None),
    ],
)
def test_a_library_counts_where_a_lock_uses_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, lock: str, said: str | None
) -> None:
    """In the environment of the lock that adapts it, ahead of what is pinned there."""
    ran: list[tuple[list[str], str]] = []

    def run(command: list[str], environment: Any, *_: Any) -> Any:
        ran.append((command, environment.get("PYTHONPATH", "")))
        if "pip" in command:
            installed(tmp_path, name, "9.0")
        return SimpleNamespace(returncode=0, stderr="", stdout="/locks\n9.0\n")

    monkeypatch.setitem(vars(sides), "_run", run)
    monkeypatch.setattr(Library, "prepare", lambda _: None)
    tried = [plan.make_case(lock, "none", seed=0)]
    if said is not None:
        with pytest.raises(BadInput, match=said):
            install(parse("git+https://host/x@main"), tmp_path, tried)
        return
    assert install(parse("git+https://host/x@main"), tmp_path, tried) == {name: "9.0"}
    command, path = ran[-1]
    assert "lockbench/libraries/python_redis_lock-" in command[0]
    assert path.startswith(f"{tmp_path}{os.pathsep}")


@pytest.mark.parametrize(
    ("ref", "shown"),
    [
        ("git+https://tok:x@h.example/o/p@main", "git+https://h.example/o/p@main"),
        ("git+ssh://git@h.example/o/p@main", "git+ssh://git@h.example/o/p@main"),
    ],
)
def test_what_lets_one_into_a_repository_is_not_written_down(ref: str, shown: str) -> None:
    side = parse(ref)
    assert (side.ref, side.source) == (shown, ref)


@pytest.mark.parametrize("ref", ["A" * 5000, "x" * 300 + ".whl"])
def test_a_ref_that_can_be_no_path_is_refused(ref: str) -> None:
    with pytest.raises(BadInput):
        parse(ref)


def test_a_library_without_pins_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(command: list[str], *_: Any) -> Any:
        installed(tmp_path, "python_redis_lock", "9.0")
        return SimpleNamespace(returncode=0, stderr="", stdout="")

    side = parse("git+https://host/x@main")
    tried = [plan.make_case("python-redis-lock", "none", seed=0)]
    monkeypatch.setitem(vars(sides), "_run", run)
    monkeypatch.setattr(Library, "requirements", property(lambda _: tmp_path / "nowhere"))
    with pytest.raises(BadInput, match=r"has no pins: .* writes requirements.txt"):
        install(side, tmp_path, tried)


@pytest.mark.parametrize(
    ("ref", "lock", "file", "line"),
    [
        (
            "go:github.com/go-redsync/redsync/v4@v4.13.0", "redsync",
            "redsync/requirements.mod", "github.com/go-redsync/redsync/v4 v4.13.0",
        ),
        (
            "maven:org.redisson:redisson:4.6.0", "redisson-rlock",
            "redisson/requirements.maven", "org.redisson:redisson:4.6.0",
        ),
        (
            "npm:redlock@4.1.0", "node-redlock",
            "node_redlock/requirements.npm", "redlock@4.1.0",
        ),
    ],
)  # fmt: skip
def test_a_library_of_another_language_is_resolved_and_built_in_a_copy_of_the_recipes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ref: str, lock: str, file: str, line: str
) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], environment: Any, *_: Any) -> Any:
        ran.append(command)
        assert environment["PYTHONPATH"].startswith(f"{tmp_path}{os.pathsep}")
        return SimpleNamespace(returncode=0, stderr="", stdout=f"{tmp_path}/lockbench/locks\n")

    monkeypatch.setitem(vars(sides), "_run", run)
    here = baseline.ROOT / "locks" / "libraries" / file
    before = here.read_text()
    install(parse(ref), tmp_path, [plan.make_case(lock, "none", seed=0)])
    copied = tmp_path / "lockbench" / "locks" / "libraries" / file
    assert copied.read_text().split("\n").count(line) == 1
    assert here.read_text() == before
    assert ran[0][-3:-1] == ["lockbench.clusters.images", "lock"]
    with pytest.raises(BadInput, match="which redis-token does not use"):
        install(parse(ref), tmp_path, [plan.make_case("redis-token", "none", seed=0)])
    with pytest.raises(BadInput, match="no library that the locks adapt"):
        parse(ref.replace("red", "blue"))


def test_adapters_started_inside_see_the_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(INSTEAD, raising=False)
    plain = python_path()
    with library_path(parse("redis==8.0.1"), tmp_path):
        assert python_path() == f"{tmp_path}{os.pathsep}{plain}"
    assert python_path() == plain
    assert INSTEAD not in os.environ


def test_a_library_that_breaks_the_locks_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What pip put there is imported as the workers would, before anything starts."""
    installed(tmp_path, "redis", "8.0.1", "raise ImportError('of another age')\n")
    real = vars(sides)["_run"]

    def no_network(command: Any, environment: Any) -> Any:
        if "pip" in command:
            return SimpleNamespace(returncode=0, stderr="", stdout="")
        return real(command, environment)

    monkeypatch.setitem(vars(sides), "_run", no_network)
    with pytest.raises(BadInput, match="cannot be imported with it: ImportError: of another age"):
        install(parse("redis==8.0.1"), tmp_path)


def test_a_run_with_another_version_says_so_and_names_no_other(tmp_path: Path) -> None:
    here = Versions(
        libraries={"redis": "8.1.0", "locust": "2.1"},
        clients={
            "redis_py": Client(
                locks=("redis-py",),
                fingerprint="93ab",
                pins={"redis": "8.1.0", "async-timeout": "5.0"},
                versions={"redis": "8.1.0"},
            ),
            "kazoo": Client(fingerprint="1f2e", pins={"kazoo": "2.11"}),
        },
    )
    found = sides.Instead(parse("redis==8.0.1"), {"redis": "8.0.1"}).recorded(here)
    assert found.libraries == {"redis": "8.0.1", "locust": "2.1"}
    assert found.clients is not None
    assert here.clients is not None
    assert found.clients["redis_py"] == Client(
        locks=("redis-py",),
        pins={"redis": "8.0.1", "async-timeout": "5.0"},
        versions={"redis": "8.0.1"},
    )
    assert found.clients["kazoo"] == here.clients["kazoo"]
    assert found.sides == {"with": VersionsSide("redis==8.0.1", "redis==8.0.1")}
    assert sides.Instead(parse("redis=a:1"), {}).recorded(here).clients == here.clients


def test_a_run_with_what_it_cannot_use_is_refused() -> None:
    cases = [plan.resolve(plan.make_case("redis-token", "none", seed=0))]
    for ref, said in (("etcd", "name it with --lock"), ("etcd=mine:1", "none of these cases")):
        with pytest.raises(BadInput, match=said), sides.instead(parse(ref), cases):
            pass
    with sides.instead(parse("redis=a:1"), cases) as found:
        assert found.installed == {}
    both = dataclasses.replace(cases[0], images=(("redis", "b:1"),))
    assert parse("redis=a:1").apply(both).images == (("redis", "a:1"),)
    assert parse("current").apply(both) == both


def test_only_processes_started_inside_see_the_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", "before")
    with library_path(parse("redis==8.0.1"), tmp_path):
        assert os.environ["PYTHONPATH"] == f"{tmp_path}{os.pathsep}before"
    assert os.environ["PYTHONPATH"] == "before"
    with library_path(parse("current"), tmp_path):
        assert os.environ["PYTHONPATH"] == "before"
    assert NEW == 1
