"""The general search, the zones and the sweep against the exhaustive reference; their bounds."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest

from lockbench.checker.analysis import Analysis
from lockbench.checker.calls import calls_of
from lockbench.checker.check import check
from lockbench.checker.counters import by_sweep, fewest_reads
from lockbench.checker.kinds import MODELS, with_model
from lockbench.checker.models import Model, Operation, counter, model_of, register
from lockbench.checker.search import Call, search
from lockbench.checker.zones import by_zones
from lockbench.history.builder import Builder
from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Object, Type
from tests.budget import tries
from tests.checker.every_order import linearizable
from tests.checker.scenes import Scene


def drawn(
    dice: random.Random, given: Object, operation: Callable[[], tuple[F, bool, dict[str, int]]]
) -> History:
    """A few clients with random windows. ``operation`` draws what one does, whether its answer is
    lost, and its numbers."""
    builder = Builder()
    builder.objects["r"] = given
    for process in range(dice.randint(1, 4)):
        now = dice.randint(0, 3)
        for _ in range(dice.randint(1, 3)):
            begin = now + dice.randint(0, 3)
            now = begin + dice.randint(0, 6)
            f, lost, numbers = operation()
            builder.add(
                process=process, f=int(f), outcome=int(Type.INFO if lost else Type.OK), key="r",
                invoke_ns=begin, complete_ns=NULL if lost else now, numbers=numbers,
            )  # fmt: skip
    return builder.finish()


def random_register(dice: random.Random, kind: str = "cas-register") -> History:
    functions = (F.READ, F.ADD) if kind == "counter" else (F.READ, F.WRITE, F.CAS)

    def operation() -> tuple[F, bool, dict[str, int]]:
        f = dice.choice(functions)
        lost = f is not F.READ and dice.random() < 0.3
        numbers = {} if f is F.READ and dice.random() < 0.1 else {"value": dice.randint(0, 2)}
        if f is F.CAS:
            numbers["old"] = dice.randint(0, 2)
        return f, lost, numbers

    return drawn(dice, Object(kind, initial=dice.choice((None, 0))), operation)


def unique_register(dice: random.Random) -> History:
    written = itertools.count(1)

    def operation() -> tuple[F, bool, dict[str, int]]:
        f = dice.choice((F.READ, F.WRITE))
        lost = f is F.WRITE and dice.random() < 0.3
        return f, lost, {"value": next(written) if f is F.WRITE else dice.randint(0, 4)}

    return drawn(dice, Object("register", initial=dice.choice((None, 0))), operation)


@pytest.mark.random
def test_zones_agree_where_values_are_unique() -> None:
    dice = random.Random("zones")
    valid = 0
    for _ in range(tries(1000)):
        history = unique_register(dice)
        found = by_zones(history, np.arange(len(history)), history.object_of("r").initial)
        assert found is not None
        model, made = calls(history)
        expected = linearizable(model, made)
        valid += expected
        assert found.result == ("valid" if expected else "invalid"), made
    assert 0.1 < valid / tries(1000) < 0.9


def test_zones_leave_repeated_values_and_compare_and_set_alone() -> None:
    twice = Scene(key="r").kind("register").op(F.WRITE, 1, 0, 1, value=3, named=False)
    twice.op(F.WRITE, 1, 2, 3, value=3, named=False)
    swap = Scene(key="r").kind("register").op(F.CAS, 1, 0, 1, old=3, value=4, named=False)
    for scene in (twice, swap):
        history = scene.history()
        assert by_zones(history, np.arange(len(history)), None) is None


def equal_counter(dice: random.Random) -> History:
    initial, step = dice.choice((None, 0, 2)), dice.choice((1, 2, -1))

    def operation() -> tuple[F, bool, dict[str, int]]:
        f = dice.choice((F.READ, F.ADD))
        lost = f is F.ADD and dice.random() < 0.25
        value = step if f is F.ADD else (initial or 0) + step * dice.randint(0, 4)
        return f, lost, {} if f is F.READ and dice.random() < 0.1 else {"value": value}

    return drawn(dice, Object("counter", initial=initial), operation)


@pytest.mark.random
def test_the_sweep_agrees_where_amounts_are_equal() -> None:
    dice = random.Random("sweep")
    valid = 0
    for _ in range(tries(500)):
        history = equal_counter(dice)
        rows, initial = np.arange(len(history)), history.object_of("r").initial
        found = by_sweep(history, rows, initial)
        assert found is not None
        model, made = calls(history)
        expected = linearizable(model, made)
        valid += expected
        assert found.result == ("valid" if expected else "invalid"), made
        if not expected:
            few = fewest_reads(history, rows, initial, found.failed)
            kept = rows[(history.f == F.ADD) | np.isin(rows, few)]
            assert not linearizable(model, [made[i] for i in _numbers(history, kept)])
    assert 0.1 < valid / tries(500) < 0.9


def _numbers(history: History, rows: np.ndarray) -> list[int]:
    """The places of rows among the calls, which leave out reads without an answer."""
    _, where = calls_of(Analysis.of(history), 0, "counter")
    return [where.index(row) for row in rows.tolist() if row in where]


def test_the_sweep_leaves_different_amounts_alone() -> None:
    scene = Scene(key="r").kind("counter").op(F.ADD, 1, 0, 1, value=3, named=False)
    history = scene.op(F.ADD, 1, 2, 3, value=4, named=False).history()
    assert by_sweep(history, np.arange(2), None) is None


def test_a_long_counter_is_decided_in_one_sweep() -> None:
    """Twenty adds are always under way: a search would try their subsets."""
    for wrong in (False, True):
        scene = Scene(key="c").kind("counter")
        for i in range(3000):
            scene.op(F.ADD, i % 20, i, i + 20.5, value=1, named=False)
            if i % 10 == 0:
                seen = max(0, i - 10)
                scene.op(F.READ, 30, i + 0.1, i + 0.2, value=seen, named=False)
        # All adds are over by then.
        scene.op(F.READ, 31, 4000, 4001, value=2999 if wrong else 3000, named=False)
        verdict = check(scene.history()).verdicts["linearizable"]
        assert verdict.result == ("invalid" if wrong else "valid")
        assert wrong == any(e["process"] == "31" for e in verdict.evidence)


def calls(history: History) -> tuple[Model, list[Call]]:
    given = history.object_of("r")
    calls, _ = calls_of(Analysis.of(history), 0, given.kind)
    return model_of(given.kind, None, given.initial), calls


@pytest.mark.random
@pytest.mark.parametrize("kind", ["cas-register", "counter"])
def test_agrees_with_the_exhaustive_reference(kind: str) -> None:
    dice = random.Random(kind)
    valid = 0
    for _ in range(tries(500)):
        model, made = calls(random_register(dice, kind))
        expected = linearizable(model, made)
        valid += expected
        assert search(model, made).result == ("valid" if expected else "invalid"), made
    assert 0.1 < valid / tries(500) < 0.9


def test_a_search_without_an_end_is_unknown_with_a_reason() -> None:
    """Twenty unknown writes and reads that no order explains: an exponential search."""
    made = [
        Call(Operation("cas", "info", old=i % 7, value=(i * 3) % 7), 0, None) for i in range(60)
    ]
    made += [Call(Operation("write", value=i % 7), 1, 50) for i in range(12)]
    made += [Call(Operation("read", value=8), 51, 52)]
    by_size = search(register(), made, frontier_max=500)
    assert by_size.result == "unknown"
    assert "more than 500 configurations" in by_size.reason
    by_time = search(register(), made, seconds_max=0.2, frontier_max=10**9)
    assert by_time.result == "unknown"
    assert "time" in by_time.reason


def test_an_undecided_key_is_unknown_and_never_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockbench.checker.linearizable.SECONDS_MAX", 0.0)
    scene = Scene().kind("register").op(F.READ, 1, 0, 1, value=3, named=False)
    report = check(scene.history())
    assert report.verdicts["linearizable"].result == "unknown"
    assert report.result == "unknown"
    assert "time" in report.verdicts["linearizable"].reason


def test_a_crash_is_unknown_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("lockbench.checker.check.linearizable", crash)
    scene = Scene().acquire(1, 0, 1).release(1, 2, 3)
    report = check(scene.history())
    assert report.verdicts["linearizable"].result == "unknown"
    assert "planted" in report.verdicts["linearizable"].reason
    assert report.verdicts["double-grant"].result == "valid"
    assert report.result == "unknown"
    scene.acquire(2, 2.5, 4).acquire(3, 2.5, 5)
    assert check(scene.history()).result == "invalid"


def test_nothing_is_never_green() -> None:
    assert check(Builder().finish()).result == "unknown"


def test_knossos_mutex_does_not_see_whose_release_it_was() -> None:
    scene = Scene(key="k")
    scene.acquire(0, 0, 1, named=False).release(1, 2, 3, named=False)
    history = scene.acquire(2, 4, 5, named=False).history()
    assert check(with_model(history, "mutex")).result == "valid"
    assert check(with_model(history, "owner-mutex")).result == "invalid"


@pytest.mark.parametrize("model", MODELS)
def test_every_model_judges_every_history_without_falling_over(model: str) -> None:
    scene = Scene().acquire(1, 0, 1, fence=1).release(1, 2, 3).read(1, 4, 0).write(1, 5, 0, 1)
    scene.op(F.CAS, 2, 6, 7, old=1, value=2).op(F.ADD, 3, 8, None, "info", value=2)
    report = check(with_model(scene.history(), model))
    assert not any("crashed" in verdict.reason for verdict in report.verdicts.values())


@pytest.mark.parametrize(
    ("model", "permits", "initial", "said"),
    [
        ("door", None, None, "unknown model 'door'"),
        ("mutex", 2, None, "only a semaphore"),
        ("semaphore", 0, None, "from 1 on"),
        ("mutex", None, "3", "only a register"),
    ],
)
def test_models_that_do_not_fit(
    model: str, permits: int | None, initial: str | None, said: str
) -> None:
    history = Scene().acquire(1, 0, 1).history()
    with pytest.raises(ValueError, match=said):
        with_model(history, model, permits=permits, initial=initial)


def test_counters_start_where_they_are_told() -> None:
    scene = Scene(key="c").kind("counter", initial=5).op(F.ADD, 1, 0, 1, value=2, named=False)
    assert check(scene.op(F.READ, 1, 2, 3, value=7, named=False).history()).result == "valid"
    assert counter().initial == 0


def test_steps_are_pure() -> None:
    model = model_of("semaphore", 2, None)
    state = model.initial
    taken = model.step(state, Operation("acquire", who=1))
    assert state == ()
    assert model.step(state, Operation("acquire", who=1)) == taken
    assert np.size(state) == 0


@pytest.mark.parametrize(("adds", "result"), [(2, "valid"), (1, "invalid")])
@pytest.mark.parametrize("reads", [1, 40])  # searched, and swept
def test_the_sweep_counts_beyond_what_64_bits_hold(reads: int, adds: int, result: str) -> None:
    initial = -(2**61)
    scene = Scene(key="r").kind("counter", initial=initial)
    for n in range(2):
        scene.op(F.ADD, 1, 2 * n, 2 * n + 1, value=2**62, named=False)
    for n in range(reads):
        found = initial + adds * 2**62
        scene.op(F.READ, 1, 10 + n, 10.5 + n, value=found, named=False)
    assert check(scene.history()).verdicts["linearizable"].result == result


@pytest.mark.parametrize("permits", [1, 2])
def test_extends_of_two_holds_shorten_one_of_them_each(permits: int) -> None:
    """Of one client without names of its holds: only one of the two can have been cut short."""
    scene = Scene().kind("semaphore", permits=2)
    for n in range(permits):
        scene.acquire(1, 2 * n, 2 * n + 1, until=100, named=False)
    scene.extend(1, 4, 6, until=50, named=False).extend(1, 4, 6, until=10, named=False)
    for client in range(2, 4):
        scene.acquire(client, 20, 21, until=90, named=False)
    result = check(scene.history()).verdicts["linearizable"].result
    assert result == ("valid" if permits == 1 else "invalid")


@pytest.mark.parametrize(("again_s", "result"), [(5, "valid"), (11, "invalid")])
def test_an_extend_may_still_shorten_what_is_entered_meanwhile(again_s: float, result: str) -> None:
    """The one that ends at 30 s is answered at 10 s: after the second entry, or before it."""
    scene = Scene().kind("reentrant").acquire(1, 0, 1, until=60, named=False)
    scene.extend(1, 2, 4, until=50, named=False).extend(1, 3, 10, until=30, named=False)
    scene.acquire(1, again_s, again_s + 1, until=100, named=False)
    scene.acquire(2, 40, 41, until=90, named=False)
    assert check(scene.history()).verdicts["linearizable"].result == result
