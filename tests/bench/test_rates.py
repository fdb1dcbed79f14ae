"""The steps of a case, and the cases of a sweep."""

from __future__ import annotations

from typing import Any

import pytest

from lockbench.bench import plan
from lockbench.bench.rates import FIRST_WARM_S, doubtful, quick_rates, sweep, with_rates
from lockbench.bench.resume import planned
from lockbench.results.errors import BadInput, Unfit


def test_the_short_form_has_three_rounds_of_three_rates() -> None:
    rates = quick_rates(seed=1)
    assert rates.steps[0].saturated
    assert rates.steps[0].warm_s >= 2
    assert sum(step.saturated for step in rates.steps) == 3
    for share in (0.1, 0.5, 0.75):
        assert sum(step.share == share for step in rates.steps) == 3
    orders = {tuple(s.share for s in quick_rates(seed).steps) for seed in range(10)}
    assert len(orders) > 1, "the order is drawn"
    assert quick_rates(seed=1) == rates


def test_windows_follow_one_another_and_leave_the_warm_up_out() -> None:
    rates = quick_rates(seed=1)
    begun_ns = 5_000
    for step, (begin_ns, measured_ns, end_ns) in zip(
        rates.steps, rates.windows_ns(begun_ns), strict=True
    ):
        assert begin_ns == begun_ns
        assert measured_ns - begin_ns == round(1e9 * step.warm_s)
        assert end_ns - measured_ns == round(1e9 * step.measured_s)
        begun_ns = end_ns


def test_configurations_take_turns_and_every_round_begins_saturated() -> None:
    cases = sweep(["etcd", "redis-token"], keys=(0, 2), measured_s=1)
    assert len(cases) == 12
    found = [(case.lock, case.rates.keys) for case in cases]
    assert found[:4] == found[4:8] == found[8:], "one round of everything after the other"
    for case in cases:
        first, *rest = case.rates.steps
        assert first.saturated
        assert first.warm_s == FIRST_WARM_S
        assert sorted(step.share for step in rest) == [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.15]
        assert case.phases.rates_s == case.rates.lasts_s > 0


def test_stated_rates_take_the_place_of_shares() -> None:
    (case, *_) = sweep(["etcd"], rates=(5, 50), holds_ms=(5.0,), networks=("az",))
    assert sorted(step.rate for step in case.rates.steps) == [0, 5, 50]
    assert not any(step.share for step in case.rates.steps)
    assert (case.rates.hold_s, case.network) == (0.005, "az")


def test_a_plan_says_its_rates() -> None:
    cases = sweep(["etcd"], rates=(5, 50))
    stored = planned("sweep", cases)
    assert [plan.Case.from_plan(one) for one in stored.cases] == cases
    assert plan.expected_s(cases[0]) > cases[0].rates.lasts_s


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"rates": (0,)}, "--rate is 0; it has to be 0.1 to 100000 per second"),
        ({"rates": (-1,)}, "--rate is -1"),
        ({"rates": (1e9,)}, "--rate is 1e\\+09"),
        ({"rates": (float("nan"),)}, "--rate is nan"),
        ({"rates": (5, 5)}, "--rate names a value twice"),
        ({"clients": (1,)}, "--clients is 1"),
        ({"keys": (-1,)}, "--keys is -1"),
        ({"holds_ms": (1e6,)}, "--hold is 1e\\+06"),
        ({"repeats": 2}, "--repeats is 2; .* a figure needs three"),
        ({"measured_s": 0.1}, "--seconds is 0.1"),
        ({"networks": ("wan",)}, "no network is called 'wan'"),
        ({"topology": "etcd3"}, "no topology is called 'etcd3'; did you mean etcd"),
    ],
)
def test_what_cannot_be_swept_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        sweep(["etcd"], **asked)


def test_rates_are_of_a_lock_without_a_fault() -> None:
    case = plan.make_case("etcd", "kill", seed=0)
    with pytest.raises(BadInput, match="without a fault"):
        plan.resolve(with_rates(case, quick_rates(0)))
    with pytest.raises((BadInput, Unfit)):
        sweep(["without-actor"])


def test_rates_that_a_machine_may_not_send_are_said_beforehand() -> None:
    assert doubtful([10.0, 7_000.0], 2) is None
    said = doubtful([10.0, 90_000.0], 2)
    assert said is not None
    assert said.startswith("90,000 per second may be more than 2 processors can send")
    assert doubtful([90_000.0], 32) is None
