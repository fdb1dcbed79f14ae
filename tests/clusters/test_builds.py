"""Builds side by side: their order, what a failure ends, and the time that is left."""

from __future__ import annotations

import subprocess
import sys
import threading

from lockbench.clusters.builds import Build, Builds, minutes

INTERRUPTED = """
import _thread
import threading
from lockbench.clusters.builds import Build, Builds

def make(name):
    _thread.interrupt_main()
    threading.Event().wait()

try:
    Builds([Build("one", None, 1), Build("two", None, 1)], make, lambda _: None).wait()
except KeyboardInterrupt:
    print("interrupted")
"""


def silent(_: str) -> None:
    pass


def test_an_interruption_waits_for_no_build() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "interrupted\n"


def test_what_is_wanted_first_begins_first_and_after_what_it_stands_on() -> None:
    made: list[str] = []
    guard = threading.Lock()

    def make(name: str) -> None:
        with guard:
            made.append(name)

    wanted = [
        Build("base", None, 1),
        Build("redis", "base", 1),
        Build("golang", "base", 1),
        Build("etcd", "golang", 1),
    ]
    builds = Builds(wanted, make, silent)
    builds.wait()
    assert builds.over
    assert made[0] == "base"
    assert sorted(made) == ["base", "etcd", "golang", "redis"]
    assert made.index("golang") < made.index("etcd")


def test_one_is_ready_while_another_is_still_built() -> None:
    go_on = threading.Event()

    def make(name: str) -> None:
        if name == "slow":
            assert go_on.wait(30)

    builds = Builds([Build("quick", None, 1), Build("slow", None, 100)], make, silent)
    builds.wait(["quick"])
    assert builds.ended(["quick", "somebody else's"])
    assert not builds.ended(["slow"])
    assert not builds.over
    assert "building 1 image: slow (1 of 2 done)" in builds.status()
    go_on.set()
    builds.wait()
    assert builds.over


def test_a_failure_ends_what_stands_on_it_and_nothing_else() -> None:
    made: list[str] = []

    def make(name: str) -> None:
        if name == "golang":
            raise OSError("no module proxy")
        made.append(name)

    wanted = [
        Build("golang", None, 1),
        Build("etcd", "golang", 1),
        Build("sidecar", "etcd", 1),
        Build("redis", None, 1),
    ]
    said: list[str] = []
    builds = Builds(wanted, make, said.append)
    builds.wait()
    assert made == ["redis"]
    assert builds.failure(["redis"]) is None
    assert [str(builds.failure([name])) for name in ("golang", "etcd", "sidecar")] == [
        "no module proxy"
    ] * 3
    assert [line.partition(":")[0] for line in said] == ["building 4 images", "redis"]


def test_the_time_left_follows_what_the_first_took() -> None:
    go_on = threading.Event()

    def make(name: str) -> None:
        if name != "first":
            assert go_on.wait(30)

    chain = [Build("first", None, 1000), Build("second", "first", 600)]
    alone = [Build(f"more {n}", None, 0.001) for n in range(2)]
    begun = Builds([], make, silent)
    assert begun.left_s() == 0
    begun = Builds([*chain, *alone], make, silent)
    begun.wait(["first"])
    assert begun.left_s() < 100, "the first took no time, so the second will not take ten minutes"
    go_on.set()
    begun.wait()
    assert begun.left_s() == 0


def test_times_are_told_as_people_do() -> None:
    assert [minutes(s) for s in (0, 31, 70, 200)] == [
        "about 10 seconds",
        "about 30 seconds",
        "about 1 minute",
        "about 3 minutes",
    ]
