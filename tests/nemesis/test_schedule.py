"""What can be written as a schedule, what it becomes, and what is refused with one sentence."""

from __future__ import annotations

import itertools
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lockbench.bench import plan
from lockbench.clusters.base import Cluster
from lockbench.locks.shared.lease import extendable
from lockbench.nemesis import schedule
from lockbench.nemesis.base import Impossible, Injection
from lockbench.nemesis.registry import faults
from lockbench.nemesis.schedule import ScheduleError, parse
from lockbench.nemesis.schedule_file import read_file, read_weights
from lockbench.results.documents import Planned, made
from lockbench.results.errors import BadInput

TTL_S = 3.0


def cluster(topology: str) -> Cluster:
    lock = {"redis": "redis-token", "redlock": "redlock", "etcd": "etcd", "zookeeper": "zookeeper"}
    return plan.never_started(plan.make_case(lock[topology], "none", seed=0))


def drawn(text: str, seed: int = 0, topology: str = "etcd") -> tuple[Injection, ...]:
    return schedule.resolve(parse(text), seed=seed, lease_ttl_s=TTL_S, cluster=cluster(topology))


@pytest.mark.parametrize(("fault", "leases"), [("client-pause", 1.6 + 2.0), ("pause", 2.0)])
def test_a_client_is_frozen_for_longer_than_its_service_keeps_what_nobody_renews(
    fault: str, leases: float
) -> None:
    (one,) = schedule.resolve(
        parse(fault), seed=0, lease_ttl_s=TTL_S, kept_leases=3.0, cluster=cluster("etcd")
    )
    assert one.duration_s == round(leases * TTL_S, 6)


def test_a_bare_name_has_every_default() -> None:
    (one,) = drawn("pause")
    assert one.fault == "pause"
    assert dict(one.parameters) == faults()["pause"].defaults()
    assert schedule.BEGIN_S[0] <= one.begin_s <= schedule.BEGIN_S[1]
    assert one.duration_s == 2 * TTL_S


def test_parameters_and_times_are_taken_as_written() -> None:
    (one,) = drawn("pause:who=all:at=1.5:for=0.25")
    assert dict(one.parameters) == {"who": "all"}
    assert (one.begin_s, one.duration_s) == (1.5, 0.25)
    assert drawn("pause:who=all:at=1.5s:for=0.25s") == (one,)


def test_on_and_off_again() -> None:
    found = drawn("pause:at=1:for=0.5:times=3:every=2")
    assert [i.begin_s for i in found] == [1.0, 3.0, 5.0]
    assert len({i.seed for i in found}) == 3


def test_two_together_and_two_after_each_other() -> None:
    together = drawn("partition-drop+client-pause")
    assert together[0].begin_s == together[1].begin_s
    first, second = drawn("pause then kill")
    assert (first.fault, second.fault) == ("pause", "kill")
    assert second.begin_s >= first.end_s + schedule.BETWEEN_S[0]


def test_the_seed_decides_and_nothing_else() -> None:
    text = "random:count=6"
    assert drawn(text, 3) == drawn(text, 3)
    assert drawn(text, 3) != drawn(text, 4)
    # Another cluster of the same capabilities meets the same schedule.
    assert drawn("pause then kill", 3) == drawn("pause then kill", 3, "zookeeper")


@pytest.mark.parametrize("topology", ["redis", "redlock", "etcd", "zookeeper"])
def test_random_draws_only_what_applies_and_never_overlaps(topology: str) -> None:
    target = cluster(topology)
    names = set()
    for seed in range(60):
        found = drawn("random:count=5", seed, topology)
        assert len(found) == 5
        for one in found:
            fault = faults()[one.fault]
            names.add(one.fault)
            assert fault.unfit(target, dict(one.parameters)) is None
            assert fault.repeatable
            assert not fault.needs_extend(dict(one.parameters))
        assert all(a.end_s < b.begin_s for a, b in itertools.pairwise(found))
    assert len(names) >= 10


def test_weights_decide_how_often() -> None:
    target = cluster("etcd")
    found = schedule.resolve(
        parse("random:count=200"),
        seed=1,
        lease_ttl_s=TTL_S,
        cluster=target,
        weights={"pause": 9, "kill": 1, "wipe": 0},
    )
    names = [one.fault for one in found]
    assert set(names) == {"pause", "kill"}
    # 180 of 200 expected, standard deviation 4.2.
    assert 155 < names.count("pause") < 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wipee", "did you mean wipe"),
        ("pause:whom=all", "pause has no parameter 'whom'"),
        ("pause:who=nobody", "pause:who=nobody: it is one of"),
        ("pause:for=-1", "it is a number from 0.001 s"),
        ("pause:for=nan", "it is a number"),
        ("pause:for", "'for' is not parameter=value"),
        ("pause:for=1:for=2", "for is said twice"),
        ("random:count=0", "it is a number from 1"),
        ("pause+kill", "pause and kill overlap .* both take hold of servers"),
        ("partition-drop+latency", "both take hold of links"),
        ("pause:at=1:for=3+kill:at=2", "pause and kill overlap"),
        ("pause:for=2:times=2:every=1", "lasts 2 s and is to begin anew every 1 s"),
        ("", "no fault is called ''"),
    ],
)
def test_what_cannot_be_is_refused_with_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        drawn(text)


@pytest.mark.parametrize(
    ("topology", "text", "said"),
    [
        ("etcd", "wipe", "wipe does not apply to etcd"),
        ("etcd", "clock-jump", "clock-jump cannot be applied to etcd"),
        ("etcd", "failover", "no primary that a replica could replace"),
        ("redlock", "partition-drop:shape=leader", "nodes do not talk to each other"),
        ("redis", "pause:who=leader", "it has no leader"),
        ("redis", "pause:who=minority", "1 nodes have no minority"),
        ("etcd", "partition-drop:shape=ring", "a ring takes 4 nodes"),
        ("etcd", "partition-reject:way=in", "a refusal has no direction"),
        ("etcd", "client-pause:who=half:when=asking", "half of the workers"),
    ],
)
def test_what_does_not_apply_is_said(topology: str, text: str, said: str) -> None:
    assert said in (schedule.unfit(parse(text), cluster(topology)) or "")


@pytest.mark.parametrize(
    ("lock", "fault", "impossible"),
    [
        ("etcd", "failover", True),  # no replica to promote
        ("etcd", "wipe", True),  # no data that one server alone has
        ("redis-setnx", "clock-jump", True),  # no lease that a clock could end
        ("etcd", "clock-jump", False),  # Go reads the clock without the C library
        ("redis-sentinel", "wipe", False),  # a replica may lack what the primary loses
    ],
)
def test_what_cannot_be_done_here_is_no_property_of_the_lock(
    lock: str, fault: str, impossible: bool
) -> None:
    why = plan.unfit(plan.make_case(lock, fault, seed=0))
    assert why is not None
    assert isinstance(why, Impossible) is impossible


def test_a_file_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "night.toml"
    path.write_text(
        """
        [[fault]]
        name = "pause"
        at_s = 1
        for_s = 0.5
        times = 2
        every_s = 4
        with = { who = "all" }

        [[fault]]
        name = "kill"

        [random]
        count = 2
        weights = { pause = 1 }
        """
    )
    steps = read_file(path)
    assert [[one.name for one in step] for step in steps] == [["pause"], ["kill"], ["random"]]
    assert read_weights(path) == {"pause": 1.0}
    found = plan.draw(replace(plan.make_case("etcd", str(path), seed=1)))
    assert [one.fault for one in found] == ["pause", "pause", "kill", "pause", "pause"]
    assert [one.begin_s for one in found[:2]] == [1.0, 5.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[fault]]\nname = 'pause'\nfor = 2", "fault 1 has the unknown key 'for'"),
        ("[[faults]]\nname = 'pause'", "the file has the unknown key 'faults'"),
        ("[[fault]]\nfor_s = 2", "fault 1 has no name"),
        ("fault = 3", "a fault is written as"),
        ("[[fault]]\nname = 'pausee'", "did you mean pause"),
        ("[[fault]]\nname = 'pause'\nwith = { for = 2 }", "for does not belong in with"),
        ("[random]\nweights = { moon = 1 }", "no fault is called 'moon'"),
        ("[random]\nweights = { pause = -1 }", "not from 0 to 1000000"),
        ("[random]\nweights = { pause = inf }", "not from 0 to 1000000"),
        ("[random]\nmany = 3", "the unknown key 'many'"),
        ("", "no \\[\\[fault\\]\\] and no \\[random\\]"),
        ("[[fault]", "fault.toml"),
        ("a = " + "[" * 3000, "nested too deeply"),
        (".".join("a" * 20_000) + " = 1", "line 1 has more than 64 dots"),
        ("#" * (1 << 20), "larger than"),
        ("a = " + "9" * 5000, "digits"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "fault.toml"
    path.write_text(text)

    def read() -> None:
        read_file(path)
        read_weights(path)

    with pytest.raises(ScheduleError, match=said):
        read()


def test_a_schedule_longer_than_the_run_is_refused() -> None:
    case = plan.make_case("etcd", "pause:at=18", seed=0)
    with pytest.raises(BadInput, match="too short for pause:at=18"):
        plan.resolve(case)
    assert (
        plan.resolve(plan.with_time_for_faults(case)).time_limit_s >= 18 + 2 * case.pace.lease_ttl_s
    )


@pytest.mark.parametrize(
    ("lock", "extends"),
    [("redis-token", True), ("redsync-safe", True), ("redis-setnx", False), ("kazoo", False)],
)
def test_an_extend_is_asked_only_of_a_lock_that_has_one(lock: str, extends: bool) -> None:
    """Of a recipe and of a library."""
    case = plan.make_case(lock, "reply-lost:of=extend", seed=0)
    assert extendable(case.system) == extends
    assert (plan.unfit(case) is None) == extends


def test_a_plan_is_read_back_as_it_was() -> None:
    case = plan.resolve(plan.with_time_for_faults(plan.make_case("etcd", "random:count=4", seed=9)))
    assert plan.Case.from_plan(made(Planned, asdict(case))) == case


def test_the_page_has_rows_of_faults_that_there_are() -> None:
    """It explains those of the repository. A new one is shown by ``lockbench list``."""
    text = (Path(__file__).parents[2] / "docs" / "nemesis.md").read_text(encoding="utf-8")
    table = text.partition("\n## The faults\n")[2].partition("\n###")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall("`(.*?)`", row)]
    assert len(named) == len(set(named)) > 20
    assert set(named) <= set(faults())
