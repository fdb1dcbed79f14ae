"""``leaked-lock``: keys that nobody can hold and nobody gets are found; every reason why a key may
still be taken, and every silence of the service, acquits or leaves open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lockbench.bench.judge import Expected, judge
from lockbench.checker.check import check
from lockbench.checker.exposure import exposure
from lockbench.evidence.excerpt import broken, excerpt
from lockbench.history.edn import read_edn, write_edn
from lockbench.history.jsonl import read_jsonl, write_jsonl
from lockbench.history.op import F
from lockbench.locks.registry import find
from lockbench.results.alert_replay import violations_of
from tests.checker.scenes import S, Scene

LEASE, SLACK = 3.0, 2.0
QUIET = 20.0
DUE = QUIET + LEASE + SLACK


def load(kind: str = "mutex", **more: int) -> Scene:
    """A load that used ``k0`` and is over at QUIET; ``spare`` is granted whenever it is asked for
    at the end."""
    scene = Scene()
    for key in ("k0", "spare"):
        scene.kind(kind, key, role="contended", lease_ns=int(LEASE * S), slack_ns=int(SLACK * S))
    if more:
        scene.kind(
            kind, "k0", role="contended", lease_ns=int(LEASE * S), slack_ns=int(SLACK * S), **more
        )
    scene.acquire(1, 0, 0.1, until=LEASE, hold="a").release(1, 0.2, 0.3, hold="a")
    return scene


def quiet(scene: Scene, at: float = QUIET) -> Scene:
    return scene.op(F.QUIET, 9, at, at, named=False)


def refused(scene: Scene, *times: float, error: str = "gave-up: held") -> Scene:
    for t in times:
        scene.acquire(9, t, t + 0.9, "fail", error=error, hold=f"q{t}")
    return scene


def granted(scene: Scene, at: float, key: str = "k0") -> Scene:
    name = f"g{key}{at}"
    scene.acquire(9, at, at + 0.1, until=at + LEASE, key=key, hold=name)
    return scene.release(9, at + 0.2, at + 0.3, key=key, hold=name)


def served(scene: Scene, at: float = DUE + 3) -> Scene:
    return granted(scene, at, "spare")


def result(scene: Scene) -> str | None:
    found = check(scene.history()).verdicts.get("leaked-lock")
    return None if found is None else found.result


def lost_reply(s: Scene) -> None:
    s.acquire(2, 5, None, "info", error="TimeoutError", hold="b")


def dead_holder(s: Scene) -> None:
    s.acquire(2, 5, 5.1, hold="b").death(2, 6)


def lost_answer_to_a_release(s: Scene) -> None:
    s.acquire(2, 5, 5.1, hold="b").release(2, 6, None, "info", error="TimeoutError", hold="b")


def killed_while_it_asked(s: Scene) -> None:
    s.acquire(2, 5, None, "info", hold="b").death(2, 5.5)


def nothing_at_all(_: Scene) -> None:
    """The service invented a holder."""


def under_a_healed_fault(s: Scene) -> None:
    s.fault("kill", 4, 9).acquire(2, 5, None, "info", error="reset", hold="b")


@pytest.mark.parametrize(
    "left",
    [
        lost_reply,
        dead_holder,
        lost_answer_to_a_release,
        killed_while_it_asked,
        nothing_at_all,
        under_a_healed_fault,
    ],
)
def test_what_is_left_behind_is_found(left: Callable[[Scene], None]) -> None:
    scene = load()
    left(scene)
    refused(quiet(scene), QUIET, QUIET + 3, DUE + 0.1)
    assert result(scene) == "unknown", "the service may be down"
    assert result(served(scene)) == "invalid"


@pytest.mark.parametrize("left", [lost_reply, lost_answer_to_a_release])
def test_what_had_no_answer_is_named_before_what_was_given_back(
    left: Callable[[Scene], None],
) -> None:
    scene = load()
    left(scene)
    scene.acquire(3, 9, 9.1, until=12.0, hold="c").release(3, 9.2, 9.3, hold="c")
    found = check(served(refused(quiet(scene), DUE + 0.1)).history()).verdicts["leaked-lock"]
    assert "TimeoutError" in str(found.evidence[0]["text"])


def test_a_leak_that_ends_later_was_a_leak() -> None:
    scene = refused(quiet(load()), QUIET, DUE + 0.1)
    assert result(granted(served(scene), DUE + 5)) == "invalid"


def free_at_once(s: Scene) -> None:
    granted(quiet(s), QUIET + 0.1)


def free_just_in_time(s: Scene) -> None:
    dead_holder(s)
    granted(refused(quiet(s), QUIET, QUIET + 2, DUE - 0.001), DUE + 1)


def after_a_longer_lease(s: Scene) -> None:
    """Somebody was promised ten seconds: so long a lost acquire may hold it."""
    s.acquire(3, 1, 1.1, until=11.0, hold="c").release(3, 1.2, 1.3, hold="c")
    lost_reply(s)
    granted(refused(quiet(s), QUIET, QUIET + 5, QUIET + 11.9), QUIET + 13)


def beside_another_asker(s: Scene, *, granted_at: float, given_back: float, answer: str) -> None:
    """Two ask for the key in the quiet phase; client 9 is refused while client 8 has it, or may."""
    quiet(s).op(F.QUIET, 8, QUIET, QUIET, named=False)
    asked = DUE + 0.5
    s.acquire(8, asked, granted_at, until=asked + LEASE, hold="x")
    s.release(8, granted_at + 0.1, given_back, answer, hold="x")
    s.acquire(9, DUE + 1.3, DUE + 1.6, "fail", error="held", hold="q")
    granted(s, DUE + 4)


def while_the_grant_is_on_its_way(s: Scene) -> None:
    beside_another_asker(s, granted_at=DUE + 2, given_back=DUE + 2.2, answer="ok")


def while_the_release_is_on_its_way(s: Scene) -> None:
    beside_another_asker(s, granted_at=DUE + 1, given_back=DUE + 2, answer="ok")


def after_a_release_without_an_answer(s: Scene) -> None:
    beside_another_asker(s, granted_at=DUE + 1, given_back=DUE + 1.2, answer="info")


INNOCENT = (
    free_at_once,
    free_just_in_time,
    after_a_longer_lease,
    while_the_grant_is_on_its_way,
    while_the_release_is_on_its_way,
    after_a_release_without_an_answer,
)


def test_who_is_refused_after_the_others_release_was_answered_accuses() -> None:
    scene = load()
    beside_another_asker(scene, granted_at=DUE + 0.6, given_back=DUE + 1.1, answer="ok")
    assert result(served(scene)) == "invalid"


@pytest.mark.parametrize("course", INNOCENT)
def test_a_key_that_is_free_in_time_is_acquitted(course: Callable[[Scene], None]) -> None:
    scene = load()
    course(scene)
    assert result(served(scene)) == "valid"


def held_without_limit(s: Scene) -> None:
    s.acquire(2, 5, 5.1, hold="b")
    refused(quiet(s), QUIET, DUE + 1)


def held_with_a_long_promise(s: Scene) -> None:
    s.acquire(2, 5, 5.1, until=DUE + 1, hold="b")
    refused(quiet(s), QUIET, DUE + 1)


def unknown_lease_not_over(s: Scene) -> None:
    refused(quiet(s), QUIET)
    s.acquire(9, QUIET + 3, None, "info", error="TimeoutError", hold="x")
    refused(s, DUE, QUIET + 3 + LEASE + SLACK - 0.1)


def still_asking(s: Scene) -> None:
    s.acquire(2, QUIET - 1, None, "info", hold="b")
    refused(quiet(s), QUIET, DUE + 1)


def not_healed(s: Scene) -> None:
    s.fault("kill", 4, None)
    refused(quiet(s), QUIET, DUE + 1)


def healed_late(s: Scene) -> None:
    s.fault("kill", 4, QUIET + 3)
    refused(quiet(s), QUIET, DUE + 1)


def no_answer(s: Scene) -> None:
    refused(quiet(s), QUIET, DUE + 1, error="no-effect: ConnectionRefusedError")


def given_up_without_asking(s: Scene) -> None:
    refused(quiet(s), QUIET, DUE + 1, error="gave-up: no-effect: ConnectionRefusedError")


def too_few_attempts(s: Scene) -> None:
    refused(quiet(s), QUIET, QUIET + 1)


def nobody_asked(s: Scene) -> None:
    quiet(s)


@pytest.mark.parametrize(
    "course",
    [
        held_without_limit,
        held_with_a_long_promise,
        unknown_lease_not_over,
        still_asking,
        not_healed,
        healed_late,
        no_answer,
        given_up_without_asking,
        too_few_attempts,
        nobody_asked,
    ],
)
def test_what_may_still_be_held_or_was_not_answered_is_open(
    course: Callable[[Scene], None],
) -> None:
    scene = load()
    course(scene)
    assert result(served(scene)) == "unknown"


def test_one_leaked_permit_of_a_semaphore_is_found() -> None:
    scene = quiet(load("semaphore", permits=2))
    scene.acquire(9, DUE + 0.1, DUE + 0.2, until=DUE + 3, hold="p1")
    assert result(scene) == "unknown"
    refused(scene, DUE + 0.3).release(9, DUE + 1.3, DUE + 1.4, hold="p1")
    assert result(served(scene)) == "invalid"


def test_a_semaphore_with_all_permits_is_free() -> None:
    scene = quiet(load("semaphore", permits=2))
    for n in (1, 2):
        scene.acquire(9, QUIET + n / 10, QUIET + n / 10 + 0.05, until=DUE, hold=f"p{n}")
    assert result(scene) == "valid"


def test_a_history_without_a_quiet_phase_has_no_such_verdict() -> None:
    scene = load()
    dead_holder(scene)
    assert result(served(refused(scene, QUIET, DUE + 1))) is None


def test_the_quiet_phase_is_no_part_of_the_load() -> None:
    scene = load().acquire(2, 1, 1.1, until=4, hold="b").release(2, 1.2, 1.3, hold="b")
    scene.fault("kill", 5, 8, "grants-around")
    before = check(scene.history()).measurements
    granted(quiet(scene), QUIET + 0.1)
    after = check(scene.history()).measurements
    assert after["availability"] == before["availability"]
    assert after["fairness"] == before["fairness"]
    assert exposure(scene.history()).exposed is False, "nothing was granted after the heal"


@pytest.mark.parametrize("form", ["jsonl", "edn"])
def test_a_leak_survives_being_saved(form: str, tmp_path: Path) -> None:
    scene = load()
    dead_holder(scene)
    history = served(refused(quiet(scene), QUIET, DUE + 0.1)).history()
    path = tmp_path / f"leak.{form}"
    write, read = (write_jsonl, read_jsonl) if form == "jsonl" else (write_edn, read_edn)
    write(history, path)
    assert check(read(path)).verdicts["leaked-lock"].result == "invalid"


def test_a_leak_is_one_violation_for_the_alerts() -> None:
    scene = load()
    scene.acquire(3, 5.5, 7, "fail", error="gave-up: held", hold="w")
    dead_holder(scene)
    history = served(refused(quiet(scene), QUIET, DUE + 0.1)).history()
    (found,) = violations_of(history, check(history))
    assert (found.verdict, found.key, found.at_ns) == ("leaked-lock", "k0", 6 * S)
    lost = load()
    lost_reply(lost)
    history = served(refused(quiet(lost), QUIET, DUE + 0.1)).history()
    (found,) = violations_of(history, check(history))
    assert (found.verdict, found.at_ns) == ("leaked-lock", 5 * S)


def test_setnx_is_expected_to_leak_and_a_lease_is_not() -> None:
    def ending(lock: str, found: str) -> str:
        observed = {"double-grant": "valid", "late-grant": "valid", "leaked-lock": found}
        return judge(
            Expected(find(lock), ("client-kill",)),
            observed,
            exposed=True,
            exposure="seen",
            failure=None,
            required=("double-grant", "leaked-lock"),
        ).word

    assert ending("redis-setnx", "invalid") == "as expected"
    assert ending("redis-setnx", "valid") == "did not show"
    assert ending("redis-token", "invalid") == "worse than expected"
    assert ending("redis-token", "valid") == "as expected"
    assert ending("redis-token", "unknown") == "undecided"


def test_a_leak_is_cut_out_with_its_quiet_phase() -> None:
    scene = load()
    for at in range(12):
        granted(scene, 1 + at)
    history = served(refused(quiet(scene), QUIET, DUE + 1)).history()
    small = excerpt(history, "leaked-lock")
    assert broken(small) == {"leaked-lock"}
    assert len(small) < 10 < len(history)
