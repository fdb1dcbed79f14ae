"""The tables of jobs: what went wrong, conflicts, what a check is worth, in words and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockbench.checker.jobs import VERDICTS_OF
from lockbench.report import jobs
from lockbench.report.columns import Table
from lockbench.report.content import compose
from lockbench.report.grid import Grid
from lockbench.report.jobs import JOBS, WORTH, WRONG
from lockbench.report.source import read
from lockbench.workloads.registry import declared
from tests.results.made_run import make_run
from tests.results.plain import plainly, typed

seen = plainly(jobs.seen)

FENCING = {
    "unfenced": {"stale_attempted": 412, "stale_applied": 412, "lost_updates": 3},
    "fence-on-write": {"stale_attempted": 412, "stale_refused": 412, "lost_updates": 0},
    "random-token-cas": {"stale_attempted": 412, "stale_refused": 400, "repeated_effects": 1},
}
BROKE = {"stale-holder", "lost-update", "charged-twice"}


def case(**more: Any) -> dict[str, Any]:
    phases = ("before", "during")
    return {
        "lock": "etcd",
        "fault": "client-pause",
        "workload": "payment",
        "numbers": "valid",
        "verdicts": {name: {"result": "invalid"} for name in BROKE},
        "counts": {
            "acquire": {"before": {"ok": 9}},
            "job": {"before": {"ok": 412, "fail": 3, "info": 0}, "during": {"ok": 7, "info": 2}},
        },
        "latency_ms": {"job": {p: {"count": 2000, "p50": 12.0, "p99": 80.0} for p in phases}},
        "cycles_per_second_by_phase": {"before": 210.0, "during": 30.0},
        "measurements": {
            "jobs": {"payment": {"tries": 400, "repeated": 1, "refused_as_done": 2}},
            "fencing": FENCING,
        },
        **more,
    }


def held(**more: Any) -> dict[str, Any]:
    """A case in which nothing broke and nothing was stale."""
    verdicts = {name: {"result": "valid"} for name in BROKE}
    fencing = {"unfenced": {"stale_attempted": 0}}
    jobs = {"payment": {"tries": 400, "repeated": 0}}
    return case(verdicts=verdicts, measurements={"jobs": jobs, "fencing": fencing}) | more


def narrow(table: Table, *cases: dict[str, Any]) -> dict[str, str] | None:
    """Heading → cell of the first case, as a terminal shows it."""
    grid: Grid | None = table.narrow(table.rows(typed(cases)))
    if grid is None:
        return None
    return dict(zip(grid.headings, (cell.text for cell in grid.rows[0]), strict=True))


def test_a_lock_and_what_went_wrong_under_it() -> None:
    row = narrow(JOBS, case())
    assert row is not None
    assert row["done"] == "2,000, 3 not done\n2,000, 2 unknown"
    assert row["wrong"] == "1 charged again,\n3 updates lost"
    assert row["seen"] == "2 refused as done"
    assert row["phase"] == "before\nduring"
    assert row["ms"] == "12.0 / 80.0\n12.0 / 80.0"
    assert "conflicts" not in row, "a lock has none"


def test_a_way_without_a_lock_and_its_conflicts() -> None:
    measured = {"jobs": {"inventory": {"tries": 150, "conflicts": 50, "oversold": 0}}}
    without = held(counts={"job": {}}, measurements=measured, numbers="void")
    first = narrow(JOBS, without)
    assert first is not None
    assert first["conflicts"] == "50 of 150"
    assert first["wrong"] == "nothing"
    assert first["ms"].startswith("(12.0 / 80.0)"), "void numbers stand in brackets"
    assert first["per s"] == "(210)\n(30)"
    assert seen(held(workload="herd", clients=9, numbers="void"))[0] == "(numbers void)"


@pytest.mark.parametrize("verdict", [*WRONG, "lost-update"])
def test_what_was_not_decided_is_never_nothing(verdict: str) -> None:
    open_ = held(verdicts={verdict: {"result": "unknown"}})
    assert JOBS.rows(typed([open_]))[0].values["wrong"] == f"? {verdict}"
    bad = held(verdicts={verdict: {"result": "invalid"}})
    assert JOBS.rows(typed([bad]))[0].values["wrong"] not in {"nothing", ""}


def test_every_verdict_of_a_job_has_its_words() -> None:
    assert set(WRONG) == {name for verdicts in VERDICTS_OF.values() for name in verdicts}


def test_cases_without_jobs_have_no_table() -> None:
    assert narrow(JOBS, case(workload="mutex"), case(workload="published")) is None
    assert narrow(JOBS, case(judgement="failed")) is None, "it came to nothing"
    assert narrow(JOBS, case(workload="mutex:rate=200")) is None


def test_every_other_workload_has_a_row() -> None:
    for name in declared():
        if name not in {"mutex", "published"}:
            assert len(JOBS.rows(typed([held(workload=name)]))) == 2, name


def test_a_herd_has_done_what_it_was_granted_on_the_shared_key() -> None:
    """Grants of own keys are no part of it."""
    herd = held(
        workload="herd",
        counts={"acquire": {"before": {"ok": 621, "fail": 0, "info": 86}}},
        latency_ms={"wait": {"before": {"count": 46}}},
    )
    row = JOBS.rows(typed([herd]))[0].values
    assert (row["done"], row["outcome_unknown"]) == (46, 86)


def test_what_a_check_is_worth_is_said_of_every_workload() -> None:
    assert len(WORTH.rows(typed([held(), case(workload="mutex")]))) == 1
    row = narrow(WORTH, held(), case(workload="mutex"))
    assert row is not None
    assert row["workload"] == "mutex"
    assert row["stale operations"] == "412 attempted"
    assert row["no check"] == "412 applied,\n3 lost"
    assert row["fence on write"] == "412 refused,\nnone lost"
    assert row["fence on read and write"] == "no fence"
    assert row["random token"] == "400 refused,\n1 done again"
    assert narrow(WORTH, held()) is None


def test_what_a_workload_is_there_to_show() -> None:
    def said(workload: str, measured: dict[str, Any], **more: Any) -> str:
        return "; ".join(seen(held(workload=workload, measurements=measured, **more)))

    kinds = {
        "fast": {"jobs": 1200, "clients": 4, "p50_ms": 3.0, "max_ms": 40.0},
        "slow": {"jobs": 1, "clients": 1, "p50_ms": None, "max_ms": 90.0},
    }
    fair = said("fairness", {"jobs": {"fairness": kinds}})
    assert "fast: 1,200 of 4 clients" in fair
    assert "slow: 1 of 1 client;" in fair
    locks = {"deadlocks": 2, "longest_s": 3.0, "broken_by_expiry": 1, "broken_by_giving_up": 1}
    assert "2 deadlocks, longest 3.0 s" in said("two-locks", {"jobs": {"two-locks": locks}})
    assert said("two-locks", {"jobs": {"two-locks": {"deadlocks": 0}}}) == "no deadlock"
    led = {"terms": 100, "led_fraction": 0.5, "longest_without_s": 2.5}
    assert (
        said("leader", {"jobs": {"leader": led}}) == "100 terms, led 50.0 %; longest without 2.5 s"
    )
    herd = said(
        "herd",
        {"fairness": {"unserved": 3, "clients": 103}},
        footprint={"contended": {"commands_per_grant": 101.26}},
        clients=100,
    )
    assert "100 clients; 101.3 requests a grant" in herd
    assert "3 of 103 not served" in herd
    assert (
        said("semaphore", {"jobs": {"gate": {"visits": 9, "most_inside": 3}}}) == "at most 3 inside"
    )
    renewed = said("long-hold", {}, counts={"extend": {"before": {"ok": 4, "fail": 1}}})
    assert renewed == "4 extended; 1 not extended"


def test_the_report_has_the_tables_with_exact_numbers(tmp_path: Path) -> None:
    def change(made: dict[str, Any]) -> None:
        made.update(case(fault=made["fault"]))

    run = make_run(tmp_path, faults={"client-pause": True}, change=change)
    content = compose(read(run))
    jobs, worth = (
        next(grid for grid in content.numbers if grid.name == name) for name in ("jobs", "worth")
    )
    row = dict(zip(jobs.headings, jobs.rows[0], strict=True))
    assert (row["done"].value, row["not done"].value) == ("2000", "3")
    assert row["job p99, ms"].value == "80.0"
    assert row["stale attempted"].value == "412"
    assert row["wrong"].text == "1 charged again, 3 updates lost"
    assert worth.headings[-3:] == (
        "fence on write", "fence on read and write", "random token",
    )  # fmt: skip
    assert "--fault client-pause --workload payment" in content.sections[0].command
    assert content.sections[0].title == "etcd under client-pause, payment"


def test_a_number_that_is_not_known_is_not_nothing() -> None:
    for verdict in ("oversold", "charged-twice", "ran-twice", "lost-charge"):
        bad = held(verdicts={verdict: {"result": "invalid"}}, measurements={"jobs": {}})
        assert JOBS.rows(typed([bad]))[0].values["wrong"].startswith("? ")
    assert seen(held(workload="two-locks:order=mixed", measurements={"jobs": {}})) == []


def test_every_row_of_void_figures_says_so() -> None:
    rows = JOBS.rows(typed([held(numbers="void")]))
    assert [row.values["numbers_valid"] for row in rows] == [False] * len(rows)
    assert len(rows) > 1
