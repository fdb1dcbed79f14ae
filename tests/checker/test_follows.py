"""The table of causes: every entry is exhibited by a history, and what it leaves out is too."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from lockbench.checker.catalogue import NAMED, OF_JOBS
from lockbench.checker.check import check
from lockbench.checker.follows import FOLLOWS, causes_of, following, told
from lockbench.checker.jobs import VERDICTS_OF
from lockbench.history.builder import Builder
from lockbench.history.columns import History
from lockbench.history.op import F, Object, Type
from tests.budget import tries
from tests.checker import test_planted as planted
from tests.checker.random_histories import SHAPES, random_history
from tests.checker.scenes import Scene
from tests.checker.test_jobs import effect

# Reached by checks of their own in time; until then no history can break them.
TO_COME = {"leaked-lock", "queue-order"}


def broken(scene: Scene | History) -> set[str]:
    history = scene.history() if isinstance(scene, Scene) else scene
    return {v for v, found in check(history).verdicts.items() if found.result == "invalid"}


def late_and_stale(s: Scene) -> None:
    # Granted when its promise was over already; somebody else was granted since.
    s.acquire(1, 0, 6, until=5).acquire(2, 1, 7, until=20).read(1, 8, 0)


def late_and_lost(s: Scene) -> None:
    s.acquire(2, 0, 5.5, until=20).read(2, 5.6, 0)
    s.acquire(1, 0, 6, until=5).read(1, 6.1, 0).write(2, 7, 0, 1).write(1, 8, 0, 2)


def twice_and_lost(s: Scene) -> None:
    s.acquire(1, 0, 1, until=20).acquire(2, 0, 2, until=20)
    s.read(1, 3, 0).read(2, 3.5, 0).write(1, 4, 0, 1).write(2, 5, 0, 2)


def twice_and_released_truly(s: Scene) -> None:
    s.acquire(1, 0, 1, until=5).acquire(2, 1.5, 2, until=4).release(2, 3, 3.5).release(1, 6, 7)


def released_both_ways(s: Scene) -> None:
    planted.wrong_release_shown_to_the_holder(s)
    s.acquire(3, 19, 20, until=22).acquire(4, 21, 23, until=30).release(4, 24, 25)
    s.release(3, 26, 27)


def sold_twice(s: Scene) -> None:
    s.kind("mutex", job="inventory").write(1, 1, 0, 1).write(2, 2, 0, 2)


def charged_without_its_mark(s: Scene) -> None:
    s.kind("mutex", job="payment").write(1, 1, 0, 1).write(2, 2, 0, 2)
    effect(effect(s, 1, 3, 7), 2, 4, 7)


LIMITS: dict[str, Any] = {"bound": 2, "window_ns": 10 * 10**9}


def acts_beside(job: str, cause: str) -> Callable[[Scene], None]:
    """Two clients act beside each other by one of the three ways that there are to it. Each does
    thing 1, then client 1 again: what every job minds."""

    def plant(s: Scene) -> None:
        limits = LIMITS if job == "rate-limit" else {}
        s.kind("mutex", job=job, **limits)
        if cause == "double-grant":
            s.acquire(1, 0, 1, until=20).acquire(2, 0, 2, until=20)
        elif cause == "late-grant":
            s.acquire(2, 0, 2, until=20).acquire(1, 0, 2.5, until=1)
        else:
            s.acquire(1, 0, 1, until=2.5).acquire(2, 0, 2.6, until=20)
        for client, at in ((1, 2.8), (2, 3), (2, 3.6), (1, 4)):
            effect(s, client, at, 1)

    return plant


SCENES: dict[tuple[str, str], Callable[[Scene], None]] = {
    ("double-grant", "linearizable"): planted.one_nanosecond,
    ("wrong-release", "linearizable"): planted.wrong_release_shown_to_the_holder,
    ("false-release", "linearizable"): planted.false_release,
    ("wrong-extend", "linearizable"): planted.extend_after_somebody_else,
    ("wrong-release", "false-release"): released_both_ways,
    ("double-grant", "false-release"): twice_and_released_truly,
    ("late-grant", "stale-holder"): late_and_stale,
    ("stale-holder", "lost-update"): planted.lost_update,
    ("double-grant", "lost-update"): twice_and_lost,
    ("late-grant", "lost-update"): late_and_lost,
    ("lost-update", "oversold"): sold_twice,
    ("lost-update", "charged-twice"): charged_without_its_mark,
    **{
        (cause, verdict): acts_beside(job, cause)
        for job, verdicts in VERDICTS_OF.items()
        for verdict in verdicts
        for cause in FOLLOWS[verdict]
        if cause != "lost-update"
    },
}


def test_every_verdict_has_its_line() -> None:
    of_jobs = {verdict for verdicts in VERDICTS_OF.values() for verdict in verdicts}
    assert set(FOLLOWS) == {*NAMED, "linearizable", "broken-guard", *of_jobs} | TO_COME
    assert set(OF_JOBS) == of_jobs
    assert all(v not in causes_of(v) for v in FOLLOWS), "nothing follows from itself"


def test_every_entry_has_its_history() -> None:
    assert set(SCENES) == {(cause, verdict) for verdict in FOLLOWS for cause in FOLLOWS[verdict]}


@pytest.mark.parametrize(("pair", "plant"), SCENES.items(), ids=map("-then-".join, SCENES))
def test_the_cause_can_break_the_consequence(
    pair: tuple[str, str], plant: Callable[[Scene], None]
) -> None:
    scene = Scene()
    plant(scene)
    assert set(pair) <= (found := broken(scene))
    # Nothing beside the pair has to break, but what led to its cause or follows from it. Who ends
    # another's grant or prolongs its own beside it is often seen by a double grant.
    also = {"double-grant"} if pair[0] in {"wrong-release", "wrong-extend"} else set()
    assert found - causes_of(pair[0]) - also <= following({pair[0]}, found)


@pytest.mark.random
@pytest.mark.parametrize("shape", ["holds", "fenced"])
def test_what_broke_the_cause_breaks_the_linearizability_of_named_holds(shape: str) -> None:
    """The theorem behind its line, on histories without leases, where it is exact."""
    seen: set[str] = set()
    for seed in range(tries(150)):
        found = broken(random_history(random.Random(f"{shape}-{seed}"), SHAPES[shape]))
        causes = found.intersection(FOLLOWS["linearizable"])
        assert not causes or "linearizable" in found, (seed, found)
        seen |= causes
    assert {"double-grant", "false-release"} <= seen


@pytest.mark.parametrize("plant", [planted.stale_write, planted.lost_update, late_and_lost])
def test_what_happens_at_the_resource_is_no_answer_of_the_lock(
    plant: Callable[[Scene], None],
) -> None:
    scene = Scene()
    plant(scene)
    assert "linearizable" not in broken(scene)
    # One lie more, and it is the lock's own.
    scene.acquire(9, 30, 31, until=60).not_held(9, 32, 33)
    found = broken(scene)
    assert "linearizable" in found
    assert "linearizable" not in following(found - {"linearizable"}, found)


@pytest.mark.random
def test_an_update_is_lost_only_by_who_acts_beside_another() -> None:
    """Clients that read and write at any time under leases of any length: a lost update never
    comes alone."""
    lost = 0
    for seed in range(tries(200)):
        found = broken(readers_and_writers(random.Random(seed)))
        if "lost-update" in found:
            lost += 1
            assert found.intersection(FOLLOWS["lost-update"]), seed
    assert lost > tries(25)


def readers_and_writers(dice: random.Random) -> History:
    """Three clients, each with a grant, a read and a write at random times; the resource counts the
    writes in the order in which it applies them."""
    builder = Builder()
    builder.objects["k"] = Object("mutex")
    acts = []
    for client in range(3):
        asked = dice.randint(0, 20)
        granted = asked + dice.randint(1, 6)
        until = asked + dice.randint(1, 14)
        read = granted + dice.randint(1, 4)
        write = read + dice.randint(1, 6)
        builder.add(
            process=client,
            f=int(F.ACQUIRE),
            outcome=int(Type.OK),
            key="k",
            invoke_ns=10 * asked,
            complete_ns=10 * granted,
            hold=f"h{client}",
            numbers={"valid_until_ns": 10 * until + 5},
        )
        # Nothing happens at the instant of anything else.
        acts += [(10 * read + client, client, F.READ), (10 * write + client, client, F.WRITE)]
    version, seen = 0, dict[int, int]()
    for at, client, f in sorted(acts):
        numbers = {"applied_ns": at}
        if f is F.READ:
            seen[client] = version
        else:
            version += 1
            numbers["version"] = seen[client]
        builder.add(
            process=client,
            f=int(f),
            outcome=int(Type.OK),
            key="k",
            invoke_ns=at,
            complete_ns=at,
            hold=f"h{client}",
            numbers={**numbers, "value": version},
        )
    return builder.finish()


def test_what_follows_goes_through_what_broke() -> None:
    charged = {"late-grant", "stale-holder", "lost-update", "oversold"}
    assert following({"late-grant"}, charged) == charged
    assert following({"late-grant"}, {"late-grant", "oversold"}) == {"late-grant"}
    assert following({"late-grant"}, {"stale-holder"}) == frozenset(), "the cause did not break"
    assert following({"stale-holder"}, {"stale-holder", "linearizable"}) == {"stale-holder"}


def test_consequences_are_not_told_again_and_what_it_cost_is() -> None:
    assert told(["double-grant", "lost-update", "linearizable"]) == ["double-grant"]
    assert told(["stale-holder", "linearizable"]) == ["stale-holder", "linearizable"]
    assert told(["linearizable"]) == ["linearizable"]
    assert told(["late-grant", "lost-update", "oversold"]) == ["late-grant", "oversold"]
