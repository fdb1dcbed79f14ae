"""What happens to containers is found, unless it was done from here; a lost stream is told."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from lockbench.clusters import images
from lockbench.clusters.engine import owner
from lockbench.clusters.engine.docker import (
    Act,
    Container,
    ContainerState,
    Engine,
    EngineError,
    Event,
)
from lockbench.clusters.engine.events import ContainerWatch, unexplained
from tests.eventually import eventually

RUN = "run-1"
MINE = {owner.RUN: RUN, owner.CLUSTER: "c1"}


def event(action: str, at_ns: int, *, container: str = "a", **attributes: str) -> Event:
    return Event(container, f"lockbench-c1-{container}", action, at_ns, {**MINE, **attributes})


def act(at_ns: int, *actions: str, container: str = "a", refused: bool = False) -> Act:
    return Act(container, actions, at_ns, refused)


def left(events: list[Event], *acts: Act) -> list[str]:
    return [f"{one.container_id} {one.action}" for one in unexplained(events, acts)]


def test_what_was_done_from_here_is_explained_once() -> None:
    killed = [event("kill", 11), event("die", 12), event("start", 21)]
    ours = (act(10, "kill", "die"), act(20, "start"))
    assert left(killed, *ours) == []
    assert left([*killed, event("die", 30)], *ours) == ["a die"]


@pytest.mark.parametrize(
    "ours",
    [
        (),
        (act(50, "kill", "die"),),  # after it had happened
        (act(10, "kill", "die", container="b"),),  # to another one
        (act(10, "pause"),),
        (act(10, "kill", "die", refused=True),),  # it was dead already
    ],
)
def test_what_somebody_else_did_is_left(ours: tuple[Act, ...]) -> None:
    assert left([event("kill", 11), event("die", 12)], *ours) == ["a kill", "a die"]


def test_a_death_by_itself_beside_our_own_kill_of_a_neighbour_is_left() -> None:
    events = [event("die", 12, container="b"), event("kill", 11), event("die", 13)]
    assert left(events, act(10, "kill", "die")) == ["b die"]


class FakeStream:
    def __init__(self, told: Iterator[Event], end: Callable[[], None]) -> None:
        self._told = told
        self.close = end

    def __iter__(self) -> Iterator[Event]:
        return self._told


class FakeEngine:
    """Tells what is put into ``now``; remembers ``before``. None ends the stream."""

    host = ""

    def __init__(self) -> None:
        self.now: queue.Queue[Event | None] = queue.Queue()
        self.before: list[Event] = []
        self.refuses = False
        self.found = ContainerState(True, False, 1, {"net": "10.0.0.2"}, MINE)
        self.hangs: threading.Event | None = None

    def containers(self, labels: dict[str, str]) -> list[Container]:
        assert labels == {owner.RUN: RUN}
        return [Container("a", "lockbench-c1-a")]

    def state(self, container: Container) -> ContainerState:
        return self.found

    def last_words(self, container: Container, lines: int) -> str:
        return f"{container.name} said\n\nthis\n"

    def events(self, since_ns: int, until_ns: int | None = None) -> FakeStream:
        if self.refuses:
            raise EngineError("cannot read the engine's events")
        if until_ns is not None:
            if self.hangs is not None:
                self.hangs.wait(60)
            return FakeStream(iter(self.before), lambda: None)
        return FakeStream(iter(self.now.get, None), lambda: self.now.put(None))


def watch(engine: Any, *acts: Act, **more: Any) -> ContainerWatch:
    return ContainerWatch(RUN, lambda: acts, engine=engine, **more)


def watched(engine: Any, *acts: Act, **more: Any) -> ContainerWatch:
    """One that has looked a last time, too."""
    looking = watch(engine, *acts, **more)
    looking.close()
    return looking


def test_events_of_this_run_are_found_by_name_with_their_last_words() -> None:
    engine = FakeEngine()
    looking = watch(engine)
    engine.now.put(event("exec_die", 1))
    engine.now.put(Event("z", "another", "die", 2, {owner.RUN: "run-2"}))
    engine.now.put(event("oom", 3))
    eventually(looking.unexplained)
    looking.close()
    (found,) = looking.unexplained()
    assert (looking.name_of(found), found.action) == ("a", "oom")
    assert looking.last_words(found) == ["lockbench-c1-a said", "this"]
    assert looking.lost is None


def test_what_is_still_on_its_way_at_the_end_is_found_once() -> None:
    engine = FakeEngine()
    engine.before = [event("die", 1)]
    engine.now.put(event("die", 1))
    assert [one.action for one in watched(engine).unexplained()] == ["die"]


@pytest.mark.parametrize(("paused", "word"), [(False, "die"), (True, "pause")])
def test_what_was_struck_before_anybody_looked_is_found(paused: bool, word: str) -> None:
    engine = FakeEngine()
    engine.found = replace(engine.found, running=paused, paused=paused)
    for ours, found in ((), [word]), ((act(1, "start"), act(2, word)), []):
        assert [one.action for one in watched(engine, *ours).unexplained()] == found


def test_what_was_gone_before_anybody_looked_is_found() -> None:
    gone = act(1, "start", container="b")
    for ours, found in ((gone,), ["destroy"]), ((gone, act(2, "destroy", container="b")), []):
        assert [one.action for one in watched(FakeEngine(), *ours).unexplained()] == found


def test_what_is_on_the_engine_of_another_host_is_not_missed_here() -> None:
    there = replace(act(1, "start", container="b"), host="a")
    assert watched(FakeEngine(), there).unexplained() == []
    engine = FakeEngine()
    engine.host = "a"
    assert [one.action for one in watched(engine, there).unexplained()] == ["destroy"]


def test_a_link_that_somebody_takes_off_its_network_is_found() -> None:
    engine = FakeEngine()
    engine.before = [Event(one, "bridge", "disconnect", 5, {}) for one in "az"]
    looking = watched(engine, act(1, "start"))
    assert [looking.name_of(one) for one in looking.unexplained()] == ["a"]


def test_a_stream_that_ends_early_is_lost() -> None:
    engine = FakeEngine()
    looking = watch(engine)
    engine.now.put(None)
    eventually(lambda: looking.lost)
    looking.close()
    assert looking.lost == "the engine went away"


def test_an_engine_that_refuses_or_hangs_at_the_end_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusing = FakeEngine()
    looking = watch(refusing)
    refusing.refuses = True
    looking.close()
    assert looking.lost == "cannot read the engine's events"
    monkeypatch.setattr("lockbench.clusters.engine.events.PATIENCE_S", 0.1)
    hanging = FakeEngine()
    hanging.hangs = threading.Event()
    assert watched(hanging).lost == "the engine does not answer"
    hanging.hangs.set()


def test_nobody_waits_for_an_engine_once_the_run_is_interrupted() -> None:
    hanging = FakeEngine()
    hanging.hangs = threading.Event()
    looking = watch(hanging)
    looking.close(ask=False)
    assert looking.lost is None


def test_who_ends_with_its_process_is_excused() -> None:
    engine = FakeEngine()
    engine.before = [event("die", 1, **{owner.OWNER: "7:1:here"}), event("die", 2)]
    looking = watched(engine, excused=lambda one: one.attributes.get(owner.OWNER, "")[:2] == "7:")
    assert [one.at_ns for one in looking.unexplained()] == [2]


@pytest.mark.docker
def test_the_engine_tells_of_what_others_do_and_ours_is_explained() -> None:
    """Every way of ours to treat a container, and then each from outside."""
    run = f"events-{os.getpid()}"
    ours, others = Engine(), Engine()
    redis = images.recipes()["redis"].ref

    def made(name: str) -> Container:
        container = ours.create_container(
            redis,
            f"lockbench-{run}-{name}",
            entrypoint=["redis-server"],
            labels=owner.labels(run, run),
        )
        ours.start(container)
        return container

    mine, theirs = made("mine"), made("theirs")
    struck = [made(f"{word}-{who}") for who in ("mine", "theirs") for word in ("dead", "gone")]
    for engine, (dead, gone) in ((ours, struck[:2]), (others, struck[2:])):
        engine.kill(dead)
        engine.remove(gone)
    eventually(lambda: not any(getattr(ours.state(one), "running", False) for one in struck))
    looking = ContainerWatch(run, lambda: ours.acts)
    try:
        ours.pause(mine)
        ours.unpause(mine)
        ours.unpause(mine)
        ours.kill(mine)
        eventually(lambda: not getattr(ours.state(mine), "running", False))
        ours.kill(mine)
        ours.start(mine)
        ours.stop(mine, grace_s=1)
        ours.start(mine)
        ours.remove(mine)
        others.pause(theirs)
        others.unpause(theirs)
        others.kill(theirs, "SIGUSR1")
        others.kill(theirs)
    finally:
        others.remove(theirs)
        ours.remove(mine)
        looking.close()
        for container in struck:
            others.remove(container)
    assert looking.lost is None
    found = looking.unexplained()
    told = [f"{looking.name_of(one)} {one.action}" for one in found]
    words = ("pause", "unpause", "kill", "kill", "disconnect", "die", "destroy")
    before = ["dead-theirs die", f"{struck[3].id[:12]} destroy"]
    assert sorted(told) == sorted([*before, *(f"theirs {word}" for word in words)])
