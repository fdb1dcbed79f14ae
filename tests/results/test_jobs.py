"""The table of jobs: what went wrong, conflicts and what a fence is worth, in words."""

from __future__ import annotations

from typing import Any

from results.jobs import jobs_grid


def case(**more: Any) -> dict[str, Any]:
    return {
        "lock": "etcd",
        "fault": "client-pause",
        "workload": "payment",
        "numbers": "valid",
        "counts": {"acquire": {"before": {"ok": 9}}},
        "latency_ms": {
            "job": {p: {"count": 2000, "p50": 12.0, "p99": 80.0} for p in ("before", "during")}
        },
        "cycles_per_second_by_phase": {"before": 210.0, "during": 30.0},
        "measurements": {
            "jobs": {"payment": {"done": 412, "not_done": 3, "tries": 400, "repeated": 1}},
            "fencing": {
                "unfenced": {"stale_attempted": 2, "stale_refused": 0},
                "fence-on-write": {"stale_attempted": 2, "stale_refused": 2},
                "random-token-cas": {"stale_attempted": 2, "stale_refused": 1},
            },
        },
        **more,
    }


def test_a_lock_and_the_worth_of_its_fence() -> None:
    found = jobs_grid([case()])
    assert found is not None
    first = found.iloc[0]
    assert first["done"] == "412, 3 not done"
    assert first["wrong"] == "1 done again"
    assert first["stale"] == "2 attempted; refused: 2 fence on write, 1 random token"
    assert first["conflicts"] == "", "a lock has none"
    assert first["ms"] == "12.0 / 80.0"


def test_a_way_without_a_lock_and_its_conflicts() -> None:
    jobs = {"inventory": {"done": 100, "tries": 150, "conflicts": 50, "oversold": 0}}
    found = jobs_grid([case(counts={"job": {}}, measurements={"jobs": jobs}, numbers="void")])
    assert found is not None
    first = found.iloc[0]
    assert first["conflicts"] == "50 of 150 tries"
    assert first["wrong"] == "nothing"
    assert first["ms"] == "(12.0 / 80.0)", "void numbers stand in brackets"


def test_cases_without_jobs_have_no_table() -> None:
    assert jobs_grid([case(measurements={})]) is None
