from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from lockbench.report import exports
from lockbench.report import tables as drawn
from lockbench.report.columns import Row
from lockbench.report.content import preview
from lockbench.report.facts import EVERY
from lockbench.report.footnotes import version_line
from lockbench.report.markdown import to_markdown
from lockbench.report.tables import LINES_MAX, Overview, print_tables
from lockbench.results.documents import (
    Machine,
    PooledKinds,
    Quantiles,
    Spread,
    UndisturbedLock,
    Versions,
    made,
)
from lockbench.results.wording import escape_markdown, ms, percent
from tests.results.plain import plainly

overview = plainly(drawn.overview)
csv_files = plainly(exports.files)

VERDICTS = ("double-grant", "late-grant", "stale-holder", "wrong-release", "lost-update")


def quantiles(p50: float | None, p99: float | None, count: int = 2000) -> dict[str, Any]:
    return {"p50": p50, "p99": p99, "p999": None, "max": 99.0, "count": count, "iqr": 0.1}


def case(
    lock: str,
    fault: str = "none",
    *,
    broke: tuple[str, ...] = (),
    open_: tuple[str, ...] = (),
    exposed: bool = True,
    judgement: str = "as expected",
    acquire_ms: float | None = 1.0,
    **more: Any,
) -> dict[str, Any]:
    results = {
        v: "invalid" if v in broke else "unknown" if v in open_ else "valid" for v in VERDICTS
    }
    phases = ("before",) if fault == "none" else ("before", "during", "after")
    topology = {"redis-token": "redis", "redis-no-owner": "redis"}.get(lock, lock)
    measured: dict[str, Any] = {
        "availability": {"fraction": 0.75, "longest_gap_s": 2.25},
        "recovery": [{"fault": fault, "servers_s": 0.5, "failover_s": 1.5, "dead_holder_s": None}],
    }
    return {
        "lock": lock,
        "family": topology,
        "topology": topology,
        "size": 3,
        "fault": fault,
        "workload": "mutex",
        "network": "loopback",
        "seed": 7,
        "clients": 8,
        "exposed": exposed,
        "judgement": judgement,
        "why": "because",
        "expected": {v: "may-break" if v in broke else "holds" for v in VERDICTS},
        "verdicts": {
            v: {"result": r, "reason": f"{v}!", "evidence": []} for v, r in results.items()
        },
        "measurements": measured,
        "numbers": "valid",
        "latency_ms": {
            kind: {phase: quantiles(acquire_ms, 8.0) for phase in phases}
            for kind in ("acquire", "handover", "wait", "release")
        },
        "cycles_per_second": 432.1,
        "cycles_per_second_by_phase": dict.fromkeys(phases, 100.0),
        "counts": {"acquire": {phase: {"ok": 9, "fail": 2, "info": 1} for phase in phases}},
        "floor": {"acquire_ms_p50": 0.3, "cpu_us_per_cycle": 210.0, "cycles": 900},
        "generator": {"ok": True, "why": [], "workers": [], "missing": 0},
        "link_us": {"linked": 233.0, "direct": 65.0},
        "settings": {"lease_ttl_s": 3.0, "hold_s": 0.005, "client_timeout_s": 1.0},
        "control": False,
        **more,
    }


def fenced_case(*, applied: int) -> dict[str, Any]:
    found = case("etcd", "client-pause", broke=("stale-holder",))
    score = {"stale_attempted": 2, "stale_applied": applied}
    found["measurements"] |= {"fencing": {"fence-on-read-and-write": score}}
    return found


def terminal(cases: list[dict[str, Any]], width: int = 110) -> str:
    out = io.StringIO()
    print_tables(overview(cases), Console(file=out, width=width, color_system=None))
    return out.getvalue()


def report_markdown(made: Overview, title: str = "run") -> str:
    return to_markdown(preview(made, title, "running"), {})[0]


def matrix_of(made: Overview) -> dict[str, dict[str, str]]:
    """Lock → fault → the text of the cell."""
    assert made.matrix is not None
    faults = made.matrix.headings[1:]
    return {
        row[0].text: dict(zip(faults, (cell.text for cell in row[1:]), strict=True))
        for row in made.matrix.rows
    }


def read(rows: Sequence[Row], *names: str) -> list[list[str]]:
    """The cells of every case as they are read in the report."""
    columns = {column.name: column for column in EVERY.columns}
    return [[columns[name].cell(row.values[name]).text for name in names] for row in rows]


# Tables


def test_the_terminal_shows_verdicts_in_words() -> None:
    text = terminal(
        [
            case("redis-token", "client-pause", broke=("stale-holder",)),
            case("redis-token", "wipe", broke=("double-grant",), judgement="worse than expected"),
            case("etcd", "client-pause", exposed=False, judgement="not exposed"),
            case("etcd", "kill"),
        ]
    )
    for word in ("✗ stale-holder", "✗ double-grant", "(expected)", "(NOT expected)", "✓ kept",
                 "? not exposed", "·"):  # fmt: skip
        assert word in text
    assert "etcd under client-pause: not exposed: because." in " ".join(text.split())


@pytest.mark.parametrize("width", [100, 120])
def test_nothing_is_cut_off_in_a_terminal(width: int) -> None:
    faults = ("none", "client-pause", "pause", "partition-drop", "kill", "wipe")
    cases = [
        case(lock, fault, broke=("double-grant", "stale-holder"), acquire_ms=1850.0)
        for lock in ("redis-token", "redlock", "zookeeper", "etcd")
        for fault in faults
    ]
    text = terminal(cases, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert len(text.splitlines()) <= LINES_MAX + 2
    assert "In the report: Every case" in " ".join(text.split())


def test_a_terminal_shows_at_most_forty_lines_and_what_matters_first() -> None:
    locks = [f"lock-{n}" for n in range(70)]
    cases = [case(lock, fault) for lock in locks for fault in ("none", "kill", "wipe")]
    bad = case("zz-worse", "kill", broke=("double-grant",), judgement="worse than expected")
    bad["expected"]["double-grant"] = "holds"
    open_ = case("zy-open", "kill", exposed=False, judgement="not exposed")
    text = terminal([*cases, bad, open_])
    assert len(text.splitlines()) <= 40
    assert "more locks in the report" in text
    assert text.index("zz-worse") < text.index("lock-0 ")
    for word in ("✗ DG", "(NOT expected)", "DG double-grant", "? not exposed"):
        assert word in text, word


def test_verdicts_have_codes_only_where_words_find_no_room() -> None:
    few = [case(f"lock-{n}", "wipe", broke=("double-grant", "lost-update")) for n in range(2)]
    many = [case(f"lock-{n}", "wipe", broke=("double-grant", "lost-update")) for n in range(12)]
    assert "✗ double-grant" in terminal(few)
    assert "✗ double-grant" not in terminal(many)
    assert terminal(many).count("✗ DG, LU") == 12
    assert "DG double-grant, LU lost-update." in terminal(many)


def test_repeated_cases_give_k_of_n() -> None:
    cases = [
        case("redlock", "wipe", broke=("double-grant",)),
        case("redlock", "wipe"),
        case("redlock", "wipe", broke=("double-grant",)),
    ]
    assert (
        matrix_of(overview(cases))["redlock"]["wipe"] == "✗ double-grant 2 of 3\n(expected)\n✓ kept"
    )


def test_what_the_service_refutes_is_not_called_expected() -> None:
    refuted = case("etcd", "kill", broke=("double-grant",), judgement="contradicted")
    assert "(expected)" not in matrix_of(overview([refuted]))["etcd"]["kill"]


def test_kept_stands_with_its_tries() -> None:
    """One sentence where it is the same of every cell; else each cell has its own."""
    once = [case("etcd", "kill"), case("redlock", "wipe", broke=("double-grant",))]
    made = overview(once)
    assert made.matrix is not None
    assert made.matrix.caption == "Each cell is one try."
    assert matrix_of(made)["etcd"]["kill"] == "✓ kept"
    assert made.short_matrix is not None
    assert made.short_matrix.caption == "DG double-grant. Each cell is one try."
    assert "Each cell is one try." in terminal(once)
    assert "Each cell is one try." in report_markdown(made)
    often = [*once, *(case("etcd", "pause") for _ in range(4))]
    made = overview(often)
    assert made.matrix is not None
    assert made.matrix.caption == ""
    assert matrix_of(made)["etcd"]["kill"] == "✓ kept in one try"
    # 1 - 0.05^(1/4) = 52.7 %
    assert matrix_of(made)["etcd"]["pause"] == "✓ kept in 4 tries (≤ 53 %)"
    assert matrix_of(made)["redlock"]["wipe"] == "✗ double-grant 1 of 1\n(expected)"
    short = made.short_matrix
    assert short is not None
    cells = {cell.text for row in short.rows for cell in row}
    assert {"✓ one try", "✓ 4 tries (≤ 53 %)", "✗ DG 1 of 1"} <= cells


def test_earlier_tries_of_a_case_count_in_k_of_n() -> None:
    shown = case("redlock", "wipe", broke=("double-grant",))
    missed = {"double-grant": "valid"}
    shown["earlier_tries"] = [{"observed": missed}, {"observed": missed, "exposed": False}]
    made = overview([shown])
    assert matrix_of(made)["redlock"]["wipe"] == "✗ double-grant 1 of 2\n(expected)"
    assert made.headline.by_lock[0].startswith(
        "redlock: Gave the lock away twice when nodes lost their data (1 of 2, as declared)"
    )
    assert len(made.every) == 3


def test_a_quantile_that_n_does_not_carry_is_a_dash_with_its_n() -> None:
    thin = case("etcd", "kill")
    thin["latency_ms"]["acquire"]["during"] = quantiles(3.0, None, 57)
    thin["latency_ms"]["handover"]["during"] = quantiles(None, None, 4)
    made = overview([thin])
    during = [row for row in made.every if row.values["phase"] == "during"]
    names = ("acquire_p50_ms", "acquire_p99_ms", "handover_p50_ms", "handover_count")
    assert read(during, *names) == [["3.00", "–", "–", "4"]]
    before, *_ = terminal([thin]).partition("after")
    assert re.search(r"during +3\.00/– +– ", before)
    note = next(note for note in sum(made.notes, ()) if note.startswith("–"))
    assert "p50 needs 20, p99 1,000, p99.9 10,000" in note
    assert "acquire during n = 57" in note
    assert "hand-over during n = 4" in note
    assert "wait" not in note


def test_phases_stand_apart() -> None:
    one = case("etcd", "kill")
    for phase, p50 in (("before", 1.0), ("during", 1000.0), ("after", 3.0)):
        one["latency_ms"]["wait"][phase] = quantiles(p50, None)
    assert read(overview([one]).every, "phase", "wait_p50_ms", "wait_p99_ms") == [
        ["before", "1.00", "–"],
        ["during", "1,000", "–"],
        ["after", "3.00", "–"],
    ]


def test_from_the_intended_start_where_there_is_one() -> None:
    paced = case("etcd", "kill", response_ms={"acquire": {"during": quantiles(1810.0, 2000.0)}})
    found = read(overview([paced]).every, "acquire_p50_ms", "acquire_p99_ms")
    assert found == [["1.00", "8.00"], ["1,810", "2,000"], ["1.00", "8.00"]]


def row_of(lock: str, cases: int) -> UndisturbedLock:
    """A lock before any fault, whose response times are ten times its service times."""
    service = Quantiles(count=2000, p50=2.0, p99=9.0, max=9.0)
    none = Spread(count=0)
    return UndisturbedLock(
        lock=lock,
        cases=cases,
        latency_ms=PooledKinds(service, service, service),
        cycles_per_second=Spread(3, 224.0, 211.0, 234.0),
        floor_acquire_ms_p50=none,
        floor_cpu_us_per_cycle=none,
        response_ms=Quantiles(count=2001, p50=20.0, p99=90.0, max=90.0, above=("p99", "max")),
    )


def side_by_side(rows: Sequence[UndisturbedLock], cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Lock → heading → what stands there."""
    (grid,) = (g for g in preview(overview(cases, baseline=rows), "run", "ok").numbers
               if g.name == "side-by-side")  # fmt: skip
    return {
        row[0].text: dict(zip(grid.headings, (c.text for c in row), strict=True))
        for row in grid.rows
    }


def test_a_name_is_the_same_number_in_every_table() -> None:
    """An acquire on an own key is response time everywhere, and service time is named so."""
    one = case("etcd", response_ms={"acquire": {"before": quantiles(20.0, 90.0)}}, acquire_ms=2.0)
    beside = side_by_side([row_of("etcd", 3)], [one])["etcd"]
    every = dict(zip(("acquire_p50_ms", "acquire_service_p50_ms"),
                     read(overview([one]).every, "acquire_p50_ms", "acquire_service_p50_ms")[0],
                     strict=True))  # fmt: skip
    assert every == {"acquire_p50_ms": "20.0", "acquire_service_p50_ms": "2.00"}
    assert (beside["acquire p50, ms"], beside["acquire service p50, ms"]) == ("20.0", "2.00")
    assert beside["acquire p99, ms"] == "> 90.0"
    (grid,) = (g for g in overview([], baseline=[row_of("etcd", 3)]).narrow())
    assert grid.rows[0][1].text == "20.0\np99 > 90.0\nservice 2.00/9.00"


def test_cycles_stand_beside_what_the_load_allows() -> None:
    """Two keys and holds of 5 ms allow 400 a second, whatever a lock costs; clients that pause may
    allow less."""
    pace = {"hold_s": 0.005, "think_s": 0.01}
    keys, clients = (
        case("etcd", keys=2, clients=clients, holders_per_key=1, settings=pace)
        for clients in (8, 3)
    )
    open_load = keys | {"workload": "payment"}
    several = keys | {"holders_per_key": None}
    found = read(overview([keys, clients, open_load, several]).every, "ceiling_per_s")
    assert found == [["400"], ["200"], ["–"], ["533"]]
    assert "100/400" in terminal([keys])
    beside = side_by_side([row_of("etcd", 3)], [keys, keys])["etcd"]
    assert beside["ceiling, 1/s"] == "400"
    assert "ceiling, 1/s" not in side_by_side([row_of("etcd", 3)], [keys, clients])["etcd"]
    (grid,) = overview([keys], baseline=[row_of("etcd", 3)]).narrow()[:1]
    assert grid.rows[0][5].text == "224\n[211, 234]\nat most 400"


def test_who_used_the_processors_stands_in_a_column_each() -> None:
    one = case("etcd")
    parts = {
        part: {"used_percent": used, "queued_percent": 2.0}
        for part, used in (("servers", 31.0), ("links", 12.0), ("clients", 40.0), ("bench", 3.0))
    }
    one["generator"]["processors"] = {
        "others_percent": 1.0, "ours_percent": 86.0, "steal_percent": 0.0, "waiting_percent": 9.0,
        "parts": parts,
    }  # fmt: skip
    whole = one["generator"]["processors"]
    one["generator"]["processors_by_phase"] = {"own": {**whole, "others_percent": 7.0}}
    made = overview([one, case("redlock")])
    (grid,) = (g for g in preview(made, "run", "ok").numbers if g.name == "processors")
    shown, own = (dict(zip(grid.headings, (c.text for c in row), strict=True))
                  for row in grid.rows)  # fmt: skip
    assert [row["load phase"] for row in (shown, own)] == ["whole", "own"]
    assert [row["others, %"] for row in (shown, own)] == ["1.0", "7.0"]
    names = [f"{part} used, %" for part in parts]
    assert [shown[name] for name in names] == ["31.0", "12.0", "40.0", "3.0"]
    assert shown["lock"] == "etcd"
    assert "servers 31 %, links 12 %, clients 40 %, bench 3 %" in " ".join(made.notes.figures)
    assert "servers" not in " ".join(overview([case("redlock")]).notes.figures)


def test_hand_over_says_which_share_of_the_grants_it_covers() -> None:
    """The others were granted to one who asked later, or while nobody waited."""
    one = case("etcd", "kill")
    one["latency_ms"]["wait"]["before"] = quantiles(2.0, 8.0, 8000)
    made = overview([one])
    found = read(made.every, "phase", "handover_percent")
    assert found == [["before", "25.0"], ["during", "–"], ["after", "–"]]
    (grid,) = overview([], baseline=[row_of("etcd", 3)]).narrow()
    assert grid.rows[0][2].text.split("\n")[-1] == "covers 100.0 %"


def test_a_figure_over_cases_has_their_range_and_is_void_where_they_are_few() -> None:
    cases = [case("etcd", acquire_ms=ms) for ms in (1.5, 4.0, 2.5)]
    cases += [case("etcd", acquire_ms=99.0, numbers="void"), case("redlock")]
    found = side_by_side([row_of("etcd", 3), row_of("redlock", 2)], cases)
    names = ("acquire p50, ms", "acquire p50 min, ms", "acquire p50 max, ms", "numbers valid")
    assert [found["etcd"][name] for name in names] == ["20.0", "1.50", "4.00", "yes"]
    assert [found["redlock"][name] for name in names] == ["(20.0)", "–", "–", "no"]
    assert found["redlock"]["cycles median, 1/s"] == "(224)"
    (grid,) = (g for g in overview(cases, baseline=[row_of("etcd", 3), row_of("redlock", 2)])
               .narrow() if g.name == "undisturbed")  # fmt: skip
    assert grid.rows[0][1].text.split("\n")[:2] == ["20.0", "[1.50, 4.00]"]
    assert grid.rows[1][1].text == "(20.0)\n(p99 > 90.0)\n(service 2.00/9.00)"
    assert grid.rows[1][4].text == "2,001\n2,000\n2,000", "a count is no figure of the load"


def test_void_numbers_stand_in_brackets_and_the_verdict_stays() -> None:
    generator = {"ok": False, "why": ["worker-1 used 97 % of a core"], "workers": [], "missing": 0}
    void = case("etcd", "kill", broke=("double-grant",), numbers="void", generator=generator)
    text = terminal([void])
    assert "(1.00/8.00)" in text
    assert "✗ double-grant" in text
    assert "worker-1 used 97 % of a core" in " ".join(text.split())
    assert "healthy in 0 of 1 case" in " ".join(overview([void]).notes.figures)


def figures_of(text: str) -> list[tuple[str, str, dict[str, str]]]:
    """(table, lock, heading → cell) of every row of a Markdown report that names a lock."""
    found, title, headings = [], "", []
    for line in text.splitlines():
        if line.startswith("#"):
            title = line.strip("# ")
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if "lock" in cells:
            headings = cells
        elif line.startswith("| ") and "lock" in headings and "---" not in line:
            row = dict(zip(headings, cells, strict=True))
            found.append((title, row["lock"], row))
    return found


def test_void_figures_stand_in_brackets_in_every_table_and_a_neighbour_has_none() -> None:
    jobs = {"before": {"ok": 1250}}
    more: dict[str, Any] = {"counts": {"acquire": jobs, "job": jobs}, "workload": "payment"}
    cases = [case("etcd", numbers="void", **more), case("redlock", **more)]
    for one in cases:
        one["latency_ms"]["job"] = one["latency_ms"]["wait"]
    rows = figures_of(report_markdown(overview(cases)))
    shown = {
        (title, lock): [
            cell
            for heading, cell in row.items()
            if heading.endswith((", ms", "cycles, 1/s", "IQR, ms")) and cell != "–"
        ]
        for title, lock, row in rows
    }
    tables = {title for title, _ in shown if shown[title, "redlock"]}
    assert {"Side by side, before any fault", "Every case"} <= tables
    assert any(title.startswith("Jobs") for title in tables)
    for title in tables:
        assert shown[title, "etcd"], title
        assert all(cell.startswith("(") for cell in shown[title, "etcd"]), title
        assert not any("(" in cell for cell in shown[title, "redlock"]), title


def test_measurements_reach_the_table() -> None:
    shown = {
        "availability_percent": "75.0",
        "longest_gap_s": "2.250",
        "recovery_s": "0.500",
        "dead_holder_s": "–",
        "refused": "2",
        "unknown": "1",
        "cycles_per_s": "100",
    }
    made = overview([case("etcd", "kill")])
    assert read(made.every[:1], *shown) == [[*shown.values()]]
    assert read(made.every[1:2], "availability_percent") == [["–"]], "it is of the whole case"
    text = terminal([case("etcd", "kill")])
    for part in ("alone 0.30 ms", "CPU 210 µs", "avail 75.0 %", "gap 2.2 s", "recov 0.50 s", "2/1"):
        assert text.count(part) == (3 if part == "2/1" else 1), part
    assert "orphan" not in text.split("1. ")[0]


def test_a_system_that_did_not_recover_has_no_recovery_time() -> None:
    two = case("etcd", "kill")
    two["measurements"]["recovery"].append({"fault": "kill", "servers_s": None})
    assert overview([two]).every[0].values["recovery_s"] is None


def test_cases_of_one_lock_that_differ_are_told_apart() -> None:
    cases = [case("etcd"), case("etcd", size=5), case("redlock")]
    labels = ["etcd, 3 nodes", "etcd, 5 nodes", "redlock"]
    made = overview(cases)
    assert list(matrix_of(made)) == labels
    assert [row.values["label"] for row in made.every] == labels


def test_the_published_experiment_stands_beside_the_cited_figures() -> None:
    own: dict[str, Any] = {
        "latency_ms": {"acquire": {"before": quantiles(31.0, 80.0)}},
        "size": 5,
        "clients": 100,
        "cycles_per_second": None,
        "own_cycles_per_second": 2345.6,
        "workload": "published",
    }
    bound: dict[str, Any] = {"generator": {"ok": False, "why": ["x"]}, "numbers": "void"}
    cases = [case("redlock", **own, **bound), case("zookeeper", **own), case("etcd")]
    made = overview(cases)
    assert made.published is not None
    assert [[cell.text for cell in row] for row in made.published.rows] == [
        ["redlock", "measured", "(31.0)", "(80.0)", "(2,346)", "–", "generator-bound"],
        ["redlock", "cited", "2.3", "12", "15,000", "about 100 ms", ""],
        ["zookeeper", "measured", "31.0", "80.0", "2,346", "–", ""],
        ["zookeeper", "cited", "8.7", "45", "3,200", "about 2 s", ""],
    ]
    assert list(matrix_of(made)) == ["etcd"]
    (every,) = (grid for grid in made.narrow() if grid.name == EVERY.name)
    assert [row[1].text.split("\n")[0] for row in every.rows] == ["etcd"]
    assert "Informational" in terminal(cases)


def test_what_the_clients_could_not_carry_names_the_machine_that_could() -> None:
    """Redlock used a core and a half for 1,500 a second: a millisecond for each, so 15,000 take 15
    cores, and 30 of which half stay idle."""
    parts = {"servers": 25.0, "clients": 50.0}
    found: dict[str, Any] = {
        "workload": "published",
        "own_cycles_per_second": 1500.0,
        "cycles_per_second": None,
        "generator": {
            "ok": False,
            "processors": {
                "others_percent": 1.0, "ours_percent": 75.0, "steal_percent": 0.0,
                "waiting_percent": 9.0,
                "parts": {name: {"used_percent": used, "queued_percent": 1.0}
                          for name, used in parts.items()},
            },
        },
    }  # fmt: skip
    cases = [case("redlock", **found), case("etcd", **found)]
    grid = overview(cases, machine=made(Machine, {"cores_usable": 2})).published
    assert grid is not None
    remarks = [row[-1].text for row in grid.rows if row[1].text == "measured"]
    assert "a machine with 30 such cores could carry the cited rate" in remarks[0]
    assert "cores" not in remarks[1], "nobody cites a figure for it"
    unknown = overview(cases[:1]).published
    assert unknown is not None
    assert "cores" not in unknown.rows[0][-1].text


def test_a_violation_in_the_published_experiment_is_not_hidden() -> None:
    broke = case("redlock", workload="published", broke=("double-grant",))
    made = overview([broke])
    assert "✗ double-grant" in matrix_of(made)["redlock"]["none"]
    assert made.published is not None
    assert "✗ double-grant" in made.published.rows[0][-1].text
    assert "redlock: Gave the lock away twice without any fault (1 of 1" in made.headline.by_lock[0]


# Markdown and CSV

NASTY = "a|b*c_d<script>`e`[f](g)\n# h &amp; $x$ \x1b[31m"


def test_odd_names_stay_text_in_markdown() -> None:
    text = report_markdown(overview([case(NASTY, "kill"), case("etcd", "kill")]))
    lines = text.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    matrix = rows[: rows.index("| --- | --- |") + 3]
    # A row has as many cells as the heading, whatever stands in the names.
    assert {line.count("|") for line in matrix} == {3}
    assert "<script>" not in text
    assert "\x1b" not in text
    assert not any(line.startswith("# h") for line in lines)
    assert "\\`e\\`" in text
    assert "&amp;amp;" in text


def test_escaping_keeps_what_needs_none() -> None:
    assert escape_markdown("partition-drop 1,850 / 3.00 ms (expected)") == (
        "partition-drop 1,850 / 3.00 ms (expected)"
    )
    assert escape_markdown("a|b") == "a&#124;b"
    assert escape_markdown("a\nb") == "a<br>b"


def test_the_report_holds_headline_tables_and_notes() -> None:
    text = report_markdown(
        overview([case("etcd", "kill")], versions=Versions(libraries={"redis": "8.1.0"})),
        title="Run",
    )
    order = [
        "Run",
        "**",
        "## Verdicts",
        "## By lock",
        "### Every case",
        "## How it was run",
        "redis 8.1.0",
    ]
    positions = [text.index(part) for part in order]
    assert positions == sorted(positions)
    assert "case | lock | fault | phase | acquire p50, ms" in text


def test_csv_reads_back_with_units_in_its_column_names() -> None:
    thin = case(NASTY.replace("\x1b", ""), "kill")
    thin["latency_ms"]["wait"]["during"] = quantiles(2.5, None, 57)
    made = csv_files([thin])
    latency = pd.read_csv(io.StringIO(made["latency.csv"]))
    assert len(latency) == 4 * 3
    wait = latency[(latency["kind"] == "wait") & (latency["phase"] == "during")].iloc[0]
    assert wait["p50_ms"] == 2.5
    assert pd.isna(wait["p99_ms"])
    assert wait["count"] == 57
    cases = pd.read_csv(io.StringIO(made["cases.csv"]))
    assert cases.loc[0, "lock"] == NASTY.replace("\x1b", "")
    assert cases.loc[0, "recovery_s"] == 0.5
    assert cases.loc[0, "availability_percent"] == 75
    verdicts = pd.read_csv(io.StringIO(made["verdicts.csv"]))
    assert set(verdicts["verdict"]) == set(VERDICTS)


def test_a_case_that_failed_early_breaks_no_table() -> None:
    failed = {"lock": "etcd", "fault": "kill", "judgement": "failed", "why": "no leader in 20 s"}
    cases: list[dict[str, Any]] = [failed, case("redlock", "kill")]
    assert "! failed" in terminal(cases)
    assert "no leader in 20 s" in report_markdown(overview(cases))
    assert csv_files([failed])["latency.csv"].count("\n") == 1
    assert terminal([])


def test_footnotes_say_what_was_declared_and_what_the_link_costs() -> None:
    fsync = {"p50": 0.5, "p99": 4.0, "max": 9.0, "count": 1000}
    machine = {"cpu": "Some CPU", "fsync_ms": fsync}
    images = {"etcd": {"digest": "sha256:" + "ab" * 32}}
    versions = {"libraries": {"redis": "8.1.0"}, "images": images}
    notes = overview(
        [case("etcd"), case("redis-token")],
        machine=made(Machine, machine),
        versions=made(Versions, versions),
    ).notes
    text = "\n".join(notes.figures)
    assert "Declared for all: lease 3 s, hold 0.005 s, client timeout 1 s." in notes.run
    assert "etcd 233 µs, 65 µs without" in text
    assert (
        "etcd: every grant waits for disks; fdatasync here takes p50 0.50 ms, p99 4.00 ms" in text
    )
    text = "\n".join(notes.run)
    assert "Seed 7:" in text
    assert "sha256:abababababab" in text
    assert "ab" * 10 not in text


# How numbers are written


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0412, "0.041"), (0.4, "0.40"), (2.314, "2.31"), (12.34, "12.3"), (1850.4, "1,850"),
     (None, "–"), (float("nan"), "–")],
)  # fmt: skip
def test_milliseconds(value: float | None, text: str) -> None:
    assert ms(value) == text


def test_an_outage_is_never_rounded_away() -> None:
    assert percent(99.99) == "99.9 %"
    assert percent(100.0) == "100.0 %"


def test_versions_in_one_line() -> None:
    odd = {"e": {}, "pid": 17, "id": "sha256:1"}
    assert version_line({"a": "1", "b": {"c": "2", "d": None}, **odd}) == "a 1, b (c 2)"


def test_of_a_library_its_version_is_said_and_not_what_it_stands_on() -> None:
    jvm = {"locks": ["x"], "fingerprint": "f", "pins": {"netty": "4"}, "versions": {"r": "4.7.0"}}
    assert version_line({"clients": {"jvm": jvm}}) == "clients (jvm (versions (r 4.7.0)))"
